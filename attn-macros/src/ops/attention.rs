//! `attention::<heads>(x, context = y, padding = lens) { body }`: a layer of `attention!`.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Kept, Label, Lower, ModelOp, Op, Operation,
    Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::graph::block::LayerBlock;
use crate::graph::{AttentionLayer, CallData, Declared, Dim, InSession};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath};
use crate::onnx::{OnnxNode, Term};
use crate::score::prove::Verdict;
use crate::score::split::param_reads;
use crate::score::{Expr, Var};
use crate::spec::Position;
use crate::spec::keys::KEYS;

pub(super) static ATTENTION: Operation = Operation {
    name: "attention",
    keys: KEYS,
    positional: 2,
    may_be_tied: false,
    signature: "`[batch, seq, d_model]` to the same, perhaps with `[batch, heads, seq, kv]` and `[batch, heads, seq]`",
    doc: "A layer of `attention!`, with all of its keys, and a body in braces after the operands. `context = y` makes it cross-attention, and `values = z` beside it gives the values, so that `context` gives the keys alone; `padding = lens`, or a mask `padding = keep`, `document = ids`, or a pair with a context, and the names that the body declares as `data`, are operands, too. Floats that are computed have a gradient. `let (y, weights, lse) = attention::<heads>(x);` has the weights of each head beside the result, and the logarithms of the sums that they are divided by.",
    lower: Lower::Attention(|lowering, call, arguments, names, builder| {
        lowering.attention(call, arguments, names, builder)
    }),
};

/// The operands: `x`, the context and the values if it has them, data of the call.
pub(crate) struct Attention {
    pub(crate) place: ParamPath,
    /// Among the attentions of the model.
    pub(crate) index: usize,
    pub(crate) inputs: Inputs,
    pub(crate) dropout: bool,
}

/// The first operands of an attention, which have a gradient. Those behind them are data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inputs {
    /// Their gradients. The first one has the axis of the queries.
    pub(crate) gradients: Vec<Gradient>,
    /// The one with the axis of the keys.
    pub(crate) keys: usize,
    /// Whether the derivative reads the result.
    pub(crate) saves_result: bool,
}

impl Inputs {
    /// `x`, perhaps with a context, which has the keys, perhaps with values.
    pub(crate) fn sequences(count: usize) -> Self {
        Inputs {
            gradients: vec![Gradient::Together; count],
            keys: 1.min(count - 1),
            saves_result: false,
        }
    }

    /// Queries, keys and values: it is an [`attend`](super::attend).
    pub(crate) fn vectors() -> Self {
        Inputs {
            gradients: vec![Gradient::Apart; 3],
            keys: 2,
            saves_result: true,
        }
    }

    /// With so many behind them that the body reads.
    pub(crate) fn and(mut self, others: usize) -> Self {
        let all = self.gradients.len() + others;
        self.gradients.resize(all, Gradient::Together);
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.gradients.len()
    }
}

impl Op for Attention {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::OperandsAndWeights {
                with_result: self.inputs.saves_result,
            },
            kept: Some(Kept::Attention),
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        let mut gradients = vec![Gradient::None; operands];
        gradients[..self.inputs.len()].clone_from_slice(&self.inputs.gradients);
        gradients
    }
}

