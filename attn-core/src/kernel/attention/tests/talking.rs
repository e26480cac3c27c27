//! Heads that talk by matrices that change nothing: the results are those of heads that do not talk.

use super::case::{Case, NormalizerKind, Pattern, ResultGradients, Tensors, attend_with};
use super::scores::Modification;
use crate::kernel::attention::{Dropout, HeadLayout, Sizes};
use crate::kernel::testing::same_for_all_threads;

fn sizes(query: usize, key: usize) -> Sizes {
    Sizes {
        batch: 2,
        heads: 4,
        kv_heads: 2,
        query,
        key,
        width: 5,
        value_width: 3,
    }
}

/// Asserts that numbers are near, or both infinite.
#[track_caller]
fn assert_near(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found, expected) in found.iter().zip(expected) {
        // Sums of up to 1000 numbers of order 1, in another order.
        let is_near = found == expected || (found - expected).abs() < 1e-11;
        assert!(is_near, "{what}: {found} instead of {expected}");
    }
}

fn assert_nothing_changes(case: Case) {
    let talking = Case {
        talking: true,
        ..case
    };
    let x = Tensors::<f64>::random(&case, 1);
    let d = ResultGradients::random(&case, 2);
    let expected = attend_with(&case, &x, &d, true);
    let found = attend_with(&talking, &x, &d, true);
    assert_near(&format!("{case:?}: output"), &found.out, &expected.out);
    assert_near(&format!("{case:?}: lse"), &found.lse, &expected.lse);
    let weights = [&found.weights, &expected.weights];
    assert_near(&format!("{case:?}: weights"), weights[0], weights[1]);
    for ((name, found), (_, expected)) in found.d.each().into_iter().zip(expected.d.each()) {
        assert_near(&format!("{case:?}: gradient of {name}"), found, expected);
    }
}

const SIZES: [(usize, usize); 6] = [(1, 1), (7, 3), (50, 130), (1, 600), (0, 3), (3, 0)];

#[test]
fn the_identity_changes_nothing() {
    let patterns = [
        Pattern::Everything,
        Pattern::Nothing,
        Pattern::Causal,
        Pattern::Islands,
        Pattern::SomeQueries,
        Pattern::Padding,
    ];
    for (query, key) in SIZES {
        for normalizer in NormalizerKind::ALL {
            for pattern in patterns {
                assert_nothing_changes(Case {
                    normalizer,
                    weights: true,
                    ..Case::plain(sizes(query, key), pattern)
                });
            }
        }
    }
}

#[test]
fn not_with_all_that_there_is() {
    for (query, key) in SIZES {
        let all = Case {
            score: Some(Modification::Placed(2.0)),
            bias: true,
            rms: true,
            dropout: Some(Dropout {
                p: 0.2,
                seed: 5,
                first: 0,
            }),
            normalizer: NormalizerKind::Sink,
            layouts: [
                HeadLayout::HeadMajor,
                HeadLayout::SequenceFirst,
                HeadLayout::HeadMajor,
                HeadLayout::SequenceFirst,
            ],
            ..Case::plain(sizes(query, key), Pattern::Window(20))
        };
        assert_nothing_changes(all);
        assert_nothing_changes(Case {
            additive: true,
            rms: false,
            weights: true,
            ..all
        });
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for normalizer in NormalizerKind::ALL {
        let case = Case {
            normalizer,
            score: Some(Modification::Placed(2.0)),
            talking: true,
            ..Case::plain(sizes(300, 300), Pattern::Causal)
        };
        let x = Tensors::<f32>::random(&case, 1);
        let d = ResultGradients::random(&case, 2);
        same_for_all_threads(|| attend_with(&case, &x, &d, true));
    }
}
