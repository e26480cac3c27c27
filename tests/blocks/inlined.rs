//! A network out of blocks against the same network without them: the same bits, the same memory, the same work.

use super::*;
use attn::{memory, model};

model! {
    /// A language model out of blocks, some of which are declared behind what calls them.
    struct Blocks<vocab = 11, d = 8, heads = 2, layers = 2>;

    /// The position-wise part of a layer.
    block mlp(x: [.., d], hidden, p = 0.25) -> [.., d] {
        param gain: [d] = 0.5;
        gain * dropout::<p>(linear::<d>(gelu(linear::<hidden>(x))))
    }

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers { x = layer(x); }
        let (x, gate) = halves(deep::<rounds = 2>(x));
        head(x * gate)
    }

    block layer(x: [batch, seq, d]) -> [batch, seq, d] {
        let x = x + attention::<heads, mask = causal>(layer_norm(x));
        x + mlp::<hidden = { 4 * d }>(layer_norm(x))
    }

    block deep(x: [.., n], rounds) -> [.., n] {
        let mut y = x;
        repeat rounds { y += swish(linear::<n>(y)); }
        y
    }

    block swish(x: [..]) -> [..] { x * sigmoid(x) }

    block halves(x: [.., n]) -> ([.., n], [.., n]) {
        let (a, b) = split(linear::<{ 2 * n }>(x));
        (a, b)
    }

    block head(x: [.., n]) -> [.., vocab] { linear::<tied = embedding>(layer_norm(x)) }
}

model! {
    /// The same without blocks.
    struct Statements<vocab = 11, d = 8, heads = 2, layers = 2>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            x = x + attention::<heads, mask = causal>(layer_norm(x));
            let y = layer_norm(x);
            param gain: [d] = 0.5;
            x = x + gain * dropout::<0.25>(linear::<d>(gelu(linear::<{ 4 * d }>(y))));
        }
        repeat 2, name = deep {
            let y = linear::<d>(x);
            x += y * sigmoid(y);
        }
        let (a, b) = split(linear::<{ 2 * d }>(x));
        linear::<tied = embedding>(layer_norm(a * b))
    }
}

/// The results, and the gradients of all parameters.
macro_rules! outcome {
    ($model:expr, $logits:expr) => {{
        let logits = $logits;
        let values = tensors::flat(&logits.with_empty_tape());
        let weights = tensor::<_, f64>("loss", *logits.shape());
        let done = (logits * weights).sum().backward();
        (values, gradients(&$model, &done))
    }};
}

#[test]
fn the_bits_are_the_same() {
    let _alone = alone();
    let dev = Cpu::default();
    let mut blocks = dev.build_module::<Blocks, f64>();
    let mut statements = dev.build_module::<Statements, f64>();
    scatter(&mut blocks);
    scatter(&mut statements);
    for (batch, seq) in [(1, 1), (2, 7), (3, 20)] {
        let tokens = ids((batch, seq), 11);
        let a = outcome!(blocks, blocks.forward(tokens.clone().leaky_traced()));
        let b = outcome!(statements, statements.forward(tokens.leaky_traced()));
        assert_eq!(a, b, "{batch} {seq}");
    }
}

#[test]
fn both_forms_agree() {
    let _alone = alone();
    let mut blocks = Cpu::default().build_module::<Blocks, f64>();
    scatter(&mut blocks);
    let tokens = ids((2, 7), 11);
    let fused = outcome!(blocks, blocks.forward(tokens.clone().leaky_traced()));
    let composed = outcome!(blocks, blocks.composed().forward(tokens.leaky_traced()));
    // Sums of up to some hundred terms, rounded in another order.
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 200.0 * f64::EPSILON * b.abs().max(1.0);
    assert!(fused.0.iter().zip(&composed.0).all(near));
    let pairs = fused.1.iter().flatten().zip(composed.1.iter().flatten());
    assert!(pairs.clone().count() > 500 && pairs.clone().all(near));
}

#[test]
fn gradients_are_those_of_differences() {
    let _alone = alone();
    let mut model = Cpu::default().build_module::<Blocks, f64>();
    scatter(&mut model);
    let loss = |model: &Blocks<f64, Cpu>| {
        let logits = model.forward(ids((2, 5), 11).leaky_traced());
        let weights = tensor::<_, f64>("loss", *logits.shape());
        (logits * weights).sum()
    };
    let done = loss(&model).backward();
    let found = gradients(&model, &done);
    // The direction in which every number moves by another one.
    let mut at = 0;
    let mut slope = 0.0;
    let directions: Vec<Vec<f64>> = found
        .iter()
        .map(|values| {
            at += 1;
            scattered(&format!("towards {at}"), values.len())
        })
        .collect();
    for (values, direction) in found.iter().zip(&directions) {
        slope += values
            .iter()
            .zip(direction)
            .map(|(a, b)| a * b)
            .sum::<f64>();
    }
    let along = |by: f64| {
        let mut moved = model.clone();
        let mut place = 0;
        tensors::fill(&mut moved, |_, values| {
            place += 1;
            let numbers = scattered(&place.to_string(), values.len());
            numbers
                .iter()
                .zip(&directions[place - 1])
                .map(|(number, to)| 0.6 * number + by * to)
                .collect()
        });
        let loss: Tensor<Rank0, f64, Cpu, _> = loss(&moved);
        loss.array()
    };
    let expected = support::differences::slope(1e-4, along);
    assert!(
        (slope - expected).abs() <= 1e-7 * expected.abs().max(1.0),
        "{slope} {expected}"
    );
}

#[test]
fn memory_and_work_are_the_same() {
    let _alone = alone();
    assert_eq!(Blocks::PARAMS, Statements::PARAMS);
    assert_eq!(Blocks::flops(3, 20), Statements::flops(3, 20));
    for (batch, seq) in [(0, 3), (1, 1), (3, 20)] {
        assert_eq!(
            Blocks::activation_bytes(batch, seq),
            Statements::activation_bytes(batch, seq)
        );
    }
    let mut blocks = Cpu::default().build_module::<Blocks, f32>();
    for (batch, seq) in [(1, 1), (3, 20)] {
        let tokens = ids((batch, seq), 11);
        let before = memory::allocated();
        memory::reset_peak();
        let loss = blocks.forward_mut(tokens.leaky_traced()).square().mean();
        loss.backward();
        assert_eq!(
            memory::peak() - before,
            Blocks::activation_bytes(batch, seq)
        );
    }
}

#[test]
fn a_session_goes_on_through_blocks() {
    let _alone = alone();
    let dev = Cpu::default();
    let mut blocks = dev.build_module::<Blocks, f64>();
    let mut statements = dev.build_module::<Statements, f64>();
    scatter(&mut blocks);
    scatter(&mut statements);
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    let mut one = blocks.session(8).unwrap();
    let mut other = statements.session(8).unwrap();
    for token in tokens {
        assert_eq!(
            one.prefill(&[token]).unwrap(),
            other.prefill(&[token]).unwrap()
        );
    }
}
