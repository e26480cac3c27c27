//! The built-in masks and score modifications against independent definitions, and the facts of a spec against sums by hand.

mod buckets;
mod claims;
mod facts;
mod grid;
mod masks;
mod scores;
mod shapes;
mod text;

use super::random::formula::{self, Pair};
use crate::score::eval::{self, Inputs, Point, Value};
use crate::score::{Data, Expr};
use crate::spec::Spec;

/// Data for the formulas of these tests, and parameters whose value is their index.
#[derive(Debug)]
struct Example;

impl Inputs for Example {
    /// The first index, which shows the bucket.
    fn param(&self, _: &str, index: &[i64]) -> f64 {
        index[0] as f64
    }

    fn data(&self, data: &Data, index: &[i64]) -> Option<Value> {
        Some(match (data, index) {
            (Data::Padding, &[b, q, k]) => Value::Bool(formula::is_valid(b, q, k)),
            (Data::QueryDocument, &[b, q]) => Value::Int(formula::query_document(b, q)),
            (Data::KeyDocument, &[b, k]) => Value::Int(formula::key_document(b, k)),
            other => panic!("no such data: {other:?}"),
        })
    }
}

fn point(pair: Pair) -> Point<'static> {
    Point {
        b: pair.b,
        h: 0,
        q_idx: pair.q,
        kv_idx: pair.k,
        q_len: pair.q_len,
        kv_len: pair.kv_len,
        score: 0.0,
        inputs: &Example,
    }
}

/// Every pair of a call, for the first two sequences of a batch.
fn pairs(q_len: i64, kv_len: i64) -> impl Iterator<Item = Pair> {
    (0..2 * q_len * kv_len).map(move |index| Pair {
        b: index % 2,
        q: index / 2 % q_len,
        k: index / 2 / q_len,
        q_len,
        kv_len,
    })
}

/// Lengths of self-attention.
const LENGTHS: [i64; 7] = [0, 1, 2, 3, 7, 8, 13];

/// Lengths of queries and keys in cross-attention: none, one, odd ones, fewer queries, fewer keys.
const LENGTH_PAIRS: [(i64, i64); 12] = [
    (0, 0),
    (0, 4),
    (4, 0),
    (1, 1),
    (1, 6),
    (6, 1),
    (3, 3),
    (5, 9),
    (9, 5),
    (2, 13),
    (13, 2),
    (8, 12),
];

/// The expression from a raw score to the normalizer's input, or the score itself if there is none.
fn modification(spec: &str) -> Expr {
    let (_, graph) = super::support::build(spec);
    let attention = graph.attention().expect("there is one");
    match attention.functions.as_slice() {
        [] => Expr::SCORE,
        [function] => function.clone(),
        several => panic!("{several:?}"),
    }
}

fn float_at(expr: &Expr, point: &Point<'_>) -> f64 {
    match eval::eval(expr, point) {
        Some(Value::Float(value)) => value,
        other => panic!("{expr} is {other:?}"),
    }
}

/// A layer with this mask, which attends to a context if `cross`.
fn masked(mask: &str, cross: bool) -> Spec {
    let context = if cross { "d_context = 4, " } else { "" };
    super::support::build(&format!(
        "struct L<heads = 1, d_model = 4, {context}mask = {mask}>;"
    ))
    .0
}
