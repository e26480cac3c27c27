//! Reverse mode: the derivative of a model, as lines that run through its graph backwards.
//!
//! The gradient of a value is a buffer. Where it is the same as that of another value — both terms of a sum have the
//! gradient of the sum — the two share the buffer, until one of them is added to: in place, if nobody else will read the
//! buffer any more, and otherwise in a copy.
//!
//! The gradients of the parts of a value are parts of one buffer. The gradient of a value in the memory of another one, in another shape, is
//! the buffer of that one.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use super::graph::{Block, Carried, Node, Region, Repeat, Scan, Step, ValueId};
use super::plan::{Forward, uses};
use super::strips::join_lines;
use super::types::{Axis, ValueKind};
use crate::ops::{Gradient, ModelOp, Op};

/// The derivative of a block.
pub(crate) struct Backward<'m, O: ?Sized = dyn ModelOp> {
    /// For each buffer the value that it was made for: its size and its name.
    pub(crate) buffers: Vec<ValueId>,
    pub(crate) lines: Vec<BackwardStep<'m, O>>,
}

impl<O: ?Sized> Backward<'_, O> {
    /// The value that a buffer was made for.
    pub(crate) fn of(&self, buffer: BufferId) -> ValueId {
        self.buffers[buffer.0]
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BufferId(pub(crate) usize);

/// A gradient, to read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GradSource {
    /// The gradient of a result of the model, by its number: it is given.
    Result(usize),
    Buffer(BufferId),
}

/// A gradient, to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GradTarget {
    /// The gradient of an input: the tape's, to add to.
    Input(ValueId),
    /// A buffer that is new here.
    New(BufferId),
    /// The part of a buffer where nothing has been written.
    Overwrite(BufferId),
    /// A buffer, to add to.
    Add(BufferId),
    /// The buffer of the gradient of the result, which is read before it is written.
    InPlace(BufferId),
}

impl GradTarget {
    /// Its buffer, if it is not that of the tape.
    pub(crate) fn buffer(self) -> Option<BufferId> {
        match self {
            GradTarget::Input(_) => None,
            GradTarget::New(buffer)
            | GradTarget::Overwrite(buffer)
            | GradTarget::Add(buffer)
            | GradTarget::InPlace(buffer) => Some(buffer),
        }
    }
}

pub(crate) enum BackwardStep<'m, O: ?Sized = dyn ModelOp> {
    /// A new buffer of zeros.
    Zeros(BufferId),
    /// A new buffer, all of which the next scan overwrites.
    Uninit(BufferId),
    /// A new buffer with the numbers of another gradient.
    Copy { from: GradSource, to: BufferId },
    /// Adds a gradient to another.
    Add { from: GradSource, to: GradTarget },
    /// The derivative of an operation, by the operands that have one.
    Adjoint {
        node: &'m Node<O>,
        d_result: GradSource,
        /// The gradients of its results beside that, where they have one.
        d_others: Vec<Option<GradSource>>,
        to: Vec<(usize, GradTarget)>,
    },
    /// Runs for every round, the last one first. In the end the buffer of each carried variable is the second one.
    Repeat {
        repeat: &'m Repeat<O>,
        carried: Vec<[BufferId; 2]>,
        lines: Vec<BackwardStep<'m, O>>,
    },
    /// The derivative of a loop over steps, the last one first.
    Scan {
        scan: &'m Scan<O>,
        /// The gradients of its results, in their order.
        d_results: Vec<Option<GradSource>>,
        /// Where those of its operands go. A new one is that of a sequence, of which each step overwrites its slice. Others are added to.
        to: Vec<(ValueId, GradTarget)>,
    },
    /// Lines that are computed strip by strip, for rows of these axes.
    Strips {
        axes: Vec<Axis>,
        lines: Vec<BackwardStep<'m, O>>,
    },
    /// Nodes that run again, since later lines read what is not kept of them.
    Recompute(Again<O>),
    /// Nobody reads it any more.
    Free(BufferId),
}

/// Nodes of a forward pass by themselves.
pub(crate) struct Again<O: ?Sized> {
    pub(crate) steps: Region<O>,
    pub(crate) plan: Forward,
    /// The values that later lines read.
    pub(crate) ends: Vec<ValueId>,
    /// The nodes, by their results, that will run once more for what they keep beside values.
    pub(crate) forgotten: Vec<ValueId>,
}

