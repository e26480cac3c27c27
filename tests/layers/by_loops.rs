//! The hand-written layers against loops over numbers: the reference of the declared layers is itself correct.

use super::compare::{assert_close, by_hand, by_hand_with_context};
use dfdx::prelude::*;
use support::reference::{
    AdditiveAttention, AllHeadsAtOnce, Heads, HeadsInTheBatch, Input, OneHeadAtATime, Parameters,
    Sequence, Split, State, attention, heads, masks,
    naive::{self, Naive, dot},
    normalizers, positions,
};

/// Sums of at most 8 terms of order 1, five deep, in two orders: 80 roundings.
const TOLERANCE: f64 = 80.0 * f64::EPSILON;

/// A state for a layer of width 8 over `[2, 5, 8]`, with these dimensions for tensors of another width.
fn state(more: &[(&str, &[usize])]) -> State {
    let mut state = State::default();
    state.insert("x", &[2, 5, 8]);
    for projection in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        state.insert(&format!("{projection}.weight"), &[8, 8]);
        state.insert(&format!("{projection}.bias"), &[8]);
    }
    for (name, dims) in more {
        state.insert(name, dims);
    }
    state
}

#[track_caller]
fn assert_as_by_loops(
    state: &State,
    naive: &Naive<'_>,
    layer: impl FnOnce(&Parameters<'_, f64>, &Input<f64>) -> (Sequence<f64>, Heads<f64>),
) {
    let outcome = by_hand(state, layer);
    let (output, weights) = naive.forward(state, "x");
    assert_close("weights", outcome.get("weights"), &weights, TOLERANCE);
    assert_close("output", outcome.get("output"), &output, TOLERANCE);
}

#[test]
fn single_heads_equal_loops() {
    let state = state(&[]);
    let mask = masks::for_all(2, &masks::causal(5, 5));
    let outcome = by_hand::<f64, _, _, _>(&state, |p, x| {
        let x = x.clone().realize();
        let (output, weights) = OneHeadAtATime::<8, 4, 8, _>::new(p).forward(&x, &mask);
        (output, weights.permute::<_, Axes4<1, 0, 2, 3>>())
    });
    let causal = Naive {
        attends: &|_, i, j| j <= i,
        ..Naive::default()
    };
    let (output, weights) = causal.forward(&state, "x");
    assert_close("weights", outcome.get("weights"), &weights, TOLERANCE);
    assert_close("output", outcome.get("output"), &output, TOLERANCE);
}

#[test]
fn multiple_heads_equal_loops() {
    let state = state(&[]);
    let mask = masks::for_all(2, &masks::local(5, 5, 2));
    let outcome = by_hand::<f64, _, _, _>(&state, |p, x| {
        AllHeadsAtOnce::<8, 2, 4, 8, _>::new(p).forward(&x.clone().realize(), &mask)
    });
    let local = Naive {
        attends: &|_, i, j| j <= i && i < j + 2,
        ..Naive::default()
    };
    let (output, weights) = local.forward(&state, "x");
    assert_close("weights", outcome.get("weights"), &weights, TOLERANCE);
    assert_close("output", outcome.get("output"), &output, TOLERANCE);
}

#[test]
fn heads_folded_into_the_batch_equal_loops() {
    let mut state = state(&[("context", &[2, 3, 6])]);
    state.insert("k_proj.weight", &[8, 6]);
    state.insert("v_proj.weight", &[8, 6]);
    let lens = [3, 1];
    let outcome = by_hand_with_context::<f64, _, _, _>(&state, |p, x, context| {
        let layer = HeadsInTheBatch::<8, 6, 2, 4, 8, _>::new(p);
        let x = x.clone().realize();
        let context = context.clone().realize();
        layer.forward(&x, &context, Some(&lens))
    });
    let padded = Naive {
        attends: &|b, _, j| j < lens[b],
        ..Naive::default()
    };
    let (output, weights) = padded.forward(&state, "context");
    assert_close("weights", outcome.get("weights"), &weights, TOLERANCE);
    assert_close("output", outcome.get("output"), &output, TOLERANCE);
}

#[test]
fn additive_scores_equal_loops() {
    let state = state(&[
        ("context", &[2, 3, 8]),
        ("q_proj.weight", &[6, 8]),
        ("q_proj.bias", &[6]),
        ("k_proj.weight", &[6, 8]),
        ("k_proj.bias", &[6]),
        ("score_proj.weight", &[1, 6]),
    ]);
    let lens = [2, 3];
    let outcome = by_hand_with_context::<f64, _, _, _>(&state, |p, x, context| {
        let layer = AdditiveAttention::<8, 8, 6, 8, _>::new(p);
        layer.forward(&x.clone().realize(), &context.clone().realize(), &lens)
    });
    let w = state.get("score_proj.weight").flat.clone();
    let padded = Naive {
        heads: 1,
        kv_heads: 1,
        score: &|_, q, k| (0..6).map(|n| w[n] * (q[n] + k[n]).tanh()).sum(),
        attends: &|b, _, j| j < lens[b],
        ..Naive::default()
    };
    let (output, weights) = padded.forward(&state, "context");
    assert_close("weights", outcome.get("weights"), &weights, TOLERANCE);
    assert_close("output", outcome.get("output"), &output, TOLERANCE);
}

#[test]
fn additive_scores_with_a_vector_per_head_equal_loops() {
    let state = state(&[("score_proj.weight", &[2, 4])]);
    let w = state.get("score_proj.weight").flat.clone();
    let naive = Naive {
        score: &|h, q, k| (0..4).map(|n| w[4 * h + n] * (q[n] + k[n]).tanh()).sum(),
        ..Naive::default()
    };
    assert_as_by_loops(&state, &naive, |p, x| {
        let w = p.tensor("score_proj.weight", (2, 4));
        let full = masks::for_all(2, &masks::full(5, 5));
        let score = |q, k| heads::additive(q, k, w);
        attention(p, Split::into_heads(2), x, x, score, |s| {
            normalizers::softmax(s, &full)
        })
    });
}

#[test]
fn bilinear_scores_with_a_matrix_per_head_equal_loops() {
    let state = state(&[("score_proj.weight", &[2, 4, 4])]);
    let w = state.get("score_proj.weight").flat.clone();
    let naive = Naive {
        score: &|h, q, k| {
            let rows = w[16 * h..][..16].chunks(4);
            q.iter().zip(rows).map(|(q, row)| q * dot(row, k)).sum()
        },
        ..Naive::default()
    };
    assert_as_by_loops(&state, &naive, |p, x| {
        let w = p.tensor("score_proj.weight", (2, 4, 4));
        let full = masks::for_all(2, &masks::full(5, 5));
        let score = |q, k| heads::bilinear(q, k, w);
        attention(p, Split::into_heads(2), x, x, score, |s| {
            normalizers::softmax(s, &full)
        })
    });
}

#[test]
fn grouped_heads_with_alibi_softcap_and_softmax1_equal_loops() {
    let state = state(&[
        ("k_proj.weight", &[4, 8]),
        ("k_proj.bias", &[4]),
        ("v_proj.weight", &[4, 8]),
        ("v_proj.bias", &[4]),
    ]);
    // Four heads of width 2 that share two pairs of keys and values.
    let naive = Naive {
        heads: 4,
        adjust: &|score, h, i, j| {
            let slope = [0.25, 0.0625, 0.015_625, 0.003_906_25][h];
            (score / 0.5).tanh() * 0.5 - slope * i.abs_diff(j) as f64
        },
        attends: &|_, i, j| j <= i,
        normalize: naive::softmax1,
        ..Naive::default()
    };
    assert_as_by_loops(&state, &naive, |p, x| {
        let causal = masks::for_all(2, &masks::causal(5, 5));
        let score = |q, k| positions::alibi(heads::softcap(heads::scaled_dot(q, k), 0.5));
        attention(p, Split::sharing(4, 2), x, x, score, |s| {
            normalizers::softmax1(s, &causal)
        })
    });
}

#[test]
fn rope_after_rms_norm_with_sigmoid_equals_loops() {
    let state = state(&[("q_norm.weight", &[4])]);
    let gain = state.get("q_norm.weight").flat.clone();
    let naive = Naive {
        prepare: &|position, row| {
            let rms = (dot(row, row) / 4.0 + 1e-6).sqrt();
            let row: Vec<f64> = (0..4).map(|i| row[i] / rms * gain[i]).collect();
            let mut turned = vec![0.0; 4];
            for i in 0..2 {
                let (sin, cos) = (position as f64 * [1.0, 0.1][i]).sin_cos();
                turned[i] = row[i] * cos - row[i + 2] * sin;
                turned[i + 2] = row[i + 2] * cos + row[i] * sin;
            }
            turned
        },
        normalize: naive::sigmoid,
        ..Naive::default()
    };
    assert_as_by_loops(&state, &naive, |p, x| {
        let gain = || p.tensor("q_norm.weight", (4,));
        let prepare = |x| positions::rope(heads::rms_norm(x, gain()), 100.0);
        let score = |q, k| heads::scaled_dot(prepare(q), prepare(k));
        let full = masks::for_all(2, &masks::full(5, 5));
        attention(p, Split::into_heads(2), x, x, score, |s| {
            normalizers::sigmoid(s, &full)
        })
    });
}

#[test]
fn l2_norm_with_relative_bias_without_biases_equals_loops() {
    let mut state = state(&[("rel_pos_bias.weight", &[8, 2])]);
    for projection in ["q_proj", "k_proj", "v_proj", "o_proj"] {
        state.values.remove(&format!("{projection}.bias"));
    }
    let table = state.get("rel_pos_bias.weight").flat.clone();
    let naive = Naive {
        prepare: &|_, row| {
            let norm = (dot(row, row) + 1e-6).sqrt();
            row.iter().map(|v| v / norm).collect()
        },
        score: &|_, q, k| dot(q, k),
        adjust: &|score, h, i, j| {
            // Four buckets for each side: 0, 1, 2 to 3, from 4 on.
            let distance = [0, 1, 2, 2, 3][i.abs_diff(j)];
            let side = if j > i { 4 } else { 0 };
            score + table[(side + distance) * 2 + h]
        },
        ..Naive::default()
    };
    assert_as_by_loops(&state, &naive, |p, x| {
        let score = |q, k| {
            let scores = heads::dot(heads::l2_norm(q), heads::l2_norm(k));
            let table = p.tensor("rel_pos_bias.weight", (8, 2));
            positions::relative_bias(scores, table, |relative| {
                positions::bucket_of_both_sides(relative, 8, 8)
            })
        };
        let full = masks::for_all(2, &masks::full(5, 5));
        attention(p, Split::into_heads(2), x, x, score, |s| {
            normalizers::softmax(s, &full)
        })
    });
}
