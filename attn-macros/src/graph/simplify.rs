//! From the graph to [`Steps`]: what need not stand in memory disappears.
//!
//! - Splitting heads and putting them side by side again moves nothing: the kernels take columns of a matrix.
//! - Projections of one input become one product.
//! - A bias, a norm or a rotation that only attention reads happens there, as vectors are loaded.
//! - Everything between queries, keys and values and the attended values is one step.

use super::steps::{Steps, matrix};
use super::{Dim, Graph, Node, NodeId, Op, Param};
use crate::model::graph::{self as block, Region, Step, Value, ValueId, View};
use crate::ops::fused::{
    Attend, FusedOp, HeadTransform, Norm, PackedLinear, PerHeadLinear, Similarity, TransformHeads,
};
use crate::score::{Expr, split};
use crate::spec::{Normalizer, Real, Size};

/// The steps of `graph`. `None` if a score modification reads places in a way that the kernels do not know.
pub(crate) fn simplify(graph: &Graph) -> Option<Steps> {
    let mut cx = Simplify {
        graph,
        forms: Vec::new(),
        packed: Vec::new(),
        values: Vec::new(),
        inputs: Vec::new(),
        body: Region::default(),
    };
    for index in 0..graph.nodes.len() {
        let form = cx.form(NodeId(index))?;
        cx.forms.push(form);
    }
    let output = cx.plain(graph.output)?;
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
    /// A matrix, and what is still to be done to its vectors.
    Matrix {
        value: ValueId,
        prepare: HeadTransform,
    },
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

struct Simplify<'a> {
    graph: &'a Graph,
    /// Of the nodes so far.
    forms: Vec<Form>,
    /// The projections that are computed by now, each a part of a product.
    packed: Vec<(NodeId, Form)>,
    values: Vec<Value>,
    inputs: Vec<ValueId>,
    body: Region<dyn FusedOp>,
}

