//! The operations of a model, a file for each: all that the macro knows of it.
//!
//! An [`Operation`] is how one is written: its name, keys and operands, and the function that infers the shape of the result. That makes
//! an [`Op`], a node of the graph. No method has a default: an operation without a derivative, a number of FLOPs,
//! a footprint or a rule for decoding is an error of rustc.

mod activation;
mod arange;
mod attend;
mod attention;
pub(crate) mod attention_layer;
mod buffer;
mod concat;
mod convolution;
mod cross_entropy;
mod cumsum;
mod detach;
mod dropout;
mod einsum;
mod elementwise;
mod embedding;
mod expand;
mod feed_forward;
mod float;
mod function;
mod gather;
mod group_norm;
mod grouped_linear;
mod l2_norm;
mod layer;
mod learned_position;
mod linear;
mod linear_cross_entropy;
mod max_pool;
mod mean_pool;
mod module;
mod norm;
mod one_hot;
mod pad;
mod param;
mod permute;
mod rank;
mod rearrange;
mod reduce;
mod rope;
mod scatter_add;
mod selection;
mod sinusoidal_position;
mod slice;
mod softmax;
mod split;
mod stack;
mod windows;

use std::ops::RangeInclusive;

use proc_macro2::{Ident, TokenStream};

use crate::emit::block::{self, BlockNode, Footprints, Gradients, Output};
use crate::markdown::Table;
use crate::messages::model as messages;
use crate::model::emit::{Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Arguments, Lowering, RegionBuilder};
use crate::model::syntax::Call;
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term};
use crate::spec::body::Function;
use crate::spec::keys::{Key, Word};
use crate::spec::{Real, Size};

pub(crate) use attention::{Attention, Inputs};
pub(crate) use buffer::{Buffer, emit_buffers};
pub(crate) use cross_entropy::CrossEntropy;
pub(crate) use dropout::{Dropout, check_probability};
pub(crate) use einsum::Einsum;
pub(crate) use elementwise::{Elementwise, emit_loops};
pub(crate) use expand::Expand;
pub(crate) use float::Float;
pub(crate) use gather::{Along, Bound, Gather, Indices};
pub(crate) use grouped_linear::{ByGroup, GroupedLinear};
pub(crate) use layer::{Layer, Rounding};
pub(crate) use linear::{Affine, Linear};
pub(crate) use linear_cross_entropy::LinearCrossEntropy;
pub(crate) use param::{Param, Tensor};
pub(crate) use permute::Permute;
pub(crate) use rearrange::Rearrange;
pub(crate) use slice::{Offset, Slice};

/// Every operation with a name, in the order in which the documentation lists them.
pub(crate) static OPERATIONS: &[&Operation] = &[
    &embedding::EMBEDDING,
    &learned_position::LEARNED_POSITION,
    &sinusoidal_position::SINUSOIDAL_POSITION,
    &rope::ROPE,
    &attention::ATTENTION,
    &attend::ATTEND,
    &linear::LINEAR,
    &grouped_linear::GROUPED_LINEAR,
    &feed_forward::FEED_FORWARD,
    &convolution::CONV1D,
    &convolution::CONV2D,
    &convolution::CONV_TRANSPOSE1D,
    &convolution::CONV_TRANSPOSE2D,
    &norm::LAYER_NORM,
    &norm::RMS_NORM,
    &l2_norm::L2_NORM,
    &group_norm::GROUP_NORM,
    &module::MODULE,
    &dropout::DROPOUT,
    &activation::OPERATIONS[0],
    &activation::OPERATIONS[1],
    &activation::OPERATIONS[2],
    &activation::OPERATIONS[3],
    &activation::OPERATIONS[4],
    &activation::OPERATIONS[5],
    &activation::OPERATIONS[6],
    &function::OPERATIONS[0],
    &function::OPERATIONS[1],
    &function::OPERATIONS[2],
    &function::OPERATIONS[3],
    &function::OPERATIONS[4],
    &function::OPERATIONS[5],
    &function::OPERATIONS[6],
    &function::OPERATIONS[7],
    &function::OPERATIONS[8],
    &function::OPERATIONS[9],
    &function::OPERATIONS[10],
    &reduce::OPERATIONS[0],
    &reduce::OPERATIONS[1],
    &reduce::OPERATIONS[2],
    &reduce::OPERATIONS[3],
    &softmax::SOFTMAX,
    &cross_entropy::CROSS_ENTROPY,
    &einsum::EINSUM,
    &concat::CONCAT,
    &permute::PERMUTE,
    &rearrange::REARRANGE,
    &stack::STACK,
    &expand::EXPAND,
    &detach::DETACH,
    &rank::ARGMAX,
    &rank::TOP_K,
    &one_hot::ONE_HOT,
    &float::FLOAT,
    &arange::ARANGE,
    &scatter_add::SCATTER_ADD,
    &cumsum::CUMSUM,
    &split::SPLIT,
    &pad::PAD,
    &pad::SHIFT,
    &windows::WINDOWS,
    &mean_pool::MEAN_POOL,
    &max_pool::MAX_POOL,
];

