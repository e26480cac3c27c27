//! Products with several results.
//!
//! `let (r, z) = split(linear::<{ 2 * d }>(h))` is a product whose result is read by its parts alone. In a scan it writes each part where it
//! belongs, for all steps at once or at each: nothing is copied out of a wider matrix, and no gradient of a part is added into one.

use std::rc::Rc;

use super::graph::{Model, Node, Region, Repeat, Step, ValueId};
use super::plan::uses;
use super::types::Axis;
use crate::ops::{Fusion, Linear, Offset};

/// The region with such products in its scans.
pub(crate) fn split_products(model: &Model) -> Region {
    in_scans(model, &model.grouped)
}

fn in_scans(model: &Model, region: &Region) -> Region {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(_) => step.clone(),
        Step::Repeat(repeat) => Step::Repeat(Repeat {
            body: in_scans(model, &repeat.body),
            ..repeat.clone()
        }),
        Step::Scan(scan) => Step::Scan(scan.with_body(split(model, &scan.body, &scan.results))),
    });
    Region {
        steps: steps.collect(),
    }
}

/// The body of a scan with products that write their parts. The `results` are read behind it.
fn split(model: &Model, body: &Region, results: &[ValueId]) -> Region {
    let mut gone = Vec::new();
    let steps = body.steps.iter().map(|step| match step {
        Step::Node(node) => {
            let parts = match node.fusion() {
                Fusion::Projection(linear) if !results.contains(&node.result) => {
                    parts(model, body, node.result).map(|parts| (linear, parts))
                }
                _ => None,
            };
            Step::Node(match parts {
                Some((linear, parts)) => {
                    gone.extend(parts.iter().copied());
                    in_parts(node, linear, &parts)
                }
                None => node.clone(),
            })
        }
        step => step.clone(),
    });
    let mut steps: Vec<_> = steps.collect();
    let is_gone =
        |node: &Node| matches!(node.fusion(), Fusion::Slice(..)) && gone.contains(&node.result);
    steps.retain(|step| !matches!(step, Step::Node(node) if is_gone(node)));
    Region { steps }
}

fn in_parts(node: &Node, linear: &Linear, parts: &[ValueId]) -> Node {
    Node {
        op: Rc::new(linear.in_parts(parts.len())),
        result: parts[0],
        others: parts[1..].iter().copied().map(Some).collect(),
        ..node.clone()
    }
}

/// The parts of a value along its last axis, in their order, if nothing else reads it and they are all of it, of one size.
fn parts(model: &Model, body: &Region, whole: ValueId) -> Option<Vec<ValueId>> {
    let last = model.value(whole).ty.axes.len().checked_sub(1)?;
    let width = width(model, whole)?;
    let mut parts = Vec::new();
    for step in &body.steps {
        if !uses(step).contains(&whole) {
            continue;
        }
        let Step::Node(node) = step else { return None };
        let Fusion::Slice(axis, Offset::FromStart(start)) = node.fusion() else {
            return None;
        };
        (axis == last).then_some(())?;
        parts.push((start.value?, node.result));
    }
    parts.sort_unstable_by_key(|(start, _)| *start);
    let count = parts.len() as u64;
    let are_all = parts.iter().zip(0..).all(|((start, part), index)| {
        self::width(model, *part).is_some_and(|len| len * count == width && *start == index * len)
    });
    (count > 1 && are_all).then(|| parts.into_iter().map(|(_, part)| part).collect())
}

/// The last axis of a value, if its size is known here.
fn width(model: &Model, id: ValueId) -> Option<u64> {
    match model.value(id).ty.axes.last()? {
        Axis::Size(size) => size.value,
        Axis::Symbol(_) => None,
    }
}