impl<'a> Simplify<'a> {
    fn form(&mut self, id: NodeId) -> Option<Form> {
        let graph: &'a Graph = self.graph;
        let node = graph.node(id);
        Some(match &node.op {
            Op::Input | Op::Context => self.input(node),
            Op::Linear { x, .. } => self.linear(*x, id)?,
            Op::SplitHeads { x, .. } | Op::MergeHeads { x } => self.forms[x.0].clone(),
            Op::RmsNorm { x, field } => self.norm(*x, Norm::Rms(field))?,
            Op::L2Norm { x } => self.norm(*x, Norm::L2)?,
            Op::Rope { x, theta } => self.rotate(*x, theta)?,
            Op::PerHeadLinear { q, field } => self.per_head_linear(node, *q, field)?,
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
        let input = self.value(node, &[(node.name, last_size(node))]);
        self.inputs.push(input);
        plain_matrix(input)
    }

    /// The first projection of an input is the step; the others are parts of it.
    fn linear(&mut self, x: NodeId, id: NodeId) -> Option<Form> {
        if let Some(form) = self.packed(id) {
            return Some(form);
        }
        let graph: &'a Graph = self.graph;
        let nodes = (0..graph.nodes.len()).map(NodeId);
        let projections = nodes.filter_map(|id| match graph.node(id).op {
            Op::Linear { x: other, field } if other == x => Some((id, field)),
            _ => None,
        });
        let (nodes, fields): (Vec<NodeId>, Vec<&'static str>) = projections.unzip();
        let x = self.plain(x)?;
        if self.values[x.0].view.is_some() {
            // The gradient of what a product reads is a matrix by itself.
            return None;
        }
        let parts = nodes.iter().map(|id| graph.node(*id));
        let parts: Vec<_> = parts.map(|node| (node.name, last_size(node))).collect();
        let to = self.value(graph.node(id), &parts);
        let mut params = fields.iter().filter_map(|field| graph.param(field));
        let leaves_bias =
            params.any(Param::has_bias) && nodes.iter().all(|id| only_attention_reads(graph, *id));
        for (part, node) in nodes.into_iter().enumerate() {
            let value = match parts.len() {
                1 => to,
                _ => self.part(to, part, &parts[part]),
            };
            let prepare = HeadTransform {
                bias: leaves_bias.then_some(value),
                ..HeadTransform::default()
            };
            self.packed.push((node, Form::Matrix { value, prepare }));
        }
        let linear = PackedLinear {
            fields,
            leaves_bias,
        };
        self.push(linear, vec![x], to);
        self.packed(id)
    }

    /// The part of a product that a projection is.
    fn packed(&self, id: NodeId) -> Option<Form> {
        let mut packed = self.packed.iter();
        let found = packed.find(|(node, _)| *node == id);
        found.map(|(_, form)| form.clone())
    }

    fn norm(&mut self, x: NodeId, norm: Norm) -> Option<Form> {
        // A norm comes before a rotation: of a rotated vector, it is a step of its own.
        let (value, bias) = match self.matrix(x)? {
            (value, prepare) if prepare.norm.is_none() && prepare.rope.is_none() => {
                (value, prepare.bias)
            }
            _ => (self.materialize(x)?, None),
        };
        let prepare = HeadTransform {
            bias,
            norm: Some(norm),
            rope: None,
        };
        Some(Form::Matrix { value, prepare })
    }

    fn rotate(&mut self, x: NodeId, theta: &Real) -> Option<Form> {
        let (value, mut prepare) = match self.matrix(x)? {
            (value, prepare) if prepare.rope.is_none() => (value, prepare),
            _ => (self.materialize(x)?, HeadTransform::default()),
        };
        prepare.rope = Some(theta.clone());
        Some(Form::Matrix { value, prepare })
    }

    fn per_head_linear(&mut self, node: &Node, q: NodeId, field: &'static str) -> Option<Form> {
        let x = self.plain(q)?;
        let heads = head_count(self.graph.node(q));
        let to = self.heads_value(node);
        self.push(PerHeadLinear { heads, field }, vec![x], to);
        Some(plain_matrix(to))
    }

    fn change(&self, scores: NodeId, change: impl FnOnce(&mut Scores)) -> Option<Form> {
        match &self.forms[scores.0] {
            Form::Scores(scores) => {
                let mut scores = scores.clone();
                change(&mut scores);
                Some(Form::Scores(scores))
            }
            Form::Matrix { .. } => None,
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
        let (v, values) = self.matrix(v)?;
        let to = self.heads_value(node);
        let weight = scores.normalizer.weight();
        let score = weight.map_or_else(|| scores.expr.clone(), |weight| weight.of(&scores.expr));
        let parts = split::split(&score, scores.additive.is_none())?;
        let similarity = match scores.additive {
            None => Similarity::Dot { scale: parts.scale },
            Some(field) => Similarity::Additive { field },
        };
        let mut operands: Vec<_> = vectors.iter().flatten().map(|(value, _)| *value).collect();
        operands.push(v);
        let attend = Attend {
            vectors: vectors.map(|both| both.map(|(_, prepare)| prepare)),
            values,
            similarity,
            score: parts.value,
            bias_terms: parts.bias_terms,
            mask: scores.mask,
            normalizer: scores.normalizer,
            dropout: scores.dropout,
        };
        self.push(attend, operands, to);
        Some(plain_matrix(to))
    }

    /// A matrix whose vectors are ready.
    fn plain(&mut self, id: NodeId) -> Option<ValueId> {
        match self.matrix(id)? {
            (value, prepare) if prepare.is_nothing() => Some(value),
            _ => self.materialize(id),
        }
    }

    fn matrix(&self, id: NodeId) -> Option<(ValueId, HeadTransform)> {
        match &self.forms[id.0] {
            Form::Matrix { value, prepare } => Some((*value, prepare.clone())),
            Form::Scores(_) => None,
        }
    }

    /// Transforms the vectors of a node in a step of its own.
    fn materialize(&mut self, id: NodeId) -> Option<ValueId> {
        let (x, how) = self.matrix(id)?;
        let node = self.graph.node(id);
        let to = self.heads_value(node);
        let heads = head_count(node);
        self.push(TransformHeads { heads, how }, vec![x], to);
        Some(to)
    }

    fn push(&mut self, op: impl FusedOp + 'static, operands: Vec<ValueId>, result: ValueId) {
        self.body.steps.push(Step::Node(block::Node {
            op: Box::new(op),
            operands,
            result,
            name: None,
        }));
    }

    /// The value of a node of `[batch, heads, len, width]`.
    fn heads_value(&mut self, node: &Node) -> ValueId {
        let width = head_count(node).times(&last_size(node));
        self.value(node, &[(node.name, width)])
    }

    /// A value with a row for each of those of a node, and these matrices side by side.
    fn value(&mut self, node: &Node, parts: &[(&str, Size)]) -> ValueId {
        let names: Vec<_> = parts.iter().map(|(name, _)| *name).collect();
        let mut name = names.join("_");
        let is_taken = |name: &str| {
            let mut values = self.values.iter().filter(|value| value.view.is_none());
            values.any(|value| value.name == name)
        };
        while is_taken(&name) {
            name.push_str("_prepared");
        }
        let widths = parts.iter().map(|(_, width)| width.clone());
        let width = widths.reduce(|a, b| a.plus(&b));
        let is_key = node.shape.iter().any(|dim| matches!(dim, Dim::Key));
        let rows = if is_key { Dim::Key } else { Dim::Query };
        self.values.push(Value {
            name,
            ty: matrix(&rows, width.unwrap_or_else(|| Size::known(1))),
            view: None,
        });
        ValueId(self.values.len() - 1)
    }

    fn part(&mut self, of: ValueId, part: usize, (name, width): &(&str, Size)) -> ValueId {
        let ty = self.values[of.0].ty.ending_in(width.clone());
        self.values.push(Value {
            name: (*name).to_owned(),
            ty,
            view: Some(View { of, part }),
        });
        ValueId(self.values.len() - 1)
    }
}

/// Whether the vectors of a projection are loaded by attention, and by nothing else. Queries and keys are copied there anyway, and
/// values then: the bias is added on the way. A product would have it written to its whole result first, and read again.
fn only_attention_reads(graph: &Graph, id: NodeId) -> bool {
    let readers = (0..graph.nodes.len()).map(NodeId);
    let readers = readers.filter(|reader| graph.node(*reader).op.operands().contains(&id));
    let readers: Vec<_> = readers.collect();
    let loads = |reader: &NodeId| match graph.node(*reader).op {
        Op::DotScores { .. } | Op::AdditiveScores { .. } | Op::Attend { .. } => true,
        Op::SplitHeads { .. } | Op::RmsNorm { .. } | Op::L2Norm { .. } | Op::Rope { .. } => {
            only_attention_reads(graph, *reader)
        }
        _ => false,
    };
    !readers.is_empty() && readers.iter().all(loads)
}

fn scores(vectors: Option<[NodeId; 2]>, additive: Option<&'static str>) -> Form {
    Form::Scores(Box::new(Scores {
        vectors,
        additive,
        expr: Expr::Score,
        mask: None,
        normalizer: Normalizer::Softmax,
        dropout: None,
    }))
}

fn plain_matrix(value: ValueId) -> Form {
    Form::Matrix {
        value,
        prepare: HeadTransform::default(),
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
