//! Products over numbers that are rounded to bf16, against sums over pairs of numbers that are rounded at the same points.

use std::collections::BTreeMap;

use super::case::{Case, NormalizerKind, Pattern, ResultGradients, Results, Tensors, attend_with};
use super::naive::{biased, factor, modified, transformed, weights};
use super::scores::Modification::{Placed, SoftCap};
use crate::kernel::Dtype;
use crate::kernel::attention::plan::{Head, QUERIES, chunks, tiles};
use crate::kernel::attention::{Dropout, HeadLayout, Mask, Sizes};
use crate::kernel::testing::{Absolute, assert_close, on_every_isa, slope, wide};

/// The operands that are rounded.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    Queries,
    Keys,
    Values,
    OutputGradients,
    ForwardWeights,
    Weights,
    ScoreGradients,
}

const POINTS: [Point; 7] = [
    Point::Queries,
    Point::Keys,
    Point::Values,
    Point::OutputGradients,
    Point::ForwardWeights,
    Point::Weights,
    Point::ScoreGradients,
];

/// The nearest number of 8 binary digits, and the even one of two, of a number in `f32`.
fn bf16(x: f64) -> f64 {
    let x = f64::from(x as f32);
    if x == 0.0 {
        return x;
    }
    let unit = 2_f64.powi(x.abs().log2().floor() as i32 - 7);
    (x / unit).round_ties_even() * unit
}

/// The attention of a case, where all points but one are rounded.
struct Reference<'a> {
    case: &'a Case,
    x: &'a Tensors<f64>,
    d: &'a ResultGradients<f64>,
    whole: Option<Point>,
}

/// The results, and the gradients of queries, keys and values.
#[derive(Default)]
struct Expected {
    out: Vec<f64>,
    lse: Vec<f64>,
    weights: Vec<f64>,
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
}

/// A pair of a query and a key that it attends to.
struct Pair {
    k: usize,
    similarity: f64,
    score: f64,
    /// Of dropout.
    factor: f64,
}

