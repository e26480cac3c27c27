//! What the call passes: masks and biases by the ids and the floats of a batch.

use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Heads, Input, Parameters, Split, Traced, attention,
    heads::scaled_dot,
    masks::{Matrix, causal, full, padding},
    mix,
    normalizers::softmax,
    number,
};
use support::{
    compare::{by_hand, by_hand_with_context, compare_cross_attention, compare_self_attention},
    declared::{mask_of, masked},
};

/// The farthest distance that has a bias of its own.
const FAR: usize = 3;

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
    /// A tree in the order of a walk: a node sees itself and what is above it. (Cai et al., "Medusa", 2024)
    struct Tree<heads = 2, d_model = 8> {
        data enter: ids[batch, kv_len];
        data leave: ids[kv_len, batch];
        fn mask(b, q_idx, kv_idx) {
            enter[b, kv_idx] <= enter[b, q_idx] && leave[q_idx, b] <= leave[kv_idx, b]
        }
    }
    /// A tree of which every node knows what it hangs on, as drafted tokens do (Miao et al., "SpecInfer", 2024): a node sees
    /// itself and three generations above.
    struct Parents<heads = 2, d_model = 8> {
        data parent: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) {
            let above = parent[b, q_idx];
            let higher = parent[b, above];
            kv_idx == q_idx || kv_idx == above || kv_idx == higher || kv_idx == parent[b, higher]
        }
    }
    /// Several continuations packed behind one prefix, whose part is 0: each sees the prefix and itself.
    struct SharedPrefix<heads = 2, d_model = 8, mask = causal> {
        data part: ids[batch, q_len];
        fn mask(b, q_idx, kv_idx) { part[b, kv_idx] == 0 || part[b, kv_idx] == part[b, q_idx] }
    }
    /// A prefix of its own for every sequence.
    struct Prefix<heads = 2, d_model = 8> {
        data prefix: ids[batch];
        fn mask(b, q_idx, kv_idx) { kv_idx < prefix[b] || kv_idx <= q_idx }
    }
    /// Which keys are there, and which pairs of them: a mask that another library made.
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
    /// Ying et al., "Graphormer" (2021): a learned bias for every head and distance in a graph.
    struct Graph<heads = 2, d_model = 8> {
        param bias: [heads, FAR + 1] = zeros;
        data distance: ids[batch, q_len, kv_len];
        fn score(score, b, h, q_idx, kv_idx) { score + bias[h, min(distance[b, q_idx, kv_idx], FAR)] }
    }
    struct Dense<heads = 2, d_model = 8> {
        data bias: [batch, heads, q_len, kv_len];
        fn score(score, b, h, q_idx, kv_idx) { score + bias[b, h, q_idx, kv_idx] }
    }
    /// Chi et al., "Sandwich" (2022): the inner products of sinusoidal positions, with a weight for each head.
    struct Sandwich<heads = 2, d_model = 8, mask = causal> {
        data wave: [kv_len];
        fn score(score, h, q_idx, kv_idx) { score + 0.5 * (h + 1) as f32 * wave[abs(q_idx - kv_idx)] }
    }
    /// Every key counts as so many, as merged tokens do (Bolya et al., "Token merging", 2023).
    struct Weighted<heads = 2, d_model = 8> {
        data weight: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(weight[b, kv_idx]) }
    }
    /// One learned tensor, by the kinds of two tokens; in the mask the same ids.
    struct Kinds<heads = 2, d_model = 8> {
        param affinity: [3] = ones;
        data kind: ids[batch, q_len];
        fn score(score, b, q_idx, kv_idx) { score * affinity[kind[b, q_idx]] * affinity[kind[b, kv_idx]] }
        fn mask(b, q_idx, kv_idx) { kind[b, kv_idx] < 2 || q_idx == kv_idx }
    }
    /// Ids and floats, queries and keys of two sequences.
    struct Cross<heads = 2, d_model = 8, d_context = 6> {
        param bias: [3, heads] = zeros;
        data kind: ids[q_len, kv_len, batch];
        data near: [q_len, kv_len];
        fn score(score, b, h, q_idx, kv_idx) {
            score + bias[kind[q_idx, kv_idx, b], h] * near[q_idx, kv_idx]
        }
    }
    /// Nadaraya and Watson (1964): what was measured at some places says what to expect at others. Of `x`, only the length
    /// counts.
    struct Regression<heads = 2, d_model = 8, d_context = 6> {
        param sharpness: [heads] = ones;
        data asked: [batch, q_len];
        data place: [batch, kv_len];
        fn score(b, h, q_idx, kv_idx) {
            let distance = sharpness[h] * (asked[b, q_idx] - place[b, kv_idx]);
            -0.5 * distance * distance
        }
    }
}

