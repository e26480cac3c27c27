//! Passes over strips of rows: neighbours that treat each row by itself, with reductions of the last axis among them.
//!
//! In `x / sqrt(mean::<d>(x * x) + 1e-6) * gain`, the mean of a row is all that a row needs. So all operations are computed for some rows, which
//! stay in the cache, and then for the next ones. A value that nobody else reads is in memory for these rows only.
//!
//! The lines of a derivative are joined in the same way. In a strip, the gradient of a value that is repeated along rows is a sum of rows; that
//! of one row that is repeated for all is a sum of columns, which the strips add up.

use std::ops::Range;

use super::diff::{BackwardStep, GradSource, GradTarget};
use super::fusion::{FuseWith, Fusions};
use super::graph::{Block, Node, Region, Step, ValueId};
use super::types::{Axis, ValueKind, same_axes};
use crate::ops::{Elementwise, Fusion, Op};

/// Steps that are computed strip by strip.
#[derive(Clone, Debug)]
pub(crate) struct StripPass {
    pub(crate) steps: Range<usize>,
    /// Those of the values with rows. The others have a number for each row.
    pub(crate) axes: Vec<Axis>,
}

/// How an operand of a loop over rows is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Repetition {
    /// It has a number for each row.
    AlongRows,
    /// It is one row, the same for all.
    AlongColumn,
    Other,
}

/// How an elementwise operation repeats an operand with these axes to a result with those, if it does.
pub(crate) fn repetition(
    op: &Elementwise,
    operand: usize,
    axes: &[Axis],
    result: &[Axis],
) -> Option<Repetition> {
    let places = op.repeats(operand)?;
    let rows = result.len().saturating_sub(1);
    let fits = |of: &[Axis]| same_axes(axes, of);
    let is_along_rows =
        !result.is_empty() && places.iter().copied().eq(0..rows) && fits(&result[..rows]);
    Some(if is_along_rows {
        Repetition::AlongRows
    } else if rows > 0 && places == [rows] && fits(&result[rows..]) {
        Repetition::AlongColumn
    } else {
        Repetition::Other
    })
}

/// The passes of a region.
pub(super) fn passes<O: Op + ?Sized>(
    block: Block<'_, O>,
    region: &Region<O>,
    fusions: &Fusions<'_, O>,
) -> Vec<StripPass> {
    let steps = &region.steps;
    let mut passes: Vec<StripPass> = Vec::new();
    for index in 0..steps.len() {
        let first = passes.last().map_or(0, |pass| pass.steps.end);
        let Some(axes) = node(&steps[index]).and_then(|node| reduced(block, node)) else {
            continue;
        };
        let joins = |index: &usize| {
            let joins = node(&steps[*index]).is_some_and(|node| is_on_rows(block, node, axes));
            joins && !fusions.is_with_rows(*index)
        };
        let before = (first..index).rev().take_while(joins).count();
        let behind = (index..steps.len()).take_while(joins).count();
        let range = index - before..index + behind;
        let is_computed = |index: &usize| fusions.with[*index] != Some(FuseWith::Reader);
        if range.start >= first && range.clone().filter(is_computed).count() > 1 {
            let axes = axes.to_vec();
            passes.push(StripPass { steps: range, axes });
        }
    }
    passes
}

/// The lines with those joined that are computed strip by strip.
pub(super) fn join_lines<'m, O: Op + ?Sized>(
    block: Block<'m, O>,
    buffers: &[ValueId],
    lines: Vec<BackwardStep<'m, O>>,
) -> Vec<BackwardStep<'m, O>> {
    let mut joined: Vec<BackwardStep<'m, O>> = Vec::new();
    let mut rest = lines.into_iter().peekable();
    while let Some(line) = rest.next() {
        let axes = match &line {
            BackwardStep::Adjoint { node, .. } => reduced(block, node),
            _ => None,
        };
        let joins = |line: &BackwardStep<'_, O>, axes: &[Axis]| is_line(block, buffers, line, axes);
        let Some(axes) = axes.filter(|axes| joins(&line, axes)) else {
            joined.push(line);
            continue;
        };
        let before = joined.iter().rev().take_while(|line| joins(line, axes));
        let free = |line: &&BackwardStep<'_, O>| matches!(line, BackwardStep::Free(_));
        let mut start = joined.len() - before.count();
        start += joined[start..].iter().take_while(free).count();
        let mut lines = joined.split_off(start);
        lines.push(line);
        while let Some(line) = rest.next_if(|line| joins(line, axes)) {
            lines.push(line);
        }
        let is_adjoint = |line: &&BackwardStep<'_, O>| matches!(line, BackwardStep::Adjoint { .. });
        match lines.iter().filter(is_adjoint).count() {
            0 | 1 => joined.append(&mut lines),
            _ => joined.push(BackwardStep::Strips {
                axes: axes.to_vec(),
                lines,
            }),
        }
    }
    joined
}