impl Reference<'_> {
    fn round(&self, point: Point, x: &[f64]) -> Vec<f64> {
        match self.whole == Some(point) {
            true => x.to_vec(),
            false => x.iter().map(|x| bf16(*x)).collect(),
        }
    }

    /// All results.
    fn compute(&self) -> Expected {
        let Self { case, x, d, .. } = self;
        let sizes = case.sizes;
        let mut to = Expected {
            out: vec![0.0; d.out.len()],
            lse: vec![0.0; sizes.batch * sizes.heads * sizes.query],
            weights: vec![0.0; d.weights.len()],
            q: vec![0.0; x.q.len()],
            k: vec![0.0; x.k.len()],
            v: vec![0.0; x.v.len()],
        };
        for b in 0..sizes.batch {
            for h in 0..sizes.heads {
                self.head(Head { b, h }, &mut to);
            }
        }
        to
    }

    fn head(&self, head: Head, to: &mut Expected) {
        let Self { case, x, .. } = self;
        let Sizes {
            heads,
            kv_heads,
            query,
            key,
            width,
            value_width,
            ..
        } = case.sizes;
        let Head { b, h } = head;
        let kv = h / (heads / kv_heads);
        let key_rows = |of: &[f64], width: usize, k: usize| {
            of[((b * key + k) * kv_heads + kv) * width..][..width].to_vec()
        };
        let query_rows = |of: &[f64], width: usize, q: usize| {
            of[((b * query + q) * heads + h) * width..][..width].to_vec()
        };
        let key_of =
            |row: &[f64], k| transformed(case, &biased(row, &x.key_bias, kv), &x.key_gain, k);
        let query_of = |row: &[f64], q| -> Vec<f64> {
            let row = transformed(case, &biased(row, &x.query_bias, h), &x.query_gain, q);
            row.iter().map(|x| x * case.scale()).collect()
        };
        let keys: Vec<_> = (0..key)
            .map(|k| self.round(Point::Keys, &key_of(&key_rows(&x.k, width, k), k)))
            .collect();
        let values: Vec<_> = (0..key)
            .map(|k| {
                let row = key_rows(&x.v, value_width, k);
                self.round(Point::Values, &biased(&row, &x.value_bias, kv))
            })
            .collect();
        let mut d_keys = vec![vec![0.0; width]; key];
        for some in chunks(0..query, QUERIES) {
            let tiles: Vec<_> = tiles::<f64>(&case.mask, head, some.clone(), 0..key, width)
                .map(|tile| tile.keys)
                .collect();
            for q in some {
                let q_row = query_rows(&x.q, width, q);
                let rounded = self.round(Point::Queries, &query_of(&q_row, q));
                let pair = |k: usize| {
                    let similarity = dot(&rounded, &keys[k]);
                    let attends = case.mask.attends(b, h, q, k);
                    attends.then(|| Pair {
                        k,
                        similarity,
                        score: modified(case, x, [b, h, q, k], similarity),
                        factor: factor(case, [b, h, q, k]),
                    })
                };
                let tiles: Vec<Vec<Pair>> = tiles
                    .iter()
                    .map(|keys| keys.clone().filter_map(pair).collect())
                    .collect();
                let d_query = self.query(
                    (head, q),
                    &tiles,
                    (&rounded, &keys, &values),
                    (&mut d_keys, kv),
                    to,
                );
                // The scale is a part of the transform here.
                let d = vjp(&q_row, &d_query, |row| query_of(row, q));
                let at = ((b * query + q) * heads + h) * width;
                to.q[at..][..width].copy_from_slice(&d);
            }
        }
        for (k, d) in d_keys.iter().enumerate() {
            let d = vjp(&key_rows(&x.k, width, k), d, |row| key_of(row, k));
            let at = ((b * key + k) * kv_heads + kv) * width;
            add(&mut to.k[at..][..width], 1.0, &d);
        }
    }

    /// A query: its results, the gradient of it before the transform, and its part of those of keys and values.
    fn query(
        &self,
        (head, q): (Head, usize),
        tiles: &[Vec<Pair>],
        (query_row, keys, values): (&[f64], &[Vec<f64>], &[Vec<f64>]),
        (d_keys, kv): (&mut [Vec<f64>], usize),
        to: &mut Expected,
    ) -> Vec<f64> {
        let Self { case, x, d, .. } = self;
        let Sizes {
            heads,
            kv_heads,
            query,
            key,
            value_width,
            ..
        } = case.sizes;
        let Head { b, h } = head;
        let row = (b * heads + h) * query + q;
        let scores: Vec<f64> = tiles.iter().flatten().map(|pair| pair.score).collect();
        let sink = x.sink.get(h).copied();
        let (all, lse) = weights(case.normalizer, sink, &scores);
        to.lse[row] = lse;
        // The forward pass.
        let (out, weights_of_tiles) = self.output(tiles, &all, sink, lse, values);
        let place = (b * query + q) * heads + h;
        to.out[place * value_width..][..value_width].copy_from_slice(&out);
        if case.weights {
            for (pair, weight) in tiles.iter().flatten().zip(&weights_of_tiles) {
                to.weights[row * key + pair.k] = weight * pair.factor;
            }
        }
        // The backward pass.
        let d_out = &d.out[place * value_width..][..value_width];
        let rounded = self.round(Point::OutputGradients, d_out);
        let d_weight = |k: usize| d.weights.get(row * key + k).copied().unwrap_or(0.0);
        let slope_of = |score: f64, weight: f64| match case.normalizer {
            NormalizerKind::Identity => 1.0,
            NormalizerKind::Sparsemax => f64::from(score > lse),
            NormalizerKind::Entmax15 => (score / 2.0 - lse).max(0.0),
            _ => weight,
        };
        let slopes: Vec<f64> = scores
            .iter()
            .zip(&all)
            .map(|(score, weight)| slope_of(*score, *weight))
            .collect();
        let pairs = || tiles.iter().flatten();
        let of_weights = |factors: &[f64]| -> f64 {
            let terms = pairs().zip(factors);
            terms
                .map(|(pair, of)| of * pair.factor * d_weight(pair.k))
                .sum()
        };
        let d_lse = d.lse.get(row).copied().unwrap_or(0.0);
        let delta = match case.normalizer {
            NormalizerKind::Identity => 0.0,
            NormalizerKind::Sparsemax | NormalizerKind::Entmax15 => {
                let sum: f64 = slopes.iter().sum();
                let mut centre = vec![0.0; value_width];
                for (pair, slope) in pairs().zip(&slopes) {
                    let slope = self.round(Point::ForwardWeights, &[slope * pair.factor])[0];
                    add(&mut centre, slope / sum, &values[pair.k]);
                }
                let scale = match case.normalizer {
                    NormalizerKind::Sparsemax => 1.0,
                    _ => 0.5,
                };
                let shares = of_weights(&slopes) - d_lse * scale;
                dot(&centre, d_out) + if sum == 0.0 { 0.0 } else { shares / sum }
            }
            _ => dot(&out, d_out) + of_weights(&all) - d_lse,
        };
        let mut d_query = vec![0.0; query_row.len()];
        for ((pair, weight), slope_of_weight) in pairs().zip(&all).zip(&slopes) {
            let k = pair.k;
            let weight = self.round(Point::Weights, &[weight * pair.factor])[0];
            let d_v = &mut to.v[((b * key + k) * kv_heads + kv) * value_width..][..value_width];
            add(d_v, weight, &rounded);
            let d_weight = dot(&rounded, &values[k]) + d_weight(k);
            let d_score = slope_of_weight * (d_weight * pair.factor - delta);
            let of_score = slope(1e-5, |by| {
                modified(case, x, [b, h, q, k], pair.similarity + by)
            });
            let d_score = self.round(Point::ScoreGradients, &[d_score * of_score])[0];
            add(&mut d_keys[k], d_score, query_row);
            add(&mut d_query, d_score, &keys[k]);
        }
        d_query
    }

    /// The output of a query, and its weights before dropout.
    fn output(
        &self,
        tiles: &[Vec<Pair>],
        all: &[f64],
        sink: Option<f64>,
        lse: f64,
        values: &[Vec<f64>],
    ) -> (Vec<f64>, Vec<f64>) {
        let kind = self.case.normalizer;
        let mut max = match kind {
            NormalizerKind::Softmax1 => 0.0,
            NormalizerKind::Sink => sink.unwrap(),
            _ => f64::NEG_INFINITY,
        };
        let is_exponential = !kind.is_sparse() && kind != NormalizerKind::Identity;
        let mut out = vec![0.0; self.case.sizes.value_width];
        let mut all = all.iter();
        let mut weights = Vec::new();
        for tile in tiles {
            max = tile.iter().map(|pair| pair.score).fold(max, f64::max);
            // The weights of the tile are multiplied by this in the end.
            let scale = if is_exponential {
                (max - lse).exp()
            } else {
                1.0
            };
            for pair in tile {
                let weight = match is_exponential {
                    true => (pair.score - max).exp(),
                    false => *all.next().unwrap(),
                };
                let rounded = self.round(Point::ForwardWeights, &[weight * pair.factor])[0];
                add(&mut out, rounded * scale, &values[pair.k]);
                weights.push(weight * scale);
            }
        }
        (out, weights)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(to: &mut [f64], factor: f64, x: &[f64]) {
    to.iter_mut().zip(x).for_each(|(to, x)| *to += factor * x);
}

/// The gradient of a row from that of a function of it.
fn vjp(row: &[f64], d: &[f64], f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let of = |i: usize| {
        slope(1e-5, |by| {
            let mut row = row.to_vec();
            row[i] += by;
            dot(&f(&row), d)
        })
    };
    (0..row.len()).map(of).collect()
}

/// Widths that fill no vector, more queries than a block, other numbers of queries and keys, two query heads for each key head.
fn sizes() -> Sizes {
    Sizes {
        batch: 2,
        heads: 4,
        kv_heads: 2,
        query: 53,
        key: 71,
        width: 10,
        value_width: 17,
    }
}

fn cases() -> Vec<Case> {
    let rounded = |sizes, pattern| Case {
        dtype: Dtype::Bf16,
        ..Case::plain(sizes, pattern)
    };
    let plain = rounded(sizes(), Pattern::Causal);
    let dropout = Some(Dropout {
        p: 0.3,
        seed: 4,
        first: 1,
    });
    let patterns = [
        Pattern::Everything,
        Pattern::Nothing,
        Pattern::Window(9),
        Pattern::Islands,
        Pattern::SomeQueries,
        Pattern::Random(3),
    ];
    let of_patterns = patterns.map(|pattern| rounded(sizes(), pattern));
    let of_normalizers = NormalizerKind::ALL.map(|normalizer| Case {
        normalizer,
        score: (normalizer == NormalizerKind::Identity).then_some(SoftCap(2.0)),
        weights: true,
        dropout,
        ..plain
    });
    // Tiles of 512 keys, of which the last is of one key, and several blocks of keys.
    let long = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        query: 5,
        key: 1025,
        ..sizes()
    };
    let edges = [[1, 1], [0, 3], [3, 0], [2, 16], [49, 1]].map(|[query, key]| {
        rounded(
            Sizes {
                query,
                key,
                ..sizes()
            },
            Pattern::Everything,
        )
    });
    let others = [
        plain,
        rounded(long, Pattern::Everything),
        rounded(long, Pattern::Causal),
        Case {
            bias: true,
            rms: true,
            rope: true,
            ..plain
        },
        Case {
            score: Some(Placed(1.5)),
            l2: true,
            layouts: [
                HeadLayout::HeadMajor,
                HeadLayout::SequenceFirst,
                HeadLayout::HeadMajor,
                HeadLayout::SequenceFirst,
            ],
            ..plain
        },
        Case {
            score: Some(SoftCap(1.0)),
            dropout,
            ..plain
        },
    ];
    let all = others.into_iter().chain(of_patterns);
    all.chain(of_normalizers).chain(edges).collect()
}