/// A tensor from the number at every index.
fn tensor<S: Shape, V: Unit>(shape: S, cell: impl Fn(&[usize]) -> V) -> Tensor<S, V, Cpu>
where
    Cpu: TensorFromVec<V>,
{
    let dims: Vec<usize> = shape.concrete().into_iter().collect();
    let cells = (0..shape.num_elements()).map(|mut place| {
        let mut index = vec![0; dims.len()];
        for (index, dim) in index.iter_mut().zip(&dims).rev() {
            *index = place % dim;
            place /= dim;
        }
        cell(&index)
    });
    Cpu::default().tensor_from_vec(cells.collect(), shape)
}

/// The pairs of a predicate.
fn pairs(queries: usize, keys: usize, attends: impl Fn(usize, usize) -> bool) -> Matrix {
    tensor((queries, keys), |at| attends(at[0], at[1]))
}

/// Compares a self-attention that takes data with one written by hand, the fused form and the composed one. The data is made
/// for the batch and the length of each call, and for a single sequence.
macro_rules! self_attention_on {
    ($Layer:ident, $batched:tt, $single:tt, $by_hand:tt) => {{
        self_attention_on!(@run f32, $Layer, [], $batched, $single, $by_hand);
        self_attention_on!(@run f64, $Layer, [], $batched, $single, $by_hand);
        self_attention_on!(@run f64, $Layer, [.composed()], $batched, $single, $by_hand);
    }};
    (
        @run $E:ty, $Layer:ident, [$($way:tt)*],
        (|$batch:ident, $len:ident| [$($data:expr),+]), (|$single_len:ident| [$($single:expr),+]),
        (|$p:ident, $x:ident| $by_hand:expr)
    ) => {
        compare_self_attention::<8, $Layer<$E>, $E, _>(
            |state| by_hand::<$E, _, _, _>(state, |$p, $x| $by_hand),
            |layer, x| {
                let ($batch, $len, _) = *x.shape();
                layer $($way)* .forward((x, $($data),+))
            },
            |layer, x| {
                let ($batch, $len, _) = *x.shape();
                layer.forward_with_weights((x, $($data),+))
            },
            |layer, x| {
                let $single_len = x.shape().0;
                layer $($way)* .forward((x, $($single),+))
            },
            |layer, x| {
                let ($batch, $len, _) = *x.shape();
                layer $($way)* .forward((x, $($data),+))
            },
        )
    };
}

