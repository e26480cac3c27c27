//! Score functions, and their parameters.

use super::{biased, mask, numbers};
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Heads, Input, Parameters, Sequence, Split, Traced, attention,
    heads::{scale, scaled_dot, softcap},
    mix,
    normalizers::{sink, softmax},
    number, positions,
};

/// The largest distance with its own bias.
const FAR: usize = 2;

/// The maximum length of a sequence.
const LONGEST: usize = 11;

attention! {
    struct Alibi<heads = 2, d_model = 8> {
        fn score(score, h, q_idx, kv_idx) {
            score - exp(-4.0 * ln(2.0) * (h + 1) as f32) * abs(q_idx - kv_idx) as f32
        }
    }
    /// Press et al. (2022), with slopes that are learned.
    struct LearnedAlibi<heads = 2, d_model = 8, mask = causal> {
        param slope: [heads] = alibi_slopes;
        fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
    }
    /// Gemma 2.
    struct SoftCap<heads = 2, d_model = 8> {
        fn score(score) { 3.0 * tanh(score / 3.0) }
    }
    /// Shaw et al. (2018): a bias for every head and clipped distance.
    struct Relative<heads = 2, d_model = 8> {
        param bias: [heads, 2 * FAR + 1] = zeros;
        fn score(score, h, q_idx, kv_idx) {
            score + bias[h, clamp(q_idx - kv_idx + FAR, 0, 2 * FAR)]
        }
    }
    /// A bias that all heads share.
    struct Shared<heads = 2, d_model = 8> {
        param near: [5] = normal(std = 0.02);
        fn score(score, q_idx, kv_idx) { score + near[min(abs(q_idx - kv_idx), 4)] }
    }
    /// Nadaraya and Watson (1964): a kernel of the distance, and no queries and keys.
    struct Gaussian<heads = 2, d_model = 8> {
        param width: [heads] = ones;
        fn score(h, q_idx, kv_idx) {
            let distance = (q_idx - kv_idx) as f32 / width[h];
            -0.5 * distance * distance
        }
    }
    /// Tay et al., "Synthesizer" (2021): a table of learned scores.
    struct Synthesizer<heads = 4, kv_heads = 2, d_model = 8, mask = causal, normalizer = sink> {
        param table: [heads, LONGEST, LONGEST] = normal(std = 0.5);
        fn score(h, q_idx, kv_idx) { table[h, q_idx, kv_idx] }
    }
    /// A filter: weights without a softmax.
    struct Filter<heads = 2, d_model = 8, value_head_dim = 3> {
        param tap: [heads, 3] = zeros;
        fn normalize(h, q_idx, kv_idx) { tap[h, clamp(q_idx - kv_idx, 0, 2)] }
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && q_idx < kv_idx + 3 }
    }
    struct Gated<heads = 2, d_model = 8> {
        param gate: [heads, 4] = ones;
        fn score(score, h, kv_idx) { score * sigmoid(gate[h, kv_idx % 4]) }
    }
    struct Bent<heads = 2, d_model = 8> {
        param slope: [heads] = 0.25;
        fn score(score, h) { if score > 0.0 { score } else { slope[h] * score } }
    }
    struct Wrapped<heads = 2, d_model = 8> {
        fn score(score) { score + 0.3 * (score % 0.5) }
    }
    struct Beyond<heads = 2, d_model = 8> {
        param far: [3] = zeros;
        fn score(score, q_idx) { score + far[q_idx] }
    }
    /// Raffel et al. (2020), "T5": a bias for every small distance, and for logarithmically wider ones up to 16.
    struct T5<heads = 2, d_model = 8, mask = causal> {
        param bias: [8, heads] = zeros;
        fn score(score, h, q_idx, kv_idx) {
            let back = max(q_idx - kv_idx, 0);
            let wide = 4 + floor(4.0 * ln(max(back, 1) as f32 / 4.0) / ln(4.0)) as i64;
            score + bias[if back < 4 { back } else { min(wide, 7) }, h]
        }
    }
    /// Names that the emitted code uses as well.
    struct Named<heads = 2, d_model = 8> {
        param element: [2] = ones;
        param output: [2] = ones;
        param q_k_v: [3] = ones;
        param bias_term_0: [heads] = ones;
        param weights: [2] = ones;
        param sums: [heads, 3] = ones;
        param d: [1] = ones;
        param layer: [1] = ones;
        fn score(score, h, q_idx, kv_idx) {
            let near = bias_term_0[h] * (q_idx - kv_idx) as f32 * q_k_v[clamp(q_idx - kv_idx + 1, 0, 2)];
            score * output[kv_idx % 2] * d[0] + element[q_idx % 2] * weights[1]
                + sums[h, kv_idx % 3] * layer[0] + near
        }
    }
    /// Two parameters, one of them read twice, and all keys together.
    struct Mixed<heads = 2, d_model = 8, softcap = 5.0, position = alibi> {
        param a: [3] = ones;
        param c: [heads, 3] = ones;
        fn score(score, h, q_idx, kv_idx) {
            let near = a[q_idx % 3] * c[h, kv_idx % 3];
            score * near + sqrt(1.0 + score * score) * a[kv_idx % 3]
        }
    }
}

