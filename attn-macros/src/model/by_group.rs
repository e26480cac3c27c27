//! Values between two maps with the same groups, as the hidden layer of experts: their rows stand in the order of the groups. The first map
//! writes each group as one matrix, the second one reads it so, and no row moves between the two.

use std::collections::HashMap;
use std::rc::Rc;

use super::graph::{Model, Node, Region, Repeat, Step, ValueId};
use super::plan::uses;
use crate::ops::{ByGroup, Fusion, ModelOp};

/// The operations with maps that keep rows in the order of their groups.
pub(crate) fn keep_by_group(model: &Model, region: &Region) -> Region {
    ordered(model, region, &model.results)
}

/// The values at the ends are read behind the region.
fn ordered(model: &Model, region: &Region, ends: &[ValueId]) -> Region {
    let by_group = by_group(model, region, ends);
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => Step::Node(marked(node, &by_group)),
        Step::Repeat(repeat) => {
            let ends: Vec<_> = repeat.carried.iter().map(|of| of.after).collect();
            Step::Repeat(Repeat {
                body: ordered(model, &repeat.body, &ends),
                ..repeat.clone()
            })
        }
        Step::Scan(scan) => Step::Scan(scan.with_body(ordered(model, &scan.body, &scan.results))),
    });
    Region {
        steps: steps.collect(),
    }
}

/// The node with what it has to know of the order of rows.
fn marked(node: &Node, by_group: &HashMap<usize, ValueId>) -> Node {
    let Fusion::Grouped(map) = node.fusion() else {
        return node.clone();
    };
    let op: Rc<dyn ModelOp> = Rc::new(map.with_order(ByGroup {
        input: by_group.contains_key(&node.operands[0].0),
        result: by_group.contains_key(&node.result.0),
    }));
    Node { op, ..node.clone() }
}

/// The values that nobody reads in another order, each with the ids of its groups. The results of the region are read in another order, and
/// so is all that a loop reads.
fn by_group(model: &Model, region: &Region, ends: &[ValueId]) -> HashMap<usize, ValueId> {
    let nodes = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) => Some(node),
        Step::Repeat(_) | Step::Scan(_) => None,
    });
    let nodes: Vec<&Node> = nodes.collect();
    let mut found = HashMap::new();
    for node in &nodes {
        if let Some(ids) = ids_of(model, node, &found) {
            found.insert(node.result.0, ids);
        }
    }
    // A value that is read in the order of the ids is not kept by group, and then neither are the operands that it is computed of and the
    // results that need it by group. So this is repeated until nothing changes.
    let loops = region
        .steps
        .iter()
        .filter(|step| !matches!(step, Step::Node(_)));
    let read_elsewhere: Vec<ValueId> = loops.flat_map(uses).chain(ends.iter().copied()).collect();
    found.retain(|id, _| !read_elsewhere.contains(&ValueId(*id)));
    loop {
        let before = found.len();
        for node in &nodes {
            if ids_of(model, node, &found).is_none() {
                found.remove(&node.result.0);
            }
            let is_kept = found.contains_key(&node.result.0);
            for (index, operand) in node.operands.iter().enumerate() {
                let is_read = match node.fusion() {
                    Fusion::Grouped(_) => {
                        index == 0 && found.get(&operand.0) == Some(&node.operands[1])
                    }
                    _ => is_kept,
                };
                if !is_read {
                    found.remove(&operand.0);
                }
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The ids of the groups whose order the rows of a result may have, if those of its operands have it.
fn ids_of(model: &Model, node: &Node, by_group: &HashMap<usize, ValueId>) -> Option<ValueId> {
    let last = model.value(node.result).ty.axes.len().checked_sub(1)?;
    let of = |id: &ValueId| by_group.get(&id.0).copied();
    match node.fusion() {
        Fusion::Grouped(_) => Some(node.operands[1]),
        Fusion::Rows => of(&node.operands[0]),
        Fusion::Slice(axis, _) if axis == last => of(&node.operands[0]),
        Fusion::Elementwise(op) => {
            let mut all = None;
            for (index, operand) in node.operands.iter().enumerate() {
                match op.repeats(index) {
                    // The same for every row.
                    Some(places) if places.iter().all(|place| *place == last) => {}
                    Some(_) => return None,
                    None => {
                        let ids = of(operand)?;
                        if *all.get_or_insert(ids) != ids {
                            return None;
                        }
                    }
                }
            }
            all
        }
        _ => None,
    }
}
