//! The output layer and its loss as one operation: in models, and as a function.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[path = "../operations/claim.rs"]
mod claim;
mod function;
mod large;
mod upstream;

use attn::{Backend, Element, dfdx::prelude::*, model};
use claim::{agree, tolerance};
use support::cases::{ids, scatter, tensor};
use support::compare::{Backpropagated, Outcome, assert_same, backpropagate};

agree! {
    a_layer_with_a_bias {
        struct M<d = 3, vocab = 33>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] { cross_entropy(linear::<vocab>(tanh(x)), targets) }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 33)) reads x;

    a_layer_without_a_bias {
        struct M<d = 3, vocab = 5>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            cross_entropy::<ignore_index = 2, label_smoothing = 0.1>(linear::<vocab, bias = false>(x), targets)
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 5)) reads x;

    the_table_of_an_embedding {
        struct M<d = 4, vocab = 7>;
        fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [] {
            let x = rms_norm(embedding::<vocab, d>(tokens) + x);
            2 * cross_entropy(linear::<tied = embedding>(x), tokens)
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 7)) reads x;

    losses_with_weights {
        struct M<d = 3, vocab = 5>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            let losses = cross_entropy::<ignore_index = 2, reduction = none, label_smoothing = 0.2>(linear::<vocab>(x), targets);
            sum::<[batch, seq]>(losses * losses)
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 5)) reads x;

    rows_along_other_axes {
        struct M<d = 3, vocab = 5>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            let logits = linear::<vocab>(rearrange::<[rows = (batch, seq), d]>(x));
            cross_entropy(rearrange::<[(batch, seq), vocab] -> [batch, seq, vocab]>(logits), targets)
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 5)) reads x;

    a_loss_of_each_round {
        struct M<d = 4, vocab = 5>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            let mut x = x;
            let mut all = mean::<[batch, seq, d]>(x);
            repeat 3 {
                x += tanh(linear::<d>(x));
                all = all + cross_entropy(linear::<vocab>(x), targets);
            }
            all + mean::<[batch, seq, d]>(x * x)
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 5)) reads x;

    a_loss_of_each_round_alone {
        struct M<d = 4, vocab = 5>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            let mut x = x;
            let mut all = 0.1 * mean::<[batch, seq, d]>(x);
            repeat 3 {
                x += tanh(linear::<d>(x));
                all = all + cross_entropy::<ignore_index = 2>(linear::<vocab>(x), targets);
            }
            all
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 5)) reads x;

    a_loss_before_each_round {
        struct M<d = 4, vocab = 5>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] {
            let mut x = x;
            let mut all = mean::<[batch, seq, d]>(0 * x);
            repeat 3 {
                all = all + cross_entropy(linear::<vocab>(x), targets);
                x += tanh(linear::<d>(x));
            }
            all
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 5)) reads x;

    two_losses_of_one_value {
        struct M<d = 4>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [batch, seq] {
            cross_entropy(linear::<5>(x), targets) + cross_entropy::<reduction = none>(linear::<6>(x), targets)
        }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<4>)), ids((batch, seq), 5)) reads x;

    one_class {
        struct M<d = 3>;
        fn forward(x: [batch, seq, d], targets: ids[batch, seq]) -> [] { cross_entropy(linear::<1>(x), targets) }
    } (batch: 2, seq: 3) (x: tensor::<_, E>("x", (batch, seq, Const::<3>)), ids((batch, seq), 1)) reads x;
}
