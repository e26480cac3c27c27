//! Masks of positions, and their combinations.

use support::agreement::{agree, agree_beyond_a_tile};

tests! {
    agree_beyond_a_tile, |x, _case| x;

    causal [heads = 2, d_model = 8, mask = causal];
    sliding_window_beyond_a_tile [heads = 2, d_model = 8, mask = sliding_window(70)];
    chunks_beyond_a_tile [heads = 2, d_model = 8, mask = chunked(130)];
    complement_of_a_window [heads = 2, d_model = 8, mask = !sliding_window(100, symmetric)];
}

tests! {
    agree, |x, _case| x;

    none [heads = 2, d_model = 8, mask = none];
    causal_upper_left [heads = 2, d_model = 8, mask = causal(upper_left)];
    causal_lower_right [heads = 2, d_model = 8, mask = causal(lower_right)];
    sliding_window [heads = 2, d_model = 8, mask = sliding_window(3)];
    sliding_window_of_one [heads = 2, d_model = 8, mask = sliding_window(1)];
    sliding_window_symmetric [heads = 2, d_model = 8, mask = sliding_window(5, symmetric)];
    dilated_sliding_window [heads = 2, d_model = 8, mask = dilated_sliding_window(4, 3)];
    dilated_sliding_window_symmetric [heads = 2, d_model = 8, mask = dilated_sliding_window(3, 30, symmetric)];
    prefix_lm [heads = 2, d_model = 8, mask = prefix_lm(3)];
    prefix_lm_beyond_a_tile [heads = 2, d_model = 8, mask = prefix_lm(70)];
    chunked [heads = 2, d_model = 8, mask = chunked(5)];
    chunks_of_one [heads = 2, d_model = 8, mask = chunked(1)];

    chunked_and_causal [heads = 2, d_model = 8, mask = causal & chunked(50)];
    chunked_or_causal [heads = 2, d_model = 8, mask = causal | chunked(50)];
    not_causal [heads = 2, d_model = 8, mask = !causal];
    causal_but_for_a_window [heads = 2, d_model = 8, mask = causal & !sliding_window(3)];
    de_morgan [heads = 2, d_model = 8, mask = !(!causal | sliding_window(7))];
    three_with_parentheses [heads = 2, d_model = 8, mask = (sliding_window(4) | prefix_lm(2)) & !dilated_sliding_window(2, 2)];
    four_in_a_row [heads = 2, d_model = 8, mask = chunked(40) & causal | sliding_window(2) & !prefix_lm(1)];
    empty_mask [heads = 2, d_model = 8, mask = causal & !causal];
    everything_after_all [heads = 2, d_model = 8, mask = causal | !causal];
}
