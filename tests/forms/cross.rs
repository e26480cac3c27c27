//! Contexts of other widths and lengths, and the alignment of their positions with those of the queries.

use support::agreement::agree_across;

tests! {
    agree_across, |x, context, _case| (x, context);

    plain [heads = 2, d_model = 8, d_context = 6];
    context_of_one_number [heads = 2, d_model = 8, d_context = 1];
    context_of_the_input_width [heads = 2, d_model = 8, d_context = 8];
    wider_than_a_vector [heads = 2, d_model = 8, d_context = 35];
    shared_keys [heads = 4, kv_heads = 2, d_model = 8, d_context = 6];
    odd_heads [heads = 3, d_model = 8, d_context = 5, head_dim = 7, value_head_dim = 9];
    no_bias [heads = 2, d_model = 8, d_context = 6, bias = false];

    causal_upper_left [heads = 2, d_model = 8, d_context = 6, mask = causal(upper_left)];
    causal_lower_right [heads = 2, d_model = 8, d_context = 6, mask = causal(lower_right)];
    sliding_window_upper_left [heads = 2, d_model = 8, d_context = 6, mask = sliding_window(20, upper_left)];
    sliding_window_lower_right [heads = 2, d_model = 8, d_context = 6, mask = sliding_window(20, lower_right)];
    sliding_window_symmetric [heads = 2, d_model = 8, d_context = 6, mask = sliding_window(9, symmetric, lower_right)];
    dilated_upper_left [heads = 2, d_model = 8, d_context = 6, mask = dilated_sliding_window(4, 5, upper_left)];
    dilated_symmetric_lower_right [heads = 2, d_model = 8, d_context = 6, mask = dilated_sliding_window(4, 5, lower_right, symmetric)];
    prefix_upper_left [heads = 2, d_model = 8, d_context = 6, mask = prefix_lm(3, upper_left)];
    prefix_lower_right [heads = 2, d_model = 8, d_context = 6, mask = prefix_lm(3, lower_right)];
    chunked_upper_left [heads = 2, d_model = 8, d_context = 6, mask = chunked(30, upper_left)];
    chunked_lower_right [heads = 2, d_model = 8, d_context = 6, mask = chunked(30, lower_right)];
    aligned_in_two_ways [heads = 2, d_model = 8, d_context = 6, mask = causal(lower_right) & !sliding_window(3, upper_left)];

    rope [heads = 2, d_model = 8, d_context = 6, position = rope];
    alibi [heads = 2, d_model = 8, d_context = 6, position = alibi];
    relative_bias [heads = 2, d_model = 8, d_context = 6, position = rel_pos_bias(8, 40)];
    relative_bias_causal [heads = 2, d_model = 8, d_context = 6, position = rel_pos_bias(8, 40), mask = causal(upper_left)];
}
