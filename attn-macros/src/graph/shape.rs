//! The shape of every node, from the shapes of its operands. The emitter writes these shapes, so rustc checks them.

use super::{Dim, Node, NodeId, Op, Param, ParamKind};
use crate::spec::{Size, Spec};

/// The shape that `op` gives.
pub(super) fn infer(op: &Op, nodes: &[Node], params: &[Param], spec: &Spec) -> Vec<Dim> {
    let shape = |id: &NodeId| nodes[id.0].shape.clone();
    match op {
        Op::Input => vec![Dim::Batch, Dim::Query, Dim::known(&spec.d_model)],
        Op::Context => {
            let width = spec.d_context.as_ref().unwrap_or(&spec.d_model);
            vec![Dim::Batch, Dim::Key, Dim::known(width)]
        }
        Op::Linear { x, field } => with_last(shape(x), linear_output(params, field)),
        Op::SplitHeads { x, heads, width } => {
            let x = shape(x);
            vec![
                x[0].clone(),
                Dim::known(heads),
                x[1].clone(),
                Dim::known(width),
            ]
        }
        Op::MergeHeads { x } => merge(shape(x)),
        Op::RmsNorm { x, .. } | Op::L2Norm { x } | Op::Rope { x, .. } => shape(x),
        Op::PerHeadLinear { q, field } => with_last(shape(q), last_dim(params, field)),
        Op::Attend(attention) => {
            let heads = Dim::known(&spec.heads);
            let width = shape(&attention.v)[3].clone();
            vec![Dim::Batch, heads, Dim::Query, width]
        }
    }
}

fn with_last(mut shape: Vec<Dim>, last: Size) -> Vec<Dim> {
    shape.pop();
    shape.push(Dim::Size(last));
    shape
}

fn linear_output(params: &[Param], field: &str) -> Size {
    params
        .iter()
        .find_map(|param| match &param.kind {
            ParamKind::Linear { output, .. } if param.field == field => Some(output.clone()),
            _ => None,
        })
        .unwrap_or_else(|| Size::known(1))
}

fn last_dim(params: &[Param], field: &str) -> Size {
    params
        .iter()
        .find_map(|param| match &param.kind {
            ParamKind::Weight { dims, .. } if param.field == field => dims.last().cloned(),
            _ => None,
        })
        .unwrap_or_else(|| Size::known(1))
}

fn merge(shape: Vec<Dim>) -> Vec<Dim> {
    let size = |dim: &Dim| match dim {
        Dim::Size(size) => size.clone(),
        Dim::Batch | Dim::Query | Dim::Key => Size::known(1),
    };
    let width = size(&shape[1]).times(&size(&shape[3]));
    vec![shape[0].clone(), shape[2].clone(), Dim::Size(width)]
}
