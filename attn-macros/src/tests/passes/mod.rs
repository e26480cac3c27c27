//! The passes that lead to the fused lowering, on layers and on expressions.

mod derivatives;
mod plan;
mod prove;
mod share;
mod split;
mod steps;
mod vanish;

use crate::graph::simplify;
use crate::graph::steps::Steps;
use crate::model::graph::ValueId;
use crate::ops::fused::Attend;

/// The steps of the only layer in `source`.
fn steps(source: &str) -> Steps {
    let (_, graph) = super::support::build(source);
    simplify(&graph).expect("the kernels know every key")
}

fn names(steps: &Steps, ids: &[ValueId]) -> Vec<String> {
    ids.iter().map(|id| steps.value(*id).name.clone()).collect()
}

fn attention(steps: &Steps) -> &Attend {
    let nodes = steps.nodes();
    let attentions = nodes.filter_map(|node| node.op.properties().attention);
    let attentions: Vec<_> = attentions.collect();
    assert_eq!(attentions.len(), 1);
    attentions[0]
}