impl ModelOp for Attention {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Attention,
            lookup: None,
            attention: Some(self),
        }
    }

    fn decode(&self, model: &Model) -> Result<Decode, String> {
        looks_back(&model.path(&self.place), &model.attentions[self.index])?;
        Ok(Decode::WithPast)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let name = &of.model.attentions[self.index].spec.item.name;
        let [batch, query, key] = of.axes_of_attention(self);
        Cost {
            flops: Some(quote!(<#name>::flops(#batch, #query, #key))),
            hidden: None,
        }
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let attention = of.attention(self);
        let axes = of.axes_of_attention(self);
        let data = of.data_of_attention();
        Some(quote!(#attention::check(#axes, &#data)?;))
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        of.attention(self)
    }
}

impl Emit<ModelFrame<'_>> for Attention {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        of.attention(self)
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let extents = of.extents();
        let name = &extents.model.attentions[self.index].spec.item.name;
        let [batch, query, key] = extents.axes_of_attention(self);
        Footprints::of_both(quote!(<#name>::footprint(#batch, #query, #key)))
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let y = to.matrix();
        let [weights_to, lse_to] = [0, 1].map(|place| option(to.other(place)));
        if of.mode() == ExecMode::Session {
            let attention = of.attention_in_session(self);
            let past = of.past(&self.place);
            let inputs = match of.extents().model.attentions[self.index].graph.cross {
                // The keys and values of a context were computed when the session started.
                true => of.matrix(0),
                false => {
                    let inputs = (0..self.inputs.len()).map(|index| of.matrix(index));
                    quote!([#(#inputs),*])
                }
            };
            return quote!(#attention::decode(&#weights, &mut #past, new, #inputs, #y, #lse_to));
        }
        let attention = of.attention(self);
        let axes = of.axes_of_attention(self);
        let data = of.data_of_attention();
        let inputs = (0..self.inputs.len()).map(|index| of.matrix(index));
        let seed = match (self.dropout, of.mode()) {
            (true, ExecMode::Forward) => match of.rows_of_batch() {
                Some(_) => quote!(random.seed_of_batch()),
                None => quote!(random.seed().map(p::Seed::from)),
            },
            _ => quote!(None),
        };
        let beside = match (to.other(0), to.other(1)) {
            (None, None) => quote!(p::Beside::default()),
            _ => quote!(p::Beside { weights: #weights_to, lse: #lse_to }),
        };
        quote! {
            #attention::forward(
                &#weights,
                #axes,
                &#data,
                #seed,
                [#(#inputs),*],
                #y,
                #beside,
            )
        }
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let attention = of.attention(self);
        let weights = of.weights(&self.place);
        let inputs = (0..self.inputs.len()).map(|index| of.matrix(index));
        let result = self.inputs.saves_result.then(|| of.matrix_of_result());
        let read = inputs.chain(result);
        let kept = of.kept();
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        let d_weights = of.slice_of_other(0).zip(gradients.other(0));
        let d_weights =
            d_weights.map(|(weights, d)| quote!(p::WeightGradients { weights: #weights, d: #d }));
        let d_beside = match (d_weights, gradients.other(1)) {
            (None, None) => quote!(p::BesideGradients::default()),
            (d_weights, d_lse) => {
                let [weights, lse] = [option(d_weights.as_ref()), option(d_lse)];
                quote!(p::BesideGradients { weights: #weights, lse: #lse })
            }
        };
        quote! {
            #attention::backward(
                &#weights,
                #kept,
                [#(#read),*],
                #d_y,
                #d_beside,
                [#(&mut #d_x),*],
                gradients,
            );
        }
    }
}

/// `Some(x)`, or `None`
fn option(value: Option<&TokenStream>) -> TokenStream {
    value.map_or(quote!(None), |value| quote!(Some(#value)))
}

/// Whether a session has the numbers of a value that the body reads: those of a new token for its own query alone, and those of a key at
/// any place up to it.
fn is_in_session(given: &Declared, layer: &AttentionLayer) -> bool {
    let (axis, places) = match InSession::of(&given.dims) {
        Some(InSession::Queries(axis)) => (axis, &[Var::QIdx][..]),
        Some(InSession::Keys(axis)) => (axis, &[Var::KvIdx, Var::QIdx][..]),
        Some(InSession::Table) => return true,
        None => return false,
    };
    let is_there = |index: &[Expr]| {
        let batch = index[..axis].iter().all(|of| *of == Expr::Var(Var::B));
        batch && places.iter().any(|place| index[axis] == Expr::Var(*place))
    };
    let attention = layer.fused.as_ref().and_then(LayerBlock::attention);
    attention.is_some_and(|attention| {
        let bias_terms = attention.bias_terms().iter();
        let reads = bias_terms.flat_map(|term| param_reads(&term.expr));
        let mut reads = reads.filter(|(name, _)| **name == *given.name);
        reads.all(|(_, index)| is_there(index))
    })
}

/// Whether a query sees no key behind it, whatever the lengths.
fn looks_back(name: &str, layer: &AttentionLayer) -> Result<(), String> {
    let AttentionLayer {
        spec, graph, fused, ..
    } = layer;
    // A session is given a context and its data when it starts; their operands are judged where they stand.
    let is_of_keys = |data: &CallData| match data {
        CallData::Padding => true,
        CallData::Declared(declared) => !declared.dims.contains(&Dim::Query),
        CallData::Document | CallData::PositionIds => false,
    };
    let is_known = |given: &&Declared| !graph.cross && is_in_session(given, layer);
    if let Some(given) = graph.given.iter().find(|given| !is_known(given)) {
        return Err(messages::session_value(name, given.label(), graph.cross));
    }
    if !graph
        .data
        .iter()
        .all(|data| graph.cross && is_of_keys(data))
    {
        return Err(messages::session_data(name));
    }
    if let Position::Rope(rotary) = &spec.position
        && rotary.changes_with_len()
    {
        return Err(messages::session_length(name, "rotation"));
    }
    let reads_length =
        |expr: &Expr| expr.reads(Var::QLen) || expr.reads(Var::KvLen) && !graph.cross;
    if spec.predicate().is_some_and(|mask| reads_length(&mask)) {
        return Err(messages::session_length(name, "mask"));
    }
    match spec.looks_back() {
        // All keys of a context are there.
        _ if graph.cross => {}
        Verdict::Proved => {}
        verdict => return Err(messages::session_mask(name, spec, &verdict)),
    }
    let attention = fused.as_ref().and_then(LayerBlock::attention);
    let scores = attention.is_some_and(|attention| {
        let bias_terms = attention
            .bias_terms()
            .iter()
            .map(|bias_term| &bias_term.expr);
        attention
            .score()
            .into_iter()
            .chain(bias_terms)
            .any(reads_length)
    });
    if scores {
        return Err(messages::session_length(name, "score"));
    }
    Ok(())
}
