//! Blocks of another crate, which knows `attn` under another name.

use super::*;

model! {
    use layers::blocks::{causal, mlp};
    use layers::halves as other_halves;

    struct Used<vocab = 11, d = 8, heads = 2, layers = 2>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            x += causal::<heads, slope = 0.75>(layer_norm(x));
            x += mlp::<hidden = 12>(layer_norm(x));
        }
        let (x, gate) = other_halves(mlp::<p = 0, name = last>(x));
        linear::<tied = embedding>(x * gate)
    }
}

model! {
    struct Mine<vocab = 11, d = 8, heads = 2, layers = 2>;

    block mlp(x: [.., n], hidden = { 2 * n }, p = 0.25) -> [.., n] {
        param gain: [n] = 0.5;
        buffer ramp: [n] = |i| (i + 1) / n;
        let y = dropout::<p>(linear::<n, name = down>(swish(linear::<hidden, name = up>(x))));
        gain * y + ramp * x
    }

    block swish(x: [..]) -> [..] {
        let y = x * sigmoid(x);
        y
    }

    block other_halves(x: [.., n]) -> ([.., n], [..]) {
        let (a, b) = split(linear::<{ 2 * n }>(x));
        (a * tanh(b), mean::<n>(b))
    }

    block causal(x: [batch, seq, n], heads, slope = 0.5) -> [batch, seq, n] {
        attention::<heads, name = heads_of>(x) {
            param decay: [heads] = ones;
            fn score(score, h, q_idx, kv_idx) { score - decay[h] * (q_idx - kv_idx) as f32 }
            fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
        } + slope * x
    }

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            x += causal::<heads, slope = 0.75>(layer_norm(x));
            x += mlp::<hidden = 12>(layer_norm(x));
        }
        let (x, gate) = other_halves(mlp::<p = 0, name = last>(x));
        linear::<tied = embedding>(x * gate)
    }
}

/// The results, and the gradients of all parameters.
macro_rules! outcome {
    ($model:expr, $logits:expr) => {
        backpropagate($logits).parameters(&$model)
    };
}

#[test]
fn the_bits_and_the_names_are_the_same() {
    let _alone = alone();
    // Both draw the same dropout.
    let mut used = Cpu::seed_from_u64(1).build_module::<Used, f64>();
    let mut own = Cpu::seed_from_u64(1).build_module::<Mine, f64>();
    assert_eq!(named(&used), named(&own));
    scatter(&mut used);
    scatter(&mut own);
    for (batch, seq) in [(1, 1), (2, 7), (3, 20)] {
        let tokens = ids((batch, seq), 11);
        let a = outcome!(used, used.forward(tokens.clone().leaky_traced()));
        let b = outcome!(own, own.forward(tokens.leaky_traced()));
        assert_eq!(
            a.all().collect::<Vec<_>>(),
            b.all().collect::<Vec<_>>(),
            "{batch} {seq}"
        );
        let a = outcome!(used, used.forward_mut(ids((batch, seq), 11).leaky_traced()));
        let b = outcome!(own, own.forward_mut(ids((batch, seq), 11).leaky_traced()));
        assert_eq!(a.all().collect::<Vec<_>>(), b.all().collect::<Vec<_>>());
    }
}

#[test]
fn memory_work_and_sessions_are_the_same() {
    let _alone = alone();
    assert_eq!(Used::PARAMS, Mine::PARAMS);
    assert_eq!(Used::flops(3, 20), Mine::flops(3, 20));
    assert_eq!(Used::activation_bytes(3, 20), Mine::activation_bytes(3, 20));
    assert_eq!(
        Used::summary().replace("Used", "Mine"),
        Mine::summary().to_string()
    );
    let dev = Cpu::default();
    let mut used = dev.build_module::<Used, f64>();
    let mut own = dev.build_module::<Mine, f64>();
    scatter(&mut used);
    scatter(&mut own);
    let before = memory::allocated();
    memory::reset_peak();
    let loss = used
        .forward_mut(ids((3, 20), 11).leaky_traced())
        .square()
        .mean();
    loss.backward();
    // Those of `f64` are twice as large.
    assert_eq!(memory::peak() - before, 2 * Used::activation_bytes(3, 20));
    let mut one = used.session(8).unwrap();
    let mut other = own.session(8).unwrap();
    for token in [3, 1, 4, 1, 5] {
        assert_eq!(
            one.prefill(&[token]).unwrap(),
            other.prefill(&[token]).unwrap()
        );
    }
}

model! {
    use layers::gpt::layer;

    /// Its own sizes are others than those of the library.
    struct Deep<d_model = 8, heads = 4, hidden = 5>;

    block norm(x: [.., n], hidden) -> [.., n] { linear::<n>(linear::<hidden>(x)) }

    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let y = layer(x) + attention::<heads, mask = causal>(x);
        layer_norm(norm::<hidden>(y))
    }
}

#[test]
fn a_block_reads_the_sizes_and_calls_the_blocks_of_its_own_declaration() {
    let _alone = alone();
    let dev = Cpu::default();
    let deep = dev.build_module::<Deep, f64>();
    let small = dev.build_module::<layers::gpt::Small, f64>();
    let names: Vec<_> = named(&deep)
        .into_iter()
        .filter_map(|(name, size)| Some((name.strip_prefix("layer.")?.to_owned(), size)))
        .collect();
    let in_library: Vec<_> = named(&small)
        .into_iter()
        .filter_map(|(name, size)| Some((name.strip_prefix("blocks.0.layer.")?.to_owned(), size)))
        .collect();
    assert_eq!(names, in_library);
    assert!(
        names.contains(&("feed.up.weight".to_owned(), 24 * 8)),
        "{names:?}"
    );
    let y = deep.forward(tensor::<_, f64>("x", (2, 5, Const::<8>)));
    assert!(flat(&y).iter().all(|y| y.is_finite()));
}
