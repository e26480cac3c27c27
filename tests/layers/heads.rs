//! The ways to write heads, and their number and widths.

use super::masked;
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    AllHeadsAtOnce, HeadsInTheBatch, OneHeadAtATime, Split,
    masks::{causal, for_all, full},
};

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct SingleHead<heads = 1, d_model = 8>;
    struct Causal<heads = 3, d_model = 12, mask = causal>;
    struct Cross<heads = 2, d_model = 8, d_context = 6>;
    struct NarrowHeads<heads = 3, d_model = 10, head_dim = 4>;
    struct WideValues<heads = 2, d_model = 8, head_dim = 3, value_head_dim = 5>;
    struct Grouped<heads = 4, kv_heads = 2, d_model = 16, mask = causal>;
    struct MultiQuery<heads = 3, kv_heads = 1, d_model = 12, value_head_dim = 5>;
    struct GroupedCross<heads = 6, kv_heads = 2, d_model = 24, d_context = 7>;
    struct NoBias<heads = 2, d_model = 8, bias = false>;
    struct SomeBias<heads = 2, d_model = 8, bias = [q, o]>;
    struct KeyAndValueBias<heads = 2, d_model = 8, d_context = 6, bias = [k, v]>;
}

#[test]
fn multi_head_attention_is_one_head_at_a_time_and_concatenation() {
    self_attention!(Plain, d_model = 8, |p, x| {
        let (batch, length, _) = *x.shape();
        let mask = for_all(batch, &full(length, length));
        let layer = OneHeadAtATime::<8, 4, 8, _>::new(p);
        let (output, weights) = layer.forward(&x.clone().realize(), &mask);
        (output, weights.permute::<_, Axes4<1, 0, 2, 3>>())
    });
}

#[test]
fn a_single_head_is_one_head_at_a_time() {
    self_attention!(SingleHead, d_model = 8, |p, x| {
        let (batch, length, _) = *x.shape();
        let mask = for_all(batch, &full(length, length));
        let layer = OneHeadAtATime::<8, 8, 8, _>::new(p);
        let (output, weights) = layer.forward(&x.clone().realize(), &mask);
        (output, weights.permute::<_, Axes4<1, 0, 2, 3>>())
    });
}

#[test]
fn multi_head_attention_is_all_heads_at_once_by_reshape_and_permute() {
    self_attention!(Causal, d_model = 12, |p, x| {
        let (batch, length, _) = *x.shape();
        let mask = for_all(batch, &causal(length, length));
        AllHeadsAtOnce::<12, 3, 4, 12, _>::new(p).forward(&x.clone().realize(), &mask)
    });
}

#[test]
fn cross_attention_is_that_of_heads_folded_into_the_batch() {
    cross_attention!(Cross, d_model = 8, d_context = 6, |p, x, context| {
        let layer = HeadsInTheBatch::<8, 6, 2, 4, 8, _>::new(p);
        let x = x.clone().realize();
        let context = context.clone().realize();
        layer.forward(&x, &context, None)
    });
}

#[test]
fn head_dim_need_not_divide_d_model() {
    self_attention!(NarrowHeads, d_model = 10, |p, x| {
        masked(p, Split::into_heads(3), x, x, |_, q, k| full(q, k))
    });
}

#[test]
fn values_may_have_another_width() {
    self_attention!(WideValues, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| full(q, k))
    });
}

#[test]
fn neighbouring_query_heads_share_keys_and_values() {
    self_attention!(Grouped, d_model = 16, |p, x| {
        masked(p, Split::sharing(4, 2), x, x, |_, q, k| causal(q, k))
    });
    cross_attention!(
        GroupedCross,
        d_model = 24,
        d_context = 7,
        |p, x, context| masked(p, Split::sharing(6, 2), x, context, |_, q, k| full(q, k))
    );
}

#[test]
fn all_query_heads_share_one_key_and_value_head() {
    self_attention!(MultiQuery, d_model = 12, |p, x| {
        masked(p, Split::sharing(3, 1), x, x, |_, q, k| full(q, k))
    });
}

/// The comparison includes the names of the gradients, and the hand-written layer has the declared biases.
#[test]
fn biases_exist_where_they_are_declared() {
    self_attention!(NoBias, d_model = 8, |p, x| {
        assert_eq!(
            ["q", "k", "v", "o"].map(|at| p.has(&format!("{at}_proj.bias"))),
            [false; 4]
        );
        masked(p, Split::into_heads(2), x, x, |_, q, k| full(q, k))
    });
    self_attention!(SomeBias, d_model = 8, |p, x| {
        assert_eq!(
            ["q", "k", "v", "o"].map(|at| p.has(&format!("{at}_proj.bias"))),
            [true, false, false, true]
        );
        masked(p, Split::into_heads(2), x, x, |_, q, k| full(q, k))
    });
    cross_attention!(
        KeyAndValueBias,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            assert_eq!(
                ["q", "k", "v", "o"].map(|at| p.has(&format!("{at}_proj.bias"))),
                [false, true, true, false]
            );
            masked(p, Split::into_heads(2), x, context, |_, q, k| full(q, k))
        }
    );
}
