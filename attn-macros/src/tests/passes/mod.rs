//! The passes of the fused form, on layers and on expressions.

mod derivatives;
mod loops;
mod parts;
mod patterns;
mod plan;
mod prove;
mod share;
mod split;
mod steps;
mod vanish;

use crate::graph::block::LayerBlock;
use crate::model::graph::{Node, ValueId};
use crate::ops::attention_layer::{Attend, HeadTransform, LayerOp, Norm};
use crate::pipeline::fuse_layer;

/// The steps of the only layer in `source`.
fn steps(source: &str) -> LayerBlock {
    let (_, graph) = super::support::build(source);
    fuse_layer(&graph).expect("the kernels know every key")
}

fn names(steps: &LayerBlock, ids: &[ValueId]) -> Vec<String> {
    ids.iter().map(|id| steps.value(*id).name.clone()).collect()
}

fn attention(steps: &LayerBlock) -> &Attend {
    let nodes = steps.nodes();
    let attentions = nodes.filter_map(|node| node.op.description().attention);
    let attentions: Vec<_> = attentions.collect();
    assert_eq!(attentions.len(), 1);
    attentions[0]
}

/// `q_k_v = q_proj+k_proj+v_proj(x)`, ..
fn story(steps: &LayerBlock) -> Vec<String> {
    let line = |node: &Node<dyn LayerOp>| {
        let description = node.op.description();
        let op = match (description.attention, description.transform) {
            (Some(_), _) => "attention".to_owned(),
            (None, Some(heads)) => transform(&heads.how),
            _ => {
                let projections = description.linear.map(|linear| linear.fields.clone());
                projections.unwrap_or(description.fields).join("+")
            }
        };
        let to = names(steps, &[node.result]).concat();
        format!("{to} = {op}({})", names(steps, &node.operands).join(", "))
    };
    steps.nodes().map(line).collect()
}

/// `L2+rope`
fn transform(how: &HeadTransform) -> String {
    let norm = match &how.norm {
        None => String::new(),
        Some(Norm::L2(_)) => "L2".to_owned(),
        Some(Norm::Rms { gain, field, .. }) => format!("Rms({gain:?}, {field:?})"),
    };
    let rope = if how.rope.is_some() { "+rope" } else { "" };
    format!("{norm}{rope}")
}
