//! Whether a mask is within another one: a claim on pairs of a query and a key.

use super::data::Truths;
use super::integers::{GaveUp, Integers};
use super::places::QueryPoint;
use super::rewrite::{and, not};
use super::{Budgets, Counterexample, Subject, Verdict, unknown_sizes};
use crate::score::{Expr, Var};

impl Subject<'_> {
    pub(super) fn decide_within(&self, bound: &Expr, budgets: &Budgets) -> Verdict {
        let outside = and(self.mask.clone(), not(bound.clone()));
        let cases = Truths::all(&outside, self.cross).into_iter().map(|truths| {
            let outside = and(truths.assign(&outside), self.is_possible(&truths));
            (truths, outside)
        });
        let cases: Vec<_> = cases.collect();
        let found = cases.iter().map(|case| self.find_pair(case, budgets));
        let found: Vec<_> = found.collect();
        if found.iter().all(|found| matches!(found, Ok(None))) {
            return Verdict::Proved;
        }
        let found = found.into_iter().find_map(|found| found.ok().flatten());
        let shortest = self.find_small_pair(&cases, budgets).or(found);
        shortest.map_or(Verdict::Unknown, Verdict::Refuted)
    }

    /// A pair for which the condition holds.
    fn find_pair(
        &self,
        (truths, condition): &(Truths, Expr),
        budgets: &Budgets,
    ) -> Result<Option<Counterexample>, GaveUp> {
        let mut symbols = self.symbols(&budgets.proof);
        let formula = symbols.truth(condition, true);
        let mut integers = Integers::new(&budgets.proof);
        let Some(model) = self.solve(&mut symbols, formula, &mut integers)? else {
            return Ok(None);
        };
        let place = QueryPoint::of(&mut symbols, &model).ok_or(GaveUp)?;
        let kv_idx = symbols.value(Var::KvIdx, &model).ok_or(GaveUp)?;
        // The formula may have more solutions than the condition.
        match self.holds(condition, place, kv_idx, &budgets.search) {
            Some(true) => Ok(Some(pair(place, kv_idx, truths))),
            _ => Err(GaveUp),
        }
    }

    fn find_small_pair(
        &self,
        cases: &[(Truths, Expr)],
        budgets: &Budgets,
    ) -> Option<Counterexample> {
        let unknown = cases
            .iter()
            .any(|(_, condition)| !unknown_sizes(condition).is_empty());
        self.small_places(unknown).into_iter().find_map(|place| {
            place.keys().find_map(|kv_idx| {
                let holds = |(_, condition): &&(Truths, Expr)| {
                    self.holds(condition, place, kv_idx, &budgets.search) == Some(true)
                };
                let (truths, _) = cases.iter().find(holds)?;
                Some(pair(place, kv_idx, truths))
            })
        })
    }
}

fn pair(place: QueryPoint, kv_idx: i64, truths: &Truths) -> Counterexample {
    Counterexample {
        place,
        kv_idx: Some(kv_idx),
        data: Some(truths.clone()),
    }
}
