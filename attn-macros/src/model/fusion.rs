//! Operations that are computed in one pass over memory.
//!
//! A sum is computed with the norm of its result. A dropout needs no pass of its own beside a sum or an elementwise function: its mask is a
//! function of a seed and of the index of an element. So it is applied as a sum reads a term, `x + dropout(y)`, or as a result is written,
//! `dropout(x + y)`. The value between the two is not in memory then, so no other operation may read it. The seed is drawn where the
//! dropout stands in the graph.

use super::graph::{Derivative, Node, Region, Step, ValueId};
use super::plan::uses;
use crate::ops::Fusion;

/// The operation that another one is computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FuseWith {
    /// The next one: the norm or the dropout of its result.
    Next,
    /// Of a dropout: the sum that reads it.
    Reader,
}

/// A term of a sum, or the operand of a dropout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    pub(crate) value: ValueId,
    /// The result of a dropout of the value, which is applied as the value is read.
    pub(crate) dropout: Option<ValueId>,
}

/// The operations that the steps of a region are computed with.
pub(super) struct Fusions<'m, O: ?Sized> {
    region: &'m Region<O>,
    pub(super) with: Vec<Option<FuseWith>>,
}

impl<'m, O: Derivative + ?Sized> Fusions<'m, O> {
    /// The values at the ends are read behind the region.
    pub(super) fn of(region: &'m Region<O>, ends: &[ValueId]) -> Self {
        let inside = region.steps.iter().flat_map(uses);
        let read: Vec<_> = inside.chain(ends.iter().copied()).collect();
        let once = |value: ValueId| read.iter().filter(|other| **other == value).count() == 1;
        let is_term = |value: ValueId| {
            let mut nodes = region.steps.iter().filter_map(node);
            nodes.any(|node| is_sum(node) && node.operands.contains(&value))
        };
        let has_reader =
            |node: &Node<O>| is_dropout(node) && once(node.result) && is_term(node.result);
        let mut fusions = Self {
            region,
            with: Vec::new(),
        };
        for (index, step) in region.steps.iter().enumerate() {
            let with = node(step).and_then(|node| {
                if has_reader(node) {
                    return Some(FuseWith::Reader);
                }
                let next = fusions.node(index + 1)?;
                let together = match (node.fusion(), next.fusion()) {
                    (Fusion::Sum | Fusion::Elementwise, Fusion::Dropout(_)) => {
                        once(node.result) && !has_reader(next)
                    }
                    (Fusion::Sum, Fusion::Norm(_)) => true,
                    (Fusion::Dropout(_), Fusion::Norm(_)) => fusions.sum_before(index),
                    _ => false,
                };
                (together && next.operands == [node.result]).then_some(FuseWith::Next)
            });
            fusions.with.push(with);
        }
        fusions
    }

    fn node(&self, index: usize) -> Option<&'m Node<O>> {
        self.region.steps.get(index).and_then(node)
    }

    /// Whether a step is computed with the sum before it.
    fn sum_before(&self, index: usize) -> bool {
        let sum = index
            .checked_sub(1)
            .filter(|before| self.node(*before).is_some_and(is_sum));
        sum.is_some_and(|before| self.with[before] == Some(FuseWith::Next))
    }

    /// The values in memory that a step reads. Where a dropout is read, that is what numbers fall of.
    pub(super) fn uses(&self, index: usize) -> Vec<ValueId> {
        let before = index.checked_sub(1).and_then(|before| self.with[before]);
        match self.node(index) {
            // The operation before it writes the result here.
            Some(node) if is_dropout(node) && before == Some(FuseWith::Next) => Vec::new(),
            Some(node) if is_sum(node) => {
                let terms = self.terms(node).into_iter();
                terms.map(|term| term.value).collect()
            }
            _ => uses(&self.region.steps[index]),
        }
    }

    /// The terms of a sum. That of a dropout is the only one.
    pub(super) fn terms(&self, node: &Node<O>) -> Vec<Term> {
        if !is_sum(node) && !is_dropout(node) {
            return Vec::new();
        }
        let terms = node.operands.iter().map(|operand| {
            let made = |index: &usize| self.node(*index).is_some_and(|of| of.result == *operand);
            let index = (0..self.with.len()).find(made);
            let dropout = index.filter(|index| self.with[*index] == Some(FuseWith::Reader));
            match dropout.and_then(|index| self.node(index)) {
                Some(dropout) => Term {
                    value: dropout.operands[0],
                    dropout: Some(dropout.result),
                },
                None => Term {
                    value: *operand,
                    dropout: None,
                },
            }
        });
        terms.collect()
    }
}

fn node<O: ?Sized>(step: &Step<O>) -> Option<&Node<O>> {
    match step {
        Step::Node(node) => Some(node),
        Step::Repeat(_) => None,
    }
}

fn is_sum<O: Derivative + ?Sized>(node: &Node<O>) -> bool {
    matches!(node.fusion(), Fusion::Sum)
}

fn is_dropout<O: Derivative + ?Sized>(node: &Node<O>) -> bool {
    matches!(node.fusion(), Fusion::Dropout(_))
}
