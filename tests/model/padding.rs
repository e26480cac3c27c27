//! Key masks `bool[batch, seq]`: an encoder computes the same for real tokens as without the others.

use super::*;
use attn::model;

const D: usize = 6;

model! {
    /// Its only positions are those of its mask, so the start of a sequence does not matter.
    struct Encoder<d = D>;

    fn forward(x: [batch, seq, d], keep: bool[batch, seq]) -> [batch, d] {
        let mut x = x;
        repeat 2 {
            x = layer_norm(x + attention::<2, mask = causal & padding>(x, padding = keep));
            x = layer_norm(x + feed_forward::<12>(x));
        }
        mean_pool(x, keep)
    }
}

model! {
    /// The same with valid lengths.
    struct OfLengths<d = D>;

    fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, d] {
        let mut x = x;
        repeat 2 {
            x = layer_norm(x + attention::<2, mask = causal & padding>(x, padding = lens));
            x = layer_norm(x + feed_forward::<12>(x));
        }
        mean_pool(x, lens)
    }
}

type Sequences = Tensor<(usize, usize, Const<D>), f64, Cpu>;

fn encoder() -> Encoder<f64> {
    let mut model = Cpu::default().build_module::<Encoder, f64>();
    scatter(&mut model);
    model
}

/// The outputs of both forms.
fn outputs(x: &Sequences, keep: &[bool]) -> [Vec<f64>; 2] {
    let model = encoder();
    let (batch, seq, _) = *x.shape();
    let keep: Tensor<_, bool, _> = Cpu::default().tensor_from_vec(keep.to_vec(), (batch, seq));
    let inputs = || (x.clone(), keep.clone());
    [
        tensors::flat(&model.forward(inputs())),
        tensors::flat(&model.composed().forward(inputs())),
    ]
}

/// A row of numbers for every token, or of `filler` where there is none.
fn sequence(tokens: &[Option<usize>], filler: f64) -> Sequences {
    let rows = tokens.iter().flat_map(|token| match token {
        Some(token) => scattered(&format!("token {token}"), D),
        None => vec![filler; D],
    });
    Cpu::default().tensor_from_vec(rows.collect(), (1, tokens.len(), Const))
}

/// Sums of up to 12 terms of order 1, on some twelve levels, rounded in another order: 144 ε / 2.
const TOLERANCE: f64 = 2e-14;

#[test]
fn padding_anywhere_changes_nothing() {
    let [a, b, c] = [Some(1), Some(2), Some(3)];
    let alone = outputs(&sequence(&[a, b, c], 0.0), &[true; 3]);
    for padded in [
        [None, None, a, b, c],
        [a, b, c, None, None],
        [a, None, b, None, c],
    ] {
        let keep = padded.map(|token| token.is_some());
        for filler in [0.5, 1e30, f64::NAN, f64::INFINITY] {
            let found = outputs(&sequence(&padded, filler), &keep);
            // dfdx multiplies masked numbers by 0.
            let forms = if filler.is_finite() { 2 } else { 1 };
            for (found, alone) in found.iter().zip(&alone).take(forms) {
                let near = |(a, b): (&f64, &f64)| (a - b).abs() < TOLERANCE;
                let same = found.iter().zip(alone).all(near);
                assert!(same, "{padded:?} of {filler}: {found:?}, {alone:?}");
            }
        }
    }
}

#[test]
fn results_of_real_tokens_are_not_zero() {
    for output in outputs(&sequence(&[Some(1), Some(2)], 0.0), &[false; 2]) {
        assert_eq!(output, [0.0; D]);
    }
}

#[test]
fn marks_of_the_first_tokens_are_valid_lengths() {
    let x: Sequences = tensor("x", (3, 4, Const));
    let mut of_lengths = Cpu::default().build_module::<OfLengths, f64>();
    scatter(&mut of_lengths);
    let first = [4, 2, 0];
    let keep: Vec<bool> = first
        .iter()
        .flat_map(|&len| (0..4).map(move |token| token < len))
        .collect();
    let [fused, _] = outputs(&x, &keep);
    assert_eq!(fused, tensors::flat(&of_lengths.forward((x, lens(first)))));
}
