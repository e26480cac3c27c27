//! Masked tokens have no effect, even if they are NaN or infinite; attended ones have.

use super::case::{
    Case, NormalizerKind, Pairs, Pattern, ResultGradients, Results, Tensors, attend_with,
};
use super::scores::Modification;
use crate::kernel::Dtype;
use crate::kernel::attention::{Dropout, Mask, Sizes};
use crate::kernel::testing::on_every_isa;

/// The number of queries and of keys: more than a block of either.
const LEN: usize = 70;

const POISONS: [f64; 4] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30];

/// Attentions with different parameters.
fn cases(pattern: Pattern) -> Vec<Case> {
    let sizes = Sizes {
        batch: 2,
        heads: 2,
        kv_heads: 1,
        query: LEN,
        key: LEN,
        width: 6,
        value_width: 5,
    };
    let plain = Case::plain(sizes, pattern);
    let narrow = Sizes {
        kv_heads: 2,
        value_width: 1,
        ..sizes
    };
    let mask = Pairs {
        exact: false,
        ..plain.mask
    };
    let dropout = Some(Dropout {
        p: 0.4,
        seed: 3,
        first: 0,
    });
    let rounded = |case| Case {
        dtype: Dtype::Bf16,
        ..case
    };
    vec![
        plain,
        rounded(plain),
        rounded(Case { mask, ..plain }),
        rounded(Case {
            bias: true,
            rope: true,
            dropout,
            weights: true,
            ..plain
        }),
        rounded(Case {
            normalizer: NormalizerKind::Entmax15,
            ..plain
        }),
        Case {
            sizes: narrow,
            ..plain
        },
        Case { mask, ..plain },
        Case {
            score: Some(Modification::SoftCap(2.0)),
            ..plain
        },
        Case {
            score: Some(Modification::Placed(2.0)),
            ..plain
        },
        Case {
            additive: true,
            ..plain
        },
        Case {
            bias: true,
            rms: true,
            rope: true,
            ..plain
        },
        Case {
            l2: true,
            normalizer: NormalizerKind::Softmax1,
            ..plain
        },
        Case {
            normalizer: NormalizerKind::Identity,
            score: Some(Modification::SoftCap(2.0)),
            ..plain
        },
        Case {
            normalizer: NormalizerKind::Sink,
            ..plain
        },
        Case {
            normalizer: NormalizerKind::Sparsemax,
            ..plain
        },
        Case {
            normalizer: NormalizerKind::Entmax15,
            dropout,
            ..plain
        },
        Case { dropout, ..plain },
        Case {
            weights: true,
            dropout,
            ..plain
        },
        Case {
            weights: true,
            normalizer: NormalizerKind::Sink,
            ..plain
        },
        Case {
            weights: true,
            normalizer: NormalizerKind::Entmax15,
            ..plain
        },
    ]
}

/// Every case with every poison, and its results without. The numbers are as in `f32`, so that 1e30 squared is infinite.
fn for_each_poison(pattern: Pattern, test: impl Fn(&Case, &Inputs, f32, &Results<f32>) + Sync) {
    on_every_isa(|_| {
        for case in cases(pattern) {
            let inputs = Inputs::new(&case);
            let expected = inputs.attend(&case);
            for number in POISONS {
                test(&case, &inputs, number as f32, &expected);
            }
        }
    });
}

#[derive(Clone)]
struct Inputs {
    x: Tensors<f32>,
    d: ResultGradients<f32>,
}

impl Inputs {
    fn new(case: &Case) -> Self {
        Self {
            x: Tensors::random(case, 1),
            d: ResultGradients::random(case, 2),
        }
    }

    fn attend(&self, case: &Case) -> Results<f32> {
        attend_with(case, &self.x, &self.d, true)
    }
}

/// Overwrites rows of all sequences with a number.
fn poison(tensor: &mut [f32], rows: impl Fn(usize, usize) -> bool, number: f32) {
    for (b, sequence) in halves_mut(tensor) {
        let width = sequence.len() / LEN;
        for (i, row) in sequence.chunks_mut(width).enumerate() {
            if rows(b, i) {
                row.fill(number);
            }
        }
    }
}

fn halves_mut(tensor: &mut [f32]) -> [(usize, &mut [f32]); 2] {
    let (first, second) = tensor.split_at_mut(tensor.len() / 2);
    [(0, first), (1, second)]
}

/// Copies rows of all sequences.
fn rows(tensor: &[f32], rows: impl Fn(usize, usize) -> bool) -> Vec<f32> {
    let width = tensor.len() / (2 * LEN);
    let kept = tensor
        .chunks(width)
        .enumerate()
        .filter(|(i, _)| rows(i / LEN, i % LEN));
    kept.flat_map(|(_, row)| row.iter().copied()).collect()
}

fn are_zero(x: &[f32]) -> bool {
    x.iter().all(|x| x.to_bits() == 0)
}

/// Panics unless both have the same bits.
#[track_caller]
fn assert_same(found: &[f32], expected: &[f32], what: &str) {
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(found) == bits(expected), "{what}");
}

#[track_caller]
fn assert_all_same(found: &Results<f32>, expected: &Results<f32>, what: &str) {
    assert_same(&found.out, &expected.out, &format!("out: {what}"));
    assert_same(&found.lse, &expected.lse, &format!("lse: {what}"));
    assert_same(
        &found.weights,
        &expected.weights,
        &format!("weights: {what}"),
    );
    for ((name, found), (_, expected)) in found.d.each().into_iter().zip(expected.d.each()) {
        assert_same(found, expected, &format!("{name}: {what}"));
    }
}

