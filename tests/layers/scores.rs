//! Scores of queries and keys.

use super::mask_of;
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Heads, Input, Parameters, Sequence, Split, attention, heads::*, masks, normalizers::softmax,
};

attention! {
    struct Dot<heads = 2, d_model = 8, score = dot>;
    struct Scaled<heads = 2, d_model = 8, scale = 0.125>;
    struct Capped<heads = 2, d_model = 8, softcap = 0.75, mask = causal>;
    struct ScaledAndCapped<heads = 2, d_model = 8, scale = 2, softcap = 1.5>;
    struct Rms<heads = 2, d_model = 8, qk_norm = rms>;
    struct RmsShared<heads = 4, kv_heads = 2, d_model = 16, d_context = 6, qk_norm = rms>;
    struct L2<heads = 2, d_model = 8, qk_norm = l2, scale = 10>;
    struct Bilinear<heads = 2, d_model = 8, score = bilinear>;
    struct BilinearShared<heads = 4, kv_heads = 2, d_model = 8, d_context = 6, score = bilinear, scale = 0.5>;
    struct Additive<heads = 2, d_model = 8, score = additive(hidden = 3)>;
    struct AdditiveShared<heads = 4, kv_heads = 2, d_model = 8, d_context = 6, score = additive(hidden = 5)>;
}

/// By hand: the softmax of this score over all keys.
fn scored<E: Dtype>(
    p: &Parameters<'_, E>,
    split: Split,
    x: &Input<E>,
    context: &Input<E>,
    score: impl FnOnce(Heads<E>, Heads<E>) -> Heads<E>,
) -> (Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let mask = mask_of(x, context, |_, q, k| masks::full(q, k));
    attention(p, split, x, context, score, |s| softmax(s, &mask))
}

#[test]
fn dot_has_no_scale() {
    self_attention!(Dot, d_model = 8, |p, x| {
        scored(p, Split::into_heads(2), x, x, dot)
    });
}

#[test]
fn a_scale_replaces_the_usual_one() {
    self_attention!(Scaled, d_model = 8, |p, x| {
        scored(p, Split::into_heads(2), x, x, |q, k| {
            scale(dot(q, k), 0.125)
        })
    });
}

#[test]
fn a_softcap_bounds_the_scaled_scores_before_the_mask() {
    self_attention!(Capped, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| masks::causal(q, k));
        let score = |q, k| softcap(scaled_dot(q, k), 0.75);
        attention(p, Split::into_heads(2), x, x, score, |s| softmax(s, &mask))
    });
    self_attention!(ScaledAndCapped, d_model = 8, |p, x| {
        scored(p, Split::into_heads(2), x, x, |q, k| {
            softcap(scale(dot(q, k), 2.0), 1.5)
        })
    });
}

#[test]
fn rms_norm_has_a_gain_for_queries_and_one_for_keys() {
    self_attention!(Rms, d_model = 8, |p, x| {
        let q_gain = p.tensor("q_norm.weight", (4,));
        let k_gain = p.tensor("k_norm.weight", (4,));
        scored(p, Split::into_heads(2), x, x, |q, k| {
            scaled_dot(rms_norm(q, q_gain), rms_norm(k, k_gain))
        })
    });
    cross_attention!(RmsShared, d_model = 16, d_context = 6, |p, x, context| {
        let q_gain = p.tensor("q_norm.weight", (4,));
        let k_gain = p.tensor("k_norm.weight", (4,));
        scored(p, Split::sharing(4, 2), x, context, |q, k| {
            scaled_dot(rms_norm(q, q_gain), rms_norm(k, k_gain))
        })
    });
}

#[test]
fn l2_norm_makes_the_score_a_scaled_cosine() {
    self_attention!(L2, d_model = 8, |p, x| {
        scored(p, Split::into_heads(2), x, x, |q, k| {
            scale(dot(l2_norm(q), l2_norm(k)), 10.0)
        })
    });
}

#[test]
fn bilinear_has_a_matrix_for_every_query_head() {
    self_attention!(Bilinear, d_model = 8, |p, x| {
        let w = p.tensor("score_proj.weight", (2, 4, 4));
        scored(p, Split::into_heads(2), x, x, |q, k| bilinear(q, k, w))
    });
    cross_attention!(
        BilinearShared,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            let w = p.tensor("score_proj.weight", (4, 2, 2));
            scored(p, Split::sharing(4, 2), x, context, |q, k| {
                scale(bilinear(q, k, w), 0.5)
            })
        }
    );
}

#[test]
fn additive_has_a_vector_for_every_query_head() {
    self_attention!(Additive, d_model = 8, |p, x| {
        let w = p.tensor("score_proj.weight", (2, 3));
        scored(p, Split::into_heads(2), x, x, |q, k| additive(q, k, w))
    });
    cross_attention!(
        AdditiveShared,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            let w = p.tensor("score_proj.weight", (4, 5));
            scored(p, Split::sharing(4, 2), x, context, |q, k| {
                additive(q, k, w)
            })
        }
    );
}
