//! Reverse mode: the derivative of the steps, as steps backwards.
//!
//! The derivative of a step adds to the gradients of its parameters, which are on the tape, and of its operands. It reads the
//! gradient of its result, which is complete by then: every later step that read the result has been processed.

use std::collections::BTreeSet;

use super::steps::{Role, Steps, View};

/// The derivative of one step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Adjoint {
    /// Index of the step.
    pub(crate) step: usize,
    /// The gradients of its operands, in their order.
    pub(crate) operands: Vec<(View, Into)>,
}

/// Whether a contribution to a gradient overwrites it or is added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Into {
    /// It is the first one.
    Overwrite,
    Add,
}

/// The derivatives of all steps, the last one first.
pub(crate) fn diff(steps: &Steps) -> Vec<Adjoint> {
    let mut begun = BTreeSet::new();
    let mut into = |view: View| {
        // The gradient of an input is on the tape, where other operations may have added to it.
        let is_input = steps.array(view.array).role == Role::Input;
        if is_input || !begun.insert(view) {
            Into::Add
        } else {
            Into::Overwrite
        }
    };
    let adjoint = |(step, operands): (usize, Vec<View>)| Adjoint {
        step,
        operands: operands
            .into_iter()
            .map(|view| (view, into(view)))
            .collect(),
    };
    let operands = steps.steps.iter().map(|step| step.operands());
    operands.enumerate().rev().map(adjoint).collect()
}