#[test]
fn padding_affects_no_result() {
    for_each_poison(Pattern::Padding, |case, inputs, number, expected| {
        let padding = |b: usize, i: usize| i >= LEN / (1 + b % 2);
        let mut poisoned = inputs.clone();
        poison(&mut poisoned.x.k, padding, number);
        poison(&mut poisoned.x.v, padding, number);
        let found = poisoned.attend(case);
        assert_all_same(&found, expected, &format!("{number} in {case:?}"));
        assert!(are_zero(&rows(&found.d.k, padding)));
        assert!(are_zero(&rows(&found.d.v, padding)));
    });
}

#[test]
fn gradients_of_masked_weights_affect_no_result() {
    for pattern in [Pattern::Causal, Pattern::SomeQueries, Pattern::Random(4)] {
        for_each_poison(pattern, |case, inputs, number, expected| {
            let mut poisoned = inputs.clone();
            for (i, d) in poisoned.d.weights.iter_mut().enumerate() {
                let [row, k] = [i / LEN, i % LEN];
                let [b, h, q] = [row / LEN / 2, row / LEN % 2, row % LEN];
                *d = match case.mask.attends(b, h, q, k) {
                    true => *d,
                    false => number,
                };
            }
            let found = poisoned.attend(case);
            assert_all_same(&found, expected, &format!("{number} in {case:?}"));
        });
    }
}

#[test]
fn queries_without_keys_affect_no_result() {
    for_each_poison(Pattern::SomeQueries, |case, inputs, number, expected| {
        let idle = |_: usize, i: usize| i % 3 != 1;
        let mut poisoned = inputs.clone();
        poison(&mut poisoned.x.q, idle, number);
        poison(&mut poisoned.d.out, idle, number);
        if case.normalizer != NormalizerKind::Sink {
            for (row, d) in poisoned.d.lse.iter_mut().enumerate() {
                *d = if idle(0, row % LEN) { number } else { *d };
            }
        }
        let found = poisoned.attend(case);
        assert_all_same(&found, expected, &format!("{number} in {case:?}"));
        assert!(are_zero(&rows(&found.out, idle)));
        assert!(are_zero(&rows(&found.d.q, idle)));
    });
}

#[test]
fn late_keys_do_not_affect_early_queries() {
    const AT: usize = 40;
    for_each_poison(Pattern::Causal, |case, inputs, number, expected| {
        let early = |_: usize, i: usize| i < AT;
        let mut poisoned = inputs.clone();
        poison(&mut poisoned.x.k, |_, i| i == AT, number);
        poison(&mut poisoned.x.v, |_, i| i == AT, number);
        let found = poisoned.attend(case);
        let what = format!("{number} in {case:?}");
        assert_same(&rows(&found.out, early), &rows(&expected.out, early), &what);
        assert_same(&rows(&found.d.q, early), &rows(&expected.d.q, early), &what);
        // With dropout, a head of a late query may have dropped the key.
        if number.is_nan() {
            let width = found.out.len() / (2 * LEN);
            let late = |i: usize| i / width % LEN >= AT;
            assert!(
                (0..found.out.len()).all(|i| found.out[i].is_nan() == late(i)),
                "{what}"
            );
        }
    });
}

#[test]
fn gradients_of_early_outputs_do_not_affect_late_keys() {
    const AT: usize = 40;
    for_each_poison(Pattern::Causal, |case, inputs, number, expected| {
        let late = |_: usize, i: usize| i > AT;
        let others = |_: usize, i: usize| i != AT;
        let mut poisoned = inputs.clone();
        poison(&mut poisoned.d.out, |_, i| i == AT, number);
        let found = poisoned.attend(case);
        let what = format!("{number} in {case:?}");
        assert_same(&rows(&found.d.k, late), &rows(&expected.d.k, late), &what);
        assert_same(&rows(&found.d.v, late), &rows(&expected.d.v, late), &what);
        assert_same(
            &rows(&found.d.q, others),
            &rows(&expected.d.q, others),
            &what,
        );
        if number.is_nan() {
            let early = rows(&found.d.v, |_, i| i <= AT);
            assert!(early.iter().all(|x| x.is_nan()), "{what}");
        }
    });
}

#[test]
fn a_query_of_nan_affects_only_the_keys_that_it_attends_to() {
    const AT: usize = 40;
    for_each_poison(Pattern::Causal, |case, inputs, number, expected| {
        let late = |_: usize, i: usize| i > AT;
        let others = |_: usize, i: usize| i != AT;
        let mut poisoned = inputs.clone();
        poison(&mut poisoned.x.q, |_, i| i == AT, number);
        let found = poisoned.attend(case);
        let what = format!("{number} in {case:?}");
        assert_same(
            &rows(&found.out, others),
            &rows(&expected.out, others),
            &what,
        );
        assert_same(
            &rows(&found.d.q, others),
            &rows(&expected.d.q, others),
            &what,
        );
        assert_same(&rows(&found.d.k, late), &rows(&expected.d.k, late), &what);
        assert_same(&rows(&found.d.v, late), &rows(&expected.d.v, late), &what);
    });
}

#[test]
fn parameters_of_masked_pairs_affect_no_result() {
    for_each_poison(Pattern::Causal, |case, inputs, number, expected| {
        let mut poisoned = inputs.clone();
        // A table is indexed by distance. The shifts are those of four distances, of later keys.
        for table in poisoned.x.table.chunks_mut(2 * LEN - 1) {
            table[LEN..].fill(number);
        }
        if let [early, _, _, _, _, _, _] = &mut poisoned.x.shifts[..] {
            *early = number;
        }
        let found = poisoned.attend(case);
        assert_all_same(&found, expected, &format!("{number} in {case:?}"));
    });
}
