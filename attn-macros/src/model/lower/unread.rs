//! Results beside the first one that nobody reads: they are not computed.

use crate::model::graph::{Region, Step, ValueId};
use crate::ops::Fusion;

/// Takes them out of the nodes. `results` are read behind the region.
pub(super) fn drop_unread(region: &mut Region, results: &[ValueId]) {
    let nodes = region.nodes().into_iter();
    let others = nodes.flat_map(|node| node.results().skip(1));
    let others: Vec<_> = others.collect();
    if others.is_empty() {
        return;
    }
    let read = read(region, results);
    drop_reshapes(region, &others, &read);
    let read = self::read(region, results);
    keep_only(region, &read);
}

/// The values that are read in the region or behind it.
fn read(region: &Region, results: &[ValueId]) -> Vec<ValueId> {
    let nodes = region.nodes().into_iter();
    let operands = nodes.flat_map(|node| node.operands.iter().copied());
    let of_scans = region.scans().into_iter();
    let of_scans = of_scans.flat_map(|scan| [scan.operands(), scan.results.clone()].concat());
    let carried = region.carried().reads.into_iter();
    let read = operands.chain(of_scans).chain(carried);
    read.chain(results.iter().copied()).collect()
}

/// Takes out what is one of `others` in another shape that nobody reads.
fn drop_reshapes(region: &mut Region, others: &[ValueId], read: &[ValueId]) {
    region.steps.retain_mut(|step| match step {
        Step::Node(node) => {
            let is_reshape = matches!(node.fusion(), Fusion::Reshape);
            let is_of_other = node.operands.iter().all(|id| others.contains(id));
            !is_reshape || !is_of_other || read.contains(&node.result)
        }
        Step::Repeat(repeat) => {
            drop_reshapes(&mut repeat.body, others, read);
            true
        }
        Step::Scan(scan) => {
            drop_reshapes(&mut scan.body, others, read);
            true
        }
    });
}

fn keep_only(region: &mut Region, read: &[ValueId]) {
    for step in &mut region.steps {
        match step {
            Step::Node(node) => {
                let others = node.others.iter_mut();
                others.for_each(|id| *id = id.filter(|id| read.contains(id)));
            }
            Step::Repeat(repeat) => keep_only(&mut repeat.body, read),
            Step::Scan(scan) => keep_only(&mut scan.body, read),
        }
    }
}
