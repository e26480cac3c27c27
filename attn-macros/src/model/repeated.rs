//! Values that elementwise operations repeat as they read them.
//!
//! An operand with fewer axes than the result, or with one of size 1, is expanded first. An elementwise operation reads it where it stands
//! instead: the numbers in the shape of the result are never in memory then, neither for the derivative.

use std::rc::Rc;

use super::graph::{Node, Region, Repeat, Step, ValueId};
use super::plan::uses;
use crate::ops::{Elementwise, Fusion};
use crate::score::Expr;

/// The region with elementwise operations that read the operands of expansions. The values at the ends are read behind it.
pub(crate) fn read_in_place(region: &Region, ends: &[ValueId]) -> Region {
    let mut expanded = Vec::new();
    let region = read(region, &mut expanded);
    without_unread(&region, &expanded, ends)
}

/// The value that an expansion repeats, and where its axes are in the result.
struct Expanded {
    result: ValueId,
    operand: ValueId,
    places: Vec<usize>,
}

fn read(region: &Region, expanded: &mut Vec<Expanded>) -> Region {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => Step::Node(read_by(node, expanded)),
        Step::Repeat(repeat) => Step::Repeat(Repeat {
            body: read(&repeat.body, expanded),
            ..repeat.clone()
        }),
        Step::Scan(scan) => Step::Scan(scan.with_body(read(&scan.body, expanded))),
    });
    Region {
        steps: steps.collect(),
    }
}

/// The node with operands that it repeats.
fn read_by(node: &Node, expanded: &mut Vec<Expanded>) -> Node {
    match node.fusion() {
        Fusion::Repeat(places) => expanded.push(Expanded {
            result: node.result,
            operand: node.operands[0],
            places: places.to_vec(),
        }),
        Fusion::Elementwise(op) => {
            let mut operands: Vec<ValueId> = Vec::new();
            let mut repeats: Vec<Option<Vec<usize>>> = Vec::new();
            let indices = node.operands.iter().map(|operand| {
                let of = expanded.iter().find(|of| of.result == *operand);
                let mut value = of.map_or(*operand, |of| of.operand);
                let mut places = of.map(|of| of.places.clone());
                let known = |value| operands.iter().position(|other| *other == value);
                // A value has one gradient, so it is read with its axes at one place: the second expansion of it to other places stays.
                if known(value).is_some_and(|index| repeats[index] != places) {
                    (value, places) = (*operand, None);
                }
                known(value).unwrap_or_else(|| {
                    operands.push(value);
                    repeats.push(places);
                    operands.len() - 1
                })
            });
            let indices: Vec<_> = indices.collect();
            if repeats.iter().any(Option::is_some) {
                let expr = op
                    .expr
                    .with_operands(&|index| Expr::Operand(indices[index]));
                return Node {
                    op: Rc::new(Elementwise::repeating(expr, repeats)),
                    operands,
                    ..node.clone()
                };
            }
        }
        _ => {}
    }
    node.clone()
}

/// The region without the expansions that nothing reads any more.
fn without_unread(region: &Region, expanded: &[Expanded], ends: &[ValueId]) -> Region {
    let read: Vec<ValueId> = region.steps.iter().flat_map(uses).collect();
    let is_unread = |node: &Node| {
        let mut expanded = expanded.iter();
        let is_expanded = expanded.any(|of| of.result == node.result);
        is_expanded && !read.contains(&node.result) && !ends.contains(&node.result)
    };
    let steps = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) => (!is_unread(node)).then(|| step.clone()),
        Step::Repeat(repeat) => {
            let ends: Vec<_> = repeat.carried.iter().map(|of| of.after).collect();
            Some(Step::Repeat(Repeat {
                body: without_unread(&repeat.body, expanded, &ends),
                ..repeat.clone()
            }))
        }
        Step::Scan(scan) => {
            let body = without_unread(&scan.body, expanded, &scan.results);
            Some(Step::Scan(scan.with_body(body)))
        }
    });
    Region {
        steps: steps.collect(),
    }
}