/// For each line, the saved values that no later one reads.
pub(crate) fn last_reads<O: Op + ?Sized>(
    block: Block<'_, O>,
    lines: &[BackwardStep<'_, O>],
    saved: &[ValueId],
) -> Vec<Vec<ValueId>> {
    let reads: Vec<_> = lines.iter().map(|line| reads(block, line)).collect();
    let last = |index: usize| {
        let is_last = |value: &ValueId| {
            // A node that runs twice makes it once more.
            let later = lines[index + 1..].iter().zip(&reads[index + 1..]);
            let mut later = later.take_while(|(line, _)| !makes(line, *value));
            reads[index].contains(value) && !later.any(|(_, reads)| reads.contains(value))
        };
        saved.iter().copied().filter(is_last).collect()
    };
    (0..lines.len()).map(last).collect()
}

/// Whether nodes run again in this line that make a value for later ones.
fn makes<O: ?Sized>(line: &BackwardStep<'_, O>, value: ValueId) -> bool {
    matches!(line, BackwardStep::Recompute(again) if again.ends.contains(&value))
}

/// The values that a line reads.
pub(super) fn reads<O: Op + ?Sized>(
    block: Block<'_, O>,
    line: &BackwardStep<'_, O>,
) -> Vec<ValueId> {
    match line {
        BackwardStep::Recompute(again) => {
            let read = again.steps.steps.iter().flat_map(uses);
            read.map(|value| block.memory(value)).collect()
        }
        BackwardStep::Adjoint { node, .. } => {
            let saved = node.saved().into_iter();
            saved.map(|value| block.memory(value)).collect()
        }
        BackwardStep::Repeat { repeat, lines, .. } => {
            // A loop keeps its carried values in every round.
            let is_carried =
                |value: &ValueId| repeat.carried.iter().any(|carried| carried.value == *value);
            let reads = lines.iter().flat_map(|line| reads(block, line));
            reads.filter(|value| !is_carried(value)).collect()
        }
        BackwardStep::Strips { lines, .. } => {
            let reads = lines.iter().flat_map(|line| reads(block, line));
            reads.collect()
        }
        BackwardStep::Scan { scan, .. } => {
            let saved = scan.saved(block).into_iter();
            saved.map(|value| block.memory(value)).collect()
        }
        _ => Vec::new(),
    }
}

/// The sequences that a scan reads by their slices alone, each with a gradient that one line of a step writes.
fn overwritten_slices<O: Op + ?Sized>(block: Block<'_, O>, scan: &Scan<O>) -> Vec<ValueId> {
    let body = diff(scan.block(block.values));
    let writes = |line: &BackwardStep<'_, O>, id: ValueId| {
        let is_it = |to: &GradTarget| *to == GradTarget::Input(id);
        match line {
            BackwardStep::Add { to, .. } => usize::from(is_it(to)),
            BackwardStep::Adjoint { to, .. } => to.iter().filter(|(_, to)| is_it(to)).count(),
            _ => 0,
        }
    };
    // A line in a loop runs several times, so it cannot overwrite.
    let is_nested = body.lines.iter().any(|line| {
        matches!(
            line,
            BackwardStep::Repeat { .. } | BackwardStep::Scan { .. } | BackwardStep::Strips { .. }
        )
    });
    let operands = scan.operands();
    let slices = scan.slices.iter().filter(|of| {
        let mut read = operands.iter().map(|id| block.whole(*id));
        let is_alone = read.by_ref().filter(|id| *id == of.whole).count() == 1;
        let count = body
            .lines
            .iter()
            .map(|line| writes(line, of.slice))
            .sum::<usize>();
        !is_nested && is_alone && count == 1
    });
    slices.map(|of| of.whole).collect()
}

/// The derivative of the results by all parameters and inputs.
pub(crate) fn diff<O: Op + ?Sized>(block: Block<'_, O>) -> Backward<'_, O> {
    let mut diff = Diff {
        block,
        buffers: Vec::new(),
        gradients: BTreeMap::new(),
        begun: BTreeSet::new(),
    };
    let mut lines = Vec::new();
    for (index, result) in block.results.iter().enumerate() {
        diff.share(*result, GradSource::Result(index), &mut lines);
    }
    diff.region(block.body, &mut lines);
    let lines = join_lines(block, &diff.buffers, lines);
    Backward {
        buffers: diff.buffers,
        lines,
    }
}

struct Diff<'m, O: ?Sized> {
    block: Block<'m, O>,
    buffers: Vec<ValueId>,
    /// The gradients so far of values whose own operation is still to come.
    gradients: BTreeMap<usize, GradSource>,
    /// The parts of values whose gradients are begun.
    begun: BTreeSet<usize>,
}

