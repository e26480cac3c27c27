//! Attentions in a model whose keys and values are values of their own.

use super::*;
use attn::{Backend, Element, model};
use claim::agree;
use support::{
    cases::{lens_up_to, scatter, tensor},
    compare::{Backpropagated, assert_same, backpropagate},
};

#[path = "../operations/claim.rs"]
mod claim;
use claim::tolerance;

agree! {
    computed_queries_keys_and_values {
        struct M<d = 8>;
        fn forward(x: [batch, q, d], y: [batch, k, 6], z: [batch, k, 5], lens: lens[batch]) -> [batch, q, d] {
            attention::<2, mask = padding, kv_heads = 1>(tanh(x), context = gelu(y), values = tanh(z), padding = lens)
        }
    } (batch: 2, q: 3, k: 5) (
        x: tensor::<_, E>("x", (batch, q, Const::<8>)),
        tensor::<_, E>("y", (batch, k, Const::<6>)),
        tensor::<_, E>("z", (batch, k, Const::<5>)),
        lens_up_to(batch, k)
    ) reads x;

    values_of_the_same_sequence {
        struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
            let y = tanh(x);
            attention::<2>(y, context = y, values = linear::<5>(y)) + attention::<2, name = of_input>(x, context = layer_norm(x), values = x)
        }
    } (batch: 2, seq: 4) (x: tensor::<_, E>("x", (batch, seq, Const::<8>))) reads x;

    one_value_three_times_in_a_loop {
        struct M<d = 8>;
        fn forward(x: [seq, d]) -> [seq, d] {
            let mut x = x;
            repeat 2 { x = x + attention::<2, dropout = 0.5>(x, context = x, values = x); }
            x
        }
    } (seq: 4) (x: tensor::<_, E>("x", (seq, Const::<8>))) reads x;
}
