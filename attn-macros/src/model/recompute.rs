//! Values that are not kept for the derivative: the nodes that make them run again in the backward pass.
//!
//! Which nodes these are is a choice, any set of them. Of such a node nothing is kept. Kept is what it reads of others, unless these run
//! again, too. So a loop that keeps nothing but what it carries runs all of its round again; one that keeps the sum in the middle of a block
//! runs each half by itself. A node may run twice, if it keeps memory beside values: for its result, which others read, and then for its own
//! derivative. The seeds of a dropout are kept: all runs drop the same numbers.

use super::diff::{Again, BackwardStep, reads};
use super::graph::{Block, Node, Region, Step, ValueId};
use super::plan::{Forward, made_by, plan_some};
use crate::ops::{Kept, Op};

/// A choice of nodes, by their results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    /// Those that run again.
    pub(crate) again: Vec<ValueId>,
    /// Those of them that run twice.
    pub(crate) twice: Vec<ValueId>,
}

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
    twice: &[ValueId],
    lines: &mut Vec<BackwardStep<'_, O>>,
) {
    if again.is_empty() {
        return;
    }
    for line in lines.iter_mut() {
        if let BackwardStep::Repeat { repeat, lines, .. } = line {
            insert(block, &repeat.body, again, twice, lines);
        }
    }
    let nodes = region.steps.iter().filter_map(|step| match step {
        Step::Node(node) if again.contains(&node.result) => Some(Waiting {
            node,
            for_result: true,
            for_kept: keeps_memory(node),
        }),
        _ => None,
    });
    let mut waiting: Vec<Waiting<'_, O>> = nodes.collect();
    let mut behind: Vec<BackwardStep<'_, O>> = Vec::new();
    for line in lines.drain(..) {
        let run = wanted(block, &mut waiting, twice, &line);
        if !run.steps.steps.is_empty() {
            behind.push(BackwardStep::Recompute(run));
        }
        behind.push(line);
    }
    *lines = behind;
    plan_lines(block, lines);
}

/// A node that runs again, and for which of both it still has to.
struct Waiting<'n, O: ?Sized> {
    node: &'n Node<O>,
    for_result: bool,
    for_kept: bool,
}

/// The nodes that a line wants to have run, in their order.
fn wanted<O: Op + ?Sized>(
    block: Block<'_, O>,
    waiting: &mut [Waiting<'_, O>],
    twice: &[ValueId],
    line: &BackwardStep<'_, O>,
) -> Again<O> {
    let mut read = reads(block, line);
    let kept = kept_by(line);
    let mut steps = Vec::new();
    let mut forgotten = Vec::new();
    for waiting in waiting.iter_mut().rev() {
        let node = waiting.node;
        let mut results = node.results();
        let is_read = results.any(|value| read.contains(&block.memory(value)));
        let is_kept = kept.contains(&node.result);
        if !(waiting.for_result && is_read || waiting.for_kept && is_kept) {
            continue;
        }
        waiting.for_result = false;
        match twice.contains(&node.result) && !is_kept {
            true => forgotten.push(node.result),
            false => waiting.for_kept = false,
        }
        read.extend(node.operands.iter().map(|value| block.memory(*value)));
        steps.push(Step::Node(node.clone()));
    }
    steps.reverse();
    Again {
        steps: Region { steps },
        plan: Forward::default(),
        ends: Vec::new(),
        forgotten,
    }
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
            read.retain(|id| !again.ends.contains(id));
        }
        read.extend(reads);
    }
}
