//! Values that are not kept for the derivative: the nodes that make them run again in the backward pass.
//!
//! Which nodes these are is a choice, any set of them. Of such a node nothing is kept. Kept is what it reads of others, unless these run
//! again, too. So a loop that keeps nothing but what it carries runs all of its round again; one that keeps the sum in the middle of a block
//! runs each half by itself. The seeds of a dropout are kept: both runs drop the same numbers.

use super::diff::{Again, BackwardStep, reads};
use super::graph::{Block, Node, Region, Step, ValueId};
use super::plan::{made_by, plan_some};
use crate::ops::{Kept, Op};

/// Those of these nodes, by their results, that the derivative needs to run again: of the others it reads nothing.
pub(super) fn needed<O: Op + ?Sized>(block: Block<'_, O>, nodes: &[ValueId]) -> Vec<ValueId> {
    if nodes.is_empty() {
        return Vec::new();
    }
    let all = block.body.nodes();
    let memory = |value: ValueId| block.memory(value);
    let saved = all.iter().flat_map(|node| node.saved());
    let of_scans = block.body.scans().into_iter();
    let mut read: Vec<_> = saved
        .chain(of_scans.flat_map(|scan| scan.saved(block)))
        .map(memory)
        .collect();
    let mut needed = Vec::new();
    // A node stands behind those that it reads.
    for node in all.into_iter().rev() {
        let is_read = node.results().any(|value| read.contains(&memory(value)));
        let is_chosen = nodes.contains(&node.result) && !block.is_alias(node.result);
        if is_chosen && (is_read || keeps_memory(node)) {
            read.extend(node.operands.iter().map(|value| memory(*value)));
            needed.push(node.result);
        }
    }
    needed.reverse();
    needed
}

/// Whether its derivative reads what it kept beside values.
pub(crate) fn keeps_memory<O: Op + ?Sized>(node: &Node<O>) -> bool {
    let kept = node.op.properties().kept;
    kept.is_some_and(|kept| kept != Kept::Dropout)
}

/// Puts the lines that run these nodes again in front of the first one that reads what they make.
pub(super) fn insert<O: Op + ?Sized>(
    block: Block<'_, O>,
    region: &Region<O>,
    again: &[ValueId],
    lines: &mut Vec<BackwardStep<'_, O>>,
) {
    if again.is_empty() {
        return;
    }
    for line in lines.iter_mut() {
        if let BackwardStep::Repeat { repeat, lines, .. } = line {
            insert(block, &repeat.body, again, lines);
        }
    }
    let nodes = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) if again.contains(&node.result) => Some(node),
        _ => None,
    });
    let mut waiting: Vec<&Node<O>> = nodes.collect();
    let mut behind: Vec<BackwardStep<'_, O>> = Vec::new();
    for line in lines.drain(..) {
        let run = wanted(block, &mut waiting, &line);
        if !run.is_empty() {
            let steps = run.into_iter().map(|node| Step::Node(node.clone()));
            behind.push(BackwardStep::Recompute(Again {
                steps: Region {
                    steps: steps.collect(),
                },
                plan: Default::default(),
                ends: Vec::new(),
            }));
        }
        behind.push(line);
    }
    *lines = behind;
    plan_lines(block, lines);
}

/// Takes the nodes out of the waiting ones that a line wants to have run, in their order.
fn wanted<'n, O: Op + ?Sized>(
    block: Block<'_, O>,
    waiting: &mut Vec<&'n Node<O>>,
    line: &BackwardStep<'_, O>,
) -> Vec<&'n Node<O>> {
    let mut read = reads(block, line);
    let kept = kept_by(line);
    let mut wanted = Vec::new();
    for index in (0..waiting.len()).rev() {
        let node = waiting[index];
        let mut results = node.results();
        let is_read = results.any(|value| read.contains(&block.memory(value)));
        if is_read || kept.contains(&node.result) {
            read.extend(node.operands.iter().map(|value| block.memory(*value)));
            wanted.push(waiting.remove(index));
        }
    }
    wanted.reverse();
    wanted
}

/// The nodes, by their results, whose kept memory a line reads.
fn kept_by<O: Op + ?Sized>(line: &BackwardStep<'_, O>) -> Vec<ValueId> {
    match line {
        BackwardStep::Adjoint { node, .. } if keeps_memory(node) => vec![node.result],
        BackwardStep::Strips { lines, .. } => lines.iter().flat_map(kept_by).collect(),
        _ => Vec::new(),
    }
}

/// Plans the memory of what runs again: alive behind it is what later lines read.
fn plan_lines<O: Op + ?Sized>(block: Block<'_, O>, lines: &mut [BackwardStep<'_, O>]) {
    let mut read: Vec<ValueId> = Vec::new();
    for line in lines.iter_mut().rev() {
        let reads = reads(block, line);
        if let BackwardStep::Recompute(again) = line {
            let nodes = again.steps.nodes().into_iter().map(|node| node.result);
            let made = made_by(block, &again.steps, &nodes.collect::<Vec<_>>());
            again.ends = made.into_iter().filter(|id| read.contains(id)).collect();
            again.plan = plan_some(block, &again.steps, &again.ends);
        }
        read.extend(reads);
    }
}
