//! Elementwise operations that are one pass over memory: an operation is computed where its only reader is.
//!
//! The result between the two is not in memory then. The derivative of the whole expression computes it again, in registers; no product of
//! matrices is among such operations.

use std::rc::Rc;

use super::graph::{Node, Region, Repeat, Step, ValueId};
use super::plan::uses;
use crate::ops::{Elementwise, Fusion};
use crate::score::Expr;

/// Larger expressions are not joined: derivatives grow with the square of an expression.
const LARGEST: usize = 48;

/// The region with elementwise operations joined. The values at the ends are read behind it.
pub(crate) fn group(region: &Region, ends: &[ValueId]) -> Region {
    let inside = region.steps.iter().flat_map(uses);
    let read: Vec<_> = inside.chain(ends.iter().copied()).collect();
    let is_read_once = |value: ValueId| read.iter().filter(|other| **other == value).count() == 1;
    let mut steps = Vec::new();
    for step in &region.steps {
        match step {
            Step::Node(node) => {
                let node = joined(node, &mut steps, &is_read_once);
                steps.push(Step::Node(node));
            }
            Step::Repeat(repeat) => {
                let ends: Vec<_> = repeat.carried.iter().map(|of| of.after).collect();
                steps.push(Step::Repeat(Repeat {
                    body: group(&repeat.body, &ends),
                    ..repeat.clone()
                }));
            }
            Step::Scan(scan) => {
                let body = group(&scan.body, &scan.results);
                steps.push(Step::Scan(scan.with_body(body)));
            }
        }
    }
    Region { steps }
}

/// Joins the last operation with those before it from this step on: values that stand in a declaration have no other reader.
pub(super) fn join_last(region: &mut Region, start: usize) {
    let mut inside = region.steps.split_off(start);
    if let Some(Step::Node(node)) = inside.pop() {
        let node = joined(&node, &mut inside, &|_| true);
        inside.push(Step::Node(node));
    }
    region.steps.append(&mut inside);
}

/// A node with the operations that it can be joined with, which are taken out of the steps before it.
fn joined(node: &Node, before: &mut Vec<Step>, is_read_once: &dyn Fn(ValueId) -> bool) -> Node {
    let mut node = node.clone();
    let mut operand = 0;
    while operand < node.operands.len() {
        let joined = producer(&node, operand, before, is_read_once);
        match joined.and_then(|index| Some((index, join(&node, operand, &before[index])?))) {
            Some((index, joined)) => {
                before.remove(index);
                node = joined;
                operand = 0;
            }
            None => operand += 1,
        }
    }
    node
}

/// The elementwise operation that computes an operand for this node alone, and may be computed later.
fn producer(
    node: &Node,
    operand: usize,
    before: &[Step],
    is_read_once: &dyn Fn(ValueId) -> bool,
) -> Option<usize> {
    let value = node.operands[operand];
    let makes = |step: &Step| matches!(step, Step::Node(node) if node.result == value);
    let index = before
        .iter()
        .position(makes)
        .filter(|_| is_read_once(value))?;
    let is_neighbour = before[index..]
        .iter()
        .all(|step| elementwise(step).is_some());
    // With one operand it takes as much memory as its result, and those that it repeats are smaller. The lives of several would get longer.
    let made = elementwise(&before[index])?;
    let whole = (0..made.operands()).filter(|operand| made.repeats(*operand).is_none());
    (is_neighbour || whole.count() <= 1).then_some(index)
}

/// The node of both expressions.
fn join(node: &Node, operand: usize, producer: &Step) -> Option<Node> {
    let Fusion::Elementwise(outer) = node.fusion() else {
        return None;
    };
    if outer.repeats(operand).is_some() {
        return None;
    }
    let (Step::Node(made), inner) = (producer, elementwise(producer)?) else {
        return None;
    };
    if outer.expr.size() + inner.expr.size() > LARGEST {
        return None;
    }
    let repeats = |op: &Elementwise, index: usize| op.repeats(index).map(<[usize]>::to_vec);
    let all = node.operands.iter().enumerate();
    let mut operands: Vec<(ValueId, _)> = all
        .map(|(index, value)| (*value, repeats(outer, index)))
        .collect();
    operands.remove(operand);
    let inside = made.operands.iter().enumerate().map(|(index, value)| {
        let read = (*value, repeats(inner, index));
        match operands.iter().position(|(other, _)| other == value) {
            Some(found) => (operands[found] == read).then_some(found),
            None => {
                operands.push(read);
                Some(operands.len() - 1)
            }
        }
    });
    // A value that both read, each with its axes at other places, has one gradient: the expressions stay two.
    let inside: Vec<_> = inside.collect::<Option<_>>()?;
    let inner = inner
        .expr
        .with_operands(&|index| Expr::Operand(inside[index]));
    let expr = outer.expr.with_operands(&|index| match index {
        _ if index == operand => inner.clone(),
        _ => Expr::Operand(index - usize::from(index > operand)),
    });
    if expr.size() > LARGEST {
        return None;
    }
    let (operands, repeats): (Vec<_>, Vec<_>) = operands.into_iter().unzip();
    Some(Node {
        op: Rc::new(Elementwise::repeating(expr, repeats)),
        operands,
        ..node.clone()
    })
}

fn elementwise(step: &Step) -> Option<&Elementwise> {
    match step {
        Step::Node(node) => match node.fusion() {
            Fusion::Elementwise(op) => Some(op),
            _ => None,
        },
        Step::Repeat(_) | Step::Scan(_) => None,
    }
}
