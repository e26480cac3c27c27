//! Checks that learned tensors affect the weights, and that data are read.

use super::parse::{BodyDraft, FunctionKind};
use super::{Body, Normalizer, ParamDecl};
use crate::messages::body as messages;
use crate::score::Expr;
use crate::score::budget::Budget;
use crate::score::diff::{Wrt, diff};
use crate::score::split::param_reads;
use crate::score::vanish::vanishes;
use crate::spec::check::Checker;

/// Steps for all the derivatives of a body. An everyday body takes a few hundred.
const STEPS: usize = 100_000;

/// Learned tensors must have a gradient somewhere. A function that ignores its argument `score` cuts off the projections of
/// queries and keys, which are learned as well. A function without this argument declares that there are none.
pub(super) fn check(body: &Body, draft: &BodyDraft, checker: &Checker<'_>) {
    let budget = Budget::new(STEPS);
    // Beyond the budget, a derivative is taken to be nonzero.
    let has_no_slope = |value: &Expr, wrt: Wrt<'_>| {
        budget.take(value.size()) && {
            let slope = diff(value, wrt);
            budget.take(slope.size()) && vanishes(&slope, &budget)
        }
    };
    let score = body.score.as_ref().unwrap_or(&Expr::Score);
    let weight = match &body.normalizer {
        Some(Normalizer::Elementwise(weight)) => weight,
        _ => &Expr::Score,
    };
    for (kind, value) in [
        (FunctionKind::Score, score),
        (FunctionKind::Normalize, weight),
    ] {
        if let Some(function) = draft.function(kind)
            && draft.of_places() != Some(kind)
            && has_no_slope(value, Wrt::Score)
        {
            let is_read = value.any(&|expr| matches!(expr, Expr::Score));
            let has_queries = draft.of_places().is_none() && function.takes_score();
            let message = messages::score_is_lost(kind, is_read, has_queries);
            checker.cx.error(&function.name, message);
        }
    }
    let weight = weight.of(score);
    for param in &body.params {
        let reads = elements_of(param, &weight);
        let weight = by_element(&weight);
        let is_lost = |element: &String| has_no_slope(&weight, Wrt::Param(element));
        if reads.iter().all(is_lost) {
            let message = messages::never_reaches(param, !reads.is_empty());
            checker.cx.error(&param.name, message);
        }
    }
    for data in &body.data {
        let reads = |function: &Expr| function.reads_data(&data.text());
        if !reads(&weight) && !body.mask.as_ref().is_some_and(reads) {
            checker.cx.error(&data.name, messages::never_read(data));
        }
    }
}

/// The elements of `param` that `weight` reads, as they are written.
fn elements_of(param: &ParamDecl, weight: &Expr) -> Vec<String> {
    let reads = param_reads(weight).into_iter();
    let reads = reads.filter(|(name, _)| param.name == name);
    reads.map(|(name, index)| element(name, index)).collect()
}

fn element(name: &str, index: &[Expr]) -> String {
    let name = name.to_owned().into();
    let index = index.to_vec();
    Expr::Param { name, index }.to_string()
}

/// Treats every element as a separate tensor: `bias[q_idx] - bias[kv_idx]` has a derivative with respect to either.
fn by_element(expr: &Expr) -> Expr {
    let part = |expr: &Expr| Box::new(by_element(expr));
    match expr {
        Expr::Param { name, index } => Expr::Param {
            name: element(name, index).into(),
            index: Vec::new(),
        },
        Expr::Unary(op, a) => Expr::Unary(*op, part(a)),
        Expr::Binary(op, a, b) => Expr::Binary(*op, part(a), part(b)),
        Expr::Select(a, b, c) => Expr::Select(part(a), part(b), part(c)),
        leaf => leaf.clone(),
    }
}