/// By hand: the softmax of this score over all keys.
fn scored<E: Dtype>(
    p: &Parameters<'_, E>,
    x: &Input<E>,
    score: impl FnOnce(Heads<E>, Heads<E>) -> Heads<E>,
) -> (Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let all = mask(x, |_, _| true);
    attention(p, Split::into_heads(2), x, x, score, |s| softmax(s, &all))
}

/// `[batch, heads, query, key]` of self-attention.
fn scores_of<E: Dtype>(x: &Input<E>, heads: usize) -> (usize, usize, usize, usize)
where
    Cpu: Device<E>,
{
    let (batch, len, _) = *x.shape();
    (batch, heads, len, len)
}

/// One number per head, for every pair.
fn per_head<E: Dtype>(w: Tensor<(usize,), E, Cpu>, shape: (usize, usize, usize, usize)) -> Heads<E>
where
    Cpu: Device<E>,
{
    w.leaky_trace().broadcast_like::<_, Axes3<0, 2, 3>>(&shape)
}

/// The element `index(h, q, k)` of a table for every head and pair.
fn looked_up<S: Shape, E: Dtype>(
    table: Tensor<S, E, Cpu>,
    shape: (usize, usize, usize, usize),
    index: impl Fn(usize, usize, usize) -> usize,
) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (_, heads, queries, keys) = shape;
    let mut at = Vec::new();
    for h in 0..heads {
        for q in 0..queries {
            at.extend((0..keys).map(|k| index(h, q, k)));
        }
    }
    let at = Cpu::default().tensor_from_vec(at, (heads * queries * keys,));
    let len = table.shape().num_elements();
    let table: Traced<(usize,), E> = table.leaky_trace().reshape_like(&(len,));
    let rows: Traced<(usize,), E> = table.gather(at);
    rows.reshape_like(&(heads, queries, keys))
        .broadcast_like::<_, Axis<0>>(&shape)
}

#[test]
fn alibi_equals_the_dense_reference() {
    self_attention!(Alibi, d_model = 8, |p, x| {
        scored(p, x, |q, k| positions::alibi(scaled_dot(q, k)))
    });
}

#[test]
fn learned_alibi_equals_the_dense_reference() {
    self_attention!(LearnedAlibi, d_model = 8, |p, x| {
        let slope = p.tensor("slope.weight", (2,));
        let causal = mask(x, |q, k| k <= q);
        let score = |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            let distance = numbers(shape, |_, q, k| q as f64 - k as f64);
            scores - per_head(slope, shape) * distance
        };
        attention(p, Split::into_heads(2), x, x, score, |s| {
            softmax(s, &causal)
        })
    });
}

