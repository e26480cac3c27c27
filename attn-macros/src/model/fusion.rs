//! Operations that are computed in one pass over memory with an elementwise operation.
//!
//! A dropout needs no pass of its own beside it: its mask is a function of a seed and of the index of an element. So it is applied as an
//! operand is read, `x + dropout(y)`, or as the result is written, `dropout(x + y)`. The value between the two is not in memory then. No
//! other operation may read it, nor the derivative. The seed is drawn where the dropout stands in the graph.
//!
//! An operation on rows, a norm for example, has one elementwise operation before it in its pass, and one behind it. The value between two of
//! them is in memory: others may read it.

use super::graph::{Block, Node, Region, Step, ValueId};
use super::plan::uses;
use crate::ops::{Elementwise, Fusion, Op};

/// The operation that another one is computed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FuseWith {
    /// The next one, which reads its result.
    Next,
    /// The elementwise operation that reads a dropout.
    Reader,
}

/// An operand of an elementwise operation or of a dropout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    /// The value whose memory it is in: elementwise operations know no shapes.
    pub(crate) value: ValueId,
    /// The result of a dropout of the value, which is applied as the value is read.
    pub(crate) dropout: Option<ValueId>,
    /// Whether it is repeated as it is read: it has fewer numbers than the result.
    pub(crate) is_repeated: bool,
}

/// The operations that the steps of a region are computed with.
pub(super) struct Fusions<'m, O: ?Sized> {
    block: Block<'m, O>,
    region: &'m Region<O>,
    pub(super) with: Vec<Option<FuseWith>>,
}

