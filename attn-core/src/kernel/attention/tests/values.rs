//! Values and gradients.

use super::case::{Case, NormalizerKind, Pattern, ResultGradients, Tensors, attend, attend_with};
use super::naive;
use super::scores::Modification::{Placed, SoftCap};
use crate::kernel::attention::{Dropout, HeadLayout, Mask, Sizes};
use crate::kernel::testing::{LENGTHS, OfEach, assert_close, noise, on_every_isa};
use crate::random::Philox4x32;

const PATTERNS: [Pattern; 10] = [
    Pattern::Everything,
    Pattern::Nothing,
    Pattern::Causal,
    Pattern::CausalUpperLeft,
    Pattern::Window(3),
    Pattern::Dilated,
    Pattern::Padding,
    Pattern::Islands,
    Pattern::SomeQueries,
    Pattern::Random(5),
];

/// A case with parameters chosen by its number, and with narrow heads.
fn case(number: u64, lengths: &[usize]) -> Case {
    case_of(number, lengths, [&[0, 1, 2, 4, 6], &[0, 1, 3, 5]])
}

/// A case whose heads have some of these widths, of queries and of values.
fn case_of(number: u64, lengths: &[usize], widths: [&[usize]; 2]) -> Case {
    let words: Vec<u32> = (0..8)
        .flat_map(|i| Philox4x32::new(number).block([i, 0, 0, 0]))
        .collect();
    let mut words = words.into_iter().map(|word| word as usize);
    let mut below = |n: usize| words.next().unwrap() % n;
    let kv_heads = 1 + below(2);
    let group = 1 + below(3);
    let sizes = Sizes {
        batch: 1 + below(2),
        heads: kv_heads * group,
        kv_heads,
        query: lengths[below(lengths.len())],
        key: lengths[below(lengths.len())],
        width: widths[0][below(widths[0].len())],
        value_width: widths[1][below(widths[1].len())],
    };
    let mut case = Case::plain(sizes, PATTERNS[below(PATTERNS.len())]);
    case.mask.exact = below(3) > 0;
    case.score = [None, None, Some(SoftCap(1.5)), Some(Placed(1.5))][below(4)];
    case.additive = below(3) == 0;
    // The norm of a short vector is so curved near 0 that central differences are inaccurate.
    case.rms = below(3) == 0 && sizes.width >= 4;
    case.l2 = below(3) == 0 && sizes.width >= 4;
    case.rope = below(2) == 0 && sizes.width.is_multiple_of(2);
    case.normalizer = NormalizerKind::ALL[below(NormalizerKind::ALL.len())];
    case.dropout = (below(3) == 0).then_some(Dropout {
        p: 0.3,
        seed: 1 << 40 | number,
        first: below(2) * 3,
    });
    case.bias = below(2) == 0;
    case.weights = below(2) == 0;
    case.layouts = std::array::from_fn(|_| {
        [
            HeadLayout::SideBySide,
            HeadLayout::HeadMajor,
            HeadLayout::SequenceFirst,
        ][below(3)]
    });
    case
}

fn inputs(case: &Case) -> (Tensors<f64>, ResultGradients<f64>) {
    (Tensors::random(case, 1), ResultGradients::random(case, 2))
}

#[test]
fn small_attentions_agree_with_the_definition() {
    for number in 0..400 {
        let case = case(number, &[0, 1, 2, 3, 5]);
        let (x, d_out) = inputs(&case);
        let [out, lse, weights] = naive::results(&case, &x);
        // The error of a central difference is the square of its step, 1e-5 or 1e-7, and rounding: about 1e-15 over the step.
        let tolerance = if case.normalizer.is_sparse() {
            1e-6
        } else {
            1e-8
        };
        let expected = naive::gradient(&case, &x, &d_out);
        on_every_isa(|_| {
            let found = attend_with(&case, &x, &d_out, true);
            assert_weights(&case, &found.weights, &weights);
            assert_close(
                format_args!("out: {case:?}"),
                &found.out,
                &out,
                OfEach(1e-13),
            );
            assert_close(
                format_args!("lse: {case:?}"),
                &found.lse,
                &lse,
                OfEach(1e-13),
            );
            for ((name, found), (_, expected)) in found.d.each().into_iter().zip(expected.each()) {
                assert_close(
                    format_args!("{name}: {case:?}"),
                    found,
                    expected,
                    OfEach(tolerance),
                );
            }
        });
    }
}

/// Compares weights, of which none is expected if they are no result. A masked one is exactly 0.
#[track_caller]
fn assert_weights(case: &Case, found: &[f64], expected: &[f64]) {
    if !case.weights {
        return assert!(found.is_empty());
    }
    assert_close(
        format_args!("weights: {case:?}"),
        found,
        expected,
        OfEach(1e-13),
    );
    let Sizes {
        heads, query, key, ..
    } = case.sizes;
    for (i, weight) in found.iter().enumerate() {
        let [row, k] = [i / key, i % key];
        let [b, h, q] = [row / query / heads, row / query % heads, row % query];
        let attends = case.mask.attends(b, h, q, k);
        assert!(
            attends || weight.to_bits() == 0,
            "{i}: {weight} in {case:?}"
        );
    }
}

#[test]
fn long_attentions_agree_with_the_definition() {
    // Lengths around the blocks of 16 and 48, and the tiles of 512.
    let lengths = [1, 7, 15, 47, 48, 49, 96, 127, 129, 390, 520];
    for number in 1000..1040 {
        agrees(&case(number, &lengths));
    }
}

#[test]
fn wide_heads_agree_with_the_definition() {
    // All widths of vectors, for every axis.
    for number in 3000..3080 {
        agrees(&case_of(number, &LENGTHS, [&LENGTHS, &LENGTHS]));
    }
}

