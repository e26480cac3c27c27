//! The layer as a block of operations with inferred shapes. It is independent of tokens: the emitters make them.

pub(crate) mod block;
mod build;
pub(crate) mod passes;

use quote::quote;

use crate::score::{Data, Expr, Name, Type};
pub(crate) use crate::spec::Dim;
use crate::spec::body::Rows;
use crate::spec::{Distribution, Position, Real, Size, Spec, text};

use crate::model::graph::ParamPath;
use crate::model::passes::Passes;
use crate::ops::attention_layer::{Attend, LayerOp};
use block::LayerBlock;
pub(crate) use build::build;

/// A declared layer, as far as it goes before it is emitted.
pub(crate) struct AttentionLayer {
    pub(crate) spec: Spec,
    pub(crate) graph: Graph,
    /// The block after the [passes], for the fused form. `None`: the kernels do not know what it asks for.
    pub(crate) fused: Option<LayerBlock>,
    /// Of an `attend` in the fused form: what queries, keys and values are.
    pub(crate) operands: Vec<Operand>,
    /// The first column of the values among those of the keys, if they are a part of them: a session remembers the keys alone.
    pub(crate) values_in_keys: Option<Size>,
}

/// Queries, keys or values of an `attend`, in the fused form.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Operand {
    /// The input of this number.
    Input(usize),
    Projected(Projected),
}

/// A projection by a layer of the model around it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Projected {
    /// The number of the input that it is a projection of.
    pub(crate) input: usize,
    /// Its name among the parameters that are read.
    pub(crate) field: &'static str,
    pub(crate) place: ParamPath,
    pub(crate) bias: bool,
    /// The width of the input.
    pub(crate) width: Size,
}

/// The operations of a layer for the fused form. `operands` are those of an `attend`; none are its inputs.
pub(crate) fn fuse_operands(graph: &Graph, operands: &[Operand]) -> Option<LayerBlock> {
    let mut layer = graph.block.clone();
    passes::project_inputs(&mut layer, operands);
    passes::split_scores(&mut layer)?;
    passes::flatten_heads(&mut layer);
    passes::pack_projections(&mut layer);
    passes::load_transforms(&mut layer);
    let has_bias = |field: &str| {
        let mut taken = operands.iter();
        graph.has_bias(field)
            || taken.any(
                |operand| matches!(operand, Operand::Projected(of) if of.field == field && of.bias),
            )
    };
    passes::leave_biases(has_bias, &mut layer);
    passes::name_values(&mut layer);
    Some(layer)
}

impl AttentionLayer {
    /// The projections by layers of the model, in the order in which they are read.
    pub(crate) fn projected(&self) -> impl Iterator<Item = &Projected> {
        self.operands.iter().filter_map(|operand| match operand {
            Operand::Projected(projected) => Some(projected),
            Operand::Input(_) => None,
        })
    }

    pub(crate) fn passes(&self) -> Option<Passes<'_, dyn LayerOp>> {
        let fused = self.fused.as_ref().filter(|_| !self.spec.poisoned);
        fused.map(|layer| Passes::new(layer.block()))
    }
}

/// The operations of a layer, and its parameters.
pub(crate) struct Graph {
    pub(crate) params: Vec<Param>,
    /// An operation for everything that is declared.
    pub(crate) block: LayerBlock,
    /// The shape of scores and weights: `[batch, heads, query, key]`.
    pub(crate) weights: [Dim; 4],
    /// The values of the model around the layer that the body reads as data: the last inputs. They have a gradient.
    pub(crate) given: Vec<Declared>,
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
    /// The positions of the tokens.
    PositionIds,
    Declared(Declared),
}

impl CallData {
    /// The number of its tensors: the ids of two sequences are a pair.
    pub(crate) fn tensors(&self, cross: bool) -> usize {
        match self {
            CallData::Document | CallData::PositionIds if cross => 2,
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
            // A rotation reads them, and no expression.
            CallData::PositionIds => false,
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
    /// Of the products of `dot`: what a user knows of them.
    pub(crate) rows: Option<Rows>,
    pub(crate) doc: String,
}

impl Declared {
    /// The name in errors: that of the table, of products.
    pub(crate) fn label(&self) -> &str {
        self.rows.as_ref().map_or(&self.name, |rows| &rows.table)
    }

    /// Whether a session remembers its numbers of each key.
    pub(crate) fn is_remembered(&self) -> bool {
        matches!(InSession::of(&self.dims), Some(InSession::Keys(_)))
    }

    /// How many numbers there are along the axes of constant size.
    pub(crate) fn numbers(&self) -> Size {
        let sizes = self.dims.iter().filter_map(|dim| match dim {
            Dim::Size(size) => Some(size),
            _ => None,
        });
        sizes.fold(Size::known(1), |numbers, size| numbers.times(size))
    }
}

/// What a session has of a value that the body reads, with the axis of the tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InSession {
    /// Rows of new tokens, for their queries.
    Queries(usize),
    /// Rows of all tokens so far, which are remembered.
    Keys(usize),
    /// A value that is the same for all tokens.
    Table,
}

impl InSession {
    /// Of a value with these axes. `None` if a session does not have it.
    pub(crate) fn of(dims: &[Dim]) -> Option<Self> {
        let (of, rest) = match dims {
            [Dim::Batch, Dim::Query, rest @ ..] => (InSession::Queries(1), rest),
            [Dim::Query, rest @ ..] => (InSession::Queries(0), rest),
            [Dim::Batch, Dim::Key, rest @ ..] => (InSession::Keys(1), rest),
            [Dim::Key, rest @ ..] => (InSession::Keys(0), rest),
            rest => (InSession::Table, rest),
        };
        let is_size = |dim: &Dim| matches!(dim, Dim::Size(_));
        rest.iter().all(is_size).then_some(of)
    }
}

/// A field of the layer.
pub(crate) struct Param {
    pub(crate) field: Name,
    pub(crate) kind: ParamKind,
    pub(crate) doc: String,
}

#[allow(
    clippy::large_enum_variant,
    reason = "a layer has ten parameters, and most are linear"
)]
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
    /// One that is the same for tensors of all sizes.
    Given(Distribution),
    /// Uniform within `sqrt(gain / Σ fans)`.
    Uniform { gain: u32, fans: Vec<Size> },
    /// Normal with the standard deviation `sqrt(gain / Σ fans)`.
    Normal { gain: u32, fans: Vec<Size> },
}

