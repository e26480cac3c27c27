//! The passes of the fused form, on layers and on expressions.

mod derivatives;
mod plan;
mod prove;
mod share;
mod split;
mod steps;
mod vanish;

use crate::graph::simplify;
use crate::graph::steps::{ArrayId, Attention, Step, Steps};

/// The steps of the only layer in `source`.
fn steps(source: &str) -> Steps {
    let (_, graph) = super::support::build(source);
    simplify(&graph).expect("the kernels know every key")
}

fn names(steps: &Steps, ids: &[ArrayId]) -> Vec<String> {
    ids.iter().map(|id| steps.array(*id).name.clone()).collect()
}

fn attention(steps: &Steps) -> &Attention {
    let attentions = steps.steps.iter().filter_map(|step| match step {
        Step::Attention(attention) => Some(&**attention),
        _ => None,
    });
    let attentions: Vec<_> = attentions.collect();
    assert_eq!(attentions.len(), 1);
    attentions[0]
}
