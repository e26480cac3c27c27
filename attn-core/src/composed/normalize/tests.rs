//! Normalizers against naive loops, and their gradients against central differences.

use dfdx::prelude::*;
use proptest::prelude::*;

// Imported by name, because dfdx's prelude has functions with the same names.
use super::{ScoreMask, Scores, identity, sink, softmax, softmax1};
use crate::{
    Element,
    composed::{DependsOn, entmax15, index_mask, index_param, sparsemax},
    testing::*,
};

type X<E, T = NoneTape> = Scores<usize, 2, usize, usize, E, Cpu, T>;
type M<E> = ScoreMask<usize, 2, usize, usize, E, Cpu>;
type Tape64 = OwnedTape<f64, Cpu>;

#[derive(Clone, Copy, Debug)]
enum Normalizer {
    Softmax,
    Softmax1,
    Sink,
    Identity,
    Sparsemax,
    Entmax15,
}
use Normalizer::{Entmax15, Identity, Sink, Softmax, Softmax1, Sparsemax};

const ALL: [Normalizer; 6] = [Softmax, Softmax1, Sink, Identity, Sparsemax, Entmax15];

/// The sink of both heads.
const SINK: f64 = 0.5;

impl Normalizer {
    fn run<E: Element, T: Tape<E, Cpu>>(self, x: X<E, T>, mask: Option<M<E>>) -> X<E, T>
    where
        Cpu: Device<E>,
    {
        match self {
            Softmax => softmax(x, mask),
            Softmax1 => softmax1(x, mask),
            Sink => sink(x, mask, &filled((Const,), &[SINK; 2])),
            Identity => identity(x, mask),
            Sparsemax => sparsemax(x, mask),
            Entmax15 => entmax15(x, mask),
        }
        .unwrap()
    }

    /// The weights of a row of scores; `None` where the query does not attend.
    fn naive(self, row: &[Option<f64>]) -> Vec<f64> {
        let attended = || row.iter().flatten().copied();
        let one_more = match self {
            Softmax1 => Some(0.0),
            Sink => Some(SINK),
            _ => None,
        };
        let max = attended().chain(one_more).fold(f64::MIN, f64::max);
        let sum: f64 = attended().chain(one_more).map(|s| (s - max).exp()).sum();
        let above = |s: f64, tau: f64| match self {
            Sparsemax => (s - max - tau).max(0.0),
            _ => ((s - max) / 2.0 - tau).max(0.0).powi(2),
        };
        let tau = bisect(|tau| attended().map(|s| above(s, tau)).sum::<f64>() > 1.0);
        let weight = |s: f64| match self {
            Softmax | Softmax1 | Sink => (s - max).exp() / sum,
            Identity if s == f64::NEG_INFINITY => 0.0,
            Identity => s,
            Sparsemax | Entmax15 => above(s, tau),
        };
        row.iter().map(|s| s.map_or(0.0, weight)).collect()
    }
}

/// The largest number between -1 and 0 for which `is_below` holds.
fn bisect(is_below: impl Fn(f64) -> bool) -> f64 {
    let mut below = -1.0;
    let mut above = 0.0;
    for _ in 0..60 {
        let middle = (below + above) / 2.0;
        *(if is_below(middle) {
            &mut below
        } else {
            &mut above
        }) = middle;
    }
    below
}

type Attends = fn(i64, i64, i64, i64) -> bool;

const CAUSAL: Attends = |_, _, q, k| k <= q;
/// A mask that depends on all indices. The first query of the second head attends to no key.
const RAGGED: Attends = |b, h, q, k| (b + h + q + k) % 3 != 0 && (h, q) != (1, 0);
const NOTHING: Attends = |_, _, _, _| false;

const EVERYWHERE: DependsOn = DependsOn {
    batch: true,
    head: true,
};

fn mask<E: Element>(x: &X<E>, attends: Attends) -> Option<M<E>>
where
    Cpu: Device<E>,
{
    let (b, _, q, k) = *x.shape();
    Some(index_mask(&Cpu::default(), (b, q, k), EVERYWHERE, attends).unwrap())
}