impl InitKind {
    /// The same for a matrix whose sizes are known.
    pub(crate) fn distribution(&self) -> Distribution {
        match self {
            InitKind::Given(given) => given.clone(),
            InitKind::Uniform { gain, fans } => Distribution::Uniform {
                bound: root_of_ratio(*gain, fans),
            },
            InitKind::Normal { gain, fans } => Distribution::Normal {
                std: root_of_ratio(*gain, fans),
            },
        }
    }
}

/// `sqrt(gain / Σ fans)`
fn root_of_ratio(gain: u32, fans: &[Size]) -> Real {
    let gain = f64::from(gain);
    let mut values = fans.iter().map(|fan| fan.value);
    let total = values.try_fold(0_u64, |sum, value| sum.checked_add(value?));
    match total {
        Some(total) => Real::known((gain / total.max(1) as f64).sqrt()),
        None => {
            let text: Vec<_> = fans.iter().map(Size::to_string).collect();
            Real::computed(
                quote!((#gain / (#((#fans))+*) as f64).sqrt()),
                format!("sqrt({gain} / ({}))", text.join(" + ")),
            )
        }
    }
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

impl Graph {
    /// The inputs that are sequences.
    pub(crate) fn sequences(&self) -> usize {
        self.block.inputs.len() - self.given.len()
    }

    /// Whether what the body calls so is an input.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|given| given.name == name)
    }

    /// The axes of a learned tensor, or of a value of the model, by its name in expressions.
    pub(crate) fn dims(&self, name: &str) -> Vec<Dim> {
        if let Some(given) = self.given.iter().find(|given| given.name == name) {
            return given.dims.clone();
        }
        let tensors = self.param(name).into_iter().flat_map(Param::tensors);
        let dims = tensors.map(|(_, dims, _)| dims).next();
        dims.into_iter().flatten().map(Dim::Size).collect()
    }

    pub(crate) fn param(&self, field: &str) -> Option<&Param> {
        self.params.iter().find(|param| param.field == field)
    }

    /// Whether it has such a projection with a bias.
    pub(crate) fn has_bias(&self, field: &str) -> bool {
        self.param(field).is_some_and(Param::has_bias)
    }

    /// The data that the body declares.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &Declared> {
        self.data.iter().filter_map(|data| match data {
            CallData::Declared(declared) => Some(declared),
            _ => None,
        })
    }

    pub(crate) fn attention(&self) -> Option<&Attend> {
        self.block.attention()
    }

    /// The keys that a query attends to; `None` is all of them.
    pub(crate) fn mask(&self) -> Option<&Expr> {
        self.attention()?.mask.as_ref()
    }
}

/// The data of a call: those of the header's mask, then those of the body.
fn data_of(spec: &Spec, mask: Option<&Expr>) -> Vec<CallData> {
    let is_read = |data: &CallData| mask.is_some_and(|mask| data.is_read(mask));
    let of_words = [CallData::Padding, CallData::Document].into_iter();
    let declared = declared(spec, false).map(CallData::Declared);
    let has_positions = matches!(&spec.position, Position::Rope(rotary) if rotary.position_ids);
    let positions = has_positions.then_some(CallData::PositionIds);
    let of_words = of_words.filter(is_read).chain(positions);
    of_words.chain(declared).collect()
}

/// The data that the body declares: those that are `given` as values with a gradient, or the others.
fn declared(spec: &Spec, given: bool) -> impl Iterator<Item = Declared> {
    let data = spec.body.data.iter();
    let data = data.filter(move |data| data.given == given);
    data.map(|data| Declared {
        name: data.text().into(),
        ty: data.ty,
        dims: data.dims.clone(),
        rows: data.rows.clone(),
        doc: text::documentation(&data.attrs),
    })
}

/// The initial distribution by `init`, for a matrix with these fans. `torch` is PyTorch's default.
fn init_kind(
    init: Option<&Distribution>,
    fan_in: &Size,
    fan_out: &Size,
    torch: InitKind,
) -> InitKind {
    let both = || vec![fan_in.clone(), fan_out.clone()];
    let input = || vec![fan_in.clone()];
    match init {
        None => torch,
        Some(Distribution::XavierUniform) => InitKind::Uniform {
            gain: 6,
            fans: both(),
        },
        Some(Distribution::XavierNormal) => InitKind::Normal {
            gain: 2,
            fans: both(),
        },
        Some(Distribution::KaimingUniform) => InitKind::Uniform {
            gain: 6,
            fans: input(),
        },
        Some(Distribution::KaimingNormal) => InitKind::Normal {
            gain: 2,
            fans: input(),
        },
        Some(given) => InitKind::Given(given.clone()),
    }
}
