//! Score modifications, split and recombined.

use proptest::prelude::*;

use super::steps;
use crate::score::eval::{Inputs, Point, Value, eval};
use crate::score::split::{BiasTerm, BiasTermKind, param_reads, split};
use crate::score::{Data, Expr, Type, Unary, Var, builtin};
use crate::spec::{Real, Size};
use crate::tests::random::spec::valid_specs;
use crate::tests::support::{build, cases};

/// Parameters are numbers that depend on their index. Bias terms have these values.
#[derive(Debug)]
struct WithBiasTerms<'a>(&'a [f64]);

impl Inputs for WithBiasTerms<'_> {
    fn param(&self, name: &str, index: &[i64]) -> f64 {
        if let Some(bias_term) = name.strip_prefix("bias_term_") {
            return self.0[bias_term.parse::<usize>().expect("a number")];
        }
        index
            .iter()
            .fold(0.5, |sum, index| 0.1 * sum + 0.01 * *index as f64)
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

fn float(expr: &Expr, h: i64, (q_idx, kv_idx): (i64, i64), score: f64, bias_terms: &[f64]) -> f64 {
    let point = Point {
        b: 0,
        h,
        q_idx,
        kv_idx,
        q_len: 9,
        kv_len: 9,
        score,
        inputs: &WithBiasTerms(bias_terms),
    };
    match eval(expr, &point) {
        Some(Value::Float(value)) => value,
        other => panic!("{expr} is {other:?}"),
    }
}

/// Checks that `value(scale * score, bias_terms)` equals the whole, and that bias terms are as their kinds say. Returns the
/// kinds.
fn check(expr: &Expr) -> Vec<BiasTermKind> {
    let parts = split(expr, true).expect("few bias_terms");
    let factor = parts.scale.as_ref().and_then(|scale| scale.value);
    let scaled = 0.7 * factor.unwrap_or(1.0);
    let bias_term =
        |bias_term: &BiasTerm, h, place| float(&bias_term.expr, h, place, f64::NAN, &[]);
    for h in 0..3 {
        for place in [(0, 0), (3, 1), (1, 8), (8, 0)] {
            let bias_terms = parts.bias_terms.iter().map(|one| bias_term(one, h, place));
            let bias_terms: Vec<_> = bias_terms.collect();
            let value = match &parts.value {
                Some(value) => float(value, h, place, scaled, &bias_terms),
                None => scaled,
            };
            // The same operations on the same numbers.
            let whole = float(expr, h, place, 0.7, &[]);
            assert_eq!(value, whole, "{expr} at {place:?}");
            for (one, number) in parts.bias_terms.iter().zip(bias_terms) {
                let other = match one.kind {
                    BiasTermKind::Distance => (place.0 + 5, place.1 + 5),
                    BiasTermKind::Row => (place.0, place.1 + 5),
                    BiasTermKind::Key => place,
                };
                assert_eq!(number, bias_term(one, h, other), "{expr}");
            }
        }
    }
    parts
        .bias_terms
        .iter()
        .map(|bias_term| bias_term.kind)
        .collect()
}

#[test]
fn parts_make_the_whole() {
    let size = Size::known;
    let scale = |expr| builtin::scale(expr, &Real::known(0.25));
    let cap = |expr| builtin::softcap(expr, &Real::known(3.0));
    check(&Expr::SCORE);
    check(&scale(Expr::SCORE));
    check(&cap(scale(Expr::SCORE)));
    check(&builtin::alibi(cap(scale(Expr::SCORE)), &size(3)));
    check(&builtin::alibi(Expr::SCORE, &size(4)));
    for causal in [true, false] {
        check(&builtin::rel_pos_bias(
            scale(Expr::SCORE),
            &size(8),
            &size(16),
            causal,
        ));
    }
}

#[test]
fn bias_terms_are_as_cheap_as_they_can_be() {
    use BiasTermKind::{Distance, Key, Row};

    let q = || Expr::from(Var::QIdx);
    let k = || Expr::from(Var::KvIdx);
    let h = || Expr::from(Var::H);
    let param = |index: Expr| Expr::Param {
        name: "table".into(),
        index: vec![index],
    };
    let score = || Expr::SCORE;
    assert_eq!(check(&(score() + param(q() - k()))), [Distance]);
    // A slope per head times the distance is one table. A slope only is the same for all keys.
    let slope = || param(h());
    assert_eq!(
        check(&(score() - slope() * (q() - k()).to_float())),
        [Distance]
    );
    assert_eq!(check(&(score() * slope())), [Row]);
    assert_eq!(check(&(score() + param(k()))), [Key]);
    // Arithmetic on key indices is left to the vectors.
    let gaussian = ((q() + k()).to_float() * Expr::float(-0.5)).unary(Unary::Exp);
    assert_eq!(check(&(score() * gaussian)), [Key]);
    // A table that is read twice at one position has two derivatives.
    let twice = score() + param(q() - k()) * param(q() - k() + 1);
    assert_eq!(check(&twice), [Distance, Distance]);
    // Data depend on the position, also in an index.
    let data = |ty, index: Expr| Expr::Data {
        data: Data::Declared {
            name: "data".into(),
            ty,
        },
        index: vec![index],
    };
    let id = |index| data(Type::Int, index);
    let float = |index| data(Type::Float, index);
    assert_eq!(check(&(score() + float(k()))), [Key]);
    assert_eq!(check(&(score() + float(q()))), [Row]);
    assert_eq!(check(&(score() + param(id(q() - k())))), [Key]);
    assert_eq!(check(&(score() + param(id(q())))), [Row]);
    assert_eq!(check(&(score() * float(k()).unary(Unary::Exp))), [Key]);
    assert_eq!(
        check(&(score() + id(k()).to_float() * param(h()))),
        [Key, Row]
    );
    // Equal bias terms are one.
    let same = (score() + param(k())) * param(k());
    assert_eq!(check(&same), [Key]);
    // Conditions on positions are bias terms. Conditions on the score are left to the vectors.
    let near = (k() % 2).equals(0).select(score(), score() + slope());
    assert_eq!(check(&near), [Key, Row]);
    let positive = Expr::float(0.0).less(score()) & k().less(q());
    assert_eq!(check(&positive.select(score(), slope())), [Distance, Row]);
    let either = Expr::float(0.0)
        .less(score())
        .select(k().less(q()), slope().less(Expr::float(0.5)));
    assert_eq!(
        check(&either.select(score(), slope())),
        [Row, Distance, Row]
    );
    let always = Expr::float(0.0).less(score()) | Expr::Bool(true);
    assert_eq!(check(&always.select(score(), slope())), []);
}

#[test]
fn too_many_bias_terms_are_refused() {
    let sum = |count: u64| {
        let term = |i: u64| ((Expr::from(Var::KvIdx) + i) % (i + 2)).to_float();
        (0..count).fold(Expr::SCORE, |sum, i| sum + term(i))
    };
    assert!(split(&sum(16), true).is_some());
    assert!(split(&sum(17), true).is_none());
}

#[test]
fn two_scales_stay() {
    let scaled = |value| Expr::SCORE * Expr::float(value);
    let parts = split(&(scaled(2.0) + scaled(3.0)), true).expect("no bias_terms");
    assert!(parts.scale.is_none());
    let parts = split(&(Expr::SCORE + scaled(3.0)), true).expect("no bias_terms");
    assert!(parts.scale.is_none());
}

#[test]
fn tables_are_named_with_their_index() {
    let steps = steps("struct L<heads = 2, d_model = 8, position = rel_pos_bias>;");
    let bias_terms = super::attention(&steps).bias_terms();
    assert_eq!(bias_terms.len(), 1);
    let reads = param_reads(&bias_terms[0].expr);
    assert_eq!(reads.len(), 1);
    assert_eq!((reads[0].0, reads[0].1.len()), ("rel_pos_bias", 2));
}

#[test]
fn expressions_that_read_alike_are_not_one_bias_term() {
    let name = "bias";
    let index = vec![Expr::from(Var::KvIdx)];
    let learned = Expr::Param {
        name: name.into(),
        index: index.clone(),
    };
    let data = Data::Declared {
        name: name.into(),
        ty: Type::Float,
    };
    let passed = Expr::Data { data, index };
    assert_eq!(learned.to_string(), passed.to_string());
    let bias_terms = |expr: Expr| split(&expr, true).expect("few").bias_terms.len();
    assert_eq!(bias_terms(Expr::SCORE + learned.clone() * passed), 2);
    assert_eq!(bias_terms(Expr::SCORE + learned.clone() * learned), 1);
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn declared_modifications_are_split(source in valid_specs()) {
        let (_, graph) = build(&source);
        let attention = graph.attention().expect("there is one");
        for function in &attention.functions {
            prop_assert!(split(function, true).is_some(), "{}", source);
        }
    }
}