fn node<O: ?Sized>(step: &Step<O>) -> Option<&Node<O>> {
    match step {
        Step::Node(node) => Some(node),
        Step::Repeat(_) | Step::Scan(_) => None,
    }
}

/// The axes of the operand of a reduction of the last one.
fn reduced<'m, O: Op + ?Sized>(block: Block<'m, O>, node: &Node<O>) -> Option<&'m [Axis]> {
    let axes = &*block.value(*node.operands.first()?).ty.axes;
    let is_last = matches!(node.fusion(), Fusion::Reduce { axis, .. } if axis + 1 == axes.len());
    is_last.then_some(axes)
}

/// Whether a value has rows of these axes, or a number for each of them.
fn has_rows<O: ?Sized>(block: Block<'_, O>, id: ValueId, axes: &[Axis]) -> bool {
    let value = block.value(id);
    let is_one =
        same_axes(&value.ty.axes, axes) || same_axes(&value.ty.axes, &axes[..axes.len() - 1]);
    let is_own = value.view.is_none() && value.alias.is_none();
    is_one && value.ty.kind == ValueKind::Floats && is_own
}

/// Whether an operation computes each of these rows by itself.
fn is_on_rows<O: Op + ?Sized>(block: Block<'_, O>, node: &Node<O>, axes: &[Axis]) -> bool {
    let is = |id: ValueId| has_rows(block, id, axes);
    is(node.result)
        && match node.fusion() {
            Fusion::Elementwise(op) => node.operands.iter().enumerate().all(|(index, id)| {
                let result = &block.value(node.result).ty.axes;
                match repetition(op, index, &block.value(*id).ty.axes, result) {
                    None | Some(Repetition::AlongRows) => is(*id),
                    // Such an operation would read other rows of a value of the pass.
                    Some(Repetition::AlongColumn | Repetition::Other) => !is(*id),
                }
            }),
            Fusion::Reduce { .. } => reduced(block, node).is_some_and(|of| same_axes(of, axes)),
            Fusion::Dropout(_) => is(node.operands[0]),
            _ => false,
        }
}

/// Whether a line of a derivative computes each row by itself, but for sums over all of them.
fn is_line<O: Op + ?Sized>(
    block: Block<'_, O>,
    buffers: &[ValueId],
    line: &BackwardStep<'_, O>,
    axes: &[Axis],
) -> bool {
    match line {
        BackwardStep::Adjoint { node, to, .. } => {
            is_on_rows(block, node, axes)
                && to.iter().all(|(operand, target)| {
                    let of = &block.value(node.operands[*operand]).ty.axes;
                    let result = &block.value(node.result).ty.axes;
                    let is_sum_of_others = match node.fusion() {
                        Fusion::Elementwise(op) => match repetition(op, *operand, of, result) {
                            None | Some(Repetition::AlongRows) => false,
                            Some(Repetition::AlongColumn) => !same_axes(result, axes),
                            Some(Repetition::Other) => true,
                        },
                        _ => false,
                    };
                    !is_sum_of_others && !matches!(target, GradTarget::Overwrite(_))
                })
        }
        BackwardStep::Copy { to, .. } => has_rows(block, buffers[to.0], axes),
        BackwardStep::Add { from, to } => {
            let from = match from {
                GradSource::Result(index) => block.results[*index],
                GradSource::Buffer(buffer) => buffers[buffer.0],
            };
            let to = match to {
                GradTarget::Input(id) => Some(*id),
                GradTarget::Overwrite(_) => None,
                to => to.buffer().map(|buffer| buffers[buffer.0]),
            };
            has_rows(block, from, axes) && to.is_some_and(|to| has_rows(block, to, axes))
        }
        BackwardStep::Free(_) => true,
        BackwardStep::Zeros(_)
        | BackwardStep::Uninit(_)
        | BackwardStep::Repeat { .. }
        | BackwardStep::Scan { .. }
        | BackwardStep::Recompute(_)
        | BackwardStep::Strips { .. } => false,
    }
}
