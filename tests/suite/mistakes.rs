//! Mistakes that only the running program can see are typed errors which name the layer and both values, and the panicking
//! twins point at the caller.

use attn::{Error, attention, nn::LearnedPosition};
use dfdx::prelude::*;
use std::{
    cell::RefCell,
    fmt::Debug,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

attention! {
    struct Plain<heads = 2, d_model = 8>;
    struct WideContext<heads = 2, d_model = 8, d_context = 4096>;
    struct Cross<heads = 2, d_model = 8, d_context = 6>;
    struct Padded<heads = 2, d_model = 8, mask = padding>;
    struct PaddedCross<heads = 2, d_model = 8, d_context = 6, mask = padding>;
    struct Packed<heads = 2, d_model = 8, mask = document>;
    struct PackedCross<heads = 2, d_model = 8, d_context = 6, mask = document>;
    struct Additive<heads = 2, d_model = 8, score = additive(hidden = 16)>;
    struct WideHeads<heads = 2, d_model = 8, head_dim = 32>;
}

type Batched<const M: usize> = Tensor<(usize, usize, Const<M>), f32, Cpu>;
type Unbatched<const M: usize> = Tensor<(usize, Const<M>), f32, Cpu>;

/// A size whose product with 4 or more is not a `usize`.
const HUGE: usize = 1 << 62;

/// A view of one vector as many: the only way to sizes that no memory holds. It takes none.
fn batched<const M: usize>(batch: usize, len: usize) -> Batched<M> {
    let one: Tensor<Rank1<M>, f32, _> = Cpu::default().ones();
    one.broadcast_like::<_, Axes2<0, 1>>(&(batch, len, Const))
}

fn unbatched<const M: usize>(len: usize) -> Unbatched<M> {
    let one: Tensor<Rank1<M>, f32, _> = Cpu::default().ones();
    one.broadcast_like::<_, Axis<0>>(&(len, Const))
}

fn row<V: Unit>(values: &[V]) -> Tensor<(usize,), V, Cpu> {
    Cpu::default().tensor_from_vec(values.to_vec(), (values.len(),))
}

/// The same value everywhere.
fn table<V: Unit>(value: V, rows: usize, columns: usize) -> Tensor<(usize, usize), V, Cpu> {
    Cpu::default().tensor_from_vec(vec![value; rows * columns], (rows, columns))
}

/// Where a panic happened, and its message.
#[derive(Debug)]
struct Panic {
    file: String,
    line: u32,
    message: String,
}

thread_local! {
    /// What the panic hook writes to while this thread expects a panic.
    static EXPECTED: RefCell<Option<Vec<Panic>>> = const { RefCell::new(None) };
}

/// The panic of `call`, kept from standard error.
#[track_caller]
fn panic_of<R>(call: impl FnOnce() -> R) -> Panic {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            let is_expected =
                EXPECTED.with_borrow_mut(|expected| match (expected, info.location()) {
                    (Some(panics), Some(location)) => {
                        panics.push(Panic {
                            file: location.file().to_owned(),
                            line: location.line(),
                            message: info.payload_as_str().unwrap_or_default().to_owned(),
                        });
                        true
                    }
                    _ => false,
                });
            if !is_expected {
                previous(info);
            }
        }));
    });
    EXPECTED.set(Some(Vec::new()));
    let result = catch_unwind(AssertUnwindSafe(call));
    let mut panics = EXPECTED.take().unwrap_or_default();
    assert!(
        result.is_err() && panics.len() == 1,
        "one panic: {panics:?}"
    );
    panics.remove(0)
}

/// The error of `call`, after asserting that it is one.
#[track_caller]
fn error_of<R: Debug>(result: Result<R, Error<CpuError>>) -> Error<CpuError> {
    result.expect_err("the mistake is found")
}

/// Asserts that every way to run a layer on this input finds the same mistake: the `try_` methods return it, and the others,
/// dfdx's among them, panic with its message.
macro_rules! assert_mistake {
    ($Layer:ident, $input:expr, $variant:pat, $message:expr $(,)?) => {{
        let mut layer = Cpu::default().build_module::<$Layer, f32>();
        let errors = [
            error_of(layer.try_forward($input)),
            error_of(layer.try_forward_mut($input)),
            error_of(layer.try_forward_with_weights($input)),
        ];
        for error in errors {
            assert!(matches!(&error, $variant), "{error:?}");
            assert_eq!(error.to_string(), $message);
        }
        let panics = [
            panic_of(|| layer.forward($input)),
            panic_of(|| layer.forward_mut($input)),
            panic_of(|| layer.forward_with_weights($input)),
            panic_of(|| Module::forward(&layer, $input)),
            panic_of(|| Module::try_forward(&layer, $input)),
            panic_of(|| ModuleMut::forward_mut(&mut layer, $input)),
        ];
        for panic in panics {
            assert_eq!(panic.message, $message);
        }
    }};
}