/// As `self_attention_on!`, for a cross-attention.
macro_rules! cross_attention_on {
    ($Layer:ident, $batched:tt, $single:tt, $by_hand:tt) => {{
        cross_attention_on!(@run f32, $Layer, [], $batched, $single, $by_hand);
        cross_attention_on!(@run f64, $Layer, [], $batched, $single, $by_hand);
        cross_attention_on!(@run f64, $Layer, [.composed()], $batched, $single, $by_hand);
    }};
    (
        @run $E:ty, $Layer:ident, [$($way:tt)*],
        (|$batch:ident, $queries:ident, $keys:ident| [$($data:expr),+]), (|$q:ident, $k:ident| [$($single:expr),+]),
        (|$p:ident, $x:ident, $context:ident| $by_hand:expr)
    ) => {
        compare_cross_attention::<8, 6, $Layer<$E>, $E, _>(
            |state| by_hand_with_context::<$E, _, _, _>(state, |$p, $x, $context| $by_hand),
            |layer, x, context| {
                let (($batch, $queries, _), $keys) = (*x.shape(), context.shape().1);
                layer $($way)* .forward((x, context, $($data),+))
            },
            |layer, x, context| {
                let (($batch, $queries, _), $keys) = (*x.shape(), context.shape().1);
                layer.forward_with_weights((x, context, $($data),+))
            },
            |layer, x, context| {
                let ($q, $k) = (x.shape().0, context.shape().0);
                layer $($way)* .forward((x, context, $($single),+))
            },
            |layer, x, context| {
                let (($batch, $queries, _), $keys) = (*x.shape(), context.shape().1);
                layer $($way)* .forward((x, context, $($data),+))
            },
        )
    };
}

/// The document of a token: three tokens each; ids need not be in order.
fn document(b: usize, i: usize) -> usize {
    [4, 0, 9, 2, 5][(i + b + 1) / 3]
}

fn same_document(b: usize, q: usize, k: usize) -> Matrix {
    pairs(q, k, |q, k| document(b, q) == document(b, k))
}

#[test]
fn documents() {
    self_attention_on!(
        Documents,
        (|batch, len| [tensor((batch, len), |at| document(at[0], at[1]))]),
        (|len| [tensor((len,), |at| document(0, at[0]))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, same_document))
    );
}

