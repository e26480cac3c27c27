//! Losses that compute their logits themselves.

use super::lower;
use crate::model::graph::Model;
use crate::ops::Fusion;

/// How many products and losses of logits there are in the fused form.
fn separate(model: &Model) -> [usize; 2] {
    let nodes = model.grouped.nodes();
    let count =
        |is: fn(&Fusion<'_>) -> bool| nodes.iter().filter(|node| is(&node.fusion())).count();
    [
        count(|fusion| matches!(fusion, Fusion::Projection(_) | Fusion::Tied(_))),
        count(|fusion| matches!(fusion, Fusion::Loss(_))),
    ]
}

#[track_caller]
fn assert_separate(inputs: &str, result: &str, body: &str, expected: [usize; 2]) {
    let source = format!(
        "struct M<d = 8, vocab = 5>; fn forward({inputs}, targets: ids[batch, seq]) -> {result} {{ {body} }}"
    );
    assert_eq!(separate(&lower(&source)), expected, "{body}");
}

const X: &str = "x: [batch, seq, d]";

#[test]
fn a_loss_computes_logits_that_it_alone_reads() {
    for linear in ["linear::<vocab>(x)", "linear::<vocab, bias = false>(x)"] {
        let body = format!("cross_entropy({linear}, targets)");
        assert_separate(X, "[]", &body, [0, 0]);
    }
    let tied = "let x = embedding::<vocab, d>(tokens); cross_entropy(linear::<tied = embedding>(x), targets)";
    assert_separate("tokens: ids[batch, seq]", "[]", tied, [0, 0]);
    let each = "cross_entropy::<reduction = none>(linear::<vocab>(x), targets)";
    assert_separate(X, "[batch, seq]", each, [0, 0]);
    let rounds = "let mut x = x; let mut all = 0.1 * mean::<[batch, seq, d]>(x);
        repeat 2 { x += linear::<d>(x); all = all + cross_entropy(linear::<vocab>(x), targets); } all + mean::<[batch, seq, d]>(x)";
    assert_separate(X, "[]", rounds, [1, 0]);
}

#[test]
fn logits_stay_that_something_else_reads() {
    let returned = "let z = linear::<vocab>(x); (cross_entropy(z, targets), z)";
    assert_separate(X, "([], [batch, seq, vocab])", returned, [1, 1]);
    let read = "let z = linear::<vocab>(x); cross_entropy(z, targets) + mean::<[batch, seq, vocab]>(z * z)";
    assert_separate(X, "[]", read, [1, 1]);
    let twice = "let z = linear::<vocab>(x); cross_entropy(z, targets) + cross_entropy::<label_smoothing = 0.1>(z, targets)";
    assert_separate(X, "[]", twice, [1, 2]);
    let changed = "cross_entropy(tanh(linear::<vocab>(x)), targets)";
    assert_separate(X, "[]", changed, [1, 1]);
    // The classes are no outputs of the map.
    let other = "let _targets = targets; cross_entropy::<seq, reduction = none>(linear::<vocab>(x), argmax::<seq>(linear::<vocab>(x)))";
    assert_separate(X, "[batch, vocab]", other, [2, 1]);
}
