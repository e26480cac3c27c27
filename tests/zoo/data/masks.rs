//! Masks from ids and floats of a batch.

use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Split,
    masks::{Matrix, causal, padding},
    number,
};
use support::{
    compare::{by_hand, compare_self_attention},
    declared::masked,
};

use super::{pairs, tensor};

attention! {
    struct Documents<heads = 2, d_model = 8> {
        data doc: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    }
    struct CausalDocuments<heads = 2, d_model = 8, mask = causal> {
        data doc: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    }
    struct PaddedDocuments<heads = 2, d_model = 8, mask = padding> {
        data doc: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { doc[b, q_idx] == doc[b, kv_idx] }
    }
    /// A tree in the order of a walk: a node attends to itself and its ancestors. (Cai et al., "Medusa", 2024)
    struct Tree<heads = 2, d_model = 8> {
        data enter: ids[batch, kv_len];
        data leave: ids[kv_len, batch];
        fn mask(b, q_idx, kv_idx) {
            enter[b, kv_idx] <= enter[b, q_idx] && leave[q_idx, b] <= leave[kv_idx, b]
        }
    }
    /// A tree of which every node has its parent, as drafted tokens have (Miao et al., "SpecInfer", 2024): a node attends to
    /// itself and three generations above.
    struct Parents<heads = 2, d_model = 8> {
        data parent: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) {
            let above = parent[b, q_idx];
            let higher = parent[b, above];
            kv_idx == q_idx || kv_idx == above || kv_idx == higher || kv_idx == parent[b, higher]
        }
    }
    /// Several continuations after one prefix, which is part 0: each attends to the prefix and itself.
    struct SharedPrefix<heads = 2, d_model = 8, mask = causal> {
        data part: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { part[b, kv_idx] == 0 || part[b, kv_idx] == part[b, q_idx] }
    }
    /// A prefix length per sequence.
    struct Prefix<heads = 2, d_model = 8> {
        data prefix: ids[batch];
        fn mask(b, q_idx, kv_idx) { kv_idx < prefix[b] || kv_idx <= q_idx }
    }
    /// Valid keys, and valid pairs: a mask of another library.
    struct Marked<heads = 2, d_model = 8, mask = causal> {
        data keep: bool[batch, kv_len];
        data linked: bool[q_len, kv_len];
        fn mask(b, q_idx, kv_idx) { keep[b, kv_idx] && !linked[q_idx, kv_idx] }
    }
    /// Floats in a mask, the same for all sequences.
    struct Levels<heads = 2, d_model = 8> {
        data level: [q_len];
        fn mask(q_idx, kv_idx) { level[kv_idx] <= level[q_idx] }
    }
}

/// The document of a token: three tokens each. Ids need not be sorted.
fn document(b: usize, i: usize) -> usize {
    [4, 0, 9, 2, 5][(i + b + 1) / 3]
}

fn same_document(b: usize, q: usize, k: usize) -> Matrix {
    pairs(q, k, |q, k| document(b, q) == document(b, k))
}

#[test]
fn documents_equal_the_dense_reference() {
    self_attention_on!(
        Documents,
        (|batch, len| [tensor((batch, len), |at| document(at[0], at[1]))]),
        (|len| [tensor((len,), |at| document(0, at[0]))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, same_document))
    );
}

#[test]
fn documents_combine_with_a_mask_of_the_header() {
    self_attention_on!(
        CausalDocuments,
        (|batch, len| [tensor((batch, len), |at| document(at[0], at[1]))]),
        (|len| [tensor((len,), |at| document(0, at[0]))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            same_document(b, q, k) & causal(q, k)
        }))
    );
}

#[test]
fn data_of_the_header_precede_those_of_the_body() {
    self_attention_on!(
        PaddedDocuments,
        (|batch, len| [
            tensor((batch,), |at| len.size() - at[0] % len.size()),
            tensor((batch, len), |at| document(at[0], at[1]))
        ]),
        (|len| [len, tensor((len,), |at| document(0, at[0]))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            same_document(b, q, k) & padding(q, k, k - b % k)
        }))
    );
}

