//! Properties of a mask for all lengths, positions and data: proofs and counterexamples.
//!
//! A claim is proved by showing that it has no counterexample. That is a question about integers: a mask compares sums of
//! indices, lengths and sizes, their quotients and remainders. [`translate`] turns it into a formula, and [`formula`] and
//! [`integers`] search for integers that satisfy it. The data of a pair are one of a few cases ([`data`]), each of which is
//! possible. The formula is implied by the question, so an unsatisfiable formula is a proof. A solution is a counterexample if
//! the evaluator confirms it.

mod data;
mod formula;
mod integers;
mod linear;
mod pairs;
mod places;
mod rewrite;
mod rows;
mod translate;

pub(crate) use data::{Truths, without_data};
pub(crate) use places::QueryPoint;

use super::budget::Budget;
use super::{Binary, Expr, Var, builtin};
use crate::spec::{Align, Size};
use formula::Formula;
use integers::{GaveUp, Integers};
use linear::{Linear, Model};
use translate::Symbols;

/// The budget of a proof in steps: conditions and values that are translated, and the terms of the solved constraints. A common
/// mask takes a few thousand, and as many again for each head that is treated separately.
const PROOF: usize = 200_000;

/// The budget of a search for a counterexample among small calls, in steps: the parts of evaluated conditions.
const SEARCH: usize = 500_000;

/// The budget of a claim.
struct Budgets {
    proof: Budget,
    search: Budget,
}

/// The maximum number of heads that are treated separately.
const MAX_HEADS: u64 = 64;

/// A mask, with the facts about its layer.
pub(crate) struct Subject<'a> {
    pub(crate) mask: &'a Expr,
    /// Queries and keys are those of two sequences, so their numbers may differ.
    pub(crate) cross: bool,
    pub(crate) heads: &'a Size,
    /// Sizes that are not 0, whatever rustc makes of them.
    pub(crate) positive: Vec<Size>,
}

/// The claims that can be made about a mask.
#[derive(Clone, Debug)]
pub(crate) enum Claim {
    /// Every pair that the mask lets through is let through by this mask, which is the same for all heads.
    Within(Expr),
    /// Every query attends to at least one key, if there is a key at all.
    EveryQueryAttends,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Verdict {
    Proved,
    Refuted(Counterexample),
    /// Neither a proof was found nor a counterexample.
    Unknown,
    /// Like [`Unknown`](Self::Unknown), because the budget was used up.
    GaveUp,
}

/// The call for which a claim fails, for any value of the sizes that rustc evaluates.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Counterexample {
    pub(crate) place: QueryPoint,
    /// The key that the query attends to, or `None` if it attends to no key.
    pub(crate) kv_idx: Option<i64>,
    /// The data of the pair, or of all keys for the query. `None` if every pair needs its own data.
    pub(crate) data: Option<Truths>,
}