#[test]
fn the_batches_of_x_and_context_must_agree() {
    assert_mistake!(
        Cross,
        (batched(2, 3), batched(3, 4)),
        Error::BatchMismatch {
            layer: "Cross",
            what: "context",
            x: 2,
            found: 3
        },
        "Cross: the batch of x is 2, that of context is 3",
    );
    assert_mistake!(
        Cross,
        (batched(2, 3).leaky_trace(), batched(1, 4)),
        Error::BatchMismatch {
            layer: "Cross",
            what: "context",
            x: 2,
            found: 1
        },
        "Cross: the batch of x is 2, that of context is 1",
    );
}

#[test]
fn the_batches_of_x_and_padding_must_agree() {
    assert_mistake!(
        Padded,
        (batched(2, 3), row(&[1, 2, 3])),
        Error::BatchMismatch {
            layer: "Padded",
            what: "valid lengths",
            x: 2,
            found: 3
        },
        "Padded: the batch of x is 2, that of valid lengths is 3",
    );
    assert_mistake!(
        Padded,
        (batched(2, 3), table(1, 3, 3)),
        Error::BatchMismatch {
            layer: "Padded",
            what: "valid lengths per query",
            x: 2,
            found: 3
        },
        "Padded: the batch of x is 2, that of valid lengths per query is 3",
    );
    assert_mistake!(
        PaddedCross,
        (batched(2, 3), batched(2, 4), table(true, 1, 4)),
        Error::BatchMismatch {
            layer: "PaddedCross",
            what: "key mask",
            x: 2,
            found: 1
        },
        "PaddedCross: the batch of x is 2, that of key mask is 1",
    );
}

#[test]
fn padding_must_cover_its_sequence() {
    assert_mistake!(
        PaddedCross,
        (batched(2, 3), batched(2, 4), table(1, 2, 4)),
        Error::LengthsMismatch {
            layer: "PaddedCross",
            axis: "query",
            expected: 3,
            found: 4,
            ..
        },
        "PaddedCross: the query axis has length 3, but valid lengths per query cover 4",
    );
    assert_mistake!(
        PaddedCross,
        (batched(2, 3), batched(2, 4), table(true, 2, 3)),
        Error::LengthsMismatch {
            layer: "PaddedCross",
            axis: "key",
            expected: 4,
            found: 3,
            ..
        },
        "PaddedCross: the key axis has length 4, but the entries of the key mask cover 3",
    );
    assert_mistake!(
        Padded,
        (unbatched(3), row(&[1, 2])),
        Error::LengthsMismatch {
            layer: "Padded",
            axis: "query",
            expected: 3,
            found: 2,
            ..
        },
        "Padded: the query axis has length 3, but valid lengths per query cover 2",
    );
    assert_mistake!(
        PaddedCross,
        (unbatched(3), unbatched(4), row(&[true; 5])),
        Error::LengthsMismatch {
            layer: "PaddedCross",
            axis: "key",
            expected: 4,
            found: 5,
            ..
        },
        "PaddedCross: the key axis has length 4, but the entries of the key mask cover 5",
    );
}

#[test]
fn a_valid_length_must_not_go_beyond_the_keys() {
    assert_mistake!(
        Padded,
        (batched(3, 5), row(&[5, 0, 6])),
        Error::LengthBeyondKeys {
            layer: "Padded",
            length: 6,
            keys: 5,
            ..
        },
        "Padded: the valid length at [2] is 6, but there are 5 keys",
    );
    // It is the keys that count, not the queries, of which there are more here.
    let mut lengths = table(4, 2, 6);
    lengths[[1, 3]] = usize::MAX;
    assert_mistake!(
        PaddedCross,
        (batched(2, 6), batched(2, 4), lengths.clone()),
        Error::LengthBeyondKeys {
            layer: "PaddedCross",
            length: usize::MAX,
            keys: 4,
            ..
        },
        "PaddedCross: the valid length at [1, 3] is 18446744073709551615, but there are 4 keys",
    );
    assert_mistake!(
        Padded,
        (unbatched(5), 6),
        Error::LengthBeyondKeys {
            layer: "Padded",
            length: 6,
            keys: 5,
            ..
        },
        "Padded: the valid length at [] is 6, but there are 5 keys",
    );
    assert_mistake!(
        PaddedCross,
        (unbatched(3), unbatched(4), row(&[4, 5, 6])),
        Error::LengthBeyondKeys {
            layer: "PaddedCross",
            length: 5,
            keys: 4,
            ..
        },
        "PaddedCross: the valid length at [1] is 5, but there are 4 keys",
    );
}