/// Compares the output with the definition, and gradients in a random direction with central differences, on every instruction
/// set.
fn agrees(case: &Case) {
    let (x, d_out) = inputs(case);
    let [out, lse, weights] = naive::results(case, &x);
    let directions = x.each().map(|(_, x)| noise::<f64>(x.len(), 7));
    let slopes: Vec<f64> = directions
        .iter()
        .enumerate()
        .map(|(tensor, direction)| naive::directional(case, &x, &d_out, tensor, direction))
        .collect();
    // The loss is rounded to about 1e-13: over the smaller step, 1e-6.
    let tolerance = if case.normalizer.is_sparse() {
        1e-5
    } else {
        1e-6
    };
    on_every_isa(|_| {
        let found = attend_with(case, &x, &d_out, true);
        assert_weights(case, &found.weights, &weights);
        assert_close(
            format_args!("out: {case:?}"),
            &found.out,
            &out,
            OfEach(1e-12),
        );
        assert_close(
            format_args!("lse: {case:?}"),
            &found.lse,
            &lse,
            OfEach(1e-12),
        );
        let gradients = found.d.each().into_iter().zip(&directions).zip(&slopes);
        for (((name, gradient), direction), expected) in gradients {
            let slope: f64 = gradient.iter().zip(direction).map(|(d, x)| d * x).sum();
            assert_close(
                format_args!("{name}: {case:?}"),
                &[slope],
                &[*expected],
                OfEach(tolerance),
            );
        }
    });
}

#[test]
fn single_precision_agrees_with_double() {
    for number in 2000..2060 {
        let case = case(number, &[1, 8, 33, 64, 129, 600]);
        let (x, d_out) = inputs(&case);
        let expected = attend_with(&case, &x, &d_out, true);
        let single = |x: &Vec<f64>| x.iter().map(|&x| x as f32).collect::<Vec<f32>>();
        let mut narrow = Tensors::<f32>::zeros(&case);
        for (to, (_, from)) in narrow.each_mut().into_iter().zip(x.each()) {
            *to = single(from);
        }
        let d_out = ResultGradients {
            out: single(&d_out.out),
            weights: single(&d_out.weights),
            lse: single(&d_out.lse),
        };
        let found = attend_with(&case, &narrow, &d_out, true);
        let double = |x: &Vec<f32>| x.iter().map(|&x| f64::from(x)).collect::<Vec<f64>>();
        assert_close(
            format_args!("weights: {case:?}"),
            &double(&found.weights),
            &expected.weights,
            OfEach(1e-4),
        );
        // Sums of up to 6 * 600 numbers about 1, each rounded to 6e-8; the norm of a short vector may multiply that.
        assert_close(
            format_args!("out: {case:?}"),
            &double(&found.out),
            &expected.out,
            OfEach(1e-4),
        );
        assert_close(
            format_args!("lse: {case:?}"),
            &double(&found.lse),
            &expected.lse,
            OfEach(1e-4),
        );
        for ((name, found), (_, expected)) in found.d.each().into_iter().zip(expected.d.each()) {
            assert_close(
                format_args!("{name}: {case:?}"),
                &double(found),
                expected,
                OfEach(1e-3),
            );
        }
    }
}

/// A query and three keys, with these products and these values.
fn three_keys(normalizer: NormalizerKind, k: [f32; 3], v: [f32; 3]) -> (Case, Tensors<f32>) {
    let sizes = Sizes {
        batch: 1,
        heads: 1,
        kv_heads: 1,
        query: 1,
        key: 3,
        width: 1,
        value_width: 1,
    };
    let mut case = Case::plain(sizes, Pattern::Everything);
    case.normalizer = normalizer;
    let mut x = Tensors::<f32>::zeros(&case);
    // The scale of vectors with one coordinate is 1.
    (x.q, x.k, x.v) = (vec![1.0], k.to_vec(), v.to_vec());
    (case, x)
}

/// Weights are 0 if their products with small numbers would be subnormal. Larger weights are unchanged.
#[test]
fn negligible_weights_are_zero() {
    // 2^-80 is e^-55.45, and 2^-100 is 7.9e-31.
    let cases = [
        (NormalizerKind::Softmax, [0.0, -55.0, -56.0]),
        (NormalizerKind::Identity, [1.0, 8e-31, 7e-31]),
    ];
    for (normalizer, k) in cases {
        let (case, x) = three_keys(normalizer, k, [1.0, 2.0, 1e30]);
        on_every_isa(|isa| {
            let found = attend(&case, &x, &[1.0]);
            assert_eq!(found.out, [1.0], "{case:?} on {isa}");
            assert_eq!(found.d.v[0], 1.0, "{case:?} on {isa}");
            assert!(found.d.v[1] > 0.0, "{case:?} on {isa}");
            assert_eq!(found.d.v[2], 0.0, "{case:?} on {isa}");
        });
    }
}

#[test]
fn negligible_gradients_of_a_score_function_are_zero() {
    let (mut case, x) = three_keys(NormalizerKind::Identity, [1.0; 3], [1.0, 1e-30, -7e-31]);
    case.score = Some(SoftCap(1.5));
    on_every_isa(|isa| {
        // The gradient of a weight is its value times this. The slope of the soft cap is 0.66 there.
        let found = attend(&case, &x, &[1.5]);
        assert!(
            found.d.k[0] > 0.0 && found.d.k[1] > 0.0,
            "{case:?} on {isa}"
        );
        assert_eq!(found.d.k[2], 0.0, "{case:?} on {isa}");
    });
}
