//! From the graph to [`Steps`]: values that need not be stored disappear.
//!
//! Splitting heads and putting them side by side again moves nothing: the kernels take columns of a matrix. Scores and weights are
//! made and used up tile by tile. What else disappears, [passes](super::passes) find.

use std::rc::Rc;

use super::passes::{leave_biases, load_transforms, name_values, pack_projections};
use super::steps::{Steps, matrix};
use super::{Attention, Dim, Graph, Node, NodeId, Op, Scores};
use crate::model::graph::{self as block, Region, Step, Value, ValueId};
use crate::ops::fused::{
    Attend, HeadTransform, LayerOp, Norm, PackedLinear, PerHeadLinear, Similarity, TransformHeads,
};
use crate::score::{Expr, split};
use crate::spec::Size;

/// The steps of `graph`. `None` if a score modification reads positions in a way that the kernels do not support.
pub(crate) fn simplify(graph: &Graph) -> Option<Steps> {
    let mut steps = lower(graph)?;
    pack_projections(&mut steps);
    load_transforms(&mut steps);
    leave_biases(graph, &mut steps);
    name_values(&mut steps);
    Some(steps)
}

/// A step for each operation, but for those that move nothing.
pub(crate) fn lower(graph: &Graph) -> Option<Steps> {
    let mut cx = Lower {
        matrices: Vec::new(),
        values: Vec::new(),
        inputs: Vec::new(),
        body: Region::default(),
    };
    for node in &graph.nodes {
        let matrix = cx.matrix(node)?;
        cx.matrices.push(matrix);
    }
    Some(Steps {
        results: [cx.matrices[graph.output.0]],
        values: cx.values,
        inputs: cx.inputs,
        body: cx.body,
    })
}

struct Lower {
    /// What the nodes so far have become.
    matrices: Vec<ValueId>,
    values: Vec<Value>,
    inputs: Vec<ValueId>,
    body: Region<dyn LayerOp>,
}

impl Lower {
    fn matrix(&mut self, node: &Node) -> Option<ValueId> {
        Some(match &node.op {
            Op::Input | Op::Context => self.input(node),
            Op::Linear { x, field } => {
                let linear = PackedLinear {
                    fields: vec![field],
                    leaves_bias: false,
                };
                let to = self.value(node, last_size(node));
                self.push(linear, &[*x], to)
            }
            Op::SplitHeads { x, .. } | Op::MergeHeads { x } => self.matrices[x.0],
            Op::RmsNorm { x, field } => {
                self.transform(HeadTransform::norm(Norm::Rms(field)), *x, node)
            }
            Op::L2Norm { x } => self.transform(HeadTransform::norm(Norm::L2), *x, node),
            Op::Rope { x, theta } => self.transform(HeadTransform::rope(theta.clone()), *x, node),
            Op::PerHeadLinear { q, field } => {
                let heads = head_count(node);
                let to = self.heads_value(node);
                self.push(PerHeadLinear { heads, field }, &[*q], to)
            }
            Op::Attend(attention) => self.attend(attention, node)?,
        })
    }

    fn input(&mut self, node: &Node) -> ValueId {
        let input = self.value(node, last_size(node));
        self.inputs.push(input);
        input
    }

    fn transform(&mut self, how: HeadTransform, x: NodeId, node: &Node) -> ValueId {
        let heads = head_count(node);
        let to = self.heads_value(node);
        self.push(TransformHeads { heads, how }, &[x], to)
    }

    fn attend(&mut self, attention: &Attention, node: &Node) -> Option<ValueId> {
        let weight = attention.normalizer.weight();
        let functions = attention.functions.iter().chain(weight);
        let score = functions.fold(Expr::SCORE, |score, function| function.of(&score));
        let is_additive = matches!(attention.scores, Scores::Additive { .. });
        let parts = split::split(&score, !is_additive)?;
        let similarity = match attention.scores {
            Scores::Additive { field, .. } => Similarity::Additive { field },
            Scores::Dot { .. } | Scores::Zero { .. } => Similarity::Dot { scale: parts.scale },
        };
        let vectors = attention.scores.vectors();
        let attend = Attend {
            vectors: vectors.map(|_| Default::default()),
            values: HeadTransform::default(),
            similarity,
            score: parts.value,
            bias_terms: parts.bias_terms,
            mask: attention.mask.clone(),
            normalizer: attention.normalizer.clone(),
            dropout: attention.dropout.clone(),
        };
        let operands = vectors.into_iter().flatten().chain([attention.v]);
        let operands: Vec<_> = operands.collect();
        let to = self.heads_value(node);
        Some(self.push(attend, &operands, to))
    }

    fn push(
        &mut self,
        op: impl LayerOp + 'static,
        operands: &[NodeId],
        result: ValueId,
    ) -> ValueId {
        let operands = operands.iter().map(|id| self.matrices[id.0]);
        self.body.steps.push(Step::Node(block::Node {
            op: Rc::new(op),
            operands: operands.collect(),
            result,
            name: None,
        }));
        result
    }

    /// The value of a node of `[batch, heads, len, width]`.
    fn heads_value(&mut self, node: &Node) -> ValueId {
        let width = head_count(node).times(&last_size(node));
        self.value(node, width)
    }

    /// A value with a row for each of those of a node.
    fn value(&mut self, node: &Node, width: Size) -> ValueId {
        let is_key = node.shape.iter().any(|dim| matches!(dim, Dim::Key));
        let rows = if is_key { Dim::Key } else { Dim::Query };
        self.values.push(Value {
            name: node.name.to_owned(),
            ty: matrix(&rows, width),
            view: None,
        });
        ValueId(self.values.len() - 1)
    }
}

fn last_size(node: &Node) -> Size {
    size(node.shape.last())
}

/// The heads of a node of `[batch, heads, len, width]`.
fn head_count(node: &Node) -> Size {
    size(node.shape.get(1))
}

fn size(dim: Option<&Dim>) -> Size {
    match dim {
        Some(Dim::Size(size)) => size.clone(),
        _ => Size::known(1),
    }
}
