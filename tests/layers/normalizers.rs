//! Normalizers.

use super::mask_of;
use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Split, attention,
    heads::{dot, scale, scaled_dot},
    masks::{causal, causal_lower_right, full, local},
    normalizers::{alone, entmax, relu, sigmoid, sink, softmax1},
};

attention! {
    struct Softmax1<heads = 2, d_model = 8, normalizer = softmax1>;
    struct Softmax1Local<heads = 2, d_model = 8, normalizer = softmax1, mask = sliding_window(2), scale = 3>;
    struct Softmax1Cross<heads = 2, d_model = 8, d_context = 6, normalizer = softmax1, mask = causal(lower_right)>;
    struct Sigmoid<heads = 2, d_model = 8, normalizer = sigmoid>;
    struct SigmoidCausal<heads = 4, kv_heads = 2, d_model = 8, normalizer = sigmoid, mask = causal>;
    struct SigmoidCross<heads = 2, d_model = 8, d_context = 6, normalizer = sigmoid, mask = causal(lower_right)>;
    struct Sink<heads = 2, d_model = 8, normalizer = sink>;
    struct SinkCausal<heads = 4, kv_heads = 2, d_model = 8, normalizer = sink, mask = causal>;
    struct Relu<heads = 2, d_model = 8, normalizer = relu>;
    struct ReluSquared<heads = 2, d_model = 8, normalizer = relu(power = 2), mask = causal>;
    struct Sparsemax<heads = 2, d_model = 8, normalizer = sparsemax>;
    struct SparsemaxCross<heads = 2, d_model = 8, d_context = 6, normalizer = sparsemax, mask = causal(lower_right)>;
    struct Entmax15<heads = 2, d_model = 8, normalizer = entmax15>;
    struct Entmax15Causal<heads = 4, kv_heads = 2, d_model = 8, normalizer = entmax15, mask = causal, scale = 3>;
    struct Named<heads = 2, d_model = 8> {
        fn normalize { entmax15 }
    }
    struct Bounded<heads = 2, d_model = 8, mask = causal> {
        fn score(score) { 2.0 * score }
        fn normalize(score) { tanh(score) }
    }
    /// Ramapuram et al. (2024), with the number of keys in place of the bias.
    struct Average<heads = 2, d_model = 8> {
        param slope: [heads] = ones;
        fn normalize(score, h, kv_len) { sigmoid(slope[h] * score) / kv_len as f32 }
    }
}

#[test]
fn softmax1_is_a_softmax_with_a_key_of_score_zero_and_no_value() {
    self_attention!(Softmax1, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            softmax1(s, &mask)
        })
    });
    self_attention!(Softmax1Local, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| local(q, k, 2));
        let score = |q, k| scale(dot(q, k), 3.0);
        attention(p, Split::into_heads(2), x, x, score, |s| softmax1(s, &mask))
    });
    cross_attention!(
        Softmax1Cross,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            let mask = mask_of(x, context, |_, q, k| causal_lower_right(q, k));
            attention(p, Split::into_heads(2), x, context, scaled_dot, |s| {
                softmax1(s, &mask)
            })
        }
    );
}

#[test]
fn sigmoid_weighs_every_key_for_itself() {
    self_attention!(Sigmoid, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            sigmoid(s, &mask)
        })
    });
    self_attention!(SigmoidCausal, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| causal(q, k));
        attention(p, Split::sharing(4, 2), x, x, scaled_dot, |s| {
            sigmoid(s, &mask)
        })
    });
    cross_attention!(SigmoidCross, d_model = 8, d_context = 6, |p, x, context| {
        let mask = mask_of(x, context, |_, q, k| causal_lower_right(q, k));
        attention(p, Split::into_heads(2), x, context, scaled_dot, |s| {
            sigmoid(s, &mask)
        })
    });
}

#[test]
fn a_sink_is_one_more_key_with_a_learned_score_and_no_value() {
    self_attention!(Sink, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            sink(s, &mask, p.tensor("sink.weight", (2,)))
        })
    });
    self_attention!(SinkCausal, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| causal(q, k));
        attention(p, Split::sharing(4, 2), x, x, scaled_dot, |s| {
            sink(s, &mask, p.tensor("sink.weight", (4,)))
        })
    });
}

#[test]
fn relu_weighs_every_key_for_itself() {
    self_attention!(Relu, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            relu(s, &mask, 1)
        })
    });
    self_attention!(ReluSquared, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| causal(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            relu(s, &mask, 2)
        })
    });
}

#[test]
fn sparsemax_is_a_projection_onto_the_simplex() {
    self_attention!(Sparsemax, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            entmax(s, &mask, 1)
        })
    });
    cross_attention!(
        SparsemaxCross,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            let mask = mask_of(x, context, |_, q, k| causal_lower_right(q, k));
            attention(p, Split::into_heads(2), x, context, scaled_dot, |s| {
                entmax(s, &mask, 1)
            })
        }
    );
}

#[test]
fn entmax15_is_between_softmax_and_sparsemax() {
    self_attention!(Entmax15, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            entmax(s, &mask, 2)
        })
    });
    self_attention!(Entmax15Causal, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| causal(q, k));
        let score = |q, k| scale(dot(q, k), 3.0);
        attention(p, Split::sharing(4, 2), x, x, score, |s| {
            entmax(s, &mask, 2)
        })
    });
}

#[test]
fn a_body_names_a_normalizer() {
    self_attention!(Named, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            entmax(s, &mask, 2)
        })
    });
}

#[test]
fn a_body_computes_a_weight_from_its_score() {
    self_attention!(Bounded, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| causal(q, k));
        let score = |q, k| scale(scaled_dot(q, k), 2.0);
        attention(p, Split::into_heads(2), x, x, score, |s| {
            alone(s.tanh(), &mask)
        })
    });
    self_attention!(Average, d_model = 8, |p, x| {
        let mask = mask_of(x, x, |_, q, k| full(q, k));
        attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
            let shape = *s.shape();
            let slope = p.tensor("slope.weight", (2,)).leaky_trace();
            let slope = slope.broadcast_like::<_, Axes3<0, 2, 3>>(&shape);
            let share = 1.0 / shape.3 as f64;
            alone(scale((s * slope).sigmoid(), share), &mask)
        })
    });
}