fn expected(
    normalizer: Normalizer,
    [b, q, k]: [usize; 3],
    scores: &[f64],
    attends: Attends,
) -> Vec<f64> {
    let rows = naive([b, 2, q, 1], |b_, h, q_, _| {
        let score = |k_| {
            let attends = attends(b_ as i64, h as i64, q_ as i64, k_ as i64);
            attends.then_some(scores[at([b, 2, q, k], [b_, h, q_, k_])])
        };
        normalizer.naive(&(0..k).map(score).collect::<Vec<_>>())
    });
    rows.concat()
}

fn check<E: Element>([b, q, k]: [usize; 3], tolerance: f64)
where
    Cpu: Device<E>,
{
    let x: X<E> = tensor((b, Const, q, k), 1);
    let scores = values(&x);
    for normalizer in ALL {
        for attends in [CAUSAL, RAGGED, NOTHING] {
            let weights = normalizer.run(x.clone(), mask(&x, attends));
            let expected = expected(normalizer, [b, q, k], &scores, attends);
            assert_close(&values(&weights), &expected, tolerance);
        }
        let expected = expected(normalizer, [b, q, k], &scores, |_, _, _, _| true);
        assert_close(
            &values(&normalizer.run(x.clone(), None)),
            &expected,
            tolerance,
        );
    }
}

#[test]
fn weights_agree_with_a_naive_loop() {
    for sizes in [
        [2, 3, 5],
        [2, 5, 3],
        [1, 1, 1],
        [1, 7, 1],
        [1, 1, 7],
        [0, 2, 3],
        [2, 0, 3],
        [2, 3, 0],
    ] {
        check::<f64>(sizes, F64);
        check::<f32>(sizes, F32);
    }
}

#[test]
fn weights_have_the_same_bits_with_and_without_a_tape() {
    let x: X<f64> = tensor((2, Const, 3, 5), 1);
    for normalizer in ALL {
        for mask in [None, mask(&x, CAUSAL), mask(&x, RAGGED)] {
            let taped = normalizer.run(x.leaky_trace(), mask.clone());
            let plain = normalizer.run(x.clone(), mask);
            assert_eq!(values(&taped), values(&plain));
        }
    }
}

#[test]
fn gradients_agree_with_central_differences() {
    let x: X<f64> = tensor((2, Const, 3, 5), 1);
    for normalizer in ALL {
        for mask in [None, mask(&x, CAUSAL), mask(&x, RAGGED)] {
            check_gradient(&x, |x| normalizer.run(x.leaky_trace(), mask.clone()));
            // The scores of a layer are not a leaf of the tape, and do not share their memory.
            check_gradient(&x, |x| normalizer.run(x.leaky_trace() * 0.5, mask.clone()));
        }
    }
}

#[test]
fn sinks_get_gradients() {
    let x: X<f64> = tensor((2, Const, 3, 5), 1);
    let sinks: Tensor<Rank1<2>, f64, Cpu> = tensor((Const,), 2);
    for mask in [None, mask(&x, CAUSAL), mask(&x, RAGGED), mask(&x, NOTHING)] {
        check_gradient(&sinks, |sinks| {
            sink(x.leaky_trace(), mask.clone(), sinks).unwrap()
        });
    }
    let none: X<f64> = tensor((2, Const, 3, 0), 1);
    let gradients = backward_of_nothing(sink(none.leaky_trace(), None, &sinks).unwrap());
    assert_eq!(values(&gradients.get(&sinks)), [0.0; 2]);
}

