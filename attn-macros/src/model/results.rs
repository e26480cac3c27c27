//! Derivatives that read results.
//!
//! The derivative of `exp(x)` is the result. It is computed again where only that of `exp` would read it, as no array is kept then. If other
//! derivatives read the result, too, it is kept anyway.

use std::rc::Rc;

use super::graph::{Node, Region, Repeat, Step, ValueId};
use crate::ops::Fusion;

/// The region with elementwise operations whose derivatives read results that are kept for others.
pub(crate) fn read_results(region: &Region) -> Region {
    let nodes = region.nodes().into_iter();
    let saved = nodes.flat_map(Node::saved).collect::<Vec<_>>();
    read(region, &saved)
}

fn read(region: &Region, saved: &[ValueId]) -> Region {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => Step::Node(of_result(node, saved).unwrap_or_else(|| node.clone())),
        Step::Repeat(repeat) => Step::Repeat(Repeat {
            body: read(&repeat.body, saved),
            ..repeat.clone()
        }),
        Step::Scan(scan) => Step::Scan(scan.with_body(read(&scan.body, saved))),
    });
    Region {
        steps: steps.collect(),
    }
}

/// The operation with a derivative that reads its result, if that is kept.
fn of_result(node: &Node, saved: &[ValueId]) -> Option<Node> {
    let Fusion::Elementwise(op) = node.fusion() else {
        return None;
    };
    let op = op
        .reading_result()
        .filter(|_| saved.contains(&node.result))?;
    let op = Rc::new(op);
    Some(Node { op, ..node.clone() })
}
