//! Whether every query attends to a key: a claim on rows of the mask.
//!
//! A proof gives every query some keys to try, its witnesses: itself, the first key, the first key of its chunk. While there is a
//! query that attends to none of its witnesses, a key that it does attend to suggests the next witness.

use std::collections::BTreeSet;

use super::data::{Truths, assume, comparisons, reads_declared};
use super::formula::Formula;
use super::integers::{GaveUp, Integers};
use super::places::QueryPoint;
use super::rewrite::{and, not, or, with_var};
use super::translate::Symbols;
use super::{Budgets, Counterexample, Subject, Verdict, unknown_sizes};
use crate::score::budget::Budget;
use crate::score::{Binary, Expr, Type, Var};

/// The maximum number of witnesses.
const WITNESSES: usize = 40;

/// The maximum number of keys of a row that are searched.
const LONGEST_ROW: i64 = 1 << 16;

impl Subject<'_> {
    pub(super) fn decide_every_query_attends(&self, budgets: &Budgets) -> Verdict {
        let free = comparisons(self.mask, self.cross);
        if reads_declared(self.mask, &free) {
            // Other data of a body are unrestricted here: in the worst case they hide all that they can.
            let mask = &assume(self.mask, false, &free);
            let positive = self.positive.clone();
            let worst = Subject {
                mask,
                positive,
                ..*self
            };
            return match worst.decide_every_query_attends(budgets) {
                Verdict::Refuted(_) => Verdict::Unknown,
                other => other,
            };
        }
        let cases = Truths::all(self.mask, self.cross);
        // If some data hide a key from a query, the data of the call may be those, for each key separately.
        let attends = cases.iter().fold(Expr::Bool(true), |all, truths| {
            let attends = truths.assign(self.mask);
            and(all, or(attends, not(self.is_possible(truths))))
        });
        let found = self.find_empty_row(&attends, budgets);
        if let Ok(None) = found {
            return Verdict::Proved;
        }
        let small = self.find_small_empty_row(&attends, &budgets.search);
        let shortest = small.or(found.ok().flatten());
        shortest.map_or(Verdict::Unknown, |place| {
            let hide = |truths: &&Truths| self.hide_all(truths, place, &budgets.search);
            Verdict::Refuted(Counterexample {
                place,
                kv_idx: None,
                data: cases.iter().find(hide).cloned(),
            })
        })
    }

    /// A query that attends to no key.
    fn find_empty_row(
        &self,
        attends: &Expr,
        Budgets { proof, search }: &Budgets,
    ) -> Result<Option<QueryPoint>, GaveUp> {
        let bases = bases(attends);
        let mut integers = Integers::new(proof);
        let mut witnesses = vec![Expr::from(Var::QIdx)];
        while witnesses.len() < WITNESSES {
            let mut symbols = self.symbols(proof);
            let formula = none_attends(attends, &witnesses, &mut symbols);
            let Some(model) = self.solve(&mut symbols, formula, &mut integers)? else {
                return Ok(None);
            };
            let place = QueryPoint::of(&mut symbols, &model).ok_or(GaveUp)?;
            let here = |expr: &Expr| symbols.with_sizes(expr, &model);
            let Some(witness) = next_witness(attends, &bases, place, here, search)? else {
                let is_empty = self.is_empty(attends, place, search);
                return is_empty.then_some(Some(place)).ok_or(GaveUp);
            };
            if witnesses.contains(&witness) {
                return Err(GaveUp);
            }
            witnesses.push(witness);
        }
        Err(GaveUp)
    }

    fn find_small_empty_row(&self, attends: &Expr, budget: &Budget) -> Option<QueryPoint> {
        let places = self.small_places(!unknown_sizes(attends).is_empty());
        places
            .into_iter()
            .find(|place| self.is_empty(attends, *place, budget))
    }

    fn is_empty(&self, attends: &Expr, place: QueryPoint, budget: &Budget) -> bool {
        place
            .keys()
            .all(|kv_idx| self.holds(attends, place, kv_idx, budget) == Some(false))
    }

    /// Whether these data, for all keys for which they are possible, hide every key.
    fn hide_all(&self, truths: &Truths, place: QueryPoint, budget: &Budget) -> bool {
        let [attends, of_itself] =
            [truths, &truths.of_itself(self.cross)].map(|truths| truths.assign(self.mask));
        place.keys().all(|kv_idx| {
            let attends = if kv_idx == place.q_idx {
                &of_itself
            } else {
                &attends
            };
            self.holds(attends, place, kv_idx, budget) == Some(false)
        })
    }
}

/// The condition that each witness is hidden, or that there is no key.
fn none_attends(attends: &Expr, witnesses: &[Expr], symbols: &mut Symbols<'_>) -> Formula {
    let hidden = witnesses.iter().map(|witness| {
        let is_key = and(
            Expr::from(0).at_most(witness.clone()),
            witness.clone().less(Var::KvLen),
        );
        symbols.truth(&and(is_key, with_var(attends, Var::KvIdx, witness)), false)
    });
    Formula::all(hidden.collect::<Vec<_>>())
}

/// A key that the query attends to, as a distance from a base: the one with the smallest distance. `None` if the query attends to
/// no key. `here` replaces unknown sizes.
fn next_witness(
    attends: &Expr,
    bases: &[Expr],
    place: QueryPoint,
    here: impl Fn(&Expr) -> Expr,
    budget: &Budget,
) -> Result<Option<Expr>, GaveUp> {
    if place.kv_len > LONGEST_ROW {
        return Err(GaveUp);
    }
    let attends = here(attends);
    let size = attends.size() + bases.len();
    let values = bases
        .iter()
        .map(|base| Some((base, place.value(&here(base))?)));
    let values: Vec<_> = values.flatten().collect();
    let mut nearest: Option<(&Expr, i64)> = None;
    for kv_idx in place.keys() {
        if !budget.take(size) {
            return Err(GaveUp);
        }
        if place.holds(&attends, kv_idx).ok_or(GaveUp)? {
            let distances = values.iter().map(|(base, value)| (*base, kv_idx - value));
            nearest = nearest
                .into_iter()
                .chain(distances)
                .min_by_key(|(_, distance)| distance.abs());
        }
    }
    Ok(nearest.map(|(base, distance)| shifted(base, distance)))
}

fn shifted(base: &Expr, distance: i64) -> Expr {
    let size = Expr::from(distance.unsigned_abs());
    match distance {
        0 => base.clone(),
        1.. => base.clone() + size,
        _ => base.clone() - size,
    }
}

/// Candidates for a key of a query: itself, an end, a number that keys are compared with, or the start of its chunk.
fn bases(attends: &Expr) -> Vec<Expr> {
    let mut bases = vec![
        Expr::from(Var::QIdx),
        Expr::from(0),
        Expr::from(Var::KvLen) - 1,
    ];
    collect_bases(attends, &mut bases);
    let mut seen = BTreeSet::new();
    bases.retain(|base| seen.insert(base.clone()));
    bases
}

fn collect_bases(expr: &Expr, bases: &mut Vec<Expr>) {
    if expr.ty() != Type::Int || expr.reads(Var::KvIdx) {
        return expr
            .children()
            .into_iter()
            .for_each(|child| collect_bases(child, bases));
    }
    // Numbers are as close as 0.
    if !matches!(expr, Expr::Int(size) if size.value.is_some()) {
        bases.push(expr.clone());
    }
    if let Expr::Binary(Binary::Div | Binary::Rem, a, b) = expr {
        bases.push((**a).clone() / (**b).clone() * (**b).clone());
    }
}