fn inputs(case: &Case) -> (Tensors<f64>, ResultGradients<f64>) {
    (Tensors::random(case, 1), ResultGradients::random(case, 2))
}

/// The numbers of both, by their names.
fn numbers<'a>(
    found: &'a Results<f64>,
    want: &'a Expected,
) -> BTreeMap<&'static str, [&'a [f64]; 2]> {
    [
        ("out", [&found.out[..], &want.out]),
        ("lse", [&found.lse, &want.lse]),
        ("weights", [&found.weights, &want.weights]),
        ("d_q", [&found.d.q, &want.q]),
        ("d_k", [&found.d.k, &want.k]),
        ("d_v", [&found.d.v, &want.v]),
    ]
    .into()
}

/// The largest difference.
fn distance(found: &Results<f64>, want: &Expected) -> f64 {
    let all = numbers(found, want)
        .into_values()
        .flat_map(|[a, b]| a.iter().zip(b));
    let distances = all.map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() });
    distances.fold(0.0, f64::max)
}

/// In `f64`, in which sums and the softmax have no error that changes how a number is rounded.
#[test]
fn attention_is_that_of_rounded_operands() {
    for case in cases() {
        let (x, d) = inputs(&case);
        let reference = Reference {
            case: &case,
            x: &x,
            d: &d,
            whole: None,
        };
        let want = reference.compute();
        on_every_isa(|isa| {
            let found = attend_with(&case, &x, &d, true);
            for (name, [found, want]) in numbers(&found, &want) {
                // The error of the central differences.
                assert_close(
                    format_args!("{name}, {isa}: {case:?}"),
                    found,
                    want,
                    Absolute(1e-7),
                );
            }
        });
    }
}