impl Subject<'_> {
    pub(crate) fn decide(&self, claim: &Claim) -> Verdict {
        let budgets = Budgets {
            proof: Budget::new(PROOF),
            search: Budget::new(SEARCH),
        };
        let verdict = match self.heads.value {
            Some(heads @ 1..=MAX_HEADS) if self.mask.reads(Var::H) => {
                self.decide_by_head(claim, heads, &budgets)
            }
            _ => self.decide_at_once(claim, &budgets),
        };
        match (verdict, claim) {
            (Verdict::Unknown, Claim::Within(bound)) if budgets.proof.is_spent() => {
                if self.has_part_within(bound) {
                    Verdict::Proved
                } else {
                    Verdict::GaveUp
                }
            }
            (Verdict::Unknown, _) if budgets.proof.is_spent() => Verdict::GaveUp,
            (verdict, _) => verdict,
        }
    }

    /// Whether the mask is an intersection with a part within `bound`: a mask that is too long for a proof may begin with
    /// `causal`.
    fn has_part_within(&self, bound: &Expr) -> bool {
        let mut parts = Vec::new();
        collect_parts(self.mask, &mut parts);
        let steps = PROOF / parts.len();
        parts.len() > 1
            && parts.into_iter().any(|mask| {
                let [proof, search] = [steps; 2].map(Budget::new);
                let positive = self.positive.clone();
                let part = Subject {
                    mask,
                    positive,
                    ..*self
                };
                part.decide_within(bound, &Budgets { proof, search }) == Verdict::Proved
            })
    }

    /// Decides the claim for each head separately, which turns a product with the head's number into a sum.
    fn decide_by_head(&self, claim: &Claim, heads: u64, budgets: &Budgets) -> Verdict {
        let verdicts = (0..heads).map(|h| {
            let mask = rewrite::with_var(self.mask, Var::H, &Expr::from(h));
            let subject = Subject {
                mask: &mask,
                positive: self.positive.clone(),
                ..*self
            };
            match subject.decide_at_once(claim, budgets) {
                Verdict::Refuted(mut found) => {
                    found.place.h = h as i64;
                    Verdict::Refuted(found)
                }
                other => other,
            }
        });
        let severity = |verdict: &Verdict| match verdict {
            Verdict::Refuted(_) => 0,
            Verdict::Unknown | Verdict::GaveUp => 1,
            Verdict::Proved => 2,
        };
        verdicts.min_by_key(severity).unwrap_or(Verdict::Proved)
    }

    fn decide_at_once(&self, claim: &Claim, budgets: &Budgets) -> Verdict {
        match claim {
            Claim::Within(bound) => self.decide_within(bound, budgets),
            Claim::EveryQueryAttends => self.decide_every_query_attends(budgets),
        }
    }

    /// No query attends to a key after its own position, with the first or with the last positions aligned.
    pub(crate) fn is_causal(&self) -> bool {
        let aligns: &[Align] = if self.cross {
            &[Align::UpperLeft, Align::LowerRight]
        } else {
            &[Align::UpperLeft]
        };
        let mut bounds = aligns.iter().map(|align| builtin::causal(*align));
        bounds.any(|bound| self.decide(&Claim::Within(bound)) == Verdict::Proved)
    }

    pub(crate) fn every_query_attends(&self) -> bool {
        self.decide(&Claim::EveryQueryAttends) == Verdict::Proved
    }

    fn symbols<'b>(&self, budget: &'b Budget) -> Symbols<'b> {
        Symbols::new(!self.cross, budget)
    }

    /// Integers that satisfy `formula`, with the definitions of its symbols.
    fn solve(
        &self,
        symbols: &mut Symbols<'_>,
        formula: Formula,
        integers: &mut Integers<'_>,
    ) -> Result<Option<Model>, GaveUp> {
        let ranges = self.ranges(symbols);
        let definitions = symbols.definitions();
        formula::solve(&Formula::all([ranges, definitions, formula]), integers)
    }

    /// There is a query and a key, and each index is less than its length.
    fn ranges(&self, symbols: &mut Symbols<'_>) -> Formula {
        let heads = symbols.size(self.heads);
        let ends = [
            (Var::QIdx, symbols.var(Var::QLen)),
            (Var::KvIdx, symbols.var(Var::KvLen)),
            (Var::H, heads),
        ];
        let mut ranges = Vec::new();
        for (index, end) in ends {
            ranges.push(Formula::less(&symbols.var(index), &end));
        }
        for size in &self.positive {
            ranges.push(Formula::less(&Linear::default(), &symbols.size(size)));
        }
        let naturals = symbols.naturals();
        let naturals = naturals
            .iter()
            .map(|natural| Formula::at_most(&Linear::default(), natural));
        Formula::all(ranges.into_iter().chain(naturals))
    }

    /// Data that are impossible for a query and itself are possible if the two are different tokens.
    fn is_possible(&self, truths: &Truths) -> Expr {
        if truths.may_be_of_itself(self.cross) {
            Expr::Bool(true)
        } else {
            !Expr::from(Var::QIdx).equals(Var::KvIdx)
        }
    }
}

/// The operands of a chain of `&`.
fn collect_parts<'e>(mask: &'e Expr, parts: &mut Vec<&'e Expr>) {
    match mask {
        Expr::Binary(Binary::And, a, b) => {
            collect_parts(a, parts);
            collect_parts(b, parts);
        }
        other => parts.push(other),
    }
}

/// The sizes in `expr` that are rustc's to evaluate, as they are written.
pub(crate) fn unknown_sizes(expr: &Expr) -> Vec<String> {
    let mut found = Vec::new();
    collect_unknown_sizes(expr, &mut found);
    found
}

fn collect_unknown_sizes(expr: &Expr, found: &mut Vec<String>) {
    if let Expr::Int(size) = expr
        && size.value.is_none()
        && !found.contains(&size.to_string())
    {
        found.push(size.to_string());
    }
    for child in expr.children() {
        collect_unknown_sizes(child, found);
    }
}