impl<'m, O: Op + ?Sized> Diff<'m, O> {
    fn region(&mut self, region: &'m Region<O>, lines: &mut Vec<BackwardStep<'m, O>>) {
        for step in region.steps.iter().rev() {
            match step {
                Step::Node(node) => self.node(node, lines),
                Step::Repeat(repeat) => self.repeat(repeat, lines),
                Step::Scan(scan) => self.scan(scan, lines),
            }
        }
    }

    /// A scan adds to the gradients of its operands, step by step.
    fn scan(&mut self, scan: &'m Scan<O>, lines: &mut Vec<BackwardStep<'m, O>>) {
        let defined = scan.defined();
        let d_results = defined.iter().map(|id| self.gradients.get(&id.0).copied());
        let d_results: Vec<_> = d_results.collect();
        if d_results.iter().all(Option::is_none) {
            return;
        }
        let mut to: Vec<(ValueId, GradTarget)> = Vec::new();
        let overwritten = overwritten_slices(self.block, scan);
        for value in scan.operands() {
            let value = self.block.whole(value);
            let is_float = self.block.value(value).ty.kind == ValueKind::Floats;
            let is_known = to.iter().any(|(other, _)| *other == value);
            if is_known || !is_float {
                continue;
            }
            let target = match self.is_input(value) {
                true => GradTarget::Input(value),
                false
                    if overwritten.contains(&value)
                        && self.is_whole(value)
                        && !self.gradients.contains_key(&value.0) =>
                {
                    let buffer = self.buffer(value);
                    lines.push(BackwardStep::Uninit(buffer));
                    self.gradients.insert(value.0, GradSource::Buffer(buffer));
                    GradTarget::New(buffer)
                }
                false => GradTarget::Add(self.own_or_zeros(self.block.holder(value), lines)),
            };
            to.push((value, target));
        }
        for value in &defined {
            self.gradients.remove(&value.0);
        }
        let free = d_results.iter().flatten().copied().collect::<Vec<_>>();
        lines.push(BackwardStep::Scan {
            scan,
            d_results,
            to,
        });
        let mut freed: Vec<GradSource> = Vec::new();
        for gradient in free {
            if !freed.contains(&gradient) {
                self.free(gradient, lines);
                freed.push(gradient);
            }
        }
    }

    fn node(&mut self, node: &'m Node<O>, lines: &mut Vec<BackwardStep<'m, O>>) {
        let d_others = node.others.iter();
        let d_others = d_others.map(|id| self.gradients.get(&(*id)?.0).copied());
        let d_others: Vec<_> = d_others.collect();
        let d_result = match self.gradients.get(&node.result.0) {
            Some(d_result) => *d_result,
            None if d_others.iter().any(Option::is_some) => {
                GradSource::Buffer(self.own_or_zeros(node.result, lines))
            }
            // A value without a reader has no gradient.
            None => return,
        };
        let mut computed = Vec::new();
        let mut is_passed_on = !node.operands.is_empty();
        for (operand, gradient) in node
            .op
            .gradients(node.operands.len())
            .into_iter()
            .enumerate()
        {
            match gradient {
                Gradient::Same => self.share(node.operands[operand], d_result, lines),
                Gradient::Computed
                | Gradient::Overwritten
                | Gradient::InPlace
                | Gradient::Together
                | Gradient::Apart => {
                    computed.push((operand, gradient));
                }
                Gradient::None => {}
            }
            is_passed_on &= matches!(gradient, Gradient::Same);
        }
        // An operation on indices, or on nothing, has no gradient to write, but perhaps those of its parameters. An alias has neither.
        if !is_passed_on && !self.block.is_alias(node.result) {
            self.adjoint(node, (d_result, &d_others), computed, lines);
        }
        for id in node.results() {
            self.gradients.remove(&id.0);
        }
        self.free(d_result, lines);
        for d_other in d_others.into_iter().flatten() {
            self.free(d_other, lines);
        }
    }

