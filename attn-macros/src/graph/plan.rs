//! The lifetimes of arrays.
//!
//! - An array that a derivative reads is saved. Values that can be recomputed without a matrix product are not: norms and
//!   rotations of queries and keys are recomputed as vectors are loaded, scores and weights tile by tile (this is the only
//!   product that is recomputed). A norm that is a separate step, because a matrix per head reads its result, is not recomputed.
//! - Memory goes back to the pool after its last reader, and the next array reuses it.
//! - Gradients of parameters and inputs are accumulated in the tape's own buffers.

use std::collections::BTreeSet;

use super::diff::Adjoint;
use super::steps::{ArrayId, Role, Step, Steps};

/// The lifetimes of the arrays.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Interim arrays that a derivative reads, in their order.
    pub(crate) saved: Vec<ArrayId>,
    /// After each step: interim arrays whose last reader it was. (Those of `saved` are kept.)
    pub(crate) free: Vec<Vec<ArrayId>>,
    /// After each derivative: saved arrays, and arrays of gradients, whose last reader it was.
    pub(crate) free_backward: Vec<Free>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) saved: Vec<ArrayId>,
    pub(crate) gradients: Vec<ArrayId>,
}

/// The plan of `steps`, whose derivative is `adjoints`.
pub(crate) fn plan(steps: &Steps, adjoints: &[Adjoint]) -> Plan {
    let is_interim = |id: &ArrayId| steps.array(*id).role == Role::Interim;
    let reads: Vec<BTreeSet<ArrayId>> = steps.steps.iter().map(reads_backward).collect();
    let saved: BTreeSet<ArrayId> = reads.iter().flatten().copied().filter(is_interim).collect();

    let forward: Vec<BTreeSet<ArrayId>> = steps.steps.iter().map(reads_forward).collect();
    let free = last_reads(&forward).into_iter().map(|ids| {
        let ids = ids.into_iter();
        ids.filter(|id| is_interim(id) && !saved.contains(id))
            .collect()
    });

    let backward: Vec<BTreeSet<ArrayId>> = adjoints
        .iter()
        .map(|adjoint| reads[adjoint.step].clone())
        .collect();
    let results: Vec<BTreeSet<ArrayId>> = adjoints
        .iter()
        .map(|adjoint| BTreeSet::from([steps.steps[adjoint.step].result()]))
        .collect();
    let keep_interim = |ids: Vec<ArrayId>| ids.into_iter().filter(is_interim).collect();
    let free_backward = last_reads(&backward)
        .into_iter()
        .zip(last_reads(&results))
        .map(|(saved, gradients)| Free {
            saved: keep_interim(saved),
            gradients: keep_interim(gradients),
        });
    Plan {
        free: free.collect(),
        free_backward: free_backward.collect(),
        saved: saved.iter().copied().collect(),
    }
}

fn reads_forward(step: &Step) -> BTreeSet<ArrayId> {
    step.operands().into_iter().map(|view| view.array).collect()
}

/// The arrays that the derivative of a step reads, beside gradients.
fn reads_backward(step: &Step) -> BTreeSet<ArrayId> {
    let mut reads = reads_forward(step);
    if let Step::Attention(attention) = step {
        // The weighted sum of the weights' gradients is a product of the output and its gradient.
        reads.insert(attention.to);
    }
    reads
}

/// For each element, the ids that no later one has. (After the last one, all memory is freed anyway.)
fn last_reads(reads: &[BTreeSet<ArrayId>]) -> Vec<Vec<ArrayId>> {
    let is_last = |at: usize, id: &ArrayId| !reads[at + 1..].iter().any(|later| later.contains(id));
    let last = |(at, ids): (usize, &BTreeSet<ArrayId>)| {
        ids.iter().copied().filter(|id| is_last(at, id)).collect()
    };
    let mut last: Vec<Vec<ArrayId>> = reads.iter().enumerate().map(last).collect();
    if let Some(end) = last.last_mut() {
        end.clear();
    }
    last
}
