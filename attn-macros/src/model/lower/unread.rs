//! Values that nobody reads. Results beside the first one are not computed then.

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

/// Whether a region computes one of these of a value, in the same round of a loop around it.
pub(super) fn reads(region: &Region, value: ValueId, results: &[ValueId]) -> bool {
    let mut of_value = vec![value];
    let mut count = 0;
    // A loop in the region takes a value to rounds behind it.
    while count < of_value.len() {
        count = of_value.len();
        add_computed(region, &mut of_value);
    }
    results.iter().any(|result| of_value.contains(result))
}

/// Adds the values that a region computes of these.
fn add_computed(region: &Region, of: &mut Vec<ValueId>) {
    let add = |of: &mut Vec<ValueId>, operands: &[ValueId], results: Vec<ValueId>| {
        if operands.iter().any(|id| of.contains(id)) {
            let new = results.into_iter().filter(|id| !of.contains(id));
            let new: Vec<_> = new.collect();
            of.extend(new);
        }
    };
    for step in &region.steps {
        match step {
            Step::Node(node) => add(of, &node.operands, node.results().collect()),
            Step::Scan(scan) => add(of, &scan.operands(), scan.defined()),
            Step::Repeat(repeat) => {
                for carried in &repeat.carried {
                    add(of, &[carried.before, carried.after], vec![carried.value]);
                }
                add_computed(&repeat.body, of);
            }
        }
    }
}
