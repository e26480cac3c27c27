//! Checks that learned tensors affect the weights, and that data are read.

use super::parse::{BodyDraft, FunctionKind};
use super::{Body, Normalizer, Tensor};
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
    let score = body.score.as_ref().unwrap_or(&Expr::SCORE);
    let weight = body.normalizer.as_ref().and_then(Normalizer::weight);
    let weight = weight.unwrap_or(&Expr::SCORE);
    for (kind, value) in [
        (FunctionKind::Score, score),
        (FunctionKind::Normalize, weight),
    ] {
        if let Some(function) = draft.function(kind)
            && draft.of_places() != Some(kind)
            && has_no_slope(value, Wrt::Operand(0))
        {
            let is_read = value.any(&|expr| matches!(expr, Expr::Operand(_)));
            let has_queries = draft.of_places().is_none() && function.takes_score();
            let message = messages::score_is_lost(kind, is_read, has_queries);
            checker.cx.error(&function.name, message);
        }
    }
    let weight = weight.of(score);
    let given = body.data.iter().filter(|data| data.given);
    let learned = body.params.iter().map(Tensor::Param);
    for tensor in learned.chain(given.map(Tensor::Data)) {
        // `bias[q_idx] - bias[kv_idx]` has a derivative with respect to either element.
        let reads = param_reads(&weight).into_iter();
        let reads: Vec<_> = reads.filter(|(name, _)| tensor.name() == name).collect();
        let is_lost =
            |(name, index): &(&str, &[Expr])| has_no_slope(&weight, Wrt::Element(name, index));
        if reads.iter().all(is_lost) {
            let message = messages::never_reaches(tensor, !reads.is_empty());
            checker.cx.error(tensor.name(), message);
        }
    }
    for data in body.data.iter().filter(|data| !data.given) {
        let reads = |function: &Expr| function.reads_data(&data.text());
        if !reads(&weight) && !body.mask.as_ref().is_some_and(reads) {
            checker.cx.error(&data.name, messages::never_read(data));
        }
    }
}
