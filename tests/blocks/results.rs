//! Several results of a block, ids and lengths as its operands, and modules in it.

use super::*;
use attn::model;

model! {
    struct Twin<d = 6, vocab = 5>;

    /// Ids are data of the block, and one of two values returns unchanged.
    block twin(x: [.., d], tokens: ids[..], lens: lens[batch]) -> ([.., d], [.., d], [batch, d]) {
        let y = x + embedding::<vocab, d>(tokens);
        (linear::<d>(y), x, mean_pool(y, lens))
    }

    fn forward(x: [batch, seq, d], tokens: ids[batch, seq], lens: lens[batch]) -> ([batch, seq, d], [batch, d]) {
        let (a, same, pooled) = twin(x, tokens, lens);
        let (b, _same, more) = twin(a + same, tokens, lens);
        (b, pooled + more)
    }
}

#[test]
fn several_results_and_operands_of_every_kind() {
    let _alone = alone();
    let dev = Cpu::default();
    let mut model = dev.build_module::<Twin, f64>();
    scatter(&mut model);
    let x = tensor::<_, f64>("x", (2, 3, Const::<6>));
    let tokens = ids((2, 3), 5);
    let lens = support::cases::lens([3, 2]);
    let run = |form: bool| {
        let inputs = (x.clone().leaky_traced(), tokens.clone(), lens.clone());
        let (y, pooled) = match form {
            true => model.forward(inputs),
            false => model.composed().forward(inputs),
        };
        let values = [
            tensors::flat(&y.with_empty_tape()),
            tensors::flat(&pooled.with_empty_tape()),
        ]
        .concat();
        let weights = tensor::<_, f64>("loss", (2, 3, Const::<6>));
        let done = ((y * weights).sum() + pooled.square().sum()).backward();
        (
            values,
            gradients(&model, &done).concat(),
            tensors::flat(&done.get(&x)),
        )
    };
    let (one, many) = (run(true), run(false));
    // Sums of some dozen terms of order 1, in another order.
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12 * b.abs().max(1.0);
    for (one, many) in [(one.0, many.0), (one.1, many.1), (one.2, many.2)] {
        assert!(one.iter().zip(&many).all(near));
        assert!(one.iter().any(|number| *number != 0.0));
    }
}

model! {
    struct Opaque<d = 6>;

    block foreign(x: [.., d], hidden) -> [.., d] {
        module::<(Linear<d, hidden>, ReLU, Linear<hidden, d>), out = [.., d], name = mlp>(layer_norm(x))
    }

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut y = foreign::<4>(x);
        repeat 2 { y += foreign::<3>(y); }
        y
    }
}

#[test]
fn a_module_in_a_block() {
    let _alone = alone();
    let dev = Cpu::default();
    let mut model = dev.build_module::<Opaque, f64>();
    let x = tensor::<_, f64>("x", (2, Const::<6>));
    let y = model.forward(x.clone());
    let done = model.forward_mut(x.leaky_traced()).sum().backward();
    assert_eq!(y.shape().concrete(), [2, 6]);
    let gradient = done.get(&model.blocks[1].foreign.mlp.2.bias);
    assert_eq!(gradient.array(), [2.0; 6]);
}