impl<'m, O: Op + ?Sized> Fusions<'m, O> {
    /// The values at the ends, all in memory, are read behind the region.
    pub(super) fn of(block: Block<'m, O>, region: &'m Region<O>, ends: &[ValueId]) -> Self {
        let inside = region.steps.iter().flat_map(uses);
        let inside = inside.map(|value| block.memory(value));
        let read: Vec<_> = inside.chain(ends.iter().copied()).collect();
        let once = |value: ValueId| read.iter().filter(|other| **other == value).count() == 1;
        let is_term = |value: ValueId| {
            let mut nodes = region.steps.iter().filter_map(node);
            nodes.any(|node| reads_to_drop(node, value))
        };
        let has_reader =
            |node: &Node<O>| is_dropout(node) && once(node.result) && is_term(node.result);
        let mut fusions = Self {
            block,
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
                    (Fusion::Elementwise(_), Fusion::Dropout(_)) => {
                        once(node.result) && !has_reader(next)
                    }
                    (Fusion::Elementwise(_), Fusion::Rows) => !fusions.is_behind_rows(index),
                    (Fusion::Dropout(_), Fusion::Rows) => {
                        fusions.is_with_the_one_before(index) && !fusions.is_behind_rows(index - 1)
                    }
                    // Its result may take the memory of a term, which nothing before it in the pass may read.
                    (Fusion::Rows, Fusion::Elementwise(_)) => {
                        let before = fusions.read_in_pass(index);
                        let terms = fusions.terms(next);
                        let is_row = |term: &Term| term.value == node.result && !term.is_repeated;
                        let is_apart = |term: &Term| !before.contains(&term.value);
                        terms.iter().all(|term| {
                            is_apart(term) && (is_row(term) || term.value != node.result)
                        })
                    }
                    _ => false,
                };
                (together && next.operands.contains(&node.result)).then_some(FuseWith::Next)
            });
            fusions.with.push(with);
        }
        fusions
    }

    fn node(&self, index: usize) -> Option<&'m Node<O>> {
        self.region.steps.get(index).and_then(node)
    }

    /// Whether a step is computed with the one before it.
    fn is_with_the_one_before(&self, index: usize) -> bool {
        let before = index.checked_sub(1).and_then(|before| self.with[before]);
        before == Some(FuseWith::Next)
    }

    /// Whether a step is computed with an operation on rows before it.
    fn is_behind_rows(&self, index: usize) -> bool {
        let before = index.checked_sub(1).and_then(|before| self.node(before));
        let is_rows = before.is_some_and(|before| matches!(before.fusion(), Fusion::Rows));
        is_rows && self.is_with_the_one_before(index)
    }

    /// Whether an operation on rows is in the pass of a step.
    pub(super) fn is_with_rows(&self, index: usize) -> bool {
        let is_rows = |index: usize| {
            let node = self.node(index);
            node.is_some_and(|node| matches!(node.fusion(), Fusion::Rows))
        };
        let is_next = |index: &usize| self.with[*index] == Some(FuseWith::Next);
        let behind = (index..self.with.len()).take_while(is_next);
        let before = (0..index).rev().take_while(is_next);
        behind.map(|index| index + 1).chain(before).any(is_rows)
    }

    /// The values in memory that a step and those before it in its pass read.
    fn read_in_pass(&self, index: usize) -> Vec<ValueId> {
        let read = self.uses(index).into_iter();
        let mut read: Vec<_> = read.map(|value| self.block.memory(value)).collect();
        if self.is_with_the_one_before(index) {
            read.extend(self.read_in_pass(index - 1));
        }
        read
    }

    /// The values in memory that a step reads. Where a dropout is read, that is what numbers fall of.
    pub(super) fn uses(&self, index: usize) -> Vec<ValueId> {
        match self.node(index) {
            // The operation before it writes the result here.
            Some(node) if is_dropout(node) && self.is_with_the_one_before(index) => Vec::new(),
            Some(node) if elementwise(node).is_some() => {
                let terms = self.terms(node).into_iter();
                terms.map(|term| term.value).collect()
            }
            _ => uses(&self.region.steps[index]),
        }
    }

    /// The operands of an elementwise operation or of a dropout.
    pub(super) fn terms(&self, node: &Node<O>) -> Vec<Term> {
        if elementwise(node).is_none() && !is_dropout(node) {
            return Vec::new();
        }
        let terms = node.operands.iter().enumerate().map(|(place, operand)| {
            let made = |index: &usize| self.node(*index).is_some_and(|of| of.result == *operand);
            let index = (0..self.with.len()).find(made);
            let dropout = index.filter(|index| self.with[*index] == Some(FuseWith::Reader));
            match dropout.and_then(|index| self.node(index)) {
                Some(dropout) => Term {
                    value: self.block.memory(dropout.operands[0]),
                    dropout: Some(dropout.result),
                    is_repeated: false,
                },
                None => Term {
                    value: self.block.memory(*operand),
                    dropout: None,
                    is_repeated: repeats(node, place),
                },
            }
        });
        terms.collect()
    }
}

fn node<O: ?Sized>(step: &Step<O>) -> Option<&Node<O>> {
    match step {
        Step::Node(node) => Some(node),
        Step::Repeat(_) | Step::Scan(_) => None,
    }
}

fn elementwise<O: Op + ?Sized>(node: &Node<O>) -> Option<&Elementwise> {
    match node.fusion() {
        Fusion::Elementwise(op) => Some(op),
        _ => None,
    }
}

/// Whether it is an elementwise operation that can drop elements of an operand as it reads them: the derivative does not read them again.
fn reads_to_drop<O: Op + ?Sized>(node: &Node<O>, value: ValueId) -> bool {
    let operand = node.operands.iter().position(|operand| *operand == value);
    let op = elementwise(node);
    op.zip(operand)
        .is_some_and(|(op, operand)| !op.derivative_reads(operand) && op.repeats(operand).is_none())
}

/// Whether it is an elementwise operation that repeats this operand.
fn repeats<O: Op + ?Sized>(node: &Node<O>, operand: usize) -> bool {
    elementwise(node).is_some_and(|op| op.repeats(operand).is_some())
}

fn is_dropout<O: Op + ?Sized>(node: &Node<O>) -> bool {
    matches!(node.fusion(), Fusion::Dropout(_))
}
