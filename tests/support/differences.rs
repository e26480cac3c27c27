//! Central differences, the reference for gradients.

use crate::close::{Tolerance, assert_close};
use crate::numbers::scattered;
use std::fmt::Display;

/// The step of the differences, along directions of length 1. It is long enough for rounded losses, and short enough that it
/// rarely crosses a kink.
pub const STEP: f64 = 1e-4;

/// The allowed difference of a gradient and differences with this [`STEP`], relative to the gradient (or 1).
///
/// The error of the method is `step⁴ / 30` times the fifth derivative, below 1e-12 for derivatives up to 1e5. The error of
/// rounding is `3 / 2 step` times the error of the loss: for losses up to 30 about 1e-13, which makes 1.5e-9. Twice that.
pub const TOLERANCE: Tolerance = Tolerance::OfEach(3e-9);

/// The derivative at 0 of a function of one number, from its values at two distances on both sides.
pub fn slope(step: f64, mut f: impl FnMut(f64) -> f64) -> f64 {
    let near = f(step) - f(-step);
    let far = f(2.0 * step) - f(-2.0 * step);
    (8.0 * near - far) / (12.0 * step)
}

/// The derivative of a function at `x` along every axis.
pub fn slopes(x: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    let mut moved = x.to_vec();
    let along = |axis: usize| {
        let slope = slope(STEP, |by| {
            moved[axis] = x[axis] + by;
            f(&moved)
        });
        moved[axis] = x[axis];
        slope
    };
    (0..x.len()).map(along).collect()
}

/// Asserts that `gradient` is the gradient of `loss` at `x`, along every axis.
#[track_caller]
pub fn assert_gradient(
    what: impl Display,
    x: &[f64],
    gradient: &[f64],
    loss: impl FnMut(&[f64]) -> f64,
) {
    assert_close(what, gradient, &slopes(x, loss), TOLERANCE);
}

/// Asserts that `gradient` is the gradient of `loss` at `x` along an arbitrary direction, which includes every element, and along
/// three axes, where no element hides another.
#[track_caller]
pub fn assert_gradient_along_some(
    what: impl Display,
    x: &[f64],
    gradient: &[f64],
    mut loss: impl FnMut(&[f64]) -> f64,
) {
    assert_eq!(x.len(), gradient.len(), "{what}: how many numbers");
    for direction in directions(&what.to_string(), x.len()) {
        let found: f64 = dot(gradient, &direction);
        let expected = slope(STEP, |by| {
            let moved = std::iter::zip(x, &direction).map(|(x, d)| x + by * d);
            loss(&moved.collect::<Vec<_>>())
        });
        let what = format_args!("{what}: the gradient against differences along a direction");
        assert_close(what, &[found], &[expected], TOLERANCE);
    }
}

/// Directions of length 1.
fn directions(name: &str, len: usize) -> Vec<Vec<f64>> {
    if len == 0 {
        return Vec::new();
    }
    let arbitrary = scattered(&format!("direction of {name}"), len);
    let length = dot(&arbitrary, &arbitrary).sqrt();
    let mut directions = vec![arbitrary.iter().map(|d| d / length).collect()];
    let mut axes = vec![0, len / 2, len - 1];
    axes.dedup();
    if len > 1 {
        directions.extend(axes.into_iter().map(|axis| {
            let mut direction = vec![0.0; len];
            direction[axis] = 1.0;
            direction
        }));
    }
    directions
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    std::iter::zip(a, b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `sin(x₀) exp(x₁) + x₂³`
    fn loss(x: &[f64]) -> f64 {
        x[0].sin() * x[1].exp() + x[2].powi(3)
    }

    const X: [f64; 3] = [0.3, -0.7, 1.9];

    fn gradient() -> [f64; 3] {
        let [x, y, z] = X;
        [x.cos() * y.exp(), x.sin() * y.exp(), 3.0 * z * z]
    }

    #[test]
    fn polynomials_of_the_fourth_degree_have_exact_slopes() {
        let f = |x: f64| 3.0 + 2.0 * x - 5.0 * x.powi(2) + 7.0 * x.powi(3) - x.powi(4);
        assert!((slope(0.5, f) - 2.0).abs() < 1e-14);
    }

    #[test]
    fn a_gradient_is_its_slopes() {
        assert_gradient("loss", &X, &gradient(), loss);
        assert_gradient_along_some("loss", &X, &gradient(), loss);
    }

    /// The element is wrong by ten times the tolerance of the largest.
    #[test]
    fn a_wrong_element_is_seen() {
        for axis in 0..3 {
            let mut wrong = gradient();
            wrong[axis] += 4e-7;
            let fails = |check: fn(&[f64])| std::panic::catch_unwind(|| check(&wrong)).is_err();
            assert!(fails(|wrong| assert_gradient("loss", &X, wrong, loss)));
            assert!(fails(|wrong| assert_gradient_along_some(
                "loss", &X, wrong, loss
            )));
        }
    }
}
