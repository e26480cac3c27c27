//! Masks of positions, against matrices.

use super::masked;
use attn::attention;
use dfdx::prelude::*;
use support::reference::{Split, masks::*};

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
    struct CausalUpperLeft<heads = 2, d_model = 8, d_context = 6, mask = causal(upper_left)>;
    struct CausalLowerRight<heads = 2, d_model = 8, d_context = 6, mask = causal(lower_right)>;
    struct WindowUpperLeft<heads = 2, d_model = 8, d_context = 6, mask = sliding_window(3, upper_left)>;
    struct WindowLowerRight<heads = 2, d_model = 8, d_context = 6, mask = sliding_window(3, lower_right)>;
    struct DilatedLowerRight<heads = 2, d_model = 8, d_context = 6, mask = dilated_sliding_window(2, 2, lower_right, symmetric)>;
    struct PrefixLowerRight<heads = 2, d_model = 8, d_context = 6, mask = prefix_lm(2, lower_right)>;
    struct ChunkedLowerRight<heads = 2, d_model = 8, d_context = 6, mask = chunked(3, lower_right)>;
    struct Local<heads = 2, d_model = 8, mask = sliding_window(3)>;
    struct LocalToItself<heads = 2, d_model = 8, mask = sliding_window(1)>;
    struct LocalSymmetric<heads = 2, d_model = 8, mask = sliding_window(3, symmetric)>;
    struct Dilated<heads = 2, d_model = 8, mask = dilated_sliding_window(3, 2)>;
    struct DilatedSymmetric<heads = 2, d_model = 8, mask = dilated_sliding_window(2, 3, symmetric)>;
    struct Prefix<heads = 2, d_model = 8, mask = prefix_lm(3)>;
    struct Chunked<heads = 2, d_model = 8, mask = chunked(4)>;
    struct LocalInChunks<heads = 2, d_model = 8, mask = causal & chunked(4) & sliding_window(2)>;
    struct PrefixOrDilated<heads = 2, d_model = 8, mask = prefix_lm(2) | dilated_sliding_window(2, 4, symmetric)>;
    struct Future<heads = 2, d_model = 8, mask = !causal>;
    struct NotFarBack<heads = 2, d_model = 8, mask = causal & !(sliding_window(2) | chunked(3))>;
}

#[test]
fn causal_is_the_lower_triangle() {
    self_attention!(Causal, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| causal(q, k))
    });
}

#[test]
fn causal_upper_left_pairs_the_first_query_with_the_first_key() {
    cross_attention!(
        CausalUpperLeft,
        d_model = 8,
        d_context = 6,
        |p, x, context| masked(p, Split::into_heads(2), x, context, |_, q, k| causal(q, k))
    );
}

/// With more queries than keys the first queries attend to nothing: their rows are zero.
#[test]
fn causal_lower_right_pairs_the_last_query_with_the_last_key() {
    cross_attention!(
        CausalLowerRight,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| {
                causal_lower_right(q, k)
            })
        }
    );
}

#[test]
fn windows_and_other_masks_can_be_aligned() {
    cross_attention!(
        WindowUpperLeft,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| {
                local(q, k, 3)
            })
        }
    );
    cross_attention!(
        WindowLowerRight,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| {
                lower_right_corner(q, k, |n| local(n, n, 3))
            })
        }
    );
    cross_attention!(
        DilatedLowerRight,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| {
                lower_right_corner(q, k, |n| dilated_symmetric(n, n, 2, 2))
            })
        }
    );
    cross_attention!(
        PrefixLowerRight,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| {
                causal_lower_right(q, k) | padding(q, k, 2)
            })
        }
    );
    cross_attention!(
        ChunkedLowerRight,
        d_model = 8,
        d_context = 6,
        |p, x, context| {
            masked(p, Split::into_heads(2), x, context, |_, q, k| {
                chunked_lower_right(q, k, 3)
            })
        }
    );
}

#[test]
fn a_sliding_window_is_a_band_below_the_diagonal() {
    self_attention!(Local, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| local(q, k, 3))
    });
    self_attention!(LocalToItself, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| local(q, k, 1))
    });
}

#[test]
fn a_symmetric_sliding_window_is_a_band_around_the_diagonal() {
    self_attention!(LocalSymmetric, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| {
            local_symmetric(q, k, 3)
        })
    });
}

#[test]
fn a_dilated_window_takes_every_second_or_third_key() {
    self_attention!(Dilated, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| dilated(q, k, 3, 2))
    });
    self_attention!(DilatedSymmetric, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| {
            dilated_symmetric(q, k, 2, 3)
        })
    });
}

#[test]
fn a_prefix_is_seen_by_all() {
    self_attention!(Prefix, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| prefix_lm(q, k, 3))
    });
}

#[test]
fn chunks_are_squares_on_the_diagonal() {
    self_attention!(Chunked, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| chunked(q, k, 4))
    });
}

#[test]
fn combined_masks_are_the_combined_matrices() {
    self_attention!(LocalInChunks, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| {
            chunked(q, k, 4) & local(q, k, 2)
        })
    });
    self_attention!(PrefixOrDilated, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| {
            prefix_lm(q, k, 2) | dilated_symmetric(q, k, 2, 4)
        })
    });
    self_attention!(NotFarBack, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| {
            causal(q, k) & !(local(q, k, 2) | chunked(q, k, 3))
        })
    });
}

/// The last query attends to nothing.
#[test]
fn not_causal_is_the_strict_upper_triangle() {
    self_attention!(Future, d_model = 8, |p, x| {
        masked(p, Split::into_heads(2), x, x, |_, q, k| {
            Cpu::default().upper_tri_like(&(q, k), true, 1)
        })
    });
}
