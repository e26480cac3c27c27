//! What is computed with a neighbour: several operations in one pass over memory.
//!
//! A sum is computed with the norm behind it. And a dropout needs no pass of its own where there is one beside it: which
//! numbers fall is known from their places, so they fall as a sum reads them, `x + dropout(y)`, or as what computes them writes
//! them, `dropout(x + y)`. What would be between the two is nowhere in memory then, so nobody else may read it. The key of a
//! dropout is drawn where the dropout stands.

use super::graph::{Node, Op, Region, Step, ValueId};
use super::plan::uses;

/// The neighbour that an operation is computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum With {
    /// What is behind it: the norm or the dropout of its result.
    Next,
    /// The sum that reads it, of a dropout.
    Reader,
}

/// What a sum adds, or a dropout reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    pub(crate) value: ValueId,
    /// The result of a dropout of the value, by whose key numbers fall as they are read.
    pub(crate) dropout: Option<ValueId>,
}

/// The neighbours of the steps of a region.
pub(super) struct Neighbours<'m> {
    region: &'m Region,
    pub(super) with: Vec<Option<With>>,
}

impl<'m> Neighbours<'m> {
    /// The values at the ends are read behind the region.
    pub(super) fn of(region: &'m Region, ends: &[ValueId]) -> Self {
        let inside = region.steps.iter().flat_map(uses);
        let read: Vec<_> = inside.chain(ends.iter().copied()).collect();
        let once = |value: ValueId| read.iter().filter(|other| **other == value).count() == 1;
        let is_term = |value: ValueId| {
            let mut nodes = region.steps.iter().filter_map(node);
            nodes.any(|node| matches!(node.op, Op::Add) && node.operands.contains(&value))
        };
        let has_reader =
            |node: &Node| is_dropout(node) && once(node.result) && is_term(node.result);
        let mut neighbours = Self {
            region,
            with: Vec::new(),
        };
        for (index, step) in region.steps.iter().enumerate() {
            let with = node(step).and_then(|node| {
                if has_reader(node) {
                    return Some(With::Reader);
                }
                let next = neighbours.node(index + 1)?;
                let is_sum = || match node.op {
                    Op::Dropout(_) => neighbours.sum_before(index),
                    _ => matches!(node.op, Op::Add),
                };
                let together = match &next.op {
                    Op::Dropout(_) => {
                        matches!(node.op, Op::Add | Op::Activation(_))
                            && once(node.result)
                            && !has_reader(next)
                    }
                    Op::LayerNorm(_) | Op::RmsNorm(_) => is_sum(),
                    _ => false,
                };
                (together && next.operands == [node.result]).then_some(With::Next)
            });
            neighbours.with.push(with);
        }
        neighbours
    }

    fn node(&self, index: usize) -> Option<&'m Node> {
        self.region.steps.get(index).and_then(node)
    }

    /// Whether a step is computed with the sum before it.
    fn sum_before(&self, index: usize) -> bool {
        let sum = index.checked_sub(1).filter(|before| {
            let is_sum = self.node(*before).map(|node| matches!(node.op, Op::Add));
            is_sum == Some(true)
        });
        sum.is_some_and(|before| self.with[before] == Some(With::Next))
    }

    /// The values in memory that a step reads. Where a dropout is read, that is what numbers fall of.
    pub(super) fn uses(&self, index: usize) -> Vec<ValueId> {
        let before = index.checked_sub(1).and_then(|before| self.with[before]);
        match self.node(index) {
            // What comes in is written here.
            Some(node) if is_dropout(node) && before == Some(With::Next) => Vec::new(),
            Some(node) if matches!(node.op, Op::Add) => {
                let terms = self.terms(node).into_iter();
                terms.map(|term| term.value).collect()
            }
            _ => uses(&self.region.steps[index]),
        }
    }

    /// The terms of a sum. That of a dropout is the only one.
    pub(super) fn terms(&self, node: &Node) -> Vec<Term> {
        if !matches!(node.op, Op::Add | Op::Dropout(_)) {
            return Vec::new();
        }
        let terms = node.operands.iter().map(|operand| {
            let made = |index: &usize| self.node(*index).is_some_and(|of| of.result == *operand);
            let index = (0..self.with.len()).find(made);
            let dropout = index.filter(|index| self.with[*index] == Some(With::Reader));
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

fn node(step: &Step) -> Option<&Node> {
    match step {
        Step::Node(node) => Some(node),
        Step::Repeat(_) => None,
    }
}

fn is_dropout(node: &Node) -> bool {
    matches!(node.op, Op::Dropout(_))
}