/// Where one of the operands is not rounded, it is another attention.
#[test]
fn each_operand_of_attention_is_rounded() {
    let case = Case {
        dtype: Dtype::Bf16,
        ..Case::plain(sizes(), Pattern::Causal)
    };
    let (x, d) = inputs(&case);
    let found = attend_with(&case, &x, &d, true);
    for point in POINTS {
        let reference = Reference {
            case: &case,
            x: &x,
            d: &d,
            whole: Some(point),
        };
        let distance = distance(&found, &reference.compute());
        assert!(distance > 1e-4, "{point:?}: {distance}");
    }
}

/// In `f32`, a number between two of bf16 may be rounded to the other one, so it is the mean distance that is small.
#[test]
fn attention_in_f32_is_that_of_rounded_operands() {
    let case = Case {
        dtype: Dtype::Bf16,
        bias: true,
        rope: true,
        ..Case::plain(sizes(), Pattern::Causal)
    };
    let x = Tensors::<f32>::random(&case, 1);
    let d = ResultGradients::<f32>::random(&case, 2);
    let mut wide_x = Tensors::<f64>::zeros(&case);
    for (to, (_, from)) in wide_x.each_mut().into_iter().zip(x.each()) {
        *to = wide(from);
    }
    let wide_d = ResultGradients {
        out: wide(&d.out),
        weights: Vec::new(),
        lse: Vec::new(),
    };
    let reference = Reference {
        case: &case,
        x: &wide_x,
        d: &wide_d,
        whole: None,
    };
    let want = reference.compute();
    let of = |found: Results<f32>| {
        let pairs = [
            (found.out, &want.out),
            (found.d.q, &want.q),
            (found.d.k, &want.k),
            (found.d.v, &want.v),
        ];
        pairs.map(|(found, want)| {
            let squares = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
            let differences = found.iter().zip(want).map(|(a, b)| f64::from(*a) - b);
            squares(&mut differences.into_iter()) / squares(&mut want.iter().copied())
        })
    };
    on_every_isa(|isa| {
        let rounded = of(attend_with(&case, &x, &d, true));
        let model = Case {
            dtype: Dtype::Model,
            ..case
        };
        let whole = of(attend_with(&model, &x, &d, true));
        for (rounded, whole) in rounded.into_iter().zip(whole) {
            assert!(
                10.0 * rounded < whole && whole > 1e-4,
                "{rounded} and {whole}, {isa}"
            );
        }
    });
}

#[test]
fn additive_scores_and_heads_that_talk_are_not_rounded() {
    let plain = Case::plain(sizes(), Pattern::Causal);
    let additive = Case {
        additive: true,
        ..plain
    };
    let talking = Case {
        talking: true,
        ..plain
    };
    for case in [additive, talking] {
        let (x, d) = inputs(&case);
        let rounded = Case {
            dtype: Dtype::Bf16,
            ..case
        };
        let [found, expected] = [rounded, case].map(|case| attend_with(&case, &x, &d, true));
        assert!(found == expected, "{case:?}");
    }
}
