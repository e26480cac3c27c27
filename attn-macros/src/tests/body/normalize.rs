//! `fn normalize`: named normalizers, and expressions.

use super::spec;
use crate::graph;
use crate::score::Expr;
use crate::spec::{Normalizer, Spec};

/// The score functions of a layer, and its normalizer.
fn lowered(spec: &Spec) -> (Vec<String>, Option<Normalizer>) {
    let graph = graph::build(spec);
    let attention = graph.attention().expect("there is one");
    let functions = attention.functions.iter().map(Expr::to_string);
    (functions.collect(), Some(attention.normalizer.clone()))
}

#[test]
fn a_normalizer_of_a_body_is_that_of_the_header() {
    for (function, normalizer) in [
        ("fn normalize { softmax }", Normalizer::Softmax),
        ("fn normalize() { softmax1 }", Normalizer::Softmax1),
        ("fn normalize(score) { sparsemax }", Normalizer::Sparsemax),
        ("fn normalize { (entmax15) }", Normalizer::Entmax15),
        ("fn normalize { sink }", Normalizer::Sink),
    ] {
        let (functions, found) = lowered(&spec(function));
        assert_eq!(found, Some(normalizer), "{function}");
        assert_eq!(functions.len(), 1, "{function}");
    }
}

#[test]
fn normalizers_of_one_score_are_functions_of_it() {
    for (function, expected) in [
        ("fn normalize { sigmoid }", "sigmoid(score)"),
        ("fn normalize(score) { sigmoid(score) }", "sigmoid(score)"),
        ("fn normalize { relu }", "if 0 < score { score } else { 0 }"),
        (
            "fn normalize { relu(power = 2) }",
            "if 0 < score { pow(score, 2) } else { 0 }",
        ),
        (
            "fn normalize { relu(POWER) }",
            "if 0 < score { pow(score, POWER) } else { 0 }",
        ),
        (
            "param slope: [heads] = ones; fn normalize(score, h, kv_len) { tanh(score * slope[h]) / kv_len as f32 }",
            "tanh(score * slope[h]) / kv_len as f64",
        ),
        ("fn normalize(score) { score }", "score"),
    ] {
        let (functions, normalizer) = lowered(&spec(function));
        let Some(Normalizer::Elementwise(weight)) = normalizer else {
            panic!("{function} is {normalizer:?}");
        };
        assert_eq!(weight.to_string(), expected, "{function}");
        assert_eq!(functions.len(), 1, "{function}");
    }
}

#[test]
fn a_sink_is_learned_by_every_head() {
    let graph = graph::build(&spec("fn normalize { sink }"));
    let sink = graph.param("sink").expect("there is a sink");
    let (tensor, dims, init) = &sink.tensors()[0];
    assert_eq!((*tensor, dims[0].value), ("weight", Some(8)));
    assert!(dims.len() == 1 && init.is_none());
    assert!(graph::build(&spec("")).param("sink").is_none());
}

#[test]
fn the_weight_comes_after_the_function_of_the_score() {
    let body =
        "fn score(score, q_idx) { score + q_idx as f32 } fn normalize(score) { tanh(score) }";
    let (functions, normalizer) = lowered(&spec(body));
    assert_eq!(functions[1..], ["score + q_idx as f64"]);
    let Some(Normalizer::Elementwise(weight)) = normalizer else {
        panic!("{normalizer:?}");
    };
    assert_eq!(weight.to_string(), "tanh(score)");
}
