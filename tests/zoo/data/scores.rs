//! Scores from ids and floats of a batch.

use attn::attention;
use dfdx::prelude::*;
use support::reference::{
    Heads, Input, Parameters, Split, Traced, attention,
    heads::scaled_dot,
    masks::{Matrix, causal, full},
    mix,
    normalizers::softmax,
    number,
};
use support::{
    compare::{by_hand, by_hand_with_context, compare_cross_attention, compare_self_attention},
    declared::mask_of,
};

use super::{pairs, tensor};

/// The largest distance with its own bias.
const FAR: usize = 3;

attention! {
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
    /// Every key has a multiplicity, as merged tokens have (Bolya et al., "Token merging", 2023).
    struct Weighted<heads = 2, d_model = 8> {
        data weight: [batch, kv_len];
        fn score(score, b, kv_idx) { score + ln(weight[b, kv_idx]) }
    }
    /// One learned tensor, indexed by the kinds of two tokens. The mask reads the same ids.
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
    /// Nadaraya and Watson (1964): a prediction from measurements at some places. Only the length of `x` matters.
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

/// A distance in a graph. Some are beyond those with a bias.
fn distance(b: usize, q: usize, k: usize) -> usize {
    (q.abs_diff(k) * (b + 2)) % 6
}

/// The softmax of `score` of the dot products, over the keys of `matrix`.
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

/// A number for every pair and head.
fn numbers<E: Dtype>(
    shape: (usize, usize, usize, usize),
    cell: impl Fn(&[usize]) -> f64,
) -> Tensor<(usize, usize, usize, usize), E, Cpu>
where
    Cpu: Device<E>,
{
    tensor(shape, |at| number(cell(at)))
}

/// An element of a learned table for every pair and head.
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
fn biases_by_graph_distance_equal_the_dense_reference() {
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
fn biases_per_pair_equal_the_dense_reference() {
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

/// The product of two positions at this distance: four frequencies.
fn wave(distance: usize) -> f64 {
    let frequencies = (0..4).map(|i| 10_000_f64.powf(-f64::from(i) / 4.0));
    frequencies
        .map(|frequency| (distance as f64 * frequency).cos())
        .sum()
}

#[test]
fn products_of_sinusoidal_positions_equal_the_dense_reference() {
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

/// `exp(s + ln w) = w exp(s)`, so a key counts `w` times.
#[test]
fn keys_with_multiplicities_equal_the_dense_reference() {
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
fn tables_by_token_kinds_equal_the_dense_reference() {
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
fn pairs_of_two_sequences_equal_the_dense_reference() {
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

/// The place `i` of sequence `b`.
fn place(b: usize, i: usize) -> f64 {
    ((3 * b + 5 * i) % 7) as f64 / 3.0
}

fn asked(b: usize, i: usize) -> f64 {
    ((b + 2 * i) % 5) as f64 / 2.0 + 0.1
}

#[test]
fn kernel_regression_equals_the_dense_reference() {
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
            // dfdx has a gradient of `x` only if the loss depends on it.
            let nothing = x.leaky_trace().sum::<Rank0, _>() * 0.0;
            let shape = *output.shape();
            (output + nothing.broadcast_like(&shape), weights)
        })
    );
}
