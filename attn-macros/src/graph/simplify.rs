//! From the graph to [`Steps`]: what need not stand in memory disappears.
//!
//! - Splitting heads and putting them side by side again moves nothing: the kernels take columns of a matrix.
//! - Everything between queries, keys and values and the attended values is one step.
//!
//! The rest are [passes](super::passes) over the steps.

use std::rc::Rc;

use super::passes::{leave_biases, load_transforms, name_values, pack_projections};
use super::steps::{Steps, matrix};
use super::{Dim, Graph, Node, NodeId, Op};
use crate::model::graph::{self as block, Region, Step, Value, ValueId};
use crate::ops::fused::{
    Attend, FusedOp, HeadTransform, Norm, PackedLinear, PerHeadLinear, Similarity, TransformHeads,
};
use crate::score::{Expr, split};
use crate::spec::{Normalizer, Real, Size};

/// The steps of `graph`. `None` if a score modification reads places in a way that the kernels do not know.
pub(crate) fn simplify(graph: &Graph) -> Option<Steps> {
    let mut steps = lower(graph)?;
    pack_projections(&mut steps);
    load_transforms(&mut steps);
    leave_biases(graph, &mut steps);
    name_values(&mut steps);
    Some(steps)
}

/// A step for each operation of vectors, and one for all of those of scores.
pub(crate) fn lower(graph: &Graph) -> Option<Steps> {
    let mut cx = Lower {
        graph,
        forms: Vec::new(),
        values: Vec::new(),
        inputs: Vec::new(),
        body: Region::default(),
    };
    for index in 0..graph.nodes.len() {
        let form = cx.form(NodeId(index))?;
        cx.forms.push(form);
    }
    let output = cx.matrix(graph.output)?;
    Some(Steps {
        results: [output],
        values: cx.values,
        inputs: cx.inputs,
        body: cx.body,
    })
}

/// What a node of the graph has become.
#[derive(Clone)]
enum Form {
    Matrix(ValueId),
    /// A step to come.
    Scores(Box<Scores>),
}

#[derive(Clone)]
struct Scores {
    /// The queries and the keys, if there are any.
    vectors: Option<[NodeId; 2]>,
    additive: Option<&'static str>,
    expr: Expr,
    mask: Option<Expr>,
    normalizer: Normalizer,
    dropout: Option<Real>,
}

struct Lower<'a> {
    graph: &'a Graph,
    /// Of the nodes so far.
    forms: Vec<Form>,
    values: Vec<Value>,
    inputs: Vec<ValueId>,
    body: Region<dyn FusedOp>,
}

impl<'a> Lower<'a> {
    fn form(&mut self, id: NodeId) -> Option<Form> {
        let graph: &'a Graph = self.graph;
        let node = graph.node(id);
        let heads = head_count(node);
        Some(match &node.op {
            Op::Input | Op::Context => self.input(node),
            Op::Linear { x, field } => {
                let linear = PackedLinear {
                    fields: vec![field],
                    leaves_bias: false,
                };
                self.step(linear, *x, node, last_size(node))?
            }
            Op::SplitHeads { x, .. } | Op::MergeHeads { x } => self.forms[x.0].clone(),
            Op::RmsNorm { x, field } => {
                self.transform(HeadTransform::norm(Norm::Rms(field)), *x, node)?
            }
            Op::L2Norm { x } => self.transform(HeadTransform::norm(Norm::L2), *x, node)?,
            Op::Rope { x, theta } => {
                self.transform(HeadTransform::rope(theta.clone()), *x, node)?
            }
            Op::PerHeadLinear { q, field } => {
                let width = heads.times(&last_size(node));
                self.step(PerHeadLinear { heads, field }, *q, node, width)?
            }
            Op::DotScores { q, k } => scores(Some([*q, *k]), None),
            Op::AdditiveScores { q, k, field } => scores(Some([*q, *k]), Some(field)),
            Op::NoScores { .. } => scores(None, None),
            Op::MapScores { scores, expr } => {
                self.change(*scores, |s| s.expr = expr.of(&s.expr))?
            }
            Op::Normalize {
                scores,
                mask,
                normalizer,
            } => self.change(*scores, |scores| {
                scores.mask.clone_from(mask);
                scores.normalizer.clone_from(normalizer);
            })?,
            Op::Dropout { weights, p } => {
                self.change(*weights, |scores| scores.dropout = Some(p.clone()))?
            }
            Op::Attend { weights, v } => self.attend(node, *weights, *v)?,
        })
    }

    fn input(&mut self, node: &Node) -> Form {
        let input = self.value(node, last_size(node));
        self.inputs.push(input);
        Form::Matrix(input)
    }

    fn transform(&mut self, how: HeadTransform, x: NodeId, node: &Node) -> Option<Form> {
        let heads = head_count(node);
        let width = heads.times(&last_size(node));
        self.step(TransformHeads { heads, how }, x, node, width)
    }

    /// A step of one operand, whose result has this width.
    fn step(
        &mut self,
        op: impl FusedOp + 'static,
        x: NodeId,
        node: &Node,
        width: Size,
    ) -> Option<Form> {
        let x = self.matrix(x)?;
        let to = self.value(node, width);
        Some(self.push(op, vec![x], to))
    }

    fn change(&self, scores: NodeId, change: impl FnOnce(&mut Scores)) -> Option<Form> {
        match &self.forms[scores.0] {
            Form::Scores(scores) => {
                let mut scores = scores.clone();
                change(&mut scores);
                Some(Form::Scores(scores))
            }
            Form::Matrix(_) => None,
        }
    }

    fn attend(&mut self, node: &Node, weights: NodeId, v: NodeId) -> Option<Form> {
        let Form::Scores(scores) = self.forms[weights.0].clone() else {
            return None;
        };
        let vectors = match scores.vectors {
            Some([q, k]) => Some([self.matrix(q)?, self.matrix(k)?]),
            None => None,
        };
        let v = self.matrix(v)?;
        let to = self.value(node, head_count(node).times(&last_size(node)));
        let weight = scores.normalizer.weight();
        let score = weight.map_or_else(|| scores.expr.clone(), |weight| weight.of(&scores.expr));
        let parts = split::split(&score, scores.additive.is_none())?;
        let similarity = match scores.additive {
            None => Similarity::Dot { scale: parts.scale },
            Some(field) => Similarity::Additive { field },
        };
        let attend = Attend {
            vectors: vectors.map(|_| Default::default()),
            values: HeadTransform::default(),
            similarity,
            score: parts.value,
            bias_terms: parts.bias_terms,
            mask: scores.mask,
            normalizer: scores.normalizer,
            dropout: scores.dropout,
        };
        let operands = vectors.into_iter().flatten().chain([v]);
        Some(self.push(attend, operands.collect(), to))
    }

    fn matrix(&self, id: NodeId) -> Option<ValueId> {
        match self.forms[id.0] {
            Form::Matrix(value) => Some(value),
            Form::Scores(_) => None,
        }
    }

    fn push(
        &mut self,
        op: impl FusedOp + 'static,
        operands: Vec<ValueId>,
        result: ValueId,
    ) -> Form {
        self.body.steps.push(Step::Node(block::Node {
            op: Rc::new(op),
            operands,
            result,
            name: None,
        }));
        Form::Matrix(result)
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

fn scores(vectors: Option<[NodeId; 2]>, additive: Option<&'static str>) -> Form {
    Form::Scores(Box::new(Scores {
        vectors,
        additive,
        expr: Expr::SCORE,
        mask: None,
        normalizer: Normalizer::Softmax,
        dropout: None,
    }))
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
