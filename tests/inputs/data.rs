//! Masks with data of the call: valid lengths, key masks, document ids.

use super::{
    compare::{by_hand, by_hand_with_context, compare_cross_attention, compare_self_attention},
    mask_of, masked,
};
use attn::{attention, data::LengthsPerQuery};
use dfdx::prelude::*;
use support::reference::{
    AdditiveAttention, HeadsInTheBatch, Split, attention,
    heads::scaled_dot,
    masks::{causal, local, marked_keys, padding, padding_per_query, same_document},
    normalizers::{sigmoid, softmax1},
};

attention! {
    struct Padded<heads = 2, d_model = 8, mask = padding>;
    struct PaddedCausal<heads = 4, kv_heads = 2, d_model = 8, mask = padding & causal>;
    struct PaddedCross<heads = 2, d_model = 8, d_context = 6, mask = padding>;
    struct PaddedAdditive<heads = 1, d_model = 8, d_context = 6, score = additive(hidden = 5), mask = padding>;
    struct PaddedSoftmax1<heads = 2, d_model = 8, mask = padding, normalizer = softmax1>;
    struct PaddedSigmoid<heads = 2, d_model = 8, mask = padding, normalizer = sigmoid>;
    struct BeyondTheLength<heads = 2, d_model = 8, mask = !padding>;
    struct Packed<heads = 2, d_model = 8, mask = document>;
    struct PackedCausal<heads = 2, d_model = 8, mask = document & causal>;
    struct PackedCross<heads = 2, d_model = 8, d_context = 6, mask = document>;
    struct PackedPadded<heads = 2, d_model = 8, mask = (document | sliding_window(2)) & padding>;
}

/// The number of valid keys of a sequence in a batch: in turn about half of them, none, all.
fn valid_length(sequence: usize, keys: usize) -> usize {
    [keys.div_ceil(2), 0, keys][sequence]
}

fn valid_lengths(batch: usize, keys: usize) -> Vec<usize> {
    (0..batch).map(|b| valid_length(b, keys)).collect()
}

/// The number of valid keys of a query: every number from none to all occurs.
fn valid_length_of_query(sequence: usize, query: usize, keys: usize) -> usize {
    (5 * sequence + 3 * query + 1) % (keys + 1)
}

/// Whether a key is marked: all but every third one, and none in the third sequence.
fn is_marked(sequence: usize, key: usize) -> bool {
    sequence != 2 && (sequence + key) % 3 != 1
}

/// Documents of three tokens, the first one shorter; ids need not be in order.
fn document_id(sequence: usize, position: usize) -> usize {
    [4, 0, 9, 2, 5][(position + sequence + 1) / 3]
}

/// Ids for keys and queries that come from different sequences: some have no partner.
fn key_document_id(sequence: usize, position: usize) -> usize {
    [9, 4, 0][(position + 2 * sequence) % 3]
}

fn per_sequence<B: Dim>(batch: B, keys: usize) -> Tensor<(B,), usize, Cpu> {
    let lengths = valid_lengths(batch.size(), keys);
    Cpu::default().tensor_from_vec(lengths, (batch,))
}

fn per_query<B: Dim, Q: Dim>(
    batch: B,
    queries: Q,
    keys: usize,
) -> LengthsPerQuery<Tensor<(B, Q), usize, Cpu>> {
    LengthsPerQuery(table(batch, queries, |b, i| {
        valid_length_of_query(b, i, keys)
    }))
}

fn of_each_query<Q: Dim>(queries: Q, keys: usize) -> LengthsPerQuery<Tensor<(Q,), usize, Cpu>> {
    LengthsPerQuery(row(queries, |i| valid_length_of_query(0, i, keys)))
}

fn table<A: Dim, B: Dim, T: Unit>(
    a: A,
    b: B,
    cell: impl Fn(usize, usize) -> T,
) -> Tensor<(A, B), T, Cpu> {
    let pairs = (0..a.size()).flat_map(|i| (0..b.size()).map(move |j| (i, j)));
    let cells = pairs.map(|(i, j)| cell(i, j)).collect();
    Cpu::default().tensor_from_vec(cells, (a, b))
}

