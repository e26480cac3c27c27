//! Losses that compute their logits themselves.
//!
//! In `cross_entropy(linear::<vocab>(x), targets)`, the logits are the largest value of a model. A loss that alone reads them computes them
//! some rows and classes at a time, so they are nowhere in memory. Logits that are a result, or that something else reads, stay.
//! So do those of a step of a scan, where the gradients of all weights are computed behind the loop.

use std::rc::Rc;

use super::graph::{Model, Node, Region, Repeat, Step, ValueId};
use super::projections::reads;
use super::types::{Axis, same_axes};
use crate::ops::{CrossEntropy, Fusion, Linear, LinearCrossEntropy};

/// The region with losses of values in place of losses of logits.
pub(crate) fn take_logits(model: &Model) -> Region {
    match model.is_known() {
        true => rewritten(model, &model.grouped),
        false => model.grouped.clone(),
    }
}

fn rewritten(model: &Model, region: &Region) -> Region {
    let mut gone = Vec::new();
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => Step::Node(match node.fusion() {
            Fusion::Loss(loss) => {
                let taken = logits(model, region, node.operands[0]);
                taken.map_or_else(|| node.clone(), |taken| taken.loss(node, loss, &mut gone))
            }
            _ => node.clone(),
        }),
        Step::Repeat(repeat) => Step::Repeat(Repeat {
            body: rewritten(model, &repeat.body),
            ..repeat.clone()
        }),
        Step::Scan(_) => step.clone(),
    });
    let mut steps: Vec<_> = steps.collect();
    steps.retain(|step| !matches!(step, Step::Node(node) if gone.contains(&node.result)));
    Region { steps }
}

/// Logits that only one loss reads.
struct Taken<'m> {
    x: ValueId,
    linear: &'m Linear,
    gone: Vec<ValueId>,
}

impl Taken<'_> {
    fn loss(self, node: &Node, loss: &CrossEntropy, gone: &mut Vec<ValueId>) -> Node {
        gone.extend(self.gone);
        let mut operands = node.operands.clone();
        operands[0] = self.x;
        Node {
            op: Rc::new(LinearCrossEntropy {
                linear: self.linear.clone(),
                loss: loss.clone(),
            }),
            operands,
            ..node.clone()
        }
    }
}

/// The product that the logits are, perhaps with their rows along other axes.
fn logits<'m>(model: &Model, region: &'m Region, logits: ValueId) -> Option<Taken<'m>> {
    let mut gone = vec![logits];
    loop {
        let id = *gone.last()?;
        if reads(model, id) != 1 || !same_axes(classes(model, id), classes(model, logits)) {
            return None;
        }
        let node = region.steps.iter().find_map(|step| match step {
            Step::Node(node) if node.result == id => Some(node),
            _ => None,
        })?;
        let x = *node.operands.first()?;
        match node.fusion() {
            Fusion::Reshape => gone.push(x),
            Fusion::Projection(linear) | Fusion::Tied(linear) => {
                return Some(Taken { x, linear, gone });
            }
            _ => return None,
        }
    }
}

/// The last axis of a value.
fn classes(model: &Model, id: ValueId) -> &[Axis] {
    let axes = &model.value(id).ty.axes;
    &axes[axes.len().saturating_sub(1)..]
}
