//! Sizes that are too large, for memory or for the layer.

use super::{Cross, Padded, batched, batched_of, error_of, panic_of, unbatched};
use attn::{Backend, Element, Error, attention, model, nn::LearnedPosition};
use dfdx::prelude::*;

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct WideContext<heads = 2, d_model = 8, d_context = 4096>;
    struct Additive<heads = 2, d_model = 8, score = additive(hidden = 16)>;
    struct WideHeads<heads = 2, d_model = 8, head_dim = 32>;
}

model! {
    struct Net<vocab = 5, d = 8>;
    fn forward(tokens: ids[batch, seq], lens: lens[batch]) -> [batch, d] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            x += attention::<2, mask = padding>(x, padding = lens);
        }
        mean_pool(x)
    }
}

model! {
    struct Wide<d = 8>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, 4096] { linear::<4096>(x) }
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

/// A size whose product with every other one is a `usize`, and that no address space has.
const MANY: usize = 1 << 48;

/// As many ones.
fn lengths(batch: usize) -> Tensor<(usize,), usize, Cpu> {
    let one: Tensor<Rank0, usize, _> = Cpu::default().ones();
    one.broadcast_like::<_, Axis<0>>(&(batch,))
}

/// The bytes of the message, after asserting that the pass is refused for them.
#[track_caller]
fn refused<R>(name: &str, result: Result<R, Error<CpuError>>) -> usize {
    match result.err() {
        Some(Error::TooLarge { layer, sizes }) if layer == name => match sizes[..] {
            [("size of activations in bytes", bytes)] => bytes,
            _ => panic!("{sizes:?}"),
        },
        other => panic!("{other:?}"),
    }
}

/// Asserts that a forward pass on this input is refused, and one with a tape for the memory of a step, in both types of elements.
macro_rules! assert_no_memory {
    ($Layer:ident($($size:expr),*), |$view:ident| $traced:expr, $input:expr) => {{
        fn check<E: Element>()
        where
            Cpu: Backend<E>,
        {
            let mut layer = Cpu::default().build_module::<$Layer, E>();
            let name = stringify!($Layer);
            let step = $Layer::activation_bytes($($size),*) / size_of::<f32>() * size_of::<E>();
            let input = || $input;
            let traced = || {
                let $view = input();
                $traced
            };
            assert!(refused(name, layer.try_forward(input())) < step);
            assert!(refused(name, layer.try_forward_mut(input())) < step);
            assert_eq!(refused(name, layer.try_forward(traced())), step);
            assert_eq!(refused(name, layer.try_forward_mut(traced())), step);
        }
        check::<f32>();
        check::<f64>();
    }};
}

#[test]
fn a_pass_of_a_layer_without_memory_for_it_is_refused() {
    assert_no_memory!(
        Plain(MANY, 4, 4),
        |x| x.leaky_trace(),
        batched_of::<8, E>(MANY, 4)
    );
    assert_no_memory!(
        Cross(1, 4, MANY),
        |input| (input.0.leaky_trace(), input.1),
        (batched_of::<8, E>(1, 4), batched_of::<6, E>(1, MANY))
    );
    // Before the lengths are read: they do not fit either.
    assert_no_memory!(
        Padded(MANY, 4, 4),
        |input| (input.0.leaky_trace(), input.1),
        (batched_of::<8, E>(MANY, 4), lengths(MANY))
    );
    let layer = Cpu::default().build_module::<Plain, f32>();
    let panic = panic_of(|| layer.forward(batched(MANY, 4)));
    let bytes = refused("Plain", layer.try_forward(batched(MANY, 4)));
    assert_eq!(
        panic.message,
        format!("Plain: size of activations in bytes ({bytes}) does not fit into memory")
    );
}

#[test]
fn a_pass_of_a_model_without_memory_for_it_is_refused() {
    assert_no_memory!(
        Wide(MANY / 256, 4),
        |x| x.leaky_trace(),
        batched_of::<8, E>(MANY / 256, 4)
    );
    assert_no_memory!(
        Net(MANY, 4),
        |input| (input.0.leaky_traced(), input.1),
        (
            lengths(MANY).broadcast_like::<_, Axis<1>>(&(MANY, 4)),
            lengths(MANY)
        )
    );
}

/// To give it one, dfdx copies a view.
#[test]
fn a_pass_without_a_batch_is_refused_before_it_is_given_one() {
    let layer = Cpu::default().build_module::<Cross, f32>();
    let bytes = Cross::activation_bytes(1, 4, MANY);
    let input = || (unbatched(4), unbatched(MANY));
    assert!(refused("Cross", layer.try_forward(input())) < bytes);
    let (x, context) = input();
    let traced = (x.leaky_trace(), context);
    assert_eq!(refused("Cross", layer.try_forward(traced)), bytes);
}
