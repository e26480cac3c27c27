//! The queries of small calls, and the truth of a condition there.

use super::integers::Integers;
use super::rewrite::rewrite;
use super::{Model, Subject, Symbols};
use crate::score::budget::Budget;
use crate::score::eval::{self, Inputs, Point};
use crate::score::{Data, Expr, Var};

/// A query of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueryPoint {
    pub(crate) b: i64,
    pub(crate) h: i64,
    pub(crate) q_idx: i64,
    pub(crate) q_len: i64,
    pub(crate) kv_len: i64,
}

/// The maximum length of the search in self-attention. If a size is unknown, every step is a small proof.
const LONGEST: i64 = 12;
const LONGEST_CROSS: i64 = 7;
const LONGEST_UNKNOWN: i64 = 3;

/// The budget of a proof for one place, where only sizes are unknown.
const FEW_STEPS: usize = 10_000;

/// The number of sequences that are searched, if the mask depends on the sequence.
const SEQUENCES: i64 = 2;

impl QueryPoint {
    /// The query of a model.
    pub(super) fn of(symbols: &mut Symbols<'_>, model: &Model) -> Option<QueryPoint> {
        let mut value = |var| symbols.value(var, model);
        Some(QueryPoint {
            b: value(Var::B)?,
            h: value(Var::H)?,
            q_idx: value(Var::QIdx)?,
            q_len: value(Var::QLen)?,
            kv_len: value(Var::KvLen)?,
        })
    }

    pub(super) fn keys(self) -> std::ops::Range<i64> {
        0..self.kv_len
    }

    fn point(self, kv_idx: i64) -> Point<'static> {
        let QueryPoint {
            b,
            h,
            q_idx,
            q_len,
            kv_len,
        } = self;
        Point {
            b,
            h,
            q_idx,
            kv_idx,
            q_len,
            kv_len,
            score: 0.0,
            inputs: &Nothing,
        }
    }

    /// The truth of a condition that reads nothing but indices, lengths and known sizes.
    pub(super) fn holds(self, condition: &Expr, kv_idx: i64) -> Option<bool> {
        let reads_more = |part: &Expr| {
            matches!(
                part,
                Expr::Data { .. } | Expr::Param { .. } | Expr::Operand(_)
            )
        };
        if condition.any(&reads_more) {
            return None;
        }
        eval::holds(condition, &self.point(kv_idx))
    }

    /// The value of an expression of integers that reads no more than that.
    pub(super) fn value(self, expr: &Expr) -> Option<i64> {
        match eval::eval(expr, &self.point(0))? {
            eval::Value::Int(value) => Some(value),
            _ => None,
        }
    }

    fn number(self, var: Var, kv_idx: i64) -> i64 {
        match var {
            Var::B => self.b,
            Var::H => self.h,
            Var::QIdx => self.q_idx,
            Var::KvIdx => kv_idx,
            Var::QLen => self.q_len,
            Var::KvLen => self.kv_len,
        }
    }
}

#[derive(Debug)]
struct Nothing;

impl Inputs for Nothing {
    fn param(&self, _: &str, _: &[i64]) -> f64 {
        f64::NAN
    }

    fn data(&self, _: &Data, _: &[i64]) -> Option<eval::Value> {
        None
    }
}

impl Subject<'_> {
    /// The queries of small calls, short calls first.
    pub(super) fn small_places(&self, unknown_sizes: bool) -> Vec<QueryPoint> {
        let longest = match (unknown_sizes, self.cross) {
            (true, _) => LONGEST_UNKNOWN,
            (_, true) => LONGEST_CROSS,
            _ => LONGEST,
        };
        let sequences = if self.mask.reads(Var::B) {
            SEQUENCES
        } else {
            1
        };
        let lengths = (1..=longest).flat_map(|q| (1..=longest).map(move |k| (q, k)));
        let mut lengths: Vec<_> = lengths.filter(|(q, k)| self.cross || q == k).collect();
        lengths.sort_by_key(|(q, k)| q + k);
        let places = lengths.into_iter().flat_map(|(q_len, kv_len)| {
            (0..q_len * sequences).map(move |index| QueryPoint {
                b: index % sequences,
                h: 0,
                q_idx: index / sequences,
                q_len,
                kv_len,
            })
        });
        places.collect()
    }

    /// The truth of a condition, if it is the same for all values of the sizes that rustc evaluates. `None` also if the budget is
    /// used up.
    pub(super) fn holds(
        &self,
        condition: &Expr,
        place: QueryPoint,
        kv_idx: i64,
        budget: &Budget,
    ) -> Option<bool> {
        if !budget.take(condition.size()) {
            return None;
        }
        place.holds(condition, kv_idx).or_else(|| {
            let unknown =
                condition.any(&|part| matches!(part, Expr::Int(size) if size.value.is_none()));
            unknown
                .then(|| self.always_holds(condition, place, kv_idx, budget))
                .flatten()
        })
    }

    fn always_holds(
        &self,
        condition: &Expr,
        place: QueryPoint,
        kv_idx: i64,
        budget: &Budget,
    ) -> Option<bool> {
        let here = rewrite(condition, &|part| match part {
            Expr::Var(var) => u64::try_from(place.number(*var, kv_idx))
                .ok()
                .map(Expr::from),
            _ => None,
        });
        [true, false].into_iter().find(|value| {
            let few = Budget::new(FEW_STEPS);
            let mut symbols = self.symbols(&few);
            let otherwise = symbols.truth(&here, !value);
            let found = self.solve(&mut symbols, otherwise, &mut Integers::new(&few));
            budget.take(few.taken()) && matches!(found, Ok(None))
        })
    }
}
