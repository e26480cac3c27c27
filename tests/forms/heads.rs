//! Sizes of heads, shared keys, and biases of projections.

use support::agreement::agree;

const HEADS: usize = 4;
const WIDTH: usize = 3;
const WINDOW: usize = 20;
const SCALE: f32 = 0.3;
const CAP: f64 = 2.0;
const P: f64 = 0.25;

mod config {
    pub(super) const KV_HEADS: usize = 2;
}

tests! {
    agree, |x, _case| x;

    two [heads = 2, d_model = 8];
    one [heads = 1, d_model = 8];
    eight_of_one [heads = 8, d_model = 8];
    five_of_thirteen [heads = 5, d_model = 65];

    keys_shared_in_pairs [heads = 4, kv_heads = 2, d_model = 8];
    keys_shared_by_all [heads = 4, kv_heads = 1, d_model = 8];

    odd_head_dim [heads = 2, d_model = 8, head_dim = 7];
    head_dim_of_one [heads = 2, d_model = 8, head_dim = 1];
    head_dim_beyond_a_vector [heads = 2, d_model = 8, head_dim = 33];
    head_dim_of_128 [heads = 1, d_model = 8, head_dim = 128];
    odd_value_head_dim [heads = 2, d_model = 8, value_head_dim = 3];
    value_head_dim_beyond_a_vector [heads = 2, d_model = 8, value_head_dim = 65];
    odd_sizes_with_shared_keys [heads = 6, kv_heads = 3, d_model = 9, head_dim = 5, value_head_dim = 11];

    no_bias [heads = 2, d_model = 8, bias = false];
    bias_of_queries_keys_and_values [heads = 2, d_model = 8, bias = [q, k, v]];
    bias_of_the_output [heads = 2, d_model = 8, bias = [o]];
    bias_of_queries_and_values [heads = 4, kv_heads = 2, d_model = 8, bias = [q, v]];

    sizes_from_constants_of_the_user [heads = HEADS, d_model = { HEADS * WIDTH }, kv_heads = config::KV_HEADS, value_head_dim = { WIDTH + 2 }, mask = sliding_window(WINDOW), position = alibi, scale = SCALE, softcap = CAP, dropout = P];
}
