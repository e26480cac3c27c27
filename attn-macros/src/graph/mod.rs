//! The layer as a graph of operations with inferred shapes. It is independent of tokens: the emitters make them.

mod build;
pub(crate) mod passes;
mod shape;
mod simplify;
pub(crate) mod steps;

use crate::score::{Data, Expr, Name, Type};
pub(crate) use crate::spec::Dim;
use crate::spec::{Init, Normalizer, Real, Size, Spec, text};

pub(crate) use build::build;
#[cfg(test)]
pub(crate) use simplify::lower;
pub(crate) use simplify::simplify;
use steps::Steps;

/// A declared layer, as far as it goes before it is emitted.
pub(crate) struct AttentionLayer {
    pub(crate) spec: Spec,
    pub(crate) graph: Graph,
    /// `None`: the kernels do not know what it asks for.
    pub(crate) steps: Option<Steps>,
}

/// The operations of a layer, and its parameters.
pub(crate) struct Graph {
    pub(crate) params: Vec<Param>,
    /// The nodes in the order of computation.
    pub(crate) nodes: Vec<Node>,
    /// The shape of scores and weights: `[batch, heads, query, key]`.
    pub(crate) weights: [Dim; 4],
    pub(crate) output: NodeId,
    /// The data that the mask reads and that the body declares, in the order of the call.
    pub(crate) data: Vec<CallData>,
    /// Keys and values come from a second input.
    pub(crate) cross: bool,
}

/// The data of a call, besides tensors of tokens.
#[derive(Clone, Debug)]
pub(crate) enum CallData {
    Padding,
    Document,
    Declared(Declared),
}

impl CallData {
    /// The number of its tensors: the ids of two sequences are a pair.
    pub(crate) fn tensors(&self, cross: bool) -> usize {
        match self {
            CallData::Document if cross => 2,
            _ => 1,
        }
    }

    /// Whether `expr` reads it.
    pub(crate) fn is_read(&self, expr: &Expr) -> bool {
        let reads = |wanted: &[Data]| {
            expr.any(&|part| matches!(part, Expr::Data { data, .. } if wanted.contains(data)))
        };
        match self {
            CallData::Padding => reads(&[Data::Padding]),
            CallData::Document => reads(&[Data::QueryDocument, Data::KeyDocument]),
            CallData::Declared(declared) => expr.reads_data(&declared.name),
        }
    }
}

/// `data name: [dims]`, `data name: ids[dims]` or `data name: bool[dims]` of the body.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub(crate) name: Name,
    /// The type of an element in expressions.
    pub(crate) ty: Type,
    pub(crate) dims: Vec<Dim>,
    pub(crate) doc: String,
}

/// A field of the layer.
pub(crate) struct Param {
    pub(crate) field: Name,
    pub(crate) kind: ParamKind,
    pub(crate) doc: String,
}

pub(crate) enum ParamKind {
    /// `y = x Wᵀ + b`: a weight of `[output, input]`, a bias of `[output]`.
    Linear {
        input: Size,
        output: Size,
        bias: bool,
        init: InitKind,
    },
    /// A single tensor.
    Weight {
        dims: Vec<Size>,
        init: Option<InitKind>,
    },
}

/// The distribution of a tensor before training.
#[derive(Clone, Debug)]
pub(crate) enum InitKind {
    Ones,
    Constant(Real),
    /// Uniform in `[-number, number]`.
    Within(Real),
    /// The slopes of ALiBi, one per head.
    AlibiSlopes,
    /// Uniform within `sqrt(gain / Σ fans)`.
    Uniform {
        gain: u32,
        fans: Vec<Size>,
    },
    Normal {
        std: Real,
    },
    /// Normal with the standard deviation `1 / sqrt(fan)`.
    NormalByFan {
        fan: Size,
    },
}

impl Param {
    /// Whether it is a projection with a bias.
    pub(crate) fn has_bias(&self) -> bool {
        matches!(self.kind, ParamKind::Linear { bias: true, .. })
    }

    /// The tensors of the field: name, dimensions, initial distribution. `None` starts at zero.
    pub(crate) fn tensors(&self) -> Vec<(&'static str, Vec<Size>, Option<&InitKind>)> {
        match &self.kind {
            ParamKind::Linear {
                input,
                output,
                bias,
                init,
            } => {
                let weight = ("weight", vec![output.clone(), input.clone()], Some(init));
                let bias = bias.then(|| ("bias", vec![output.clone()], None));
                [weight].into_iter().chain(bias).collect()
            }
            ParamKind::Weight { dims, init } => vec![("weight", dims.clone(), init.as_ref())],
        }
    }
}

/// An index into [`Graph::nodes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeId(pub(crate) usize);

/// One operation and its result.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) op: Op,
    pub(crate) shape: Vec<Dim>,
}

