//! The bits of a result depend only on its inputs.

use std::sync::OnceLock;

use super::case::{Case, NormalizerKind, Pattern, ResultGradients, Tensors, attend, attend_with};
use super::naive;
use super::scores::Modification;
use crate::kernel::Dtype;
use crate::kernel::attention::{Dropout, HeadLayout, Sizes};
use crate::kernel::testing::{
    Absolute, assert_close, noise, on_every_isa, same_for_all_threads, wide,
};

fn sizes(len: usize) -> Sizes {
    Sizes {
        batch: 1,
        heads: 2,
        kv_heads: 1,
        query: len,
        key: len,
        width: 8,
        value_width: 8,
    }
}

/// The gradient of the output.
fn d_out(case: &Case) -> Vec<f32> {
    let Sizes {
        batch,
        heads,
        query,
        value_width,
        ..
    } = case.sizes;
    noise(batch * query * heads * value_width, 2)
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let plain = Case::plain(sizes(600), Pattern::Causal);
    let everything = Case {
        score: Some(Modification::Placed(2.0)),
        bias: true,
        rms: true,
        rope: true,
        dropout: Some(Dropout {
            p: 0.2,
            seed: 5,
            first: 0,
        }),
        weights: true,
        ..plain
    };
    let additive = Case {
        additive: true,
        sizes: Sizes {
            batch: 3,
            ..sizes(200)
        },
        ..Case::plain(sizes(200), Pattern::Causal)
    };
    let of = |normalizer| Case {
        normalizer,
        ..everything
    };
    let others = [
        NormalizerKind::Sink,
        NormalizerKind::Sparsemax,
        NormalizerKind::Entmax15,
    ]
    .map(of);
    let rounded = [plain, everything, of(NormalizerKind::Entmax15)].map(|case| Case {
        dtype: Dtype::Bf16,
        ..case
    });
    let all = [plain, everything, additive].into_iter();
    for case in all.chain(others).chain(rounded) {
        let x = Tensors::<f32>::random(&case, 1);
        let d = ResultGradients::random(&case, 2);
        same_for_all_threads(|| attend_with(&case, &x, &d, true));
    }
}

#[test]
fn results_do_not_depend_on_where_heads_stand() {
    const ALL: [HeadLayout; 3] = [
        HeadLayout::SideBySide,
        HeadLayout::HeadMajor,
        HeadLayout::SequenceFirst,
    ];
    // Short ones, and ones whose values are copied where they are far apart.
    for (len, weights) in [(1, true), (50, true), (130, false), (2100, false)] {
        let case = Case {
            sizes: Sizes {
                batch: 2,
                ..sizes(len)
            },
            weights,
            ..Case::plain(sizes(len), Pattern::Window(30))
        };
        let x = Tensors::<f32>::random(&case, 1);
        let d = ResultGradients::random(&case, 2);
        let expected = attend_with(&case, &x, &d, true);
        for (at, layout) in (0..4).flat_map(|at| ALL.map(|layout| (at, layout))) {
            let mut moved = case;
            moved.layouts[at] = layout;
            assert!(attend_with(&moved, &x, &d, true) == expected, "{moved:?}");
        }
    }
}

#[test]
fn weights_as_a_result_change_no_other_result() {
    for normalizer in NormalizerKind::ALL {
        let without = Case {
            normalizer,
            dropout: Some(Dropout {
                p: 0.2,
                seed: 5,
                first: 0,
            }),
            ..Case::plain(sizes(130), Pattern::Causal)
        };
        let with = Case {
            weights: true,
            ..without
        };
        let x = Tensors::<f32>::random(&without, 1);
        let found = attend_with(&with, &x, &ResultGradients::random(&with, 2), true);
        let expected = attend(&without, &x, &d_out(&without));
        assert!(found.out == expected.out && found.lse == expected.lse);
    }
}

#[test]
fn outputs_do_not_depend_on_later_tokens() {
    const LEN: usize = 130;
    for case in [
        Case::plain(sizes(LEN), Pattern::Causal),
        Case {
            additive: true,
            ..Case::plain(sizes(LEN), Pattern::Window(20))
        },
    ] {
        on_every_isa(|isa| {
            let x = Tensors::<f32>::random(&case, 1);
            let d_out = d_out(&case);
            let expected = attend(&case, &x, &d_out);
            for token in [1, 15, 16, 47, 48, 49, 63, 64, 96, 129] {
                let mut changed = x.clone();
                for tensor in [&mut changed.q, &mut changed.k, &mut changed.v] {
                    let width = tensor.len() / LEN;
                    tensor[token * width..][..width].fill(7.0);
                }
                let found = attend(&case, &changed, &d_out);
                let before = token * expected.out.len() / LEN;
                assert!(
                    found.out[..before] == expected.out[..before],
                    "{token} on {isa}"
                );
                assert!(
                    found.out[before..] != expected.out[before..],
                    "{token} on {isa}"
                );
            }
        });
    }
}

#[test]
fn instruction_sets_agree() {
    for normalizer in NormalizerKind::ALL {
        let case = Case {
            normalizer,
            score: Some(Modification::Placed(2.0)),
            ..Case::plain(sizes(77), Pattern::Random(3))
        };
        let x = Tensors::<f64>::random(&case, 1);
        let (out, lse) = naive::forward(&case, &x);
        let first = OnceLock::new();
        on_every_isa(|isa| {
            let found = attend(&case, &x, &wide(&d_out(&case)));
            // Rounding errors of sums of 77 numbers.
            assert_close(format!("out on {isa}"), &found.out, &out, Absolute(1e-13));
            assert_close(format!("lse on {isa}"), &found.lse, &lse, Absolute(1e-13));
            let expected = first.get_or_init(|| found.d.clone());
            for ((name, found), (_, expected)) in found.d.each().into_iter().zip(expected.each()) {
                assert_close(format!("{name} on {isa}"), found, expected, Absolute(1e-12));
            }
        });
    }
}