fn row<A: Dim, T: Unit>(a: A, cell: impl Fn(usize) -> T) -> Tensor<(A,), T, Cpu> {
    Cpu::default().tensor_from_vec((0..a.size()).map(cell).collect(), (a,))
}

/// Compares a self-attention that takes data with a hand-written one. The data is made for the batch and the length of each call,
/// and for a single sequence of that length.
macro_rules! self_attention_with {
    (
        $Layer:ident, d_model = $m:literal,
        batch: |$batch:ident, $length:ident| [$($data:expr),+],
        sequence: |$single_length:ident| [$($single:expr),+],
        |$p:ident, $x:ident| $by_hand:expr
    ) => {{
        self_attention_with!(f32, $Layer, $m, ($batch, $length, [$($data),+]), ($single_length, [$($single),+]), $p, $x, $by_hand);
        self_attention_with!(f64, $Layer, $m, ($batch, $length, [$($data),+]), ($single_length, [$($single),+]), $p, $x, $by_hand);
    }};
    (
        $E:ty, $Layer:ident, $m:literal, ($batch:ident, $length:ident, [$($data:expr),+]),
        ($single_length:ident, [$($single:expr),+]), $p:ident, $x:ident, $by_hand:expr
    ) => {
        compare_self_attention::<$m, $Layer<$E>, $E, _>(
            |state| by_hand::<$E, _, _, _>(state, |$p, $x| $by_hand),
            |layer, x| {
                let ($batch, $length, _) = *x.shape();
                layer.forward((x, $($data),+))
            },
            |layer, x| {
                let ($batch, $length, _) = *x.shape();
                layer.forward_with_weights((x, $($data),+))
            },
            |layer, x| {
                let $single_length = x.shape().0;
                layer.forward((x, $($single),+))
            },
            |layer, x| {
                let ($batch, $length, _) = *x.shape();
                layer.forward((x, $($data),+))
            },
        )
    };
}

/// As `self_attention_with!`, for a cross-attention.
macro_rules! cross_attention_with {
    (
        $Layer:ident, d_model = $m:literal, d_context = $c:literal,
        batch: |$batch:ident, $queries:ident, $keys:ident| [$($data:expr),+],
        sequence: |$q:ident, $k:ident| [$($single:expr),+],
        |$p:ident, $x:ident, $context:ident| $by_hand:expr
    ) => {{
        cross_attention_with!(f32, $Layer, $m, $c, ($batch, $queries, $keys, [$($data),+]), ($q, $k, [$($single),+]), $p, $x, $context, $by_hand);
        cross_attention_with!(f64, $Layer, $m, $c, ($batch, $queries, $keys, [$($data),+]), ($q, $k, [$($single),+]), $p, $x, $context, $by_hand);
    }};
    (
        $E:ty, $Layer:ident, $m:literal, $c:literal,
        ($batch:ident, $queries:ident, $keys:ident, [$($data:expr),+]),
        ($q:ident, $k:ident, [$($single:expr),+]),
        $p:ident, $x:ident, $context:ident, $by_hand:expr
    ) => {
        compare_cross_attention::<$m, $c, $Layer<$E>, $E, _>(
            |state| by_hand_with_context::<$E, _, _, _>(state, |$p, $x, $context| $by_hand),
            |layer, x, context| {
                let ($batch, $queries, _) = *x.shape();
                let $keys = context.shape().1;
                layer.forward((x, context, $($data),+))
            },
            |layer, x, context| {
                let ($batch, $queries, _) = *x.shape();
                let $keys = context.shape().1;
                layer.forward_with_weights((x, context, $($data),+))
            },
            |layer, x, context| {
                let $q = x.shape().0;
                let $k = context.shape().0;
                layer.forward((x, context, $($single),+))
            },
            |layer, x, context| {
                let ($batch, $queries, _) = *x.shape();
                let $keys = context.shape().1;
                layer.forward((x, context, $($data),+))
            },
        )
    };
}

