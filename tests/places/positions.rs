//! Positions: rotations, linear biases, learned relative biases.

use super::mask_of;
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Heads, Input, Parameters, Sequence, Split, attention,
    heads::{rms_norm, scaled_dot, softcap},
    masks::{Matrix, causal, causal_lower_right, full, local},
    normalizers::softmax,
    positions::*,
};

attention! {
    struct Rope<heads = 2, d_model = 8, position = rope, mask = causal>;
    struct RopeTheta<heads = 3, kv_heads = 1, d_model = 18, position = rope(theta = 100)>;
    struct RopeCross<heads = 2, d_model = 8, d_context = 6, position = rope>;
    struct RopeNormed<heads = 2, d_model = 8, position = rope, qk_norm = rms>;
    struct Alibi<heads = 4, d_model = 8, position = alibi, mask = causal>;
    struct AlibiSix<heads = 6, d_model = 12, position = alibi>;
    struct AlibiCross<heads = 2, d_model = 8, d_context = 6, position = alibi>;
    struct AlibiCapped<heads = 2, d_model = 8, position = alibi, softcap = 0.5>;
    struct BothSides<heads = 2, d_model = 8, position = rel_pos_bias(num_buckets = 8, max_distance = 9)>;
    struct BothSidesCross<heads = 3, d_model = 12, d_context = 6, position = rel_pos_bias(8, 9)>;
    struct Past<heads = 2, d_model = 8, position = rel_pos_bias(num_buckets = 6, max_distance = 10), mask = causal>;
    struct PastInWindow<heads = 2, d_model = 8, position = rel_pos_bias(6, 10), mask = sliding_window(9)>;
    struct LowerRight<heads = 2, d_model = 8, d_context = 6, position = rel_pos_bias(8, 9), mask = causal(lower_right)>;
    struct DefaultBuckets<heads = 2, d_model = 8, position = rel_pos_bias>;
}

/// By hand: the softmax of this score under the same mask for all sequences.
fn placed<E: Dtype>(
    p: &Parameters<'_, E>,
    split: Split,
    (x, context): (&Input<E>, &Input<E>),
    matrix: fn(usize, usize) -> Matrix,
    score: impl FnOnce(Heads<E>, Heads<E>) -> Heads<E>,
) -> (Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let mask = mask_of(x, context, |_, q, k| matrix(q, k));
    attention(p, split, x, context, score, |s| softmax(s, &mask))
}

#[test]
fn rope_turns_pairs_of_numbers() {
    self_attention!(Rope, d_model = 8, |p, x| {
        placed(p, Split::into_heads(2), (x, x), causal, |q, k| {
            scaled_dot(rope(q, 10_000.0), rope(k, 10_000.0))
        })
    });
    self_attention!(RopeTheta, d_model = 18, |p, x| {
        placed(p, Split::sharing(3, 1), (x, x), full, |q, k| {
            scaled_dot(rope(q, 100.0), rope(k, 100.0))
        })
    });
}

#[test]
fn rope_counts_both_sequences_from_zero() {
    cross_attention!(RopeCross, d_model = 8, d_context = 6, |p, x, context| {
        placed(p, Split::into_heads(2), (x, context), full, |q, k| {
            scaled_dot(rope(q, 10_000.0), rope(k, 10_000.0))
        })
    });
}

#[test]
fn rope_comes_after_the_norm() {
    self_attention!(RopeNormed, d_model = 8, |p, x| {
        let q_gain = p.tensor("q_norm.weight", (4,));
        let k_gain = p.tensor("k_norm.weight", (4,));
        placed(p, Split::into_heads(2), (x, x), full, |q, k| {
            let q = rms_norm(q, q_gain);
            let k = rms_norm(k, k_gain);
            scaled_dot(rope(q, 10_000.0), rope(k, 10_000.0))
        })
    });
}

#[test]
fn alibi_lowers_scores_by_distance() {
    self_attention!(Alibi, d_model = 8, |p, x| {
        placed(p, Split::into_heads(4), (x, x), causal, |q, k| {
            alibi(scaled_dot(q, k))
        })
    });
    cross_attention!(AlibiCross, d_model = 8, d_context = 6, |p, x, context| {
        placed(p, Split::into_heads(2), (x, context), full, |q, k| {
            alibi(scaled_dot(q, k))
        })
    });
}

#[test]
fn alibi_has_slopes_for_six_heads() {
    self_attention!(AlibiSix, d_model = 12, |p, x| {
        placed(p, Split::into_heads(6), (x, x), full, |q, k| {
            alibi(scaled_dot(q, k))
        })
    });
}

#[test]
fn alibi_comes_after_the_softcap() {
    self_attention!(AlibiCapped, d_model = 8, |p, x| {
        placed(p, Split::into_heads(2), (x, x), full, |q, k| {
            alibi(softcap(scaled_dot(q, k), 0.5))
        })
    });
}

#[test]
fn relative_bias_has_buckets_for_both_sides_unless_the_mask_is_causal() {
    self_attention!(BothSides, d_model = 8, |p, x| {
        let table = p.tensor("rel_pos_bias.weight", (8, 2));
        placed(p, Split::into_heads(2), (x, x), full, |q, k| {
            relative_bias(scaled_dot(q, k), table, |d| bucket_of_both_sides(d, 8, 9))
        })
    });
    cross_attention!(
        BothSidesCross,
        d_model = 12,
        d_context = 6,
        |p, x, context| {
            let table = p.tensor("rel_pos_bias.weight", (8, 3));
            placed(p, Split::into_heads(3), (x, context), full, |q, k| {
                relative_bias(scaled_dot(q, k), table, |d| bucket_of_both_sides(d, 8, 9))
            })
        }
    );
    self_attention!(DefaultBuckets, d_model = 8, |p, x| {
        let table = p.tensor("rel_pos_bias.weight", (32, 2));
        placed(p, Split::into_heads(2), (x, x), full, |q, k| {
            relative_bias(scaled_dot(q, k), table, |d| {
                bucket_of_both_sides(d, 32, 128)
            })
        })
    });
}

#[test]
fn relative_bias_has_buckets_for_the_past_if_the_mask_is_causal() {
    self_attention!(Past, d_model = 8, |p, x| {
        let table = p.tensor("rel_pos_bias.weight", (6, 2));
        placed(p, Split::into_heads(2), (x, x), causal, |q, k| {
            relative_bias(scaled_dot(q, k), table, |d| bucket_of_the_past(d, 6, 10))
        })
    });
    self_attention!(PastInWindow, d_model = 8, |p, x| {
        let table = p.tensor("rel_pos_bias.weight", (6, 2));
        placed(
            p,
            Split::into_heads(2),
            (x, x),
            |q, k| local(q, k, 9),
            |q, k| relative_bias(scaled_dot(q, k), table, |d| bucket_of_the_past(d, 6, 10)),
        )
    });
}

/// Both positions count from 0 for the bias, for any alignment of the mask, so a visible key may be on either side.
#[test]
fn relative_bias_has_buckets_for_both_sides_under_a_lower_right_triangle() {
    cross_attention!(LowerRight, d_model = 8, d_context = 6, |p, x, context| {
        let table = p.tensor("rel_pos_bias.weight", (8, 2));
        placed(
            p,
            Split::into_heads(2),
            (x, context),
            causal_lower_right,
            |q, k| relative_bias(scaled_dot(q, k), table, |d| bucket_of_both_sides(d, 8, 9)),
        )
    });
}