#[test]
fn masked_scores_have_weight_and_gradient_zero_for_any_value() {
    // A masked score of 1e4 must not be the maximum, which would make the others 0, and must not get a gradient.
    let x: X<f64> = tensor((2, Const, 3, 5), 1);
    let hidden: Vec<bool> = naive([2, 2, 3, 5], |_, _, q, k| k > q);
    let mut loud = values(&x);
    for (score, _) in std::iter::zip(&mut loud, &hidden).filter(|(_, hidden)| **hidden) {
        *score = 1e4;
    }
    let loud: X<f64> = filled((2, Const, 3, 5), &loud);
    for normalizer in ALL {
        let weights = |x: &X<f64>| values(&normalizer.run(x.clone(), mask(x, CAUSAL)));
        assert_eq!(weights(&loud), weights(&x));
        let gradient = gradient(&loud, |x| normalizer.run(x.leaky_trace(), mask(x, CAUSAL)));
        for (g, _) in std::iter::zip(gradient, &hidden).filter(|(_, hidden)| **hidden) {
            assert_eq!(g, 0.0);
        }
    }
}

#[test]
fn a_query_without_keys_has_weights_and_gradients_of_zero() {
    let x: X<f64> = tensor((2, Const, 3, 5), 1);
    for normalizer in ALL {
        let weights = values(&normalizer.run(x.clone(), mask(&x, NOTHING)));
        assert!(weights.iter().all(|&w| w == 0.0), "{normalizer:?}");
        let gradient = gradient(&x, |x| normalizer.run(x.leaky_trace(), mask(x, NOTHING)));
        assert!(gradient.iter().all(|&g| g == 0.0), "{normalizer:?}");

        // First one such row among others, and then all rows.
        let weights = values(&normalizer.run(x.clone(), mask(&x, RAGGED)));
        for (row, weights) in weights.chunks(5).enumerate() {
            let empty = row / 3 % 2 == 1 && row % 3 == 0;
            assert_eq!(
                weights.iter().all(|&w| w == 0.0),
                empty,
                "{normalizer:?} {row}"
            );
        }
    }
}

fn check_large<E: Element>(tolerance: f64)
where
    Cpu: Device<E>,
{
    let scores = [1e4, -1e4, 1e4, 0.0, -1e4, -1e4, 9999.0, 1e4];
    let x: X<E> = filled((1, Const, 1, 4), &scores);
    for normalizer in ALL {
        for (m, attends) in [
            (None, (|_, _, _, _| true) as Attends),
            (mask(&x, |_, _, _, k| k != 2), |_, _, _, k| k != 2),
        ] {
            let expected = expected(normalizer, [1, 1, 4], &scores, attends);
            assert_close(&values(&normalizer.run(x.clone(), m)), &expected, tolerance);
        }
    }
}

#[test]
fn scores_of_ten_thousand_do_not_overflow() {
    check_large::<f64>(F64);
    check_large::<f32>(F32);
    let x: X<f64> = filled(
        (1, Const, 1, 4),
        &[1e4, -1e4, 1e4, 0.0, -1e4, -1e4, 9999.0, 1e4],
    );
    for normalizer in ALL {
        for mask in [None, mask(&x, |_, _, _, k| k != 2)] {
            let gradient = gradient(&x, |x| normalizer.run(x.leaky_trace(), mask.clone()));
            assert!(gradient.iter().all(|g| g.is_finite()), "{normalizer:?}");
        }
    }
}

#[test]
fn softmax1_represents_small_weights() {
    // exp(-95) is 5.5e-42, a subnormal f32; exp(95) is beyond f32.
    let x: X<f32> = filled((1, Const, 1, 1), &[-95.0, -95.0]);
    let weights = values(&softmax1(x, None).unwrap());
    // Adjacent subnormal numbers differ by 1.4e-45.
    assert!(weights.iter().all(|w| (w - (-95f64).exp()).abs() < 1e-44));
}

#[test]
fn a_score_of_minus_infinity_equals_a_mask() {
    let inf = f64::INFINITY;
    let x: X<f64> = filled((1, Const, 1, 3), &[1.0, -inf, 2.0, -inf, -inf, -inf]);
    for normalizer in ALL {
        let weights = values(&normalizer.run(x.clone(), mask(&x, |_, _, _, k| k != 2)));
        let one = normalizer.naive(&[Some(1.0)])[0];
        assert_close(&weights, &[one, 0.0, 0.0, 0.0, 0.0, 0.0], F64);
        let gradient = gradient(&x, |x| {
            normalizer.run(x.leaky_trace(), mask(x, |_, _, _, k| k != 2))
        });
        assert!(gradient.iter().all(|g| g.is_finite()), "{normalizer:?}");
    }
}

