//! The fused form computes the same as the composed one: the output and the gradient of every input and parameter.
//!
//! In `f64` the two differ by rounding only. In `f32` the fused form is as precise as the composed one, measured against the
//! composed one in `f64`: other kernels may round at other places, but not more.

use crate::{
    compare::{Outcome, assert_same},
    subject::{Case, Sizes, Subject, Way},
};

/// One token, a few, more than a vector has lanes, and one and two incomplete tiles of 64 queries; some are primes.
const SHORT: [Sizes; 5] = [
    Sizes::square(1, 1),
    Sizes::square(3, 2),
    Sizes::square(2, 17),
    Sizes::square(3, 66),
    Sizes::square(1, 131),
];

/// More keys than a tile of 512 has.
const LONG: [Sizes; 1] = [Sizes::square(1, 523)];

/// As [`SHORT`], where queries and keys differ in number.
const CROSS: [Sizes; 7] = [
    Sizes::new(1, 1, 1),
    Sizes::new(2, 1, 7),
    Sizes::new(2, 5, 1),
    Sizes::new(3, 13, 67),
    Sizes::new(3, 67, 13),
    Sizes::new(1, 131, 70),
    Sizes::new(1, 66, 129),
];

/// The difference of two results in `f64`, relative to the largest element of a tensor (or 1).
///
/// From the input to the gradient of a weight, sums run over up to 131 keys, 131 queries, 198 tokens of a batch and a few widths:
/// 600 terms, which the two forms add in different orders, each rounded by ε/2. With terms of up to 10 such errors add up to 10
/// √600 ε/2 = 2.7e-14. Ten times that covers the worst of thousands of elements, and the 523 keys of [`LONG`].
const TOLERANCE: f64 = 3e-13;

/// The maximum error of the fused form in `f32`, relative to that of the composed one: in the output, and in a gradient, which
/// has more operations. Vectors without a fused multiply-add round each product before they add it, where the products of the composed
/// form round once, and the derivative of a vector of length 1 divides such an error by the length that the vector had.
const OUTPUT_RATIO: f64 = 2.0;
const GRADIENT_RATIO: f64 = 8.0;

/// An error that is always allowed, relative to the largest element: eight roundings of it.
const FREE: f64 = 1e-6;

/// The error of a gradient that is smaller than the terms of its sum is relative to the terms: inputs, weights and factors of the
/// loss are up to 1, and a sum of a few products of them, over a head, is up to about 4. The gradient of `k_proj.bias` under a
/// softmax is 0, and so is every gradient of a score if there is one key. The output has no such cancellation.
const TERM: f64 = 4.0;

/// The scale of [`agree_on_large_scores`].
pub const LARGE: f64 = 2e3;

/// Asserts that the forms agree for each of these sizes.
#[track_caller]
fn assert_agreement(subject: &Subject, sizes: &[Sizes]) {
    for &sizes in sizes {
        let case = subject.case(sizes);
        let exact = (subject.double)(Way::Composed, &case);
        let fused = (subject.double)(Way::Fused, &case);
        assert_same(format_args!("{sizes:?}"), &fused, &exact, TOLERANCE);

        let composed = (subject.single)(Way::Composed, &case);
        let fused = (subject.single)(Way::Fused, &case);
        assert_as_precise(sizes, &fused, &composed, &exact);
    }
}

#[track_caller]
fn assert_as_precise(sizes: Sizes, fused: &Outcome, composed: &Outcome, exact: &Outcome) {
    let assert = |name: &str, ratio: f64, least: f64, [fused, composed, exact]: [&[f64]; 3]| {
        let size = exact.iter().fold(least, |size, x| size.max(x.abs()));
        let allowed = ratio * error(composed, exact) + FREE * size;
        let found = error(fused, exact);
        assert!(
            found <= allowed,
            "{sizes:?}: {name} in f32 is off by {found:e}, and may be by {allowed:e}; the largest is {size:e}"
        );
    };
    let output = [fused, composed, exact].map(|outcome| outcome.get("output"));
    assert("output", OUTPUT_RATIO, 0.0, output);
    for (name, exact) in exact.gradients() {
        let gradients = [fused.gradient(name), composed.gradient(name), exact];
        assert(
            &format!("gradient of {name}"),
            GRADIENT_RATIO,
            TERM,
            gradients,
        );
    }
}

/// The largest difference, or NaN if there is one.
fn error(found: &[f64], exact: &[f64]) -> f64 {
    assert_eq!(found.len(), exact.len());
    let differences = found.iter().zip(exact).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |largest, d| {
        if d > largest || d.is_nan() {
            d
        } else {
            largest
        }
    })
}

/// Agreement of self-attention.
pub fn agree(subject: &Subject) {
    assert_agreement(subject, &SHORT);
}

/// Agreement of self-attention, over several tiles of keys too.
pub fn agree_beyond_a_tile(subject: &Subject) {
    assert_agreement(subject, &SHORT);
    assert_agreement(subject, &LONG);
}

/// Agreement for scores of 1e4 and more.
///
/// Half a unit in the last place of 1e4 is 1e-12 in `f64`. A score has an error of a few of these, and so has a weight, relative
/// to itself. Gradients are sums of 100 and more terms with this error. In `f32` the half is 5e-4. The logarithm of a sum, from
/// which the derivative recomputes weights, has the error of a score: eight times that covers both and their sums.
pub fn agree_on_large_scores(subject: &Subject) {
    for sizes in [Sizes::square(2, 33), Sizes::square(1, 67)] {
        let case = subject.case(sizes);
        let score = LARGE * largest_product(&case);
        assert!(
            (1e4..1e5).contains(&score),
            "the largest score is {score:e}"
        );
        let exact = (subject.double)(Way::Composed, &case);
        let fused = (subject.double)(Way::Fused, &case);
        assert_same(format_args!("{sizes:?}"), &fused, &exact, 1e-10);

        let single = (subject.single)(Way::Fused, &case);
        assert!(error(single.get("output"), exact.get("output")) <= 4e-3);
        for (name, exact) in exact.gradients() {
            let size = exact.iter().fold(TERM, |size, x| size.max(x.abs()));
            let found = error(single.gradient(name), exact) / size;
            assert!(
                found <= 4e-3,
                "{sizes:?}: gradient of {name} in f32 is off by {found:e} of {size:e}"
            );
        }
    }
}

/// The largest product of a query and a key, for heads of four numbers.
fn largest_product(case: &Case) -> f64 {
    let x = case.state.get("x");
    let project = |name: &str| -> Vec<Vec<f64>> {
        let weight = &case.state.get(&format!("{name}.weight")).flat;
        let bias = &case.state.get(&format!("{name}.bias")).flat;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let width = x.dims[2];
        let of_token = |x| {
            let rows = weight.chunks(width).zip(bias);
            rows.map(|(row, bias)| dot(x, row) + bias).collect()
        };
        x.flat.chunks(width).map(of_token).collect()
    };
    let queries = project("q_proj");
    let keys = project("k_proj");
    let group = queries[0].len() / keys[0].len();
    let mut largest = 0.0_f64;
    for query in &queries {
        for key in &keys {
            for (head, query) in query.chunks(4).enumerate() {
                let key = &key[head / group * 4..][..4];
                let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                largest = largest.max(product.abs());
            }
        }
    }
    largest
}

/// Agreement of cross-attention.
pub fn agree_across(subject: &Subject) {
    assert_agreement(subject, &CROSS);
}
