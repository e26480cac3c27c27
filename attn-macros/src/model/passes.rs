//! The passes over a block for its fused form: its derivative, and a memory plan for each direction.

use super::budget::Work;
use super::diff::{Backward, diff};
use super::graph::{Block, Model, ValueId};
use super::plan::{Forward, keep_apart, plan, plan_to_decode};
use super::recompute::{self, Chosen};
use crate::emit::ExecMode;
use crate::ops::{ModelOp, Op};

pub(crate) struct Passes<'m, O: ?Sized = dyn ModelOp> {
    pub(crate) block: Block<'m, O>,
    pub(crate) backward: Backward<'m, O>,
    forward: Forward,
    decode: Forward,
    /// The nodes that are computed again for the derivative, by their results.
    again: Vec<ValueId>,
}

/// The passes of a function. One with a bound on its memory has several.
pub(crate) struct MemoryPlan<'m> {
    /// The function, or the same with split loops.
    pub(crate) model: &'m Model,
    pub(crate) passes: Passes<'m>,
    /// What is computed again, if there is a choice.
    pub(crate) work: Option<Work>,
}

impl<'m, O: Op + ?Sized> Passes<'m, O> {
    pub(crate) fn new(block: Block<'m, O>) -> Self {
        Self::of_session(block, &[], &Chosen::default())
    }

    /// `given` are values that a session keeps from its start on, and the `chosen` nodes those of which the derivative has nothing but
    /// what it computes again.
    pub(crate) fn of_session(block: Block<'m, O>, given: &[ValueId], chosen: &Chosen) -> Self {
        let again = recompute::needed(block, &chosen.again);
        let mut backward = diff(block);
        recompute::insert(
            block,
            block.body,
            &again,
            &chosen.twice,
            &mut backward.lines,
        );
        Passes {
            block,
            backward,
            forward: plan(block, &again),
            decode: plan_to_decode(block, given),
            again,
        }
    }

    /// The passes over the body of a scan.
    pub(crate) fn of_scan(block: Block<'m, O>) -> Self {
        let mut passes = Passes::new(block);
        keep_apart(block, &mut passes.forward);
        passes
    }
}

impl<O: ?Sized> Passes<'_, O> {
    /// Whether a node is computed again for the derivative.
    pub(crate) fn is_again(&self, result: ValueId) -> bool {
        self.again.contains(&result)
    }

    pub(crate) fn plan(&self, mode: ExecMode) -> &Forward {
        match mode {
            ExecMode::Forward => &self.forward,
            ExecMode::Session | ExecMode::Start => &self.decode,
        }
    }
}
