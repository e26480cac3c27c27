//! Score modifications, taken apart and put together again.

use proptest::prelude::*;

use super::steps;
use crate::graph::Op;
use crate::score::eval::{Inputs, Point, Value, eval};
use crate::score::split::{BIAS, param_reads, split};
use crate::score::{Data, Expr, Var, builtin};
use crate::spec::{Real, Size};
use crate::tests::support::{build, cases};
use crate::tests::valid_spec::valid_specs;

/// A parameter is a number of its index; the bias is what is put here.
#[derive(Debug)]
struct WithBias(f64);

impl Inputs for WithBias {
    fn param(&self, name: &str, index: &[i64]) -> f64 {
        if name == BIAS {
            return self.0;
        }
        index
            .iter()
            .fold(0.5, |sum, index| 0.1 * sum + 0.01 * *index as f64)
    }

    fn data(&self, _: Data, _: &[i64]) -> i64 {
        0
    }
}

fn float(expr: &Expr, h: i64, (q_idx, kv_idx): (i64, i64), score: f64, bias: f64) -> f64 {
    let point = Point {
        b: 0,
        h,
        q_idx,
        kv_idx,
        q_len: 9,
        kv_len: 9,
        score,
        inputs: &WithBias(bias),
    };
    match eval(expr, &point) {
        Some(Value::Float(value)) => value,
        other => panic!("{expr} is {other:?}"),
    }
}

/// `value(scale * score, bias)` is the whole again.
fn check(expr: &Expr) {
    let parts = split(expr).expect("one bias");
    let factor = parts.scale.as_ref().and_then(|scale| scale.value);
    let scaled = 0.7 * factor.unwrap_or(1.0);
    for h in 0..3 {
        for place in [(0, 0), (3, 1), (1, 8), (8, 0)] {
            let bias_at = |place| match &parts.bias {
                Some(bias) => float(bias, h, place, 0.0, 0.0),
                None => 0.0,
            };
            let bias = bias_at(place);
            let value = match &parts.value {
                Some(value) => float(value, h, place, scaled, bias),
                None => scaled,
            };
            // The same operations on the same numbers.
            assert_eq!(
                value,
                float(expr, h, place, 0.7, 0.0),
                "{expr} at {place:?}"
            );
            // A bias depends on the distance alone.
            assert_eq!(bias, bias_at((place.0 + 5, place.1 + 5)), "{expr}");
        }
    }
}

#[test]
fn parts_make_the_whole() {
    let size = Size::known;
    let scale = |expr| builtin::scale(expr, &Real::known(0.25));
    let cap = |expr| builtin::softcap(expr, &Real::known(3.0));
    check(&Expr::Score);
    check(&scale(Expr::Score));
    check(&cap(scale(Expr::Score)));
    check(&builtin::alibi(cap(scale(Expr::Score)), &size(3)));
    check(&builtin::alibi(Expr::Score, &size(4)));
    for causal in [true, false] {
        check(&builtin::rel_pos_bias(
            scale(Expr::Score),
            &size(8),
            &size(16),
            causal,
        ));
    }
}

#[test]
fn what_the_kernels_do_not_know_is_refused() {
    let index = || Expr::from(Var::QIdx);
    let param = |index: Expr| Expr::Param {
        name: "table".into(),
        index: vec![index],
    };
    let distance = || index() - Var::KvIdx;
    assert!(split(&(Expr::Score + param(distance()))).is_some());
    // More than the distance.
    assert!(split(&(Expr::Score + param(index()))).is_none());
    assert!(split(&(Expr::Score + (index() + Var::KvIdx).to_float())).is_none());
    // Two biases, or one that reads a table twice.
    let two = (Expr::Score + param(distance())) * param(distance());
    assert!(split(&two).is_none());
    let twice = Expr::Score + param(distance()) * param(distance() + 1);
    assert!(split(&twice).is_none());
}

#[test]
fn two_scales_stay() {
    let scaled = |value| Expr::Score * Expr::float(value);
    let parts = split(&(scaled(2.0) + scaled(3.0))).expect("no bias");
    assert!(parts.scale.is_none());
    let parts = split(&(Expr::Score + scaled(3.0))).expect("no bias");
    assert!(parts.scale.is_none());
}

#[test]
fn tables_are_named_with_their_index() {
    let steps = steps("struct L<heads = 2, d_model = 8, position = rel_pos_bias>;");
    let bias = super::attention(&steps).bias.as_ref().expect("a bias");
    let reads = param_reads(bias);
    assert_eq!(reads.len(), 1);
    assert_eq!((reads[0].0, reads[0].1.len()), ("rel_pos_bias", 2));
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn every_declared_modification_comes_apart(source in valid_specs()) {
        let (_, graph) = build(&source);
        for node in &graph.nodes {
            if let Op::MapScores { expr, .. } = &node.op {
                prop_assert!(split(expr).is_some(), "{}", source);
            }
        }
    }
}
