//! Scans: loops over the steps along an axis.

use super::{Block, ModuleId, Node, Region, Value, ValueId};
use crate::model::types::Axis;
use crate::ops::{ModelOp, Op};

/// A loop over the steps along an axis.
///
/// For the operations around it, it is one with several operands and results. Its body is a [`Block`] of its own, which reads operands by
/// other names: the slice of a sequence at a step, and the states when a step begins.
pub(crate) struct Scan<O: ?Sized = dyn ModelOp> {
    pub(crate) axis: Axis,
    /// The module that it stands in.
    pub(crate) module: ModuleId,
    /// The last step comes first.
    pub(crate) reverse: bool,
    pub(crate) keep: Keep,
    /// The sequences, whose first axis is that of the steps, each with its slice at a step.
    pub(crate) slices: Vec<Slice>,
    pub(crate) states: Vec<State>,
    /// The results at each step, each with all of them along a first axis.
    pub(crate) yields: Vec<Slice>,
    /// What the body reads and returns as a block.
    pub(crate) inputs: Vec<ValueId>,
    pub(crate) results: Vec<ValueId>,
    pub(crate) body: Region<O>,
}

/// The values of the body that are kept for the derivative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// Those of all steps.
    All,
    /// The states before every segment of about √n steps. The steps of a segment are computed again for their derivative.
    Sqrt,
}

/// A value with an axis of steps in front, and its slice at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub(crate) whole: ValueId,
    pub(crate) slice: ValueId,
}

/// A value that a scan carries from step to step.
#[derive(Clone)]
pub(crate) struct State {
    /// Its value before the first step.
    pub(crate) before: ValueId,
    /// Its value when a step begins.
    pub(crate) value: ValueId,
    /// Its value when a step ends.
    pub(crate) after: ValueId,
    /// Its value behind the last step, if that is read.
    pub(crate) last: Option<ValueId>,
}

impl<O: ?Sized> Scan<O> {
    /// The values that are there behind it.
    pub(crate) fn defined(&self) -> Vec<ValueId> {
        let yields = self.yields.iter().map(|of| of.whole);
        let last = self.states.iter().filter_map(|state| state.last);
        yields.chain(last).collect()
    }

    /// The values around it that it reads.
    pub(crate) fn operands(&self) -> Vec<ValueId> {
        let slices = self.slices.iter().map(|of| of.whole);
        let before = self.states.iter().map(|state| state.before);
        slices.chain(before).chain(self.wholes()).collect()
    }

    /// The values around it that the body reads as they are.
    pub(crate) fn wholes(&self) -> impl Iterator<Item = ValueId> {
        let is_other = |id: &&ValueId| {
            let mut states = self.states.iter();
            !self.slices.iter().any(|of| of.slice == **id) && !states.any(|of| of.value == **id)
        };
        self.inputs.iter().filter(is_other).copied()
    }

    /// The body as a block.
    pub(crate) fn block<'m>(&'m self, values: &'m [Value]) -> Block<'m, O> {
        Block {
            values,
            inputs: &self.inputs,
            body: &self.body,
            results: &self.results,
            results_are_given: false,
        }
    }

    /// The same with another body, which may read others.
    pub(crate) fn with_body(&self, body: Region<O>) -> Box<Self> {
        let mut scan = self.copy(body);
        scan.find_inputs();
        scan
    }

    /// Finds out what the body reads.
    pub(crate) fn find_inputs(&mut self) {
        let slices = self.slices.iter().map(|of| of.slice);
        let values = self.states.iter().map(|state| state.value);
        let mut inputs: Vec<ValueId> = slices.chain(values).collect();
        let nodes = self.body.nodes();
        let carried = self.body.carried();
        let defined = nodes.iter().flat_map(|node| node.results());
        let defined: Vec<_> = defined.chain(carried.values).collect();
        let read = nodes.iter().flat_map(|node| &node.operands).copied();
        let results = self.results.iter().copied();
        for id in read.chain(carried.reads).chain(results) {
            if !defined.contains(&id) && !inputs.contains(&id) {
                inputs.push(id);
            }
        }
        self.inputs = inputs;
    }

    pub(super) fn copy(&self, body: Region<O>) -> Box<Self> {
        Box::new(Scan {
            axis: self.axis.clone(),
            module: self.module,
            reverse: self.reverse,
            keep: self.keep,
            slices: self.slices.clone(),
            states: self.states.clone(),
            yields: self.yields.clone(),
            inputs: self.inputs.clone(),
            results: self.results.clone(),
            body,
        })
    }
}

impl<O: Op + ?Sized> Scan<O> {
    /// The inputs of the body that its derivative reads.
    pub(crate) fn saved_inputs(&self, block: Block<'_, O>) -> Vec<ValueId> {
        let nodes = self.body.nodes().into_iter();
        let saved = nodes.flat_map(Node::saved).map(|id| block.memory(id));
        let saved: Vec<_> = saved.collect();
        let inputs = self.inputs.iter().copied();
        inputs
            .filter(|id| saved.contains(&block.memory(*id)))
            .collect()
    }

    /// The values around it that its derivative reads: all of those that steps read, if these are computed again.
    pub(crate) fn saved(&self, block: Block<'_, O>) -> Vec<ValueId> {
        let inputs = match self.keep {
            Keep::All => self.saved_inputs(block),
            Keep::Sqrt => self.inputs.clone(),
        };
        let inputs = inputs.into_iter();
        let outside = inputs.filter_map(|id| {
            let of_slice = self.slices.iter().find(|of| of.slice == id);
            let is_state = self.states.iter().any(|of| of.value == id);
            (!is_state).then(|| of_slice.map_or(id, |of| of.whole))
        });
        outside.collect()
    }
}