    fn adjoint(
        &mut self,
        node: &'m Node<O>,
        (d_result, d_others): (GradSource, &[Option<GradSource>]),
        operands: Vec<(usize, Gradient)>,
        lines: &mut Vec<BackwardStep<'m, O>>,
    ) {
        let mut to = Vec::new();
        let mut apart = Vec::new();
        for (index, gradient) in operands {
            let value = self.block.whole(node.operands[index]);
            // Two gradients of one value cannot be written at once.
            let mut before = node.operands[..index].iter();
            let is_again = before.any(|other| self.block.whole(*other) == value);
            let is_first = self.is_whole(value) && !self.gradients.contains_key(&value.0);
            let is_apart = match gradient {
                Gradient::Overwritten => !self.is_unwritten(value),
                Gradient::Together => is_again,
                Gradient::Apart => is_again || !is_first,
                _ => false,
            };
            let target = match (gradient, d_result) {
                _ if is_apart => {
                    let buffer = self.buffer(value);
                    apart.push((value, buffer));
                    GradTarget::New(buffer)
                }
                (Gradient::InPlace, GradSource::Buffer(buffer)) if self.is_for(value, d_result) => {
                    self.gradients.insert(value.0, d_result);
                    GradTarget::InPlace(buffer)
                }
                _ => self.target(value, lines),
            };
            to.push((index, target));
        }
        lines.push(BackwardStep::Adjoint {
            node,
            d_result,
            d_others: d_others.to_vec(),
            to,
        });
        for (value, buffer) in apart {
            let from = GradSource::Buffer(buffer);
            let to = self.target(value, lines);
            lines.push(BackwardStep::Add { from, to });
            lines.push(BackwardStep::Free(buffer));
        }
    }

    /// Whether the gradient of a value is memory of the block that nobody has written to.
    fn is_unwritten(&self, value: ValueId) -> bool {
        match self.is_whole(value) {
            true => !self.gradients.contains_key(&value.0),
            false => !self.is_input(value) && !self.begun.contains(&value.0),
        }
    }

    /// Whether a value without a gradient so far can take that of a result: nobody else will read it.
    fn is_for(&self, value: ValueId, d_result: GradSource) -> bool {
        let is_first = self.is_whole(value) && !self.gradients.contains_key(&value.0);
        is_first && self.holders(d_result) == 1
    }

    /// Where a contribution to the gradient of a value goes.
    fn target(&mut self, value: ValueId, lines: &mut Vec<BackwardStep<'m, O>>) -> GradTarget {
        let value = self.block.whole(value);
        if self.is_input(value) {
            return GradTarget::Input(value);
        }
        let is_part = !self.is_whole(value);
        let is_first = is_part && self.begun.insert(value.0);
        let memory = self.block.holder(value);
        match self.gradients.get(&memory.0) {
            None => {
                let new = self.buffer(memory);
                self.gradients.insert(memory.0, GradSource::Buffer(new));
                GradTarget::New(new)
            }
            Some(_) if is_first => GradTarget::Overwrite(self.own(memory, lines)),
            Some(_) => GradTarget::Add(self.own(memory, lines)),
        }
    }

    /// Whether the gradient of a value is that of an input.
    fn is_input(&self, value: ValueId) -> bool {
        self.block.inputs.contains(&self.block.holder(value))
    }

    /// Whether the gradient of a value is a buffer of its own.
    fn is_whole(&self, value: ValueId) -> bool {
        !self.is_input(value) && self.block.value(value).view.is_none()
    }

    /// The buffer of a value that has a gradient, such that no other value has it.
    fn own(&mut self, value: ValueId, lines: &mut Vec<BackwardStep<'m, O>>) -> BufferId {
        let from = self.gradients[&value.0];
        match from {
            GradSource::Buffer(buffer) if self.holders(from) == 1 => buffer,
            _ => {
                let to = self.buffer(value);
                lines.push(BackwardStep::Copy { from, to });
                self.gradients.insert(value.0, GradSource::Buffer(to));
                to
            }
        }
    }

    /// Adds a gradient as it is.
    fn share(&mut self, value: ValueId, from: GradSource, lines: &mut Vec<BackwardStep<'m, O>>) {
        let value = self.block.whole(value);
        if self.block.value(value).ty.kind != ValueKind::Floats || self.block.is_alias(value) {
            return;
        }
        if !self.is_whole(value) {
            let to = self.target(value, lines);
            lines.push(BackwardStep::Add { from, to });
            return;
        }
        match self.gradients.entry(value.0) {
            Entry::Vacant(none) => {
                none.insert(from);
            }
            Entry::Occupied(_) => {
                let to = GradTarget::Add(self.own(value, lines));
                lines.push(BackwardStep::Add { from, to });
            }
        }
    }

