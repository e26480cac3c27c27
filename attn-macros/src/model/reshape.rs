//! Values that are others in another shape: nothing is computed for them, and they have no memory.

use std::rc::Rc;

use super::graph::{Model, Region, Repeat, Scan, Step, ValueId, View};
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
    let values = model.values.clone();
    let mut scans = Vec::new();
    scans_of(&mut model.grouped, &mut scans);
    for scan in scans {
        let block = scan.block(&values);
        // A view of what the body computes is no input.
        let nodes = scan.body.nodes().into_iter();
        let computed = nodes.flat_map(|node| node.results());
        let computed: Vec<_> = computed.chain(scan.body.carried().values).collect();
        let inputs = scan.inputs.iter().copied();
        let inputs = inputs.filter(|id| !computed.contains(&block.holder(*id)));
        let inputs: Vec<_> = inputs.collect();
        let memory = inputs.iter();
        let memory = memory.flat_map(|id| [block.holder(*id), block.memory(*id)]);
        let memory: Vec<_> = memory.collect();
        scan.inputs = inputs;
        for id in memory {
            if !scan.inputs.contains(&id) {
                scan.inputs.push(id);
            }
        }
    }
}

/// The scans of a region: in their bodies, the memory of a value from outside is that of an input.
fn scans_of<'r>(region: &'r mut Region, scans: &mut Vec<&'r mut Scan>) {
    for step in &mut region.steps {
        match step {
            Step::Node(_) => {}
            Step::Repeat(repeat) => scans_of(&mut repeat.body, scans),
            Step::Scan(scan) => scans.push(scan),
        }
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
        Step::Scan(scan) => {
            let body = without_reshapes(&scan.body, views);
            Some(Step::Scan(scan.with_body(body)))
        }
    });
    Region {
        steps: steps.collect(),
    }
}