#[test]
fn valid_lengths_mask_the_keys_of_each_sequence() {
    self_attention_with!(
        Padded, d_model = 8,
        batch: |batch, length| [per_sequence(batch, length.size())],
        sequence: |length| [valid_length(0, length)],
        |p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| padding(q, k, valid_length(b, k)))
    );
    self_attention_with!(
        PaddedCausal, d_model = 8,
        batch: |batch, length| [per_sequence(batch, length.size())],
        sequence: |length| [valid_length(0, length)],
        |p, x| masked(p, Split::sharing(4, 2), x, x, |b, q, k| {
            padding(q, k, valid_length(b, k)) & causal(q, k)
        })
    );
}

#[test]
fn valid_lengths_mask_the_keys_of_a_context() {
    cross_attention_with!(
        PaddedCross, d_model = 8, d_context = 6,
        batch: |batch, _queries, keys| [per_sequence(batch, keys.size())],
        sequence: |_queries, keys| [valid_length(0, keys)],
        |p, x, context| masked(p, Split::into_heads(2), x, context, |b, q, k| {
            padding(q, k, valid_length(b, k))
        })
    );
}

/// With at least one valid key for each sequence: the hand-written softmax does not support empty rows.
#[test]
fn padding_equals_that_of_heads_folded_into_the_batch() {
    cross_attention_with!(
        PaddedCross, d_model = 8, d_context = 6,
        batch: |batch, _queries, keys| [row(batch, |b| b % keys.size() + 1)],
        sequence: |_queries, _keys| [1],
        |p, x, context| {
            let keys = context.shape().1;
            let lens: Vec<usize> = (0..x.shape().0).map(|b| b % keys + 1).collect();
            let layer = HeadsInTheBatch::<8, 6, 2, 4, 8, _>::new(p);
            let x = x.clone().realize();
            let context = context.clone().realize();
            layer.forward(&x, &context, Some(&lens))
        }
    );
}

#[test]
fn additive_attention_equals_a_masked_softmax_by_valid_lengths() {
    cross_attention_with!(
        PaddedAdditive, d_model = 8, d_context = 6,
        batch: |batch, _queries, keys| [row(batch, |b| keys.size() - b % keys.size())],
        sequence: |_queries, keys| [keys],
        |p, x, context| {
            let keys = context.shape().1;
            let lens: Vec<usize> = (0..x.shape().0).map(|b| keys - b % keys).collect();
            let layer = AdditiveAttention::<8, 6, 5, 8, _>::new(p);
            let x = x.clone().realize();
            let context = context.clone().realize();
            layer.forward(&x, &context, &lens)
        }
    );
}

#[test]
fn lengths_per_query_mask_the_keys_of_each_query() {
    self_attention_with!(
        Padded, d_model = 8,
        batch: |batch, length| [per_query(batch, length, length.size())],
        sequence: |length| [of_each_query(length, length)],
        |p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            let lengths: Vec<usize> = (0..q).map(|i| valid_length_of_query(b, i, k)).collect();
            padding_per_query(k, &lengths)
        })
    );
    cross_attention_with!(
        PaddedCross, d_model = 8, d_context = 6,
        batch: |batch, queries, keys| [per_query(batch, queries, keys.size())],
        sequence: |queries, keys| [of_each_query(queries, keys)],
        |p, x, context| masked(p, Split::into_heads(2), x, context, |b, q, k| {
            let lengths: Vec<usize> = (0..q).map(|i| valid_length_of_query(b, i, k)).collect();
            padding_per_query(k, &lengths)
        })
    );
}