#[test]
fn every_token_must_have_a_document() {
    assert_mistake!(
        Packed,
        (batched(2, 3), table(7, 1, 3)),
        Error::BatchMismatch {
            layer: "Packed",
            what: "the document ids",
            x: 2,
            found: 1
        },
        "Packed: the batch of x is 2, that of the document ids is 1",
    );
    assert_mistake!(
        Packed,
        (batched(2, 3), table(7, 2, 4)),
        Error::LengthsMismatch {
            layer: "Packed",
            axis: "query",
            expected: 3,
            found: 4,
            ..
        },
        "Packed: the query axis has length 3, but the document ids cover 4",
    );
    assert_mistake!(
        Packed,
        (unbatched(3), row(&[7, 7])),
        Error::LengthsMismatch {
            layer: "Packed",
            axis: "query",
            expected: 3,
            found: 2,
            ..
        },
        "Packed: the query axis has length 3, but the document ids cover 2",
    );
    assert_mistake!(
        PackedCross,
        (
            batched(2, 3),
            batched(2, 4),
            (table(7, 2, 3), table(7, 3, 4))
        ),
        Error::BatchMismatch {
            layer: "PackedCross",
            what: "the document ids",
            x: 2,
            found: 3
        },
        "PackedCross: the batch of x is 2, that of the document ids is 3",
    );
    // Those of queries and keys exchanged.
    assert_mistake!(
        PackedCross,
        (unbatched(3), unbatched(4), (row(&[7; 4]), row(&[7; 3]))),
        Error::LengthsMismatch {
            layer: "PackedCross",
            axis: "query",
            expected: 3,
            found: 4,
            ..
        },
        "PackedCross: the query axis has length 3, but the document ids cover 4",
    );
    assert_mistake!(
        PackedCross,
        (unbatched(3), unbatched(4), (row(&[7; 3]), row(&[7; 3]))),
        Error::LengthsMismatch {
            layer: "PackedCross",
            axis: "key",
            expected: 4,
            found: 3,
            ..
        },
        "PackedCross: the key axis has length 4, but the document ids cover 3",
    );
}

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
    // A size of 0 does not hide it.
    assert_mistake!(
        Plain,
        batched(HUGE, 0),
        Error::TooLarge { layer: "Plain", .. },
        "Plain: batch (4611686018427387904) * query (0) * width (8) does not fit into memory",
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
fn a_wide_context_is_checked() {
    // Without queries nothing else is large: 2^52 * 4096 alone overflows.
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
    // The scores alone would fit: 2 * 2^56 numbers.
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
    let error = error_of(layer.try_forward(batched(HUGE, 4)));
    assert!(
        matches!(
            &error,
            Error::TooLarge {
                layer: "LearnedPosition",
                ..
            }
        ),
        "{error:?}"
    );
}

#[test]
fn a_panic_happens_where_the_layer_is_called() {
    let mut layer = Cpu::default().build_module::<Cross, f32>();
    let positions = Cpu::default().build_module::<LearnedPosition<5, 8>, f32>();
    let input = || (batched(2, 3), batched(3, 4));
    let here = line!();
    let panics = [
        panic_of(|| layer.forward(input())),
        panic_of(|| layer.forward_mut(input())),
        panic_of(|| layer.forward_with_weights(input())),
        panic_of(|| positions.forward(unbatched(6))),
    ];
    for (panic, line) in panics.into_iter().zip(here + 2..) {
        assert_eq!((panic.file.as_str(), panic.line), (file!(), line));
    }
}

#[test]
fn a_layer_is_whole_after_a_mistake() {
    let mut layer = Cpu::default().build_module::<Cross, f32>();
    let right = || (batched(2, 3), batched(2, 4));
    let before = layer.forward(right()).as_vec();
    error_of(layer.try_forward_mut((batched(2, 3), batched(3, 4))));
    assert_eq!(layer.forward_mut(right()).as_vec(), before);
}
