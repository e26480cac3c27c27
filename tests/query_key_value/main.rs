//! Layers with three inputs: queries, keys and values are projections of tensors of their own.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

#[macro_use(tests)]
extern crate support;

mod calls;
mod mistakes;
mod networks;

use attn::dfdx::prelude::*;
use support::{
    agreement::agree_across,
    compare::Outcome,
    gradients::assert_gradients_of_state,
    subject::{Case, Sizes, Subject, Way},
};

tests! {
    agree_across, |x, context, values, _case| (x, context, values);

    plain [heads = 2, d_model = 8, d_context = 6, d_values = 5];
    widths_of_the_input [heads = 2, d_model = 8, d_context = 8, d_values = 8];
    values_of_one_number [heads = 2, d_model = 8, d_context = 6, d_values = 1];
    shared_keys_and_values [heads = 4, kv_heads = 2, d_model = 8, d_context = 6, d_values = 35, bias = [q, v]];
    odd_heads [heads = 3, d_model = 8, d_context = 5, d_values = 7, head_dim = 7, value_head_dim = 9, bias = false];
    rotated_in_a_window [heads = 2, d_model = 8, d_context = 6, d_values = 5, position = rope, mask = sliding_window(20, lower_right)];
    normed_with_sinks_and_dropout [heads = 2, d_model = 8, d_context = 6, d_values = 5, qk_norm = rms, normalizer = sink, dropout = 0.3];
    additive [heads = 2, d_model = 8, d_context = 6, d_values = 5, score = additive(hidden = 3)];
    sparse [heads = 2, d_model = 8, d_context = 6, d_values = 5, normalizer = sparsemax, value_head_dim = 3];
}

tests! {
    agree_across, |x, context, values, case| (x, context, values, case.lengths(), case.counts());

    data_behind_three_inputs [heads = 2, d_model = 8, d_context = 6, d_values = 5, mask = padding] {
        data count: [batch, kv_len];
        fn score(score, b, kv_idx) { score + count[b, kv_idx] }
    };
}

fn slopes(subject: &Subject) {
    for sizes in [Sizes::new(2, 4, 3), Sizes::new(1, 3, 70)] {
        let case = subject.case(sizes);
        for way in [Way::Fused, Way::Composed] {
            let run = |case: &Case| -> Outcome { (subject.double)(way, case) };
            assert_gradients_of_state(
                format!("{way:?}, {sizes:?}"),
                &case.state,
                &run(&case),
                &|state| {
                    let mut moved = case.clone();
                    moved.state = state.clone();
                    run(&moved).loss()
                },
            );
        }
    }
}

tests! {
    slopes, |x, context, values, _case| (x, context, values);

    gradients_of_all_inputs [heads = 4, kv_heads = 2, d_model = 8, d_context = 6, d_values = 5, value_head_dim = 3, position = rope, qk_norm = rms];
}