/// The operation of a node. Fields named `field` are parameters, by the name of the layer's field.
pub(crate) enum Op {
    /// The first input: `[batch, query, d_model]`.
    Input,
    /// The second input: `[batch, key, d_context]`. In self-attention it is the first one again.
    Context,
    /// `[batch, s, input] -> [batch, s, output]`
    Linear { x: NodeId, field: &'static str },
    /// `[batch, s, heads * width] -> [batch, heads, s, width]`
    SplitHeads { x: NodeId, heads: Size, width: Size },
    /// `[batch, heads, s, width] -> [batch, s, heads * width]`
    MergeHeads { x: NodeId },
    /// `x / sqrt(mean(x²) + ε) * gain`, over the last axis.
    RmsNorm { x: NodeId, field: &'static str },
    /// `x / sqrt(Σ x² + ε)`, over the last axis.
    L2Norm { x: NodeId },
    /// Rotates each position's pairs of coordinates.
    Rope { x: NodeId, theta: Real },
    /// `q W`, with a matrix per head.
    PerHeadLinear { q: NodeId, field: &'static str },
    /// From queries, keys and values to attended values.
    Attend(Box<Attention>),
}

/// Scores, weights, and the weighted sum of the values.
pub(crate) struct Attention {
    pub(crate) scores: Scores,
    /// What becomes of a score, one function after the other.
    pub(crate) functions: Vec<Expr>,
    /// Which keys a query attends to; `None` is all of them.
    pub(crate) mask: Option<Expr>,
    pub(crate) normalizer: Normalizer,
    /// The probability with which weights fall while training.
    pub(crate) dropout: Option<Real>,
    pub(crate) v: NodeId,
}

/// The scores of every query and key, before any function of them.
#[derive(Clone, Copy)]
pub(crate) enum Scores {
    /// `q · k`
    Dot { q: NodeId, k: NodeId },
    /// `w · tanh(q + k)`, with the weights in this field.
    Additive {
        q: NodeId,
        k: NodeId,
        field: &'static str,
    },
    /// 0 for every query, of which `x` has as many.
    Zero { x: NodeId },
}

impl Scores {
    /// Queries and keys, if there are any.
    pub(crate) fn vectors(self) -> Option<[NodeId; 2]> {
        match self {
            Scores::Dot { q, k } | Scores::Additive { q, k, .. } => Some([q, k]),
            Scores::Zero { .. } => None,
        }
    }
}

impl Attention {
    /// The expressions that are evaluated for a query and a key.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expr> {
        let others = [self.normalizer.weight(), self.mask.as_ref()];
        self.functions.iter().chain(others.into_iter().flatten())
    }

    fn operands(&self) -> Vec<NodeId> {
        match self.scores {
            Scores::Dot { q, k } | Scores::Additive { q, k, .. } => vec![q, k, self.v],
            Scores::Zero { x } => vec![x, self.v],
        }
    }
}

impl Op {
    /// The nodes that it reads, in order.
    pub(crate) fn operands(&self) -> Vec<NodeId> {
        match self {
            Op::Input | Op::Context => Vec::new(),
            Op::Linear { x, .. }
            | Op::SplitHeads { x, .. }
            | Op::MergeHeads { x }
            | Op::RmsNorm { x, .. }
            | Op::L2Norm { x }
            | Op::Rope { x, .. } => vec![*x],
            Op::PerHeadLinear { q, .. } => vec![*q],
            Op::Attend(attention) => attention.operands(),
        }
    }
}

impl Graph {
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    pub(crate) fn param(&self, field: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.field == field)
    }

    /// The data that the body declares.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &Declared> {
        self.data.iter().filter_map(|data| match data {
            CallData::Declared(declared) => Some(declared),
            _ => None,
        })
    }

    pub(crate) fn attention(&self) -> Option<&Attention> {
        self.nodes.iter().find_map(|node| match &node.op {
            Op::Attend(attention) => Some(&**attention),
            _ => None,
        })
    }

    /// Which keys a query attends to; `None` is all of them.
    pub(crate) fn mask(&self) -> Option<&Expr> {
        self.attention()?.mask.as_ref()
    }

    /// How often each node is read.
    pub(crate) fn uses(&self) -> Vec<usize> {
        let mut uses = vec![0; self.nodes.len()];
        for node in &self.nodes {
            for id in node.op.operands() {
                uses[id.0] += 1;
            }
        }
        uses
    }
}

/// The data of a call: those of the header's mask, then those of the body.
fn data_of(spec: &Spec, mask: Option<&Expr>) -> Vec<CallData> {
    let is_read = |data: &CallData| mask.is_some_and(|mask| data.is_read(mask));
    let of_words = [CallData::Padding, CallData::Document].into_iter();
    let declared = spec.body.data.iter().map(|data| {
        CallData::Declared(Declared {
            name: data.text().into(),
            ty: data.ty,
            dims: data.dims.clone(),
            doc: text::documentation(&data.attrs),
        })
    });
    of_words.filter(is_read).chain(declared).collect()
}

/// The initial distribution by `init`, for a matrix with these fans. `torch` is PyTorch's default.
fn init_kind(init: &Init, fan_in: &Size, fan_out: &Size, torch: InitKind) -> InitKind {
    match init {
        Init::Torch => torch,
        Init::XavierUniform => InitKind::Uniform {
            gain: 6,
            fans: vec![fan_in.clone(), fan_out.clone()],
        },
        Init::KaimingUniform => InitKind::Uniform {
            gain: 6,
            fans: vec![fan_in.clone()],
        },
        Init::Normal { std } => InitKind::Normal { std: std.clone() },
    }
}
