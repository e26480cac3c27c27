//! Derivatives of expressions against central differences.

use ::support::differences::slope;
use proptest::prelude::*;

use crate::score::diff::{Wrt, diff};
use crate::score::eval::{Inputs, Point, Value, eval};
use crate::score::{Binary, Data, Expr, Type, Unary, Var, builtin};
use crate::spec::{Real, Size};
use crate::tests::support::cases;

#[derive(Debug)]
struct Param(f64);

impl Inputs for Param {
    fn param(&self, _: &str, _: &[i64]) -> f64 {
        self.0
    }

    fn data(&self, data: &Data, index: &[i64]) -> Option<Value> {
        let number = index.iter().fold(1, |sum, index| (7 * sum + index) % 5);
        Some(match data.ty() {
            Type::Int => Value::Int(number),
            Type::Float => Value::Float(0.3 * number as f64 - 0.5),
            Type::Bool => Value::Bool(number < 3),
        })
    }
}

pub(super) fn param() -> Expr {
    Expr::Param {
        name: "w".into(),
        index: vec![Var::H.into()],
    }
}

fn eval_at(expr: &Expr, score: f64, param: f64) -> Option<Value> {
    let point = Point {
        b: 0,
        h: 1,
        q_idx: 5,
        kv_idx: 2,
        q_len: 8,
        kv_len: 8,
        score,
        inputs: &Param(param),
    };
    eval(expr, &point)
}

pub(super) fn value(expr: &Expr, score: f64, param: f64) -> f64 {
    match eval_at(expr, score, param) {
        Some(Value::Float(value)) => value,
        other => panic!("{expr} is {other:?}"),
    }
}

/// Central differences in f64 with a step of 1e-5: the error is 1e-20 times the fifth derivative, and 1e-11 times the value by
/// rounding.
fn check(expr: &Expr, score: f64, param: f64) -> Result<(), TestCaseError> {
    const STEP: f64 = 1e-5;
    let at = |ds: f64, dp: f64| value(expr, score + ds, param + dp);
    for (wrt, ds, dp) in [(Wrt::Operand(0), 1.0, 0.0), (Wrt::Param("w"), 0.0, 1.0)] {
        let exact = value(&diff(expr, wrt), score, param);
        let [two, one] = [2.0 * STEP, STEP].map(|step| slope(step, |by| at(by * ds, by * dp)));
        let here = at(0.0, 0.0).abs();
        // Beyond a pole, or at a root of 0, where the slope is infinite.
        let undefined = |part: &Expr| {
            let is_root = matches!(
                part,
                Expr::Unary(Unary::Sqrt, _) | Expr::Binary(Binary::Pow, ..)
            );
            match eval_at(part, score, param) {
                Some(Value::Float(value)) => !value.is_finite() || is_root && value == 0.0,
                _ => false,
            }
        };
        // The step of the differences crosses one or several steps of a steep `floor`, which both differences may count alike.
        let steps = |part: &Expr| {
            let ends = [4.0 * STEP, -4.0 * STEP];
            let ends = ends.map(|by| eval_at(part, score + by * ds, param + by * dp));
            matches!(part, Expr::Unary(Unary::Floor, _)) && ends[0] != ends[1]
        };
        if expr.any(&undefined) || expr.any(&steps) {
            continue;
        }
        // If the two differences disagree, there is a kink or a pole within the step.
        let is_smooth = (one - two).abs() <= 1e-6 * (1.0 + one.abs());
        if !is_smooth || here > 1e4 {
            continue;
        }
        prop_assert!(
            (exact - one).abs() <= 1e-5 * (1.0 + one.abs() + here),
            "d/d{wrt:?} {expr} at {score}, {param}: {exact}, not {one}"
        );
    }
    Ok(())
}