#[test]
fn a_row_of_minus_infinities_has_weights_and_gradients_of_zero() {
    let inf = f64::INFINITY;
    let x: X<f64> = filled((1, Const, 1, 3), &[1.0, 2.0, 3.0, -inf, -inf, -inf]);
    for normalizer in ALL {
        for mask in [None, mask(&x, CAUSAL)] {
            let weights = values(&normalizer.run(x.clone(), mask.clone()));
            assert!(weights[..3].iter().any(|&w| w > 0.0), "{normalizer:?}");
            assert_eq!(weights[3..], [0.0; 3], "{normalizer:?}");
            let gradient = gradient(&x, |x| normalizer.run(x.leaky_trace(), mask.clone()));
            assert_eq!(gradient[3..], [0.0; 3], "{normalizer:?}");
        }
    }
}

#[test]
fn other_references_to_the_scores_do_not_change() {
    let x: X<f64> = tensor((2, Const, 3, 5), 1);
    let before = values(&x);
    for normalizer in ALL {
        normalizer.run(x.leaky_trace(), mask(&x, RAGGED));
        normalizer.run(x.clone(), mask(&x, RAGGED));
        assert_eq!(values(&x), before);
    }
}

#[test]
fn scores_that_are_views_get_their_whole_gradient() {
    let table: Tensor<Rank1<5>, f64, Cpu> = tensor((Const,), 1);
    let permuted: Tensor<(usize, usize, Const<2>, usize), f64, Cpu> = tensor((2, 3, Const, 5), 2);
    let like: X<f64> = tensor((2, Const, 3, 5), 3);
    for normalizer in ALL {
        for mask in [None, mask(&like, RAGGED)] {
            check_gradient(&table, |table| {
                let scores: X<f64, Tape64> =
                    index_param(table, (2, 3, 5), DependsOn::default(), |_, _, q, k| {
                        [(q + k) % 5]
                    })
                    .unwrap();
                normalizer.run(scores, mask.clone())
            });
            check_gradient(&permuted, |x| {
                let scores: X<f64, Tape64> = x.leaky_trace().permute::<_, Axes4<0, 2, 1, 3>>();
                normalizer.run(scores, mask.clone())
            });
        }
    }
}

proptest! {
    #[test]
    fn random_masks_and_scores_agree_with_a_naive_loop(
        sizes in [1usize..3, 1..4, 1..6],
        seed: u64,
        scale in 0.0f64..100.0,
        bits: u64,
    ) {
        let [b, q, k] = sizes;
        let scores: Vec<f64> = numbers(b * 2 * q * k, seed).iter().map(|s| s * scale).collect();
        let x: X<f64> = filled((b, Const, q, k), &scores);
        let attends = |b_: i64, h: i64, q_: i64, k_: i64| {
            bits.rotate_right(at([b, 2, q, k], [b_, h, q_, k_].map(|i| i as usize)) as u32) & 1 == 1
        };
        let mask: M<f64> = index_mask(&Cpu::default(), (b, q, k), EVERYWHERE, attends).unwrap();
        let rows = naive([b, 2, q, k], |b_, h, q_, k_| {
            attends(b_ as i64, h as i64, q_ as i64, k_ as i64)
                .then_some(scores[at([b, 2, q, k], [b_, h, q_, k_])])
        });
        for normalizer in ALL {
            let weights = values(&normalizer.run(x.clone(), Some(mask.clone())));
            let expected: Vec<f64> =
                rows.chunks(k).flat_map(|row| normalizer.naive(row)).collect();
            // exp(s - max) is computed in the same way; the sums have at most five terms.
            assert_close(&weights, &expected, F64);
            let gradient =
                gradient(&x, |x| normalizer.run(x.leaky_trace(), Some(mask.clone())));
            prop_assert!(gradient.iter().all(|g| g.is_finite()));
        }
    }
}
