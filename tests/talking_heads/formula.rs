//! The results against loops in `f64`, number by number.

use attn::{attention, dfdx::prelude::*};
use support::cases::{scatter, tensor};
use support::close::assert_close;

attention! {
    struct Both<heads = 4, kv_heads = 2, d_model = 6, head_dim = 3, value_head_dim = 2, d_context = 5, mask = padding, talking_heads = both>;
    struct Before<heads = 4, kv_heads = 2, d_model = 6, head_dim = 3, value_head_dim = 2, d_context = 5, mask = padding, talking_heads = before>;
    struct After<heads = 4, kv_heads = 2, d_model = 6, head_dim = 3, value_head_dim = 2, d_context = 5, mask = padding, talking_heads = after>;
}

const HEADS: usize = 4;
const WIDTH: usize = 3;
const VALUE: usize = 2;

/// `x Wᵀ + b`, of rows.
fn projected(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let width = weight.len() / bias.len();
    let rows = x.chunks(width).flat_map(|x| {
        weight.chunks(width).zip(bias).map(move |(w, b)| {
            let dot: f64 = w.iter().zip(x).map(|(w, x)| w * x).sum();
            dot + b
        })
    });
    rows.collect()
}

/// The heads of a pair, mixed.
fn mixed(matrix: Option<&[f64]>, of_heads: [f64; HEADS]) -> [f64; HEADS] {
    let Some(matrix) = matrix else {
        return of_heads;
    };
    std::array::from_fn(|g| {
        (0..HEADS)
            .map(|h| matrix[g * HEADS + h] * of_heads[h])
            .sum()
    })
}

/// The attended values, `[batch, q_len, heads * value]`, and the weights, `[batch, heads, q_len, kv_len]`.
fn by_loops(
    [batch, q_len, kv_len]: [usize; 3],
    [q, k, v]: [&[f64]; 3],
    lens: &[usize],
    [before, after]: [Option<&[f64]>; 2],
) -> [Vec<f64>; 2] {
    let mut attended = vec![0.0; batch * q_len * HEADS * VALUE];
    let mut weights = vec![0.0; batch * HEADS * q_len * kv_len];
    for b in 0..batch {
        for i in 0..q_len {
            let q = &q[(b * q_len + i) * HEADS * WIDTH..];
            let scores = |j: usize| -> [f64; HEADS] {
                let of_heads = std::array::from_fn(|h| {
                    let k = &k[((b * kv_len + j) * 2 + h / 2) * WIDTH..];
                    let dot: f64 = (0..WIDTH).map(|n| q[h * WIDTH + n] * k[n]).sum();
                    dot / (WIDTH as f64).sqrt()
                });
                mixed(before, of_heads).map(f64::exp)
            };
            let exps: Vec<_> = (0..lens[b]).map(scores).collect();
            let sums: [f64; HEADS] = std::array::from_fn(|h| exps.iter().map(|exps| exps[h]).sum());
            for (j, exps) in exps.into_iter().enumerate() {
                let of_pair = mixed(after, std::array::from_fn(|h| exps[h] / sums[h]));
                for (h, weight) in of_pair.into_iter().enumerate() {
                    weights[((b * HEADS + h) * q_len + i) * kv_len + j] = weight;
                    for n in 0..VALUE {
                        let v = v[((b * kv_len + j) * 2 + h / 2) * VALUE + n];
                        attended[((b * q_len + i) * HEADS + h) * VALUE + n] += weight * v;
                    }
                }
            }
        }
    }
    [attended, weights]
}

macro_rules! is_its_formula {
    ($($name:ident $Layer:ident $matrices:expr;)*) => {$(
        #[test]
        fn $name() {
            let mut layer = Cpu::default().build_module::<$Layer, f64>();
            scatter(&mut layer);
            let sizes = [([1, 1, 1], vec![1]), ([3, 5, 7], vec![4, 0, 7]), ([1, 60, 90], vec![71]), ([1, 6, 600], vec![530]), ([2, 2, 0], vec![0, 0])];
            for (sizes, lens) in sizes {
                let [batch, q_len, kv_len] = sizes;
                let x: Tensor<(usize, usize, Const<6>), f64, _> = tensor("x", (batch, q_len, Const));
                let context: Tensor<(usize, usize, Const<5>), f64, _> = tensor("context", (batch, kv_len, Const));
                let numbers = if kv_len == 0 { Vec::new() } else { context.as_vec() };
                let q = projected(&x.as_vec(), &layer.q_proj.weight.as_vec(), &layer.q_proj.bias.as_vec());
                let k = projected(&numbers, &layer.k_proj.weight.as_vec(), &layer.k_proj.bias.as_vec());
                let v = projected(&numbers, &layer.v_proj.weight.as_vec(), &layer.v_proj.bias.as_vec());
                let matrices: fn(&$Layer<f64, Cpu>) -> [Option<Vec<f64>>; 2] = $matrices;
                let [before, after] = matrices(&layer);
                let [attended, weights] = by_loops(sizes, [&q, &k, &v], &lens, [before.as_deref(), after.as_deref()]);
                let expected = projected(&attended, &layer.o_proj.weight.as_vec(), &layer.o_proj.bias.as_vec());
                let of_call: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(lens, (batch,));
                let (y, found) = layer.forward_with_weights((x.clone(), context.clone(), of_call.clone()));
                // Sums of up to 90 terms of order 1.
                assert_close(format!("{sizes:?}: output"), &y.as_vec(), &expected, 1e-12);
                if kv_len > 0 {
                    assert_close(format!("{sizes:?}: weights"), &found.as_vec(), &weights, 1e-12);
                }
                // Without weights as a result, the bits are the same.
                assert_eq!(layer.forward((x, context, of_call)).as_vec(), y.as_vec());
            }
        }
    )*};
}

is_its_formula! {
    scores_and_weights_are_mixed Both |layer| [Some(layer.mix_scores.weight.as_vec()), Some(layer.mix_weights.weight.as_vec())];
    scores_are_mixed Before |layer| [Some(layer.mix_scores.weight.as_vec()), None];
    weights_are_mixed After |layer| [None, Some(layer.mix_weights.weight.as_vec())];
}

#[test]
fn the_matrices_are_parameters() {
    // Four projections with biases, and two matrices of 4 times 4.
    let projections = (6 * 12 + 12) + (5 * 6 + 6) + (5 * 4 + 4) + (8 * 6 + 6);
    assert_eq!(Both::PARAMS, projections + 2 * 16);
    assert_eq!(Before::PARAMS, projections + 16);
    // Two sums over 4 heads for each of 4 times 5 times 7 pairs, a multiplication and an addition for each term.
    let mixing = Both::flops(1, 5, 7) - Before::flops(1, 5, 7);
    assert_eq!(mixing, 2 * 4 * 4 * 5 * 7);
}