/// Expressions of the score and a parameter, of every operation on floats.
pub(super) fn expressions() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        3 => Just(Expr::SCORE),
        2 => Just(param()),
        1 => (-2.0..2.0).prop_map(Expr::float),
        1 => Just((Expr::from(Var::QIdx) - Var::KvIdx).to_float()),
    ];
    leaf.prop_recursive(4, 24, 3, |inner| {
        let pair = || (inner.clone(), inner.clone());
        let operation = prop_oneof![
            Just(Binary::Add),
            Just(Binary::Sub),
            Just(Binary::Mul),
            Just(Binary::Div),
            Just(Binary::Min),
            Just(Binary::Max),
        ];
        let function = prop_oneof![
            Just(Unary::Abs),
            Just(Unary::Exp),
            Just(Unary::Ln),
            Just(Unary::Sqrt),
            Just(Unary::Sin),
            Just(Unary::Cos),
            Just(Unary::Tanh),
            Just(Unary::Sigmoid),
            Just(Unary::Floor),
        ];
        let exponent = prop_oneof![Just(-2.0), Just(0.0), Just(0.5), Just(1.0), Just(3.0)];
        prop_oneof![
            (operation, pair()).prop_map(|(op, (a, b))| a.binary(op, b)),
            (function, inner.clone()).prop_map(|(op, a)| a.unary(op)),
            (inner.clone(), exponent).prop_map(|(a, n)| a.binary(Binary::Pow, Expr::float(n))),
            // A divisor that is larger than a step of the differences.
            pair().prop_map(|(a, b)| a % (b.abs() + Expr::float(0.5))),
            (pair(), pair()).prop_map(|((a, b), (x, y))| a.less(b).select(x, y)),
        ]
    })
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn derivatives_are_slopes(expr in expressions(), score in -2.0..2.0, param in -2.0..2.0) {
        check(&expr, score, param)?;
    }
}

#[test]
fn the_definitions_have_the_derivatives_of_calculus() {
    let capped = builtin::softcap(Expr::SCORE, &Real::known(3.0));
    for score in [-9.0, -0.5, 0.0, 2.0] {
        let expected = 1.0 - (score / 3.0_f64).tanh().powi(2);
        let found = value(&diff(&capped, Wrt::Operand(0)), score, 0.0);
        assert!((found - expected).abs() < 1e-15, "{found} {expected}");
    }
    let biased = builtin::alibi(capped, &Size::known(4));
    assert_eq!(
        diff(&biased, Wrt::Operand(0)).to_string(),
        diff(
            &builtin::softcap(Expr::SCORE, &Real::known(3.0)),
            Wrt::Operand(0)
        )
        .to_string()
    );
}

#[test]
fn zeros_and_ones_disappear() {
    let text = |expr: &Expr| diff(expr, Wrt::Operand(0)).to_string();
    assert_eq!(text(&Expr::SCORE), "1");
    assert_eq!(text(&(Expr::SCORE + param())), "1");
    assert_eq!(text(&(Expr::SCORE * param())), "w[h]");
    assert_eq!(text(&(param() * Expr::float(2.0))), "0");
    assert_eq!(text(&(Expr::SCORE / Expr::float(2.0))), "0.5");
}

#[test]
fn where_there_is_no_derivative_pytorchs_is_taken() {
    let slope = |expr: Expr| value(&diff(&expr, Wrt::Operand(0)), 0.0, 0.0);
    assert_eq!(slope(Expr::SCORE.abs()), 0.0);
    assert_eq!(slope(Expr::SCORE.min(param())), 0.5);
    assert_eq!(slope(Expr::SCORE.max(param())), 0.5);
    assert_eq!(slope(Expr::SCORE.max(Expr::SCORE)), 1.0);
    assert_eq!(slope(Expr::SCORE.unary(Unary::Floor)), 0.0);
}

/// The slope at the bounds is that between them.
#[test]
fn clamp_passes_the_whole_slope_at_its_bounds() {
    let clamp = crate::tests::body::float("0.5 * clamp(score, 1.0, 3.0)");
    let slope = |score| value(&diff(&clamp, Wrt::Operand(0)), score, 0.0);
    let found = [0.9, 1.0, 2.0, 3.0, 3.1].map(slope);
    assert_eq!(found, [0.0, 0.5, 0.5, 0.5, 0.0]);
}
