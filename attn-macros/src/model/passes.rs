//! The passes over a block for its fused form: its derivative, and a memory plan for each direction.

use super::diff::{Backward, diff};
use super::graph::{Block, ValueId};
use super::plan::{Forward, keep_apart, plan, plan_to_decode};
use crate::emit::ExecMode;
use crate::ops::{ModelOp, Op};

pub(crate) struct Passes<'m, O: ?Sized = dyn ModelOp> {
    pub(crate) block: Block<'m, O>,
    pub(crate) backward: Backward<'m, O>,
    forward: Forward,
    decode: Forward,
}

impl<'m, O: Op + ?Sized> Passes<'m, O> {
    pub(crate) fn new(block: Block<'m, O>) -> Self {
        Self::of_session(block, &[])
    }

    /// `given` are values that a session keeps from its start on.
    pub(crate) fn of_session(block: Block<'m, O>, given: &[ValueId]) -> Self {
        Passes {
            block,
            backward: diff(block),
            forward: plan(block),
            decode: plan_to_decode(block, given),
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
    pub(crate) fn plan(&self, mode: ExecMode) -> &Forward {
        match mode {
            ExecMode::Forward => &self.forward,
            ExecMode::Session | ExecMode::Start => &self.decode,
        }
    }
}