#[test]
fn soft_cap_equals_the_dense_reference() {
    self_attention!(SoftCap, d_model = 8, |p, x| {
        scored(p, x, |q, k| softcap(scaled_dot(q, k), 3.0))
    });
}

#[test]
fn relative_bias_per_head_equals_the_dense_reference() {
    self_attention!(Relative, d_model = 8, |p, x| {
        let table = p.tensor("bias.weight", (2, 5));
        scored(p, x, |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            let bias = looked_up(table, shape, |h, q, k| {
                5 * h + (q + 2).saturating_sub(k).min(4)
            });
            scores + bias
        })
    });
}

#[test]
fn relative_bias_of_all_heads_equals_the_dense_reference() {
    self_attention!(Shared, d_model = 8, |p, x| {
        let table = p.tensor("near.weight", (5,));
        scored(p, x, |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            let bias = looked_up(table, shape, |_, q, k| q.abs_diff(k).min(4));
            scores + bias
        })
    });
}

#[test]
fn gaussian_kernel_equals_the_dense_reference() {
    self_attention!(Gaussian, d_model = 8, |p, x| {
        let width = p.tensor("width.weight", (2,));
        let all = mask(x, |_, _| true);
        let shape = scores_of(x, 2);
        let distance = numbers(shape, |_, q, k| (q as f64 - k as f64).powi(2) * -0.5);
        let scores = per_head(width, shape).square().recip() * distance;
        mix(p, Split::into_heads(2), x, softmax(scores, &all))
    });
}

#[test]
fn learned_scores_equal_the_dense_reference() {
    self_attention!(Synthesizer, d_model = 8, |p, x| {
        let sinks = p.tensor("sink.weight", (4,));
        let table = p.tensor("table.weight", (4, LONGEST, LONGEST));
        let index = |h, q, k| (h * LONGEST + q) * LONGEST + k;
        let scores = looked_up(table, scores_of(x, 4), index);
        let weights = sink(scores, &mask(x, |q, k| k <= q), sinks);
        mix(p, Split::sharing(4, 2), x, weights)
    });
}

#[test]
fn filters_equal_the_dense_reference() {
    self_attention!(Filter, d_model = 8, |p, x| {
        let tap = p.tensor("tap.weight", (2, 3));
        let shape = scores_of(x, 2);
        let near = numbers(shape, |_, q, k| f64::from(k <= q && q < k + 3));
        let taps = looked_up(tap, shape, |h, q, k| 3 * h + q.saturating_sub(k).min(2));
        mix(p, Split::into_heads(2), x, taps * near)
    });
}

#[test]
fn gates_of_heads_and_keys_equal_the_dense_reference() {
    self_attention!(Gated, d_model = 8, |p, x| {
        let gate = p.tensor("gate.weight", (2, 4));
        scored(p, x, |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            scores * looked_up(gate, shape, |h, _, k| 4 * h + k % 4).sigmoid()
        })
    });
}

#[test]
fn conditions_on_the_score_equal_the_dense_reference() {
    self_attention!(Bent, d_model = 8, |p, x| {
        let slope = p.tensor("slope.weight", (2,));
        scored(p, x, |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            let positive = scores.with_empty_tape().relu();
            // -relu(-s) is the other half.
            let negative = scores.negate().relu().negate();
            positive + negative * per_head(slope, shape)
        })
    });
}

/// The nearest multiple of one half to `x`, rounded towards zero.
fn halves<E: Dtype + Into<f64>>(x: E) -> E {
    number((2.0 * x.into()).trunc() * 0.5)
}

#[test]
fn remainders_of_the_score_equal_the_dense_reference() {
    self_attention!(Wrapped, d_model = 8, |p, x| {
        scored(p, x, |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            let whole: Vec<_> = scores.as_vec().into_iter().map(halves).collect();
            let whole = Cpu::default().tensor_from_vec(whole, shape);
            scores.with_empty_tape() + scale(scores - whole, 0.3)
        })
    });
}

