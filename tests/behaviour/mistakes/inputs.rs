//! Inputs that do not fit each other.

use super::{Cross, Padded, batched, error_of, panic_of, unbatched};
use attn::{Error, attention, data::LengthsPerQuery};
use dfdx::prelude::*;

attention! {
    struct PaddedCross<heads = 2, d_model = 8, d_context = 6, mask = padding>;
    struct Packed<heads = 2, d_model = 8, mask = document>;
    struct PackedCross<heads = 2, d_model = 8, d_context = 6, mask = document>;
}

fn row<V: Unit>(values: &[V]) -> Tensor<(usize,), V, Cpu> {
    Cpu::default().tensor_from_vec(values.to_vec(), (values.len(),))
}

/// The same value everywhere.
fn table<V: Unit>(value: V, rows: usize, columns: usize) -> Tensor<(usize, usize), V, Cpu> {
    Cpu::default().tensor_from_vec(vec![value; rows * columns], (rows, columns))
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
        (batched(2, 3), LengthsPerQuery(table(1, 3, 3))),
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
        (
            batched(2, 3),
            batched(2, 4),
            LengthsPerQuery(table(1, 2, 4))
        ),
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
        (unbatched(3), LengthsPerQuery(row(&[1, 2]))),
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
    // The number of keys matters, not that of the queries, which is larger here.
    let mut lengths = table(4, 2, 6);
    lengths[[1, 3]] = usize::MAX;
    assert_mistake!(
        PaddedCross,
        (
            batched(2, 6),
            batched(2, 4),
            LengthsPerQuery(lengths.clone())
        ),
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
        "Padded: the valid length is 6, but there are 5 keys",
    );
    assert_mistake!(
        PaddedCross,
        (unbatched(3), unbatched(4), LengthsPerQuery(row(&[4, 5, 6]))),
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
fn tokens_must_have_a_document_each() {
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
    assert_mistake!(
        PackedCross,
        (
            batched(2, 3),
            batched(2, 4),
            (table(7, 2, 3), table(7, 2, 3))
        ),
        Error::LengthsMismatch {
            layer: "PackedCross",
            axis: "key",
            expected: 4,
            found: 3,
            ..
        },
        "PackedCross: the key axis has length 4, but the document ids cover 3",
    );
    // The ids of queries and keys are swapped.
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
fn layers_are_unchanged_after_a_mistake() {
    let mut layer = Cpu::default().build_module::<Cross, f32>();
    let right = || (batched(2, 3), batched(2, 4));
    let before = layer.forward(right()).as_vec();
    error_of(layer.try_forward_mut((batched(2, 3), batched(3, 4))));
    assert_eq!(layer.forward_mut(right()).as_vec(), before);
}
