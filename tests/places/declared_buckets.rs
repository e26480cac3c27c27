//! `bidirectional` decides the buckets of `rel_pos_bias`, for any spelling of the mask, and whatever can be proved about it.

use super::mask_of;
use attn::attention;
use support::reference::{
    Split, attention,
    heads::scaled_dot,
    masks::{causal, full},
    normalizers::softmax,
    positions::{bucket_of_both_sides, bucket_of_the_past, relative_bias},
};

attention! {
    struct Plain<heads = 2, d_model = 8, position = rel_pos_bias(6, 10), bidirectional = false> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
    }

    /// No proof shows that this is the same mask.
    struct Squared<heads = 2, d_model = 8, position = rel_pos_bias(6, 10), bidirectional = false> {
        fn mask(q_idx, kv_idx) { kv_idx * kv_idx <= q_idx * q_idx }
    }

    struct Ahead<heads = 2, d_model = 8, position = rel_pos_bias(8, 9), mask = causal, bidirectional = true>;
    struct NotAhead<heads = 2, d_model = 8, position = rel_pos_bias(6, 10), bidirectional = false>;

    /// The lengths are read in operands that do not affect the mask.
    struct DeadLength<heads = 2, d_model = 8, position = rel_pos_bias(6, 10), bidirectional = false> {
        fn mask(q_idx, kv_idx, q_len, kv_len) { (2 > 1 || q_len > 3) && kv_idx <= q_idx || 1 > 2 && kv_len > 3 }
    }
}

/// A layer against its score and mask by hand.
macro_rules! agrees {
    ($Layer:ident, $buckets:literal, $mask:ident, $bucket:expr) => {
        self_attention!($Layer, d_model = 8, |p, x| {
            let table = p.tensor("rel_pos_bias.weight", ($buckets, 2));
            let mask = mask_of(x, x, |_, q, k| $mask(q, k));
            let score = |q, k| relative_bias(scaled_dot(q, k), table, $bucket);
            attention(p, Split::into_heads(2), x, x, score, |s| softmax(s, &mask))
        })
    };
}

#[test]
fn spellings_of_one_mask_have_the_same_buckets() {
    agrees!(Plain, 6, causal, |d| bucket_of_the_past(d, 6, 10));
    agrees!(Squared, 6, causal, |d| bucket_of_the_past(d, 6, 10));
}

#[test]
fn bidirectional_overrides_the_words_of_the_mask() {
    agrees!(Ahead, 8, causal, |d| bucket_of_both_sides(d, 8, 9));
    agrees!(NotAhead, 6, full, |d| bucket_of_the_past(d, 6, 10));
}

#[test]
fn lengths_in_dead_operands_change_nothing() {
    agrees!(DeadLength, 6, causal, |d| bucket_of_the_past(d, 6, 10));
    assert_eq!(DeadLength::mask_density(4, 4), 10.0 / 16.0);
}
