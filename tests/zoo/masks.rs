//! Sparsity patterns.

use super::{biased, mask};
use attn::attention;
use support::reference::{Split, attention, heads::scaled_dot, normalizers::softmax};

const WIDTH: usize = 3;

attention! {
    struct Causal<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
    }
    struct Window<heads = 2, d_model = 8, mask = causal> {
        fn mask(q_idx, kv_idx) { q_idx - kv_idx < WIDTH }
    }
    /// Raffel et al. (2020): all tokens attend to a prefix.
    struct PrefixLm<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx || kv_idx < 2 }
    }
    /// Beltagy et al., "Longformer" (2020).
    struct Longformer<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) { abs(q_idx - kv_idx) <= 1 || q_idx < 1 || kv_idx < 1 }
    }
    /// Child et al., "Sparse Transformer" (2019): the last few keys, and every third one before.
    struct Strided<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) {
            let distance = q_idx - kv_idx;
            distance >= 0 && (distance < 3 || distance % 3 == 0)
        }
    }
    struct Dilated<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && (q_idx - kv_idx) % 2 == 0 && q_idx - kv_idx < 6 }
    }
    /// Hassani et al., "Neighborhood attention" (2023), on a grid three cells wide.
    struct Neighborhood<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) {
            abs(q_idx / 3 - kv_idx / 3) <= 1 && abs(q_idx % 3 - kv_idx % 3) <= 1
        }
    }
    /// Arriola et al., "Block diffusion" (2025): a token attends to its block and the blocks before.
    struct BlockCausal<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) { kv_idx / 3 <= q_idx / 3 }
    }
    /// A window per head.
    struct PerHead<heads = 2, d_model = 8, mask = causal> {
        fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < if h < 1 { 2 } else { 5 } }
    }
    struct NotTheFirst<heads = 2, d_model = 8> {
        fn mask(q_idx, kv_idx) { !(kv_idx == 0) || q_idx == 0 }
    }
}

/// By hand: the softmax of scaled dot products over the pairs of a predicate.
macro_rules! masked {
    ($Layer:ident, $attends:expr) => {
        self_attention!($Layer, d_model = 8, |p, x| {
            let mask = mask(x, $attends);
            attention(p, Split::into_heads(2), x, x, scaled_dot, |s| {
                softmax(s, &mask)
            })
        })
    };
}

#[test]
fn causal_equals_the_dense_reference() {
    masked!(Causal, |q, k| k <= q);
}

#[test]
fn windows_combine_with_the_mask_of_the_header() {
    masked!(Window, |q, k| k <= q && q < k + 3);
}

#[test]
fn prefix_lm_equals_the_dense_reference() {
    masked!(PrefixLm, |q, k| k <= q || k < 2);
}

#[test]
fn global_and_window_equals_the_dense_reference() {
    masked!(Longformer, |q: usize, k: usize| q.abs_diff(k) <= 1
        || q == 0
        || k == 0);
}

#[test]
fn strided_equals_the_dense_reference() {
    masked!(Strided, |q, k| k <= q && (q - k < 3 || (q - k) % 3 == 0));
}

#[test]
fn dilated_equals_the_dense_reference() {
    masked!(Dilated, |q, k| [0, 2, 4].iter().any(|back| k + back == q));
}

#[test]
fn neighborhood_on_a_grid_equals_the_dense_reference() {
    let near = |a: usize, b: usize| a.abs_diff(b) <= 1;
    masked!(Neighborhood, |q, k| near(q / 3, k / 3)
        && near(q % 3, k % 3));
}

#[test]
fn block_causal_equals_the_dense_reference() {
    masked!(BlockCausal, |q, k| k < (q / 3 + 1) * 3);
}

#[test]
fn windows_of_heads_equal_the_dense_reference() {
    self_attention!(PerHead, d_model = 8, |p, x| {
        let all = mask(x, |_, _| true);
        let score = |q, k| {
            biased(scaled_dot(q, k), |h, q, k| {
                let width = [2, 5][h];
                if k <= q && q < k + width {
                    0.0
                } else {
                    f64::NEG_INFINITY
                }
            })
        };
        attention(p, Split::into_heads(2), x, x, score, |s| softmax(s, &all))
    });
}

#[test]
fn negations_equal_the_dense_reference() {
    masked!(NotTheFirst, |q, k| k > 0 || q == 0);
}