    fn buffer(&mut self, value: ValueId) -> BufferId {
        self.buffers.push(value);
        BufferId(self.buffers.len() - 1)
    }

    fn holders(&self, gradient: GradSource) -> usize {
        let gradients = self.gradients.values();
        gradients.filter(|other| **other == gradient).count()
    }

    fn free(&self, gradient: GradSource, lines: &mut Vec<BackwardStep<'m, O>>) {
        if let (GradSource::Buffer(buffer), 0) = (gradient, self.holders(gradient)) {
            lines.push(BackwardStep::Free(buffer));
        }
    }

    /// A buffer that is the value's alone, of zeros if it has no gradient so far.
    fn own_or_zeros(&mut self, value: ValueId, lines: &mut Vec<BackwardStep<'m, O>>) -> BufferId {
        if self.gradients.contains_key(&value.0) {
            return self.own(value, lines);
        }
        let buffer = self.buffer(value);
        lines.push(BackwardStep::Zeros(buffer));
        self.gradients.insert(value.0, GradSource::Buffer(buffer));
        buffer
    }

    fn repeat(&mut self, repeat: &'m Repeat<O>, lines: &mut Vec<BackwardStep<'m, O>>) {
        let values = repeat.carried.iter().map(|carried| carried.value);
        let starts: Vec<_> = values
            .clone()
            .map(|value| self.own_or_zeros(value, lines))
            .collect();
        // Every round adds to the gradients of what is defined outside.
        for value in self.outer(repeat) {
            self.own_or_zeros(value, lines);
        }
        for value in values.clone() {
            self.gradients.remove(&value.0);
        }
        let mut body = Vec::new();
        for (carried, start) in repeat.carried.iter().zip(&starts) {
            self.share(carried.after, GradSource::Buffer(*start), &mut body);
        }
        for start in &starts {
            self.free(GradSource::Buffer(*start), &mut body);
        }
        self.region(&repeat.body, &mut body);
        let ends = values
            .clone()
            .map(|value| self.own_or_zeros(value, &mut body));
        let ends: Vec<_> = ends.collect();
        for value in values {
            self.gradients.remove(&value.0);
        }
        let carried = starts.iter().zip(ends).map(|(start, end)| [*start, end]);
        let body = join_lines(self.block, &self.buffers, body);
        lines.push(BackwardStep::Repeat {
            repeat,
            carried: carried.collect(),
            lines: body,
        });
        for (carried, start) in repeat.carried.iter().zip(starts) {
            self.share(carried.before, GradSource::Buffer(start), lines);
            self.free(GradSource::Buffer(start), lines);
        }
    }

    /// The values outside of a loop, but for inputs, whose gradients it adds to.
    fn outer(&self, repeat: &Repeat<O>) -> Vec<ValueId> {
        let mut read = Vec::new();
        let mut defined = Vec::new();
        self.gather(&repeat.body, &mut read, &mut defined);
        let after = repeat.carried.iter().map(|carried| carried.after);
        read.extend(after.map(|value| self.block.holder(value)));
        defined.extend(repeat.carried.iter().map(|carried| carried.value));
        read.sort_by_key(|value| value.0);
        read.dedup();
        read.retain(|value| !defined.contains(value) && !self.is_input(*value));
        read
    }

    fn gather(&self, region: &Region<O>, read: &mut Vec<ValueId>, defined: &mut Vec<ValueId>) {
        for step in &region.steps {
            match step {
                Step::Node(node) => {
                    let operands = node.gradients().map(|(index, _)| node.operands[index]);
                    read.extend(operands.map(|operand| self.block.holder(operand)));
                    defined.extend(node.results());
                }
                Step::Repeat(repeat) => {
                    let ends = |carried: &Carried| [carried.before, carried.after];
                    let ends = repeat.carried.iter().flat_map(ends);
                    read.extend(ends.map(|value| self.block.holder(value)));
                    defined.extend(repeat.carried.iter().map(|carried| carried.value));
                    self.gather(&repeat.body, read, defined);
                }
                Step::Scan(scan) => {
                    let operands = scan.operands().into_iter();
                    let is_float =
                        |id: &ValueId| self.block.value(*id).ty.kind == ValueKind::Floats;
                    let floats = operands.filter(is_float);
                    read.extend(floats.map(|operand| self.block.holder(operand)));
                    defined.extend(scan.defined());
                }
            }
        }
    }
}
