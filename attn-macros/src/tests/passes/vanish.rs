//! Expressions that are said to be 0 are 0, and sums of products are found to cancel.

use proptest::prelude::*;

use super::derivatives::{expressions, param, value};
use crate::score::budget::Budget;
use crate::score::diff::{Wrt, diff};
use crate::score::vanish::vanishes;
use crate::score::{Expr, Type, Unary, Var};
use crate::tests::support::cases;

/// Values of the score and of the parameter.
const PLACES: [(f64, f64); 4] = [(0.7, -1.3), (-0.4, 0.9), (1.6, 1.1), (-1.9, -0.2)];

/// The answer for short expressions, within this budget.
fn is_zero(expr: &Expr) -> bool {
    vanishes(expr, &Budget::new(10_000_000))
}

proptest! {
    #![proptest_config(cases(1_000))]

    /// In exact arithmetic both are the same, so the difference is a rounding error. Each term has a score in it, because the sum
    /// of three numbers is folded into one number.
    #[test]
    fn products_of_sums_cancel(a in expressions(), b in expressions(), c in expressions()) {
        let c = c * Expr::SCORE;
        let product = (a.clone() + b.clone()) * c.clone();
        let first = a.clone() * c.clone();
        let second = b.clone() * c.clone();
        let difference = product - first.clone() - second.clone();
        if is_zero(&difference) {
            for (score, param) in PLACES {
                let found = value(&difference, score, param);
                let size = largest(&difference, score, param);
                prop_assert!(
                    !size.is_finite() || found.abs() <= 1e-12 * (1.0 + size),
                    "{difference} is {found}"
                );
            }
        }
        let is_short = [&a, &b, &c].iter().all(|part| part.to_string().len() < 20);
        let is_number = PLACES.iter().any(|&(score, param)| largest(&difference, score, param).is_finite());
        prop_assert!(!is_short || !is_number || is_zero(&difference), "{difference}");
    }

    /// An expression that changes with the score or the parameter has nonzero derivatives.
    #[test]
    fn nothing_that_changes_is_said_to_vanish(expr in expressions()) {
        for wrt in [Wrt::Operand(0), Wrt::Param("w")] {
            if !is_zero(&diff(&expr, wrt)) {
                continue;
            }
            for (score, param) in PLACES {
                let [slope, wider] = [1e-7, 2e-7].map(|step| slope(&expr, wrt, (score, param), step));
                // A step of `floor` in between is half as steep over the double distance. Large numbers have many steps.
                let is_smooth = (slope - wider).abs() <= 0.1 * slope.abs();
                let size = largest(&expr, score, param);
                let is_small = size < 1e4;
                prop_assert!(
                    !is_smooth || !is_small || slope.abs() <= 1e-7 * (1.0 + size),
                    "{expr} has the slope {slope} at {score}, {param}"
                );
            }
        }
    }
}

fn slope(expr: &Expr, wrt: Wrt<'_>, (score, param): (f64, f64), step: f64) -> f64 {
    let at = |step: f64| match wrt {
        Wrt::Operand(_) => value(expr, score + step, param),
        Wrt::Param(_) | Wrt::Element(..) => value(expr, score, param + step),
    };
    (at(step) - at(-step)) / (2.0 * step)
}

/// The largest intermediate value, which scales the rounding error.
fn largest(expr: &Expr, score: f64, param: f64) -> f64 {
    let parts = expr.children().into_iter();
    let parts = parts.filter(|part| part.ty() == Type::Float);
    let parts = parts.map(|part| largest(part, score, param));
    let larger = |largest: f64, part: f64| match part > largest || part.is_nan() {
        true => part,
        false => largest,
    };
    parts.fold(value(expr, score, param).abs(), larger)
}

#[test]
fn sums_of_products_and_quotients_cancel() {
    let w = param();
    let x = Expr::SCORE;
    let number = Expr::float;
    let near = || Expr::from(Var::QIdx).less(Var::KvIdx);
    let tanh = || w.clone().unary(Unary::Tanh);
    for zero in [
        number(0.0),
        w.clone() - w.clone(),
        w.clone() / w.clone() - number(1.0),
        number(1.0) / w.clone() - w.clone() / (w.clone() * w.clone()),
        w.clone() * x.clone() - x.clone() * w.clone(),
        (w.clone() + x.clone()) / (x.clone() + w.clone()) - number(1.0),
        tanh() * x.clone() / tanh() - x.clone(),
        near().select(w.clone(), w.clone()) - w.clone(),
        number(0.1) * w.clone() + number(0.2) * w.clone() - number(0.3) * w.clone(),
        near().select(w.clone(), number(0.0)) + near().select(number(0.0), w.clone()) - w.clone(),
    ] {
        assert!(is_zero(&zero), "{zero}");
    }
    for other in [
        number(1e-30),
        number(1.000001) * w.clone() - w.clone(),
        w.clone() + w.clone(),
        w.clone() / x.clone() - number(1.0),
        w.clone() / (w.clone() - w.clone()),
        near().select(w.clone(), x.clone()) - w.clone(),
        tanh() - w.clone(),
    ] {
        assert!(!is_zero(&other), "{other}");
    }
}