#[test]
fn marks_equal_the_dense_reference() {
    fn keeps(b: usize, k: usize) -> bool {
        b != 1 && !(k + b).is_multiple_of(3)
    }
    fn linked(q: usize, k: usize) -> bool {
        (q * k) % 4 == 3
    }
    self_attention_on!(
        Marked,
        (|batch, len| [
            tensor((batch, len), |at| keeps(at[0], at[1])),
            tensor((len, len), |at| linked(at[0], at[1]))
        ]),
        (|len| [
            tensor((len,), |at| keeps(0, at[0])),
            tensor((len, len), |at| linked(at[0], at[1]))
        ]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            pairs(q, k, |q, k| k <= q && keeps(b, k) && !linked(q, k))
        }))
    );
}

/// The parent of a node; 0 is its own parent.
fn parent(b: usize, node: usize) -> usize {
    node * (b + 1) / (b + 3)
}

/// The times at which a walk over the first `nodes` of a tree enters and leaves the node `of`.
fn visits(b: usize, nodes: usize, of: usize) -> (usize, usize) {
    fn walk(b: usize, nodes: usize, node: usize, clock: &mut usize, times: &mut [(usize, usize)]) {
        *clock += 1;
        times[node].0 = *clock;
        for child in (1..nodes).filter(|child| parent(b, *child) == node) {
            walk(b, nodes, child, clock, times);
        }
        *clock += 1;
        times[node].1 = *clock;
    }
    let mut times = vec![(0, 0); nodes];
    walk(b, nodes, 0, &mut 0, &mut times);
    times[of]
}

fn is_above(b: usize, above: usize, mut node: usize) -> bool {
    while node > above {
        node = parent(b, node);
    }
    node == above
}

#[test]
fn trees_by_the_times_of_a_walk_equal_the_dense_reference() {
    self_attention_on!(
        Tree,
        (|batch, len| [
            tensor((batch, len), |at| visits(at[0], len.size(), at[1]).0),
            tensor((len, batch), |at| visits(at[1], len.size(), at[0]).1)
        ]),
        (|len| [
            tensor((len,), |at| visits(0, len, at[0]).0),
            tensor((len,), |at| visits(0, len, at[0]).1)
        ]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            pairs(q, k, |node, above| is_above(b, above, node))
        }))
    );
}

#[test]
fn trees_by_the_parents_of_nodes_equal_the_dense_reference() {
    fn generations(b: usize, node: usize) -> Vec<usize> {
        std::iter::successors(Some(node), |node| Some(parent(b, *node)))
            .take(4)
            .collect()
    }
    self_attention_on!(
        Parents,
        (|batch, len| [tensor((batch, len), |at| parent(at[0], at[1]))]),
        (|len| [tensor((len,), |at| parent(0, at[0]))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            pairs(q, k, |node, above| generations(b, node).contains(&above))
        }))
    );
}

/// The first token of a token's continuation, or 0 for the prefix.
fn start(b: usize, i: usize) -> usize {
    let prefix = b + 2;
    if i < prefix { 0 } else { i - (i - prefix) % 3 }
}

#[test]
fn continuations_of_one_prefix_equal_the_dense_reference() {
    self_attention_on!(
        SharedPrefix,
        (|batch, len| [tensor((batch, len), |at| start(at[0], at[1]))]),
        (|len| [tensor((len,), |at| start(0, at[0]))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            pairs(q, k, |q, k| k <= q && (k < b + 2 || start(b, q) <= k))
        }))
    );
}

#[test]
fn prefixes_per_sequence_equal_the_dense_reference() {
    self_attention_on!(
        Prefix,
        (|batch, _len| [tensor((batch,), |at| 2 * at[0] + 1)]),
        (|_len| [1]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |b, q, k| {
            pairs(q, k, |q, k| k < 2 * b + 1 || k <= q)
        }))
    );
}

fn level(token: usize) -> f64 {
    [0.5, 0.25, 2.0, 0.5, -1.0][token % 5]
}

#[test]
fn floats_in_a_shared_mask_equal_the_dense_reference() {
    self_attention_on!(
        Levels,
        (|_batch, len| [tensor((len,), |at| number(level(at[0])))]),
        (|len| [tensor((len,), |at| number(level(at[0])))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |_, q, k| {
            pairs(q, k, |q, k| level(k) <= level(q))
        }))
    );
}
