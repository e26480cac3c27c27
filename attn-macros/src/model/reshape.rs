//! Values that are others in another shape: nothing is computed for them, and they have no memory.

use std::rc::Rc;

use super::graph::{Model, Region, Repeat, Step, ValueId, View};
use crate::ops::Fusion;

/// Takes the operations that change a shape alone out of the fused form. Their results are views.
pub(crate) fn share_memory(model: &mut Model) {
    let mut views = Vec::new();
    model.grouped = without_reshapes(&model.grouped, &mut views);
    let values = Rc::make_mut(&mut model.values);
    for (result, operand) in views {
        let of = values[operand.0].view.map_or(operand, |view| view.of);
        values[result.0].view = Some(View { of, part: None });
    }
}

/// The region without them, and the result of each with its operand.
fn without_reshapes(region: &Region, views: &mut Vec<(ValueId, ValueId)>) -> Region {
    let steps = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) if matches!(node.fusion(), Fusion::Reshape) => {
            views.push((node.result, node.operands[0]));
            None
        }
        Step::Node(_) => Some(step.clone()),
        Step::Repeat(repeat) => Some(Step::Repeat(Repeat {
            body: without_reshapes(&repeat.body, views),
            ..repeat.clone()
        })),
    });
    Region {
        steps: steps.collect(),
    }
}