#[test]
fn marks_mask_single_keys() {
    self_attention_with!(
        PaddedCausal, d_model = 8,
        batch: |batch, length| [table(batch, length, is_marked)],
        sequence: |length| [row(length, |j| is_marked(0, j))],
        |p, x| masked(p, Split::sharing(4, 2), x, x, |b, q, k| {
            let marks: Vec<bool> = (0..k).map(|j| is_marked(b, j)).collect();
            marked_keys(q, &marks) & causal(q, k)
        })
    );
    cross_attention_with!(
        PaddedCross, d_model = 8, d_context = 6,
        batch: |batch, _queries, keys| [table(batch, keys, is_marked)],
        sequence: |_queries, keys| [row(keys, |j| is_marked(0, j))],
        |p, x, context| masked(p, Split::into_heads(2), x, context, |b, q, k| {
            let marks: Vec<bool> = (0..k).map(|j| is_marked(b, j)).collect();
            marked_keys(q, &marks)
        })
    );
}

/// The query attends only to keys beyond the valid length.
#[test]
fn padding_can_be_negated() {
    self_attention_with!(
        BeyondTheLength, d_model = 8,
        batch: |batch, length| [per_sequence(batch, length.size())],
        sequence: |length| [valid_length(0, length)],
        |p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| !padding(q, k, valid_length(b, k)))
    );
}

#[test]
fn padding_holds_under_the_other_normalizers() {
    self_attention_with!(
        PaddedSoftmax1, d_model = 8,
        batch: |batch, length| [per_sequence(batch, length.size())],
        sequence: |length| [valid_length(0, length)],
        |p, x| {
            let mask = mask_of(x, x, |b, q, k| padding(q, k, valid_length(b, k)));
            attention(p, Split::into_heads(2), x, x, scaled_dot, |s| softmax1(s, &mask))
        }
    );
    self_attention_with!(
        PaddedSigmoid, d_model = 8,
        batch: |batch, length| [per_sequence(batch, length.size())],
        sequence: |length| [valid_length(0, length)],
        |p, x| {
            let mask = mask_of(x, x, |b, q, k| padding(q, k, valid_length(b, k)));
            attention(p, Split::into_heads(2), x, x, scaled_dot, |s| sigmoid(s, &mask))
        }
    );
}

#[test]
fn documents_do_not_attend_to_each_other() {
    self_attention_with!(
        Packed, d_model = 8,
        batch: |batch, length| [table(batch, length, document_id)],
        sequence: |length| [row(length, |i| document_id(0, i))],
        |p, x| masked(p, Split::into_heads(2), x, x, |b, q, _| {
            let ids: Vec<usize> = (0..q).map(|i| document_id(b, i)).collect();
            same_document(&ids, &ids)
        })
    );
    self_attention_with!(
        PackedCausal, d_model = 8,
        batch: |batch, length| [table(batch, length, document_id)],
        sequence: |length| [row(length, |i| document_id(0, i))],
        |p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            let ids: Vec<usize> = (0..q).map(|i| document_id(b, i)).collect();
            same_document(&ids, &ids) & causal(q, k)
        })
    );
}

#[test]
fn documents_of_two_sequences_are_matched_by_id() {
    cross_attention_with!(
        PackedCross, d_model = 8, d_context = 6,
        batch: |batch, queries, keys| [
            (table(batch, queries, document_id), table(batch, keys, key_document_id))
        ],
        sequence: |queries, keys| [
            (row(queries, |i| document_id(0, i)), row(keys, |j| key_document_id(0, j)))
        ],
        |p, x, context| masked(p, Split::into_heads(2), x, context, |b, q, k| {
            let queries: Vec<usize> = (0..q).map(|i| document_id(b, i)).collect();
            let keys: Vec<usize> = (0..k).map(|j| key_document_id(b, j)).collect();
            same_document(&queries, &keys)
        })
    );
}

#[test]
fn documents_and_padding_combine() {
    self_attention_with!(
        PackedPadded, d_model = 8,
        batch: |batch, length| [
            per_sequence(batch, length.size()),
            table(batch, length, document_id)
        ],
        sequence: |length| [
            valid_length(0, length),
            row(length, |i| document_id(0, i))
        ],
        |p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            let ids: Vec<usize> = (0..q).map(|i| document_id(b, i)).collect();
            let seen = same_document(&ids, &ids) | local(q, k, 2);
            seen & padding(q, k, valid_length(b, k))
        })
    );
}