/// An operation, as `name::<keys>(operands)`.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [Key],
    /// The values of how many keys, of the first ones, may be given by their position.
    positional: usize,
    /// Whether it may read the table of an embedding: `tied = name`.
    pub(crate) may_be_tied: bool,
    /// The shapes of its operands and of its result.
    pub(crate) signature: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) lower: Lower,
}

/// How a call becomes a node.
pub(crate) enum Lower {
    /// From the values of its operands.
    Operands(RangeInclusive<usize>, &'static dyn LowerOperands),
    /// From the value of its operand, and that of an operand by this name, which may be there.
    OperandsAnd(&'static str, &'static dyn LowerOperands),
    /// From the values and numbers that this function is of.
    Function(&'static Function),
    /// A function, or with an axis from the values of its operands.
    FunctionOrOperands(
        &'static Function,
        RangeInclusive<usize>,
        &'static dyn LowerOperands,
    ),
    /// From the value of its operand to several values, which a `let` has to name.
    Parts(&'static dyn LowerParts),
    /// From its tokens to attended values, and for several names to what is beside them: operands by name and a body are its own affair.
    Attention(LowerAttention),
}

/// The names are those of the results: none for a value without a name.
type LowerAttention =
    fn(&mut Lowering<'_>, &Call, Arguments, &[Ident], &mut RegionBuilder) -> Option<Vec<ValueId>>;

/// Infers the shape of the result. Mistakes are reported, and then there is no result.
pub(crate) trait LowerOperands: Sync {
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId>;
}

impl<F> LowerOperands for F
where
    F: Fn(&mut Lowering<'_>, &CallSite<'_>, &mut RegionBuilder) -> Option<ValueId> + Sync,
{
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<ValueId> {
        self(lowering, call, builder)
    }
}

/// Infers the shapes of several results, one for each name. Mistakes are reported, and then there is none.
pub(crate) trait LowerParts: Sync {
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        names: &[Ident],
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>>;
}

impl<F> LowerParts for F
where
    F: Fn(&mut Lowering<'_>, &[Ident], &CallSite<'_>, &mut RegionBuilder) -> Option<Vec<ValueId>>
        + Sync,
{
    fn lower(
        &self,
        lowering: &mut Lowering<'_>,
        names: &[Ident],
        call: &CallSite<'_>,
        builder: &mut RegionBuilder,
    ) -> Option<Vec<ValueId>> {
        self(lowering, names, call, builder)
    }
}

/// A call whose operands have values: as many as the operation takes.
pub(crate) struct CallSite<'c> {
    pub(crate) operation: &'static Operation,
    /// The name of the operation, where it stands.
    pub(crate) at: &'c Ident,
    pub(crate) arguments: &'c Arguments,
    pub(crate) operands: Vec<ValueId>,
    /// The name of the result.
    pub(crate) result: &'c str,
}

/// An operation, as the passes over a graph know it.
pub(crate) trait Op {
    fn properties(&self) -> Properties<'_>;

    /// The gradient of each of so many operands.
    fn gradients(&self, operands: usize) -> Vec<Gradient>;
}

/// The lines of an operation in a builder.
///
/// `of` is the node with its values. Emitted lines read their operands and sizes through it.
pub(crate) trait Emit<F: block::Frame>: Op {
    /// The lines of the composed form.
    fn composed(&self, of: &F::Composed<'_>) -> TokenStream;

    /// The memory of both passes of the fused form beside values and gradients.
    fn footprints(&self, of: &BlockNode<'_, F>) -> Footprints;

    /// The call of the fused form that computes the result, and returns what is kept.
    fn forward(&self, of: &BlockNode<'_, F>, to: &Output) -> TokenStream;

    /// The lines of the derivative. Gradients of parameters are added to.
    fn backward(&self, of: &BlockNode<'_, F>, gradients: &Gradients) -> TokenStream;
}

/// An operation of a model: the facts that sessions, documentation and checks of inputs read.
pub(crate) trait ModelOp: for<'a> Emit<ModelFrame<'a>> {
    fn description(&self) -> Description<'_>;

    /// The layer with its parameters, if it has any.
    fn parameters(&self) -> Option<&ParamPath> {
        match self.description().label {
            Label::Layer(place) => Some(place),
            Label::Text(_) => None,
        }
    }

    /// Whether a session can go on token by token. An error says why not.
    fn decode(&self, model: &Model) -> Result<Decode, String>;

    fn cost(&self, of: &Extents<'_>) -> Cost;

    /// The line that finds mistakes in the numbers of an input before the fused form begins.
    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream>;

    /// Its value in ONNX. An error says why there is none, and what to do.
    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String>;
}

/// Properties of an operation wherever it stands.
pub(crate) struct Properties<'o> {
    /// The values of floats that its derivative reads.
    pub(crate) saved: Saved,
    /// Other memory that is kept for its derivative.
    pub(crate) kept: Option<Kept>,
    /// Operations that can run in the same pass over memory.
    pub(crate) fusion: Fusion<'o>,
}

/// An operation for the rest of a model and for people.
pub(crate) struct Description<'o> {
    pub(crate) label: Label<'o>,
    /// Its colour in the picture of a model.
    pub(crate) vertex: VertexKind,
    /// The learned table of which it reads rows.
    pub(crate) lookup: Option<Lookup<'o>>,
    /// The attention that it is, if it is one.
    pub(crate) attention: Option<&'o Attention>,
}

/// The cost of an operation.
pub(crate) struct Cost {
    /// Floating-point operations of matrix products.
    pub(crate) flops: Option<TokenStream>,
    /// The width of vectors, one for each row of the result, that it makes on the way.
    pub(crate) hidden: Option<TokenStream>,
}

impl Cost {
    /// It multiplies no matrices, and makes no vectors but those of its result.
    pub(crate) const fn none() -> Self {
        Cost {
            flops: None,
            hidden: None,
        }
    }
}

/// The gradient of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gradient {
    /// The operand has no gradient: indices, lengths, masks, data.
    None,
    /// The gradient of the result.
    Same,
    /// Computed, and where that of the result stands in memory if nobody else reads it.
    InPlace,
    /// Computed.
    Computed,
    /// Computed, and it is overwritten: what is there already is added afterwards.
    Overwritten,
    /// Computed in one call with that of the other operands: no two of them are the same memory.
    Together,
    /// The same, and it is overwritten: what is there already is added afterwards.
    Apart,
}

/// The values that a derivative reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Saved {
    Nothing,
    /// The operands that have a gradient.
    Operands,
    /// These operands, and the result, as the operand behind all.
    Reads(Vec<usize>),
    Result,
    OperandsAndResult,
    /// Those of an attention: the operands that have a gradient, perhaps the result, and the weights, the first result beside that.
    OperandsAndWeights {
        with_result: bool,
    },
}

/// Memory that an operation keeps for its derivative besides values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kept {
    Array,
    /// The hidden layer of a feed-forward layer, and the seed of its dropout.
    Hidden,
    /// The seed of a dropout.
    Dropout,
    /// The `Saved` of the layer.
    Attention,
    /// What the loss of a linear map keeps, which depends on its sizes.
    Loss,
}

/// Operations that can run in the same pass over memory as this one.
#[derive(Clone, Copy)]
pub(crate) enum Fusion<'o> {
    None,
    /// With elementwise operations of its operands and of its result; dropout of operands, as they are read, and of the result, as it is
    /// written. The result may take the memory of an operand.
    Elementwise(&'o Elementwise),
    Dropout(&'o Real),
    /// With the elementwise operations that read its result: they repeat the only operand, whose axes are these of the result.
    Repeat(&'o [usize]),
    /// A product with a weight of its own, which an attention that reads the result may compute itself. In a scan it is computed for all
    /// steps at once, if it can be, and the gradients of the weight are.
    Projection(&'o Linear),
    /// A product with the table of an embedding.
    Tied(&'o Linear),
    /// The loss of logits, which computes those of a product that nobody else reads, some at a time.
    Loss(&'o CrossEntropy),
    /// The second operand chooses the map of each row. Values between two such operations may have their rows in the order of the maps.
    Grouped(&'o GroupedLinear),
    /// A product of two values. In a scan it is computed for all steps at once, if one of these is the same at all steps.
    Contraction(&'o Einsum),
    /// The result has the axes of the only operand in another order.
    Transpose(&'o Rearrange),
    /// The result is the only operand in another shape: in the fused form the same memory, and nothing to compute.
    Reshape,
    /// The two operands stand one after the other along the axis with this index.
    Concat(usize),
    /// The result is a part of the only operand along the axis with this index, from this place on.
    Slice(usize, &'o Offset),
    /// The result has one number in place of an axis of the only operand. Along the last one it is computed strip by strip, with others.
    Reduce {
        /// The index of the axis.
        axis: usize,
        /// Whether it is a sum or a mean: then its terms need not be in memory, and neither need their gradients, which are equal.
        is_sum: bool,
    },
    /// Every row of the result is computed from the same row of the only operand: with the elementwise operation before it, and with the one
    /// behind it.
    Rows,
}

/// How a session goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decode {
    /// Each token by itself, as in the forward pass.
    PerToken,
    /// With the tokens before it, which are remembered.
    WithPast,
    /// It has no vector for each token.
    Never,
}

impl Decode {
    /// The rule for an operation along an axis. A session cannot have it along the tokens, as it computes new tokens alone.
    fn along(axis: &Axis, operation: &str) -> Result<Decode, String> {
        match axis {
            Axis::Symbol(axis) => Err(messages::session_along(operation, &axis.name)),
            Axis::Size(_) => Ok(Decode::PerToken),
        }
    }
}

/// How rows of a learned table are found.
pub(crate) enum Lookup<'o> {
    ById {
        /// The layer with the table, if it is one.
        table: Option<&'o ParamPath>,
        /// How many ids there are, if the call gives them: what a session may be given.
        vocab: Option<&'o Size>,
    },
    ByPosition {
        table: &'o ParamPath,
        max_len: &'o Size,
    },
}

/// An operation for people.
pub(crate) enum Label<'o> {
    /// The layer at this place.
    Layer(&'o ParamPath),
    Text(String),
}

impl Operation {
    pub(crate) fn find(name: &str) -> Option<&'static Operation> {
        let mut all = OPERATIONS.iter();
        all.find(|operation| operation.name == name).copied()
    }

    /// The names of the keys whose values may be given by their position.
    pub(crate) fn positional(&self) -> Vec<&'static str> {
        let keys = self.keys[..self.positional].iter();
        keys.map(|key| key.name).collect()
    }

    /// The key that has this word among its values.
    pub(crate) fn key_of_word(&self, found: &str) -> Option<(&'static Key, &'static Word)> {
        let words = |key: &'static Key| key.words().iter().map(move |word| (key, word));
        let mut words = self.keys.iter().flat_map(words);
        words.find(|(_, word)| word.name == found && found != "none")
    }

    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

/// The operations as Markdown, for the documentation of `model!`.
pub(crate) fn table() -> String {
    let mut table = Table::new(["operation", "takes", ""]);
    // Those of attentions have tables of their own.
    let with_tables = [attention::ATTENTION.name, attend::ATTEND.name];
    for operation in OPERATIONS {
        let keys = operation.keys.iter();
        let keys = keys.filter(|_| !with_tables.contains(&operation.name));
        let keys: Vec<_> = keys
            .map(|key| format!("`{}` ({}): {}", key.name, key.default, key.doc))
            .collect();
        let by_position = match operation.positional().as_slice() {
            [] => String::new(),
            names => format!("::<{}>", names.join(", ")),
        };
        table.row([
            &format!("`{}{by_position}`", operation.name),
            operation.signature,
            &format!("{} {}", operation.doc, keys.join(" ")),
        ]);
    }
    table.to_string()
}
