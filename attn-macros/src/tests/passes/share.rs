//! A repeated subexpression is computed once, with the same result.

use proptest::prelude::*;

use super::derivatives::expressions;
use crate::score::diff::{Wrt, diff};
use crate::score::eval::{Inputs, Point, Value, eval};
use crate::score::share::Shared;
use crate::score::{Data, Expr};
use crate::tests::body::float;
use crate::tests::support::cases;

/// The parts so far. Every parameter is 0.6.
#[derive(Debug, Default)]
struct Parts(Vec<f64>);

impl Inputs for Parts {
    fn param(&self, name: &str, _: &[i64]) -> f64 {
        let part = name.strip_prefix("part_");
        part.map_or(0.6, |index| {
            self.0[index.parse::<usize>().expect("a number")]
        })
    }

    fn data(&self, _: &Data, _: &[i64]) -> Option<Value> {
        None
    }
}

fn value(expr: &Expr, parts: &Parts, score: f64) -> f64 {
    let point = Point {
        b: 0,
        h: 1,
        q_idx: 5,
        kv_idx: 2,
        q_len: 8,
        kv_len: 8,
        score,
        inputs: parts,
    };
    match eval(expr, &point) {
        Some(Value::Float(value)) => value,
        other => panic!("{expr} is {other:?}"),
    }
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn parts_and_the_rest_are_the_whole(expr in expressions(), score in -2.0..2.0) {
        for expr in [diff(&expr, Wrt::Operand(0)), diff(&expr, Wrt::Param("w")), expr] {
            let Shared { parts, rests } = Shared::of([&expr]);
            let mut values = Parts::default();
            for part in &parts {
                let value = value(part, &values, score);
                values.0.push(value);
            }
            let found = value(&rests[0], &values, score);
            let expected = value(&expr, &values, score);
            prop_assert_eq!(found.to_bits(), expected.to_bits(), "{}", expr);
        }
    }
}

/// The number of operations of an expression as written.
fn operations(expr: &Expr) -> usize {
    let below = expr.children().into_iter().map(operations);
    let is_operation = matches!(expr, Expr::Unary(..) | Expr::Binary(..) | Expr::Select(..));
    below.sum::<usize>() + usize::from(is_operation)
}

#[test]
fn bounds_within_bounds_are_written_once() {
    let nested = |depth: usize| {
        let clamps = (0..depth).map(|at| format!("clamp({at}.5 * "));
        let bounds = vec![", -0.5, 0.5)"; depth].concat();
        float(&format!("{}score{bounds}", clamps.collect::<String>()))
    };
    for depth in 1..=5 {
        let clamped = nested(depth);
        assert!(operations(&clamped) >= 3_usize.pow(depth as u32));
        let Shared { parts, rests } = Shared::of([&clamped]);
        let written: usize = parts.iter().chain(&rests).map(operations).sum();
        // A product, two comparisons and two choices.
        assert_eq!(written, 5 * depth, "{clamped}");
    }
}
