//! Small values first: those that elementwise operations repeat, and that do not depend on what is computed before them.
//!
//! In `layer_norm(x) * (1 + scale)`, where `scale` has fewer axes, `1 + scale` stands between the norm and the product, which are one pass over
//! memory otherwise. A learned tensor may stand between a reduction and its reader. Both are computed as soon as
//! the values are there that they read.

use super::graph::{Node, Region, Repeat, Step, ValueId};
use super::plan::uses;
use crate::ops::Fusion;

/// The region with small values as early as possible.
pub(crate) fn hoist(region: &Region) -> Region {
    let mut steps: Vec<Step> = Vec::new();
    for step in &region.steps {
        let step = match step {
            Step::Node(_) => step.clone(),
            Step::Repeat(repeat) => Step::Repeat(Repeat {
                body: hoist(&repeat.body),
                ..repeat.clone()
            }),
            Step::Scan(scan) => Step::Scan(scan.with_body(hoist(&scan.body))),
        };
        let is_small = matches!(&step, Step::Node(node) if is_small(node, region));
        let place = match is_small {
            true => behind(&steps, &uses(&step)),
            false => steps.len(),
        };
        steps.insert(place, step);
    }
    Region { steps }
}

/// The place behind the last step that defines one of these values.
fn behind(steps: &[Step], values: &[ValueId]) -> usize {
    let defines = |step: &Step| match step {
        Step::Node(node) => node.results().any(|id| values.contains(&id)),
        Step::Repeat(repeat) => repeat
            .carried
            .iter()
            .any(|carried| values.contains(&carried.value)),
        Step::Scan(scan) => scan.defined().iter().any(|id| values.contains(id)),
    };
    let last = steps.iter().rposition(defines);
    last.map_or(0, |last| last + 1)
}

/// Whether it is a learned tensor or an elementwise operation, and all that read it repeat it.
fn is_small(node: &Node, region: &Region) -> bool {
    let is_elementwise = matches!(node.fusion(), Fusion::Elementwise(_));
    let nodes = region.nodes().into_iter();
    let mut readers = nodes
        .filter(|reader| reader.operands.contains(&node.result))
        .peekable();
    (is_elementwise || node.operands.is_empty())
        && readers.peek().is_some()
        && readers.all(|reader| only_repeats(reader, node.result))
}

/// Whether an elementwise operation reads a value, and repeats it.
fn only_repeats(reader: &Node, value: ValueId) -> bool {
    let Fusion::Elementwise(op) = reader.fusion() else {
        return false;
    };
    let mut operands = reader.operands.iter().enumerate();
    operands.all(|(index, operand)| *operand != value || op.repeats(index).is_some())
}
