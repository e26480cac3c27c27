//! Comparison of numbers with a stated tolerance.

use std::fmt::Display;

/// The allowed difference of two ways to compute the same numbers.
#[derive(Clone, Copy, Debug)]
pub enum Tolerance {
    /// This number.
    Absolute(f64),
    /// This number times the expected one, or times 1 if that is smaller.
    OfEach(f64),
    /// This number times the largest expected one, or times 1 if that is smaller: for sums whose terms cancel.
    OfLargest(f64),
}

impl Tolerance {
    /// The allowed distance from each of the expected numbers.
    fn distances(self, expected: &[f64]) -> impl Fn(f64) -> f64 {
        // An infinite number would allow any difference.
        let finite = expected.iter().filter(|v| v.is_finite());
        let largest = finite.fold(1.0, |max: f64, v| max.max(v.abs()));
        move |expected| match self {
            Self::Absolute(distance) => distance,
            Self::OfEach(share) => share * expected.abs().max(1.0),
            Self::OfLargest(share) => share * largest,
        }
    }
}

/// For tensors whose elements are sums over the same axes.
impl From<f64> for Tolerance {
    fn from(share: f64) -> Self {
        Self::OfLargest(share)
    }
}

/// Panics unless every number is close to the expected one. NaN is close to nothing, and an infinity only to itself.
#[track_caller]
pub fn assert_close<F: Copy + Into<f64>>(
    what: impl Display,
    found: &[F],
    expected: &[f64],
    tolerance: impl Into<Tolerance>,
) {
    assert_eq!(found.len(), expected.len(), "{what}: how many numbers");
    let allowed = tolerance.into().distances(expected);
    for (i, (&found, &expected)) in std::iter::zip(found, expected).enumerate() {
        let found = found.into();
        let allowed = allowed(expected);
        let is_near = expected.is_finite() && (found - expected).abs() <= allowed;
        assert!(
            found == expected || is_near,
            "{what} at {i}: {found}, expected {expected} ± {allowed:e}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::{Tolerance::*, assert_close};
    use std::panic::catch_unwind;

    fn is_close(found: f64, expected: [f64; 2], tolerance: super::Tolerance) -> bool {
        let found = [found, expected[1]];
        catch_unwind(|| assert_close("", &found, &expected, tolerance)).is_ok()
    }

    #[test]
    fn tolerances_are_absolute_or_relative_as_named() {
        for (tolerance, distance) in [
            (Absolute(0.5), 0.5),
            (OfEach(0.125), 0.5),
            (OfLargest(0.125), 2.0),
        ] {
            assert!(is_close(4.0 + distance, [4.0, 16.0], tolerance));
            assert!(!is_close(4.001 + distance, [4.0, 16.0], tolerance));
            assert!(!is_close(3.999 - distance, [4.0, 16.0], tolerance));
        }
        assert!(is_close(0.125, [0.0, 0.0], OfEach(0.125)));
        assert!(is_close(0.125, [0.0, 0.0], OfLargest(0.125)));
    }

    #[test]
    fn non_finite_numbers_are_close_to_themselves_only() {
        for tolerance in [Absolute(1.0), OfEach(1.0), OfLargest(1.0)] {
            assert!(is_close(f64::INFINITY, [f64::INFINITY, 0.0], tolerance));
            assert!(!is_close(
                f64::NEG_INFINITY,
                [f64::INFINITY, 0.0],
                tolerance
            ));
            assert!(!is_close(1.0, [f64::INFINITY, 0.0], tolerance));
            assert!(!is_close(f64::INFINITY, [1.0, f64::INFINITY], tolerance));
            assert!(!is_close(f64::NAN, [1.0, 0.0], tolerance));
            assert!(!is_close(1.0, [f64::NAN, 0.0], tolerance));
        }
    }

    #[test]
    #[should_panic(expected = "how many")]
    fn lengths_must_be_equal() {
        assert_close("", &[1.0; 2], &[1.0; 3], 1.0);
    }
}
