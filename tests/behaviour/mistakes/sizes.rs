//! Sizes that are too large, for memory or for the layer.

use super::{Cross, Padded, batched, error_of, panic_of, unbatched};
use attn::{Error, attention, nn::LearnedPosition};
use dfdx::prelude::*;

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct WideContext<heads = 2, d_model = 8, d_context = 4096>;
    struct Additive<heads = 2, d_model = 8, score = additive(hidden = 16)>;
    struct WideHeads<heads = 2, d_model = 8, head_dim = 32>;
}

/// A size whose product with 4 or more is not a `usize`.
const HUGE: usize = 1 << 62;

#[test]
fn sizes_whose_product_overflows_are_found_before_any_tensor_is_made() {
    assert_mistake!(
        Plain,
        batched(HUGE, 4),
        Error::TooLarge { layer: "Plain", .. },
        "Plain: batch (4611686018427387904) * query (4) * width (8) does not fit into memory",
    );
    assert_mistake!(
        Plain,
        batched(3, HUGE).leaky_trace(),
        Error::TooLarge { layer: "Plain", .. },
        "Plain: batch (3) * query (4611686018427387904) * width (8) does not fit into memory",
    );
    // A size of 0 does not hide the overflow.
    assert_mistake!(
        Plain,
        batched(0, HUGE),
        Error::TooLarge { layer: "Plain", .. },
        "Plain: batch (0) * query (4611686018427387904) * width (8) does not fit into memory",
    );
}

#[test]
fn the_product_of_the_sizes_of_the_context_is_checked_too() {
    assert_mistake!(
        Cross,
        (batched(1, 4), batched(1, HUGE)),
        Error::TooLarge { layer: "Cross", .. },
        "Cross: batch (1) * key (4611686018427387904) * width (8) does not fit into memory",
    );
}

#[test]
fn sizes_of_a_wide_context_are_checked() {
    // Without queries nothing else is large: only 2^52 * 4096 overflows.
    assert_mistake!(
        WideContext,
        (batched(1 << 52, 0), batched(1 << 52, 1)),
        Error::TooLarge {
            layer: "WideContext",
            ..
        },
        "WideContext: batch (4503599627370496) * key (1) * width (4096) does not fit into memory",
    );
}

#[test]
fn the_product_of_the_sizes_of_heads_is_checked() {
    // 2^54 * 2 * 8 numbers would fit, 2^54 * 2 * 64 do not.
    assert_mistake!(
        WideHeads,
        batched(1 << 54, 2),
        Error::TooLarge {
            layer: "WideHeads",
            ..
        },
        "WideHeads: batch (18014398509481984) * query (2) * width (64) does not fit into memory",
    );
    assert_mistake!(
        Plain,
        batched(1, 1 << 30),
        Error::TooLarge { layer: "Plain", .. },
        "Plain: batch (1) * heads (2) * query (1073741824) * key (1073741824) does not fit into memory",
    );
    // The scores would fit: 2 * 2^56 numbers.
    assert_mistake!(
        Additive,
        batched(1, 1 << 28),
        Error::TooLarge {
            layer: "Additive",
            ..
        },
        "Additive: batch (1) * heads (2) * query (268435456) * key (268435456) * hidden (16) \
         does not fit into memory",
    );
}

#[test]
fn sizes_are_checked_before_the_data_of_masks_is_read() {
    let lengths = || {
        let one: Tensor<Rank0, usize, _> = Cpu::default().ones();
        one.broadcast_like::<_, Axis<0>>(&(HUGE,))
    };
    assert_mistake!(
        Padded,
        (batched(HUGE, 4), lengths()),
        Error::TooLarge {
            layer: "Padded",
            ..
        },
        "Padded: batch (4611686018427387904) * query (4) * width (8) does not fit into memory",
    );
}

#[test]
fn sizes_of_unbatched_input_are_checked() {
    assert_mistake!(
        Plain,
        unbatched(HUGE),
        Error::TooLarge { layer: "Plain", .. },
        "Plain: batch (1) * query (4611686018427387904) * width (8) does not fit into memory",
    );
    assert_mistake!(
        Cross,
        (unbatched(4), unbatched(HUGE)),
        Error::TooLarge { layer: "Cross", .. },
        "Cross: batch (1) * key (4611686018427387904) * width (8) does not fit into memory",
    );
}

#[test]
fn a_sequence_is_not_longer_than_its_learned_positions() {
    let message = "LearnedPosition: the sequence has length 6, the longest it can take is 5";
    let layer = Cpu::default().build_module::<LearnedPosition<5, 8>, f32>();
    let errors = [
        error_of(layer.try_forward(batched(2, 6))),
        error_of(layer.try_forward(batched(2, 6).leaky_trace())),
        error_of(layer.try_forward(unbatched(6))),
    ];
    for error in errors {
        let variant = matches!(
            &error,
            Error::TooLong {
                layer: "LearnedPosition",
                length: 6,
                max: 5
            }
        );
        assert!(variant, "{error:?}");
        assert_eq!(error.to_string(), message);
    }
    let tuple = Cpu::default().build_module::<(LearnedPosition<5, 8>, Plain), f32>();
    for panic in [
        panic_of(|| layer.forward(batched(2, 6))),
        panic_of(|| Module::forward(&layer, unbatched(6))),
        panic_of(|| tuple.forward(batched(2, 6))),
    ] {
        assert_eq!(panic.message, message);
    }
}

#[test]
fn learned_positions_check_the_sizes_too() {
    let layer = Cpu::default().build_module::<LearnedPosition<5, 8>, f32>();
    let message = "LearnedPosition: batch (4611686018427387904) * length (4) * width (8) does not fit into memory";
    let error = error_of(layer.try_forward(batched(HUGE, 4)));
    let variant = matches!(
        &error,
        Error::TooLarge {
            layer: "LearnedPosition",
            ..
        }
    );
    assert!(variant, "{error:?}");
    assert_eq!(error.to_string(), message);
    let panic = panic_of(|| layer.forward(batched(HUGE, 4)));
    assert_eq!(panic.message, message);
}