#[test]
fn documents_under_a_mask_of_the_header() {
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
fn data_of_the_header_come_first() {
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
fn marks() {
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

/// What a node hangs on: 0 on itself.
fn parent(b: usize, node: usize) -> usize {
    node * (b + 1) / (b + 3)
}

/// When a walk over the first `nodes` of a tree comes to `of`, and when it leaves that.
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
fn a_tree_by_the_times_of_a_walk() {
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
fn a_tree_by_the_parents_of_its_nodes() {
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

/// The first token of the continuation that a token is in; 0 for the prefix.
fn start(b: usize, i: usize) -> usize {
    let prefix = b + 2;
    if i < prefix { 0 } else { i - (i - prefix) % 3 }
}

#[test]
fn continuations_of_one_prefix() {
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
fn a_prefix_for_each_sequence() {
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
fn floats_in_a_mask_that_all_sequences_share() {
    self_attention_on!(
        Levels,
        (|_batch, len| [tensor((len,), |at| number(level(at[0])))]),
        (|len| [tensor((len,), |at| number(level(at[0])))]),
        (|p, x| masked(p, Split::into_heads(2), x, x, |_, q, k| {
            pairs(q, k, |q, k| level(k) <= level(q))
        }))
    );
}

/// A distance in a graph, some of them beyond what has a bias.
fn distance(b: usize, q: usize, k: usize) -> usize {
    (q.abs_diff(k) * (b + 2)) % 6
}

/// The softmax of the scores that `score` makes of the dot products, over the keys of `matrix`.
fn scored<E: Dtype>(
    p: &Parameters<'_, E>,
    x: &Input<E>,
    context: &Input<E>,
    matrix: impl Fn(usize, usize, usize) -> Matrix,
    score: impl FnOnce(Heads<E>) -> Heads<E>,
) -> (support::reference::Sequence<E>, Heads<E>)
where
    Cpu: Device<E>,
{
    let mask = mask_of(x, context, matrix);
    let score = |q, k| score(scaled_dot(q, k));
    attention(p, Split::into_heads(2), x, context, score, |s| {
        softmax(s, &mask)
    })
}

fn everything(_: usize, queries: usize, keys: usize) -> Matrix {
    full(queries, keys)
}

/// A number for every place of the scores.
fn numbers<E: Dtype>(
    shape: (usize, usize, usize, usize),
    cell: impl Fn(&[usize]) -> f64,
) -> Tensor<(usize, usize, usize, usize), E, Cpu>
where
    Cpu: Device<E>,
{
    tensor(shape, |at| number(cell(at)))
}

/// The element of a learned table, row by row, for every place of the scores.
fn looked_up<S: Shape, E: Dtype>(
    table: Tensor<S, E, Cpu>,
    shape: (usize, usize, usize, usize),
    index: impl Fn(&[usize]) -> usize,
) -> Heads<E>
where
    Cpu: Device<E>,
{
    let index: Tensor<(usize,), usize, Cpu> = {
        let places = tensor(shape, index);
        Cpu::default().tensor_from_vec(places.as_vec(), (shape.num_elements(),))
    };
    let len = table.shape().num_elements();
    let table: Traced<(usize,), E> = table.leaky_trace().reshape_like(&(len,));
    let rows: Traced<(usize,), E> = table.gather(index);
    rows.reshape_like(&shape)
}

#[test]
fn a_bias_by_the_distance_in_a_graph() {
    self_attention_on!(
        Graph,
        (|batch, len| [tensor((batch, len, len), |at| distance(
            at[0], at[1], at[2]
        ))]),
        (|len| [tensor((len, len), |at| distance(0, at[0], at[1]))]),
        (|p, x| {
            let bias = p.tensor("bias.weight", (2, FAR + 1));
            scored(p, x, x, everything, |scores| {
                let shape = *scores.shape();
                scores
                    + looked_up(bias, shape, |at| {
                        at[1] * (FAR + 1) + distance(at[0], at[2], at[3]).min(FAR)
                    })
            })
        })
    );
}

fn bias(at: &[usize]) -> f64 {
    let [b, h, q, k] = at else {
        panic!("a place has four indices")
    };
    ((b + 3 * h + 5 * q + 7 * k) % 11) as f64 / 4.0 - 1.0
}

#[test]
fn a_bias_for_every_place() {
    self_attention_on!(
        Dense,
        (|batch, len| [tensor((batch, Const::<2>, len, len), |at| number(bias(at)))]),
        (|len| [tensor((Const::<2>, len, len), |at| number(bias(
            &[&[0], at].concat()
        )))]),
        (|p, x| scored(p, x, x, everything, |scores| {
            let shape = *scores.shape();
            scores + numbers(shape, bias)
        }))
    );
}

/// Of two positions so far apart: four frequencies.
fn wave(distance: usize) -> f64 {
    let frequencies = (0..4).map(|i| 10_000_f64.powf(-f64::from(i) / 4.0));
    frequencies
        .map(|frequency| (distance as f64 * frequency).cos())
        .sum()
}

#[test]
fn products_of_sinusoidal_positions() {
    self_attention_on!(
        Sandwich,
        (|_batch, len| [tensor((len,), |at| number(wave(at[0])))]),
        (|len| [tensor((len,), |at| number(wave(at[0])))]),
        (|p, x| scored(
            p,
            x,
            x,
            |_, queries, keys| causal(queries, keys),
            |scores| {
                let shape = *scores.shape();
                let bias = numbers(shape, |at| {
                    0.5 * (at[1] + 1) as f64 * wave(at[2].abs_diff(at[3]))
                });
                scores + bias
            }
        ))
    );
}

fn weight(b: usize, k: usize) -> f64 {
    ((2 * b + 3 * k) % 4 + 1) as f64 / 2.0
}

/// `exp(s + ln w) = w exp(s)`, so that a key counts `w` times.
#[test]
fn keys_that_count_several_times() {
    self_attention_on!(
        Weighted,
        (|batch, len| [tensor((batch, len), |at| number(weight(at[0], at[1])))]),
        (|len| [tensor((len,), |at| number(weight(0, at[0])))]),
        (|p, x| {
            let normalize = |scores: Heads<_>| {
                let shape = *scores.shape();
                let counted = scores.exp() * numbers(shape, |at| weight(at[0], at[3]));
                let sums = counted.with_empty_tape().sum::<_, Axis<3>>();
                counted / sums.broadcast_like::<_, Axis<3>>(&shape)
            };
            attention(p, Split::into_heads(2), x, x, scaled_dot, normalize)
        })
    );
}

fn kind(b: usize, i: usize) -> usize {
    (b + 2 * i + i / 2) % 3
}

#[test]
fn a_learned_tensor_by_the_kinds_of_both_tokens() {
    self_attention_on!(
        Kinds,
        (|batch, len| [tensor((batch, len), |at| kind(at[0], at[1]))]),
        (|len| [tensor((len,), |at| kind(0, at[0]))]),
        (|p, x| {
            let affinity = p.tensor("affinity.weight", (3,));
            let matrix = |b, q, k| pairs(q, k, |q, k| kind(b, k) < 2 || q == k);
            scored(p, x, x, matrix, |scores| {
                let shape = *scores.shape();
                let of_query = looked_up(affinity.clone(), shape, |at| kind(at[0], at[2]));
                scores * of_query * looked_up(affinity, shape, |at| kind(at[0], at[3]))
            })
        })
    );
}

fn kind_of_pair(b: usize, q: usize, k: usize) -> usize {
    (b + 2 * q + k) % 3
}

fn near(q: usize, k: usize) -> f64 {
    1.0 / (1 + q.abs_diff(k)) as f64
}

#[test]
fn pairs_of_two_sequences() {
    cross_attention_on!(
        Cross,
        (|batch, queries, keys| [
            tensor((queries, keys, batch), |at| kind_of_pair(
                at[2], at[0], at[1]
            )),
            tensor((queries, keys), |at| number(near(at[0], at[1])))
        ]),
        (|queries, keys| [
            tensor((queries, keys), |at| kind_of_pair(0, at[0], at[1])),
            tensor((queries, keys), |at| number(near(at[0], at[1])))
        ]),
        (|p, x, context| {
            let bias = p.tensor("bias.weight", (3, 2));
            scored(p, x, context, everything, |scores| {
                let shape = *scores.shape();
                let bias = looked_up(bias, shape, |at| {
                    2 * kind_of_pair(at[0], at[2], at[3]) + at[1]
                });
                scores + bias * numbers(shape, |at| near(at[2], at[3]))
            })
        })
    );
}

/// Where sequence `b` has its `i`-th place.
fn place(b: usize, i: usize) -> f64 {
    ((3 * b + 5 * i) % 7) as f64 / 3.0
}

fn asked(b: usize, i: usize) -> f64 {
    ((b + 2 * i) % 5) as f64 / 2.0 + 0.1
}

#[test]
fn kernel_regression() {
    cross_attention_on!(
        Regression,
        (|batch, queries, keys| [
            tensor((batch, queries), |at| number(asked(at[0], at[1]))),
            tensor((batch, keys), |at| number(place(at[0], at[1])))
        ]),
        (|queries, keys| [
            tensor((queries,), |at| number(asked(0, at[0]))),
            tensor((keys,), |at| number(place(0, at[0])))
        ]),
        (|p, x, context| {
            let sharpness = p.tensor("sharpness.weight", (2,));
            let shape = (x.shape().0, 2, x.shape().1, context.shape().1);
            let distance = |at: &[usize]| asked(at[0], at[2]) - place(at[0], at[3]);
            let squares = numbers(shape, |at| -0.5 * distance(at).powi(2));
            let scores = looked_up(sharpness, shape, |at| at[1]).square() * squares;
            let all = mask_of(x, context, everything);
            let (output, weights) = mix(p, Split::into_heads(2), context, softmax(scores, &all));
            // dfdx has a gradient of `x` only if something is computed from it.
            let nothing = x.leaky_trace().sum::<Rank0, _>() * 0.0;
            let shape = *output.shape();
            (output + nothing.broadcast_like(&shape), weights)
        })
    );
}
