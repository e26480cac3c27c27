//! Axes that change places and change back: `attend` takes heads behind the sequence, and in PyTorch's order they stand before it. What
//! both operations make of a value is the value itself, perhaps in another shape.

use std::rc::Rc;

use super::graph::{Model, Node, Region, Repeat, Step, ValueId};
use super::types::{Axis, same_axes};
use crate::ops::{Fusion, ModelOp, Rearrange};

/// The operations of the model without such pairs.
pub(crate) fn without_transposes(model: &Model) -> Region {
    let mut body = cancelled(&model.body);
    // The first of a pair may have been read by the second one alone.
    while let Some(unread) = unread(model, &body) {
        body = without(&body, unread);
    }
    body
}

fn cancelled(region: &Region) -> Region {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => Step::Node(reshaped(region, node).unwrap_or_else(|| node.clone())),
        Step::Repeat(repeat) => Step::Repeat(Repeat {
            body: cancelled(&repeat.body),
            ..repeat.clone()
        }),
        Step::Scan(scan) => Step::Scan(scan.with_body(cancelled(&scan.body))),
    });
    Region {
        steps: steps.collect(),
    }
}

/// The second one of a pair, as a reshape of what the first one reads.
fn reshaped(region: &Region, node: &Node) -> Option<Node> {
    let Fusion::Transpose(second) = node.fusion() else {
        return None;
    };
    let first = region.steps.iter().find_map(|step| match step {
        Step::Node(first) if node.operands.first() == Some(&first.result) => Some(first),
        _ => None,
    })?;
    let Fusion::Transpose(before) = first.fusion() else {
        return None;
    };
    let between: Vec<Axis> = before
        .order
        .iter()
        .map(|axis| before.split[*axis].clone())
        .collect();
    let order: Vec<usize> = second
        .order
        .iter()
        .filter_map(|axis| before.order.get(*axis))
        .copied()
        .collect();
    if !same_axes(&between, &second.split) || !order.is_sorted() {
        return None;
    }
    let op: Rc<dyn ModelOp> = Rc::new(Rearrange::of_axes(before.split.clone(), order));
    Some(Node {
        op,
        operands: first.operands.clone(),
        ..node.clone()
    })
}

/// A transpose whose result nobody reads.
fn unread(model: &Model, body: &Region) -> Option<ValueId> {
    let nodes = body.nodes();
    let mut transposes = nodes
        .iter()
        .filter(|node| matches!(node.fusion(), Fusion::Transpose(_)));
    let is_unread =
        |node: &&&Node| !model.results.contains(&node.result) && !is_read(body, node.result);
    transposes.find(is_unread).map(|node| node.result)
}

fn is_read(region: &Region, id: ValueId) -> bool {
    region.steps.iter().any(|step| match step {
        Step::Node(node) => node.operands.contains(&id),
        Step::Repeat(repeat) => {
            let mut carried = repeat.carried.iter();
            carried.any(|of| of.before == id || of.after == id) || is_read(&repeat.body, id)
        }
        Step::Scan(scan) => {
            let read = [scan.operands(), scan.results.clone()].concat();
            read.contains(&id) || is_read(&scan.body, id)
        }
    })
}

fn without(region: &Region, id: ValueId) -> Region {
    let steps = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) if node.result == id => None,
        Step::Node(_) => Some(step.clone()),
        Step::Repeat(repeat) => Some(Step::Repeat(Repeat {
            body: without(&repeat.body, id),
            ..repeat.clone()
        })),
        Step::Scan(scan) => Some(Step::Scan(scan.with_body(without(&scan.body, id)))),
    });
    Region {
        steps: steps.collect(),
    }
}
