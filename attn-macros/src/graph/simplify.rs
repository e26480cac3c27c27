//! From the graph to [`Steps`]: values that need not be stored disappear.
//!
//! - Splitting heads and merging them moves nothing: the kernels read columns of a matrix.
//! - Projections of one input become one product.
//! - A bias, a norm or a rotation that only attention reads is applied there, as vectors are loaded.
//! - All operations from queries, keys and values to the attended values are one step.

use super::steps::{
    Array, ArrayId, Attention, HeadTransform, Norm, Part, Role, Similarity, Step, Steps, Vectors,
    View,
};
use super::{Dim, Graph, Node, NodeId, Normalizer, Op, Param};
use crate::score::{Expr, split};
use crate::spec::{Real, Size};

/// The steps of `graph`. `None` if a score modification reads positions in a way that the kernels do not support.
pub(crate) fn simplify(graph: &Graph) -> Option<Steps> {
    let mut cx = Simplify {
        graph,
        values: Vec::new(),
        steps: Steps {
            arrays: Vec::new(),
            steps: Vec::new(),
            output: ArrayId(0),
        },
    };
    for index in 0..graph.nodes.len() {
        let value = cx.value(NodeId(index))?;
        cx.values.push(value);
    }
    let output = cx.plain(graph.output)?.array;
    cx.steps.arrays[output.0].role = Role::Output;
    cx.steps.output = output;
    leave_biases(graph, &mut cx.steps);
    Some(cx.steps)
}

/// Moves the bias of a projection that only attention reads into the attention. Attention copies queries and keys in any case,
/// and values then. With the bias in the product, the whole result would be written with the bias first, and then be read again.
fn leave_biases(graph: &Graph, steps: &mut Steps) {
    let left: Vec<ArrayId> = steps
        .steps
        .iter()
        .filter_map(|step| match step {
            Step::Linear { fields, to, .. } => {
                let mut params = fields.iter().filter_map(|field| graph.param(field));
                (params.any(Param::has_bias) && only_attention_reads(steps, *to)).then_some(*to)
            }
            _ => None,
        })
        .collect();
    for step in &mut steps.steps {
        match step {
            Step::Linear {
                leaves_bias, to, ..
            } => *leaves_bias = left.contains(to),
            Step::Attention(attention) => {
                for Vectors { view, prepare } in attention.operands_mut() {
                    prepare.bias = left.contains(&view.array).then_some(*view);
                }
            }
            Step::HeadTransform { .. } | Step::PerHeadLinear { .. } => {}
        }
    }
}

fn only_attention_reads(steps: &Steps, id: ArrayId) -> bool {
    let mut readers = steps.steps.iter().filter(|step| step.reads(id));
    id != steps.output && readers.all(|step| matches!(step, Step::Attention(_)))
}

/// The result of a node of the graph.
#[derive(Clone)]
enum Value {
    /// A matrix, and the transforms that its vectors still need.
    Matrix { view: View, prepare: HeadTransform },
    /// The scores of a later attention step.
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
    /// The results of the nodes so far.
    values: Vec<Value>,
    steps: Steps,
}