#[test]
fn out_of_bounds_indices_are_errors_before_the_layer_runs() {
    let dev = Cpu::default();
    let layer = dev.build_module::<Beyond, f32>();
    let x = |len: usize| -> Tensor<(usize, usize, Const<8>), f32, Cpu> {
        dev.zeros_like(&(1, len, Const))
    };
    assert!(layer.try_forward(x(3)).is_ok());
    for error in [
        layer.try_forward(x(4)).err().map(|error| error.to_string()),
        layer
            .try_forward_with_weights(x(4))
            .err()
            .map(|error| error.to_string()),
    ] {
        let expected = "Beyond: at b = 0, h = 0, q_idx = 3, kv_idx = 0 `far` is read at index 3 of axis 0, whose size is 3";
        assert_eq!(error.as_deref(), Some(expected));
    }
}

#[test]
fn t5_buckets_equal_the_dense_reference() {
    self_attention!(T5, d_model = 8, |p, x| {
        let table = p.tensor("bias.weight", (8, 2));
        let causal = mask(x, |q, k| k <= q);
        let bucket = |back: usize| match back {
            0..=3 => back,
            // 4, 4√2, 8, 8√2
            4..=5 => 4,
            6..=7 => 5,
            8..=11 => 6,
            _ => 7,
        };
        let score = |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            scores + looked_up(table, shape, |h, q, k| 2 * bucket(q.saturating_sub(k)) + h)
        };
        attention(p, Split::into_heads(2), x, x, score, |s| {
            softmax(s, &causal)
        })
    });
}

#[test]
fn names_of_tensors_do_not_collide_with_emitted_code() {
    self_attention!(Named, d_model = 8, |p, x| {
        let sums = p.tensor("sums.weight", (2, 3));
        let [element, output, weights] =
            ["element", "output", "weights"].map(|name| p.tensor(&format!("{name}.weight"), (2,)));
        let slope = p.tensor("bias_term_0.weight", (2,));
        let near = p.tensor("q_k_v.weight", (3,));
        let [d, layer] = ["d", "layer"].map(|name| p.tensor(&format!("{name}.weight"), (1,)));
        scored(p, x, |q, k| {
            let scores = scaled_dot(q, k);
            let shape = *scores.shape();
            let distance = numbers(shape, |_, q, k| q as f64 - k as f64);
            let near = looked_up(near, shape, |_, q, k| (q + 1).saturating_sub(k).min(2));
            scores * (looked_up(output, shape, |_, _, k| k % 2) * looked_up(d, shape, |_, _, _| 0))
                + looked_up(element, shape, |_, q, _| q % 2)
                    * looked_up(weights, shape, |_, _, _| 1)
                + looked_up(sums, shape, |h, _, k| 3 * h + k % 3)
                    * looked_up(layer, shape, |_, _, _| 0)
                + per_head(slope, shape) * near * distance
        })
    });
}

#[test]
fn combined_keys_and_bodies_equal_the_dense_reference() {
    self_attention!(Mixed, d_model = 8, |p, x| {
        let a = p.tensor("a.weight", (3,));
        let c = p.tensor("c.weight", (2, 3));
        scored(p, x, |q, k| {
            let scores = positions::alibi(softcap(scaled_dot(q, k), 5.0));
            let shape = *scores.shape();
            let of_query = looked_up(a.clone(), shape, |_, q, _| q % 3);
            let of_key = looked_up(a, shape, |_, _, k| k % 3);
            let of_both = looked_up(c, shape, |h, _, k| 3 * h + k % 3);
            let root = biased(scores.with_empty_tape().square(), |_, _, _| 1.0).sqrt();
            scores * (of_query * of_both) + root * of_key
        })
    });
}
