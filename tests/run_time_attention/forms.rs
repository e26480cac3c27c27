//! Both forms agree, in every result and gradient.

use attn::{dfdx::prelude::*, ops::AttendNormalizer};
use support::compare::assert_same;

use super::{Inputs, Traced, loss, tensor};

/// Sizes: ordinary ones, one of everything, more than a tile of queries, none of something.
const SIZES: [[usize; 7]; 9] = [
    [2, 4, 2, 5, 7, 3, 2],
    [1, 1, 1, 1, 1, 1, 1],
    [2, 3, 3, 50, 33, 4, 5],
    [2, 2, 1, 3, 0, 4, 2],
    [2, 2, 1, 0, 3, 4, 2],
    [0, 2, 1, 3, 3, 4, 2],
    [2, 0, 0, 3, 3, 4, 2],
    [2, 2, 1, 3, 3, 0, 2],
    [2, 2, 1, 3, 3, 4, 0],
];

/// The largest number differs by sums of at most 50 terms, on six levels, in another order.
const TOLERANCE: f64 = 1e-13;

fn agree(what: &str, options: impl Fn([usize; 7]) -> Traced) {
    for sizes in SIZES {
        let inputs = Inputs::new(sizes);
        let fused = inputs.results(|| options(sizes));
        let composed = inputs.results(|| options(sizes).composed());
        for (fused, composed) in fused.iter().zip(&composed) {
            assert_same(
                format_args!("{what} of {sizes:?}"),
                fused,
                composed,
                TOLERANCE,
            );
        }
    }
}

#[test]
fn without_options() {
    agree("plain", |_| Traced::new());
    agree("scaled", |_| Traced::new().scale(-0.7));
}

#[test]
fn with_ranges_of_keys() {
    agree("causal", |_| Traced::new().causal());
    agree("lower right", |_| Traced::new().causal_lower_right());
    agree("window", |_| Traced::new().sliding_window(3));
    agree("window of the last tokens", |_| {
        Traced::new().sliding_window(2).causal_lower_right()
    });
    agree("lengths", |[b, .., k, _, _]| {
        let lengths: Vec<usize> = (0..b).map(|b| k * b / 2).collect();
        Traced::new().lengths(lengths).causal()
    });
}

#[test]
fn with_marks_and_functions() {
    let dev = Cpu::default();
    let marks = |len: usize| (0..len).map(|i| i % 3 != 1).collect::<Vec<bool>>();
    agree("marks of pairs", |[.., q, k, _, _]| {
        let mask: Tensor<_, bool, _> = dev.tensor_from_vec(marks(q * k), (q, k));
        Traced::new().mask(&mask)
    });
    agree("marks of sequences", |[b, _, _, q, k, ..]| {
        let mask: Tensor<_, bool, _> = dev.tensor_from_vec(marks(b * q * k), (b, 1, q, k));
        Traced::new().mask(&mask).causal()
    });
    agree("marks of heads alone", |[_, h, _, q, k, ..]| {
        let mask: Tensor<_, bool, _> = dev.tensor_from_vec(marks(h * q * k), (h, q, k));
        Traced::new().mask(&mask).causal()
    });
    agree("marks of heads", |[b, h, _, q, k, ..]| {
        let mask: Tensor<_, bool, _> = dev.tensor_from_vec(marks(b * h * q * k), (b, h, q, k));
        Traced::new().mask(&mask)
    });
    agree("marks of keys", |[b, .., k, _, _]| {
        let mask: Tensor<_, bool, _> = dev.tensor_from_vec(marks(b * k), (b, 1, 1, k));
        Traced::new().mask(&mask)
    });
    agree("functions", |_| {
        Traced::new()
            .mask_by(|at| (at.q_idx + at.kv_idx + at.h) % 4 != at.b)
            .score_by(|score, at| 2.0 * (score / 2.0).tanh() - 0.1 * (at.q_idx - at.kv_idx) as f64)
    });
    agree("function that hides", |_| {
        Traced::new().score_by(|score, at| match at.kv_idx % 3 {
            1 => f64::NEG_INFINITY.into(),
            _ => score * score,
        })
    });
}

#[test]
fn with_every_normalizer() {
    for normalizer in [
        AttendNormalizer::Softmax1,
        AttendNormalizer::Sparsemax,
        AttendNormalizer::Entmax15,
        AttendNormalizer::Identity,
    ] {
        agree(&format!("{normalizer:?}"), |_| {
            Traced::new().normalizer(normalizer).causal().scale(2.0)
        });
    }
}

#[test]
fn with_dropout_of_the_same_seed() {
    for sizes in SIZES {
        // The device of each `q` draws the same numbers.
        let fused = Inputs::new(sizes).results(|| Traced::new().dropout(0.4).causal());
        let composed =
            Inputs::new(sizes).results(|| Traced::new().dropout(0.4).causal().composed());
        for (fused, composed) in fused.iter().zip(&composed) {
            assert_same(format_args!("{sizes:?}"), fused, composed, TOLERANCE);
        }
    }
}

#[test]
fn with_a_bias_of_any_shape() {
    fn of<S: attn::ops::PairShape>(what: &str, shape: impl Fn([usize; 7]) -> S) {
        for sizes in SIZES {
            let Inputs { q, k, v } = Inputs::new(sizes);
            let bias = tensor("bias", shape(sizes));
            let run = |composed: bool| {
                let options = Traced::new().causal().bias(bias.clone());
                let options = if composed {
                    options.composed()
                } else {
                    options
                };
                let (y, lse) = options.forward_with_lse(q.leaky_trace(), k.clone(), v.clone());
                let values = [("output", support::compare::flat(&y))];
                let sum = loss(y) + loss(lse.clamp(-1e9, 1e9));
                let ran = support::compare::Backpropagated::of(values, sum);
                let ran = ran.input("q", &q).input("k", &k).input("v", &v);
                ran.input("bias", &bias).outcome()
            };
            assert_same(
                format_args!("{what} of {sizes:?}"),
                &run(false),
                &run(true),
                TOLERANCE,
            );
        }
    }
    of("pairs", |[.., q, k, _, _]| (q, k));
    of("keys", |[.., k, _, _]| (1, k));
    of("heads", |[_, h, _, q, k, ..]| (h, q, k));
    of("heads alone", |[_, h, ..]| (h, 1, 1));
    of("everything", |[b, h, _, q, k, ..]| (b, h, q, k));
    of("sequences", |[b, _, _, q, ..]| (b, 1, q, 1));
}