impl<'a> Simplify<'a> {
    fn value(&mut self, id: NodeId) -> Option<Value> {
        let graph: &'a Graph = self.graph;
        let node = graph.node(id);
        Some(match &node.op {
            Op::Input | Op::Context => self.input(node),
            Op::Linear { x, .. } => self.linear(*x, id)?,
            Op::SplitHeads { x, .. } | Op::MergeHeads { x } => self.values[x.0].clone(),
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
                scores.normalizer = *normalizer;
            })?,
            Op::Dropout { weights, p } => {
                self.change(*weights, |scores| scores.dropout = Some(p.clone()))?
            }
            Op::Attend { weights, v } => self.attend(node, *weights, *v)?,
        })
    }

    fn input(&mut self, node: &Node) -> Value {
        let parts = vec![Part {
            name: node.name,
            width: last_size(node),
        }];
        let array = self.array(node, parts, Role::Input);
        matrix(array, 0)
    }

    /// The first projection of an input becomes the step; the others are parts of it.
    fn linear(&mut self, x: NodeId, id: NodeId) -> Option<Value> {
        let graph: &'a Graph = self.graph;
        let same = |node: &&'a Node| matches!(node.op, Op::Linear { x: other, .. } if other == x);
        let group: Vec<&'a Node> = graph.nodes.iter().filter(same).collect();
        let part = group
            .iter()
            .position(|node| std::ptr::eq(*node, graph.node(id)))?;
        if part > 0 {
            let first = graph
                .nodes
                .iter()
                .position(|node| std::ptr::eq(node, group[0]))?;
            let Value::Matrix { view, .. } = &self.values[first] else {
                return None;
            };
            return Some(matrix(view.array, part));
        }
        let parts = group.iter().map(|node| Part {
            name: node.name,
            width: last_size(node),
        });
        let parts = parts.collect();
        let to = self.array(group[0], parts, Role::Interim);
        let fields = group.iter().filter_map(|node| match node.op {
            Op::Linear { field, .. } => Some(field),
            _ => None,
        });
        let fields = fields.collect();
        let x = self.plain(x)?.array;
        self.steps.steps.push(Step::Linear {
            x,
            fields,
            leaves_bias: false,
            to,
        });
        Some(matrix(to, 0))
    }

    fn norm(&mut self, x: NodeId, norm: Norm) -> Option<Value> {
        // A norm precedes a rotation. After a rotation it is a separate step.
        let view = match self.matrix(x)? {
            (view, prepare) if prepare.is_nothing() => view,
            _ => self.materialize(x)?,
        };
        let prepare = HeadTransform {
            norm: Some(norm),
            ..HeadTransform::default()
        };
        Some(Value::Matrix { view, prepare })
    }

    fn rotate(&mut self, x: NodeId, theta: &Real) -> Option<Value> {
        let (view, mut prepare) = match self.matrix(x)? {
            (view, prepare) if prepare.rope.is_none() => (view, prepare),
            _ => (self.materialize(x)?, HeadTransform::default()),
        };
        prepare.rope = Some(theta.clone());
        Some(Value::Matrix { view, prepare })
    }

    fn per_head_linear(&mut self, node: &Node, q: NodeId, field: &'static str) -> Option<Value> {
        let x = self.plain(q)?;
        let heads = head_count(self.graph.node(q));
        let to = self.heads_array(node);
        self.steps.steps.push(Step::PerHeadLinear {
            x,
            heads,
            field,
            to,
        });
        Some(matrix(to, 0))
    }

    fn change(&self, scores: NodeId, change: impl FnOnce(&mut Scores)) -> Option<Value> {
        match &self.values[scores.0] {
            Value::Scores(scores) => {
                let mut scores = scores.clone();
                change(&mut scores);
                Some(Value::Scores(scores))
            }
            Value::Matrix { .. } => None,
        }
    }

    fn attend(&mut self, node: &Node, weights: NodeId, v: NodeId) -> Option<Value> {
        let Value::Scores(scores) = self.values[weights.0].clone() else {
            return None;
        };
        let values = Vectors {
            view: self.plain(v)?,
            prepare: HeadTransform::default(),
        };
        let vectors = match scores.vectors {
            Some([q, k]) => Some([self.vectors(q)?, self.vectors(k)?]),
            None => None,
        };
        let to = self.heads_array(node);
        let parts = split::split(&scores.expr, scores.additive.is_none())?;
        let similarity = match scores.additive {
            None => Similarity::Dot { scale: parts.scale },
            Some(field) => Similarity::Additive { field },
        };
        self.steps.steps.push(Step::Attention(Box::new(Attention {
            vectors,
            values,
            similarity,
            score: parts.value,
            bias_terms: parts.bias_terms,
            mask: scores.mask,
            normalizer: scores.normalizer,
            dropout: scores.dropout,
            to,
        })));
        Some(matrix(to, 0))
    }

    /// A matrix without pending transforms.
    fn plain(&mut self, id: NodeId) -> Option<View> {
        match self.matrix(id)? {
            (view, prepare) if prepare.is_nothing() => Some(view),
            _ => self.materialize(id),
        }
    }

    /// Vectors that attention transforms as they are loaded.
    fn vectors(&self, id: NodeId) -> Option<Vectors> {
        let (view, prepare) = self.matrix(id)?;
        Some(Vectors { view, prepare })
    }

    fn matrix(&self, id: NodeId) -> Option<(View, HeadTransform)> {
        match &self.values[id.0] {
            Value::Matrix { view, prepare } => Some((*view, prepare.clone())),
            Value::Scores(_) => None,
        }
    }

    /// Transforms the vectors of a node in a separate step.
    fn materialize(&mut self, id: NodeId) -> Option<View> {
        let (x, how) = self.matrix(id)?;
        let node = self.graph.node(id);
        let to = self.heads_array(node);
        let heads = head_count(node);
        self.steps
            .steps
            .push(Step::HeadTransform { x, heads, how, to });
        Some(View { array: to, part: 0 })
    }

    /// An array for a node of `[batch, heads, len, width]`.
    fn heads_array(&mut self, node: &Node) -> ArrayId {
        let width = head_count(node).times(&last_size(node));
        let name = node.name;
        self.array(node, vec![Part { name, width }], Role::Interim)
    }

    fn array(&mut self, node: &Node, parts: Vec<Part>, role: Role) -> ArrayId {
        let names: Vec<_> = parts.iter().map(|part| part.name).collect();
        let mut name = names.join("_");
        while self.steps.arrays.iter().any(|array| array.name == name) {
            name.push_str("_prepared");
        }
        let is_key = |dim: &&Dim| matches!(dim, Dim::Key);
        let rows = node
            .shape
            .iter()
            .find(is_key)
            .map_or(Dim::Query, |_| Dim::Key);
        self.steps.arrays.push(Array {
            name,
            rows,
            parts,
            role,
        });
        ArrayId(self.steps.arrays.len() - 1)
    }
}

fn scores(vectors: Option<[NodeId; 2]>, additive: Option<&'static str>) -> Value {
    Value::Scores(Box::new(Scores {
        vectors,
        additive,
        expr: Expr::Score,
        mask: None,
        normalizer: Normalizer::Softmax,
        dropout: None,
    }))
}

fn matrix(array: ArrayId, part: usize) -> Value {
    Value::Matrix {
        view: View { array, part },
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
