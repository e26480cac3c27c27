//! The fused form of a layer: its structs and functions. The lines in them are those of its [block](super::block).

mod attention;
mod backward;
mod call;
mod forward;
mod frame;
mod in_model;
mod in_session;
mod memory;
pub(crate) mod score;

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::block::{BlockNode, Frame};
use super::{Caller, ExecMode, Layer, input, places, var};
use crate::graph::block::LayerBlock;
use crate::model::graph::ValueId;
use crate::model::passes::Passes;
use crate::ops::attention_layer::LayerOp;

pub(crate) use frame::ParameterGradient;

/// A node of a layer.
pub(crate) type LayerNode<'a> = BlockNode<'a, LayerFrame<'a>>;

/// ```text
/// struct Attends { .. }           // the mask
/// struct Modified;                // what becomes of a score
/// struct Weights<E> { .. }     // what is read of the layer
/// struct Call<E> { .. }           // sizes and data of one call
/// struct Saved<E> { .. }          // what the derivative reads again
///
/// fn read_weights(layer) -> Result<Weights<E>, ..>
/// fn make_call(weights, axes, ..) -> Call<E>
/// fn fused(layer, x, .., train, wanted) -> Result<Attended<..>, ..>       // one operation on the tape
/// fn forward(call, weights, x, .., output, beside) -> Saved<E>
/// fn backward(call, weights, x, .., saved, d_output, d_beside, gradients)
/// fn attention(call, weights) -> p::Attention<E>
/// const fn footprint(axes) -> p::Footprint                   // the memory that the two take
/// const fn footprint_by_itself(axes) -> p::Footprint         // with the result
/// const fn activation_bytes(batch, q_len, kv_len) -> usize   // the same in bytes; in a model, `footprint`
/// impl FusedBlock for Name              // for `model!`
/// impl Decode for Name            // for one that goes on token by token
/// ```
pub(super) fn emit(cx: &Layer<'_>, passes: &Passes<'_, dyn LayerOp>) -> TokenStream {
    let Some(layer) = cx.fused else {
        return TokenStream::new();
    };
    let fused = |mode| LayerFrame {
        cx,
        layer,
        mode,
        passes,
    };
    let caller = cx.caller;
    let cx = fused(ExecMode::Forward);
    let attention = layer.attention();
    let attention = attention.map(|attention| cx.emit_attention(attention));
    let structs = [cx.emit_weights(), cx.emit_call(), cx.emit_saved()];
    let forward = cx.emit_forward();
    let backward = cx.emit_backward();
    let memory = cx.emit_memory(&forward, &backward);
    let in_model = (caller != Caller::User).then(|| cx.emit_in_model());
    let functions = [
        cx.emit_read_weights(),
        cx.emit_make_call(),
        cx.emit_fused(),
        forward.code,
        backward.code,
    ];
    let in_session = (caller == Caller::Session).then(|| {
        let step = fused(ExecMode::Session);
        match step.cx.graph.cross {
            true => step.emit_with_context(&fused(ExecMode::Start)),
            false => step.emit_in_session(),
        }
    });
    quote! {
        #(#structs)*
        #(#functions)*
        #attention
        #memory
        #in_model
        #in_session
    }
}

/// The frame of a layer.
pub(crate) struct LayerFrame<'a> {
    cx: &'a Layer<'a>,
    layer: &'a LayerBlock,
    mode: ExecMode,
    passes: &'a Passes<'a, dyn LayerOp>,
}

impl LayerFrame<'_> {
    /// The variable of the gradient of an input or of the result.
    fn gradient_name(&self, id: ValueId) -> Ident {
        format_ident!("d_{}", self.value(id))
    }

    /// Whether a value is computed of the context alone.
    fn is_of_context(&self, id: ValueId) -> bool {
        let block = self.block();
        let id = block.memory(id);
        if let Some(place) = self.layer.inputs.iter().position(|input| *input == id) {
            return self.cx.graph.cross && place > 0;
        }
        let mut nodes = self.layer.nodes();
        let node = nodes.find(|node| block.memory(node.result) == id);
        node.is_some_and(|node| {
            let mut operands = node.operands.iter();
            operands.all(|operand| self.is_of_context(*operand))
        })
    }

    fn inputs(&self) -> Vec<Ident> {
        let inputs = self.layer.inputs.iter();
        inputs.map(|id| self.value(*id)).collect()
    }

    /// The result as an argument of the derivative, if that reads it.
    fn read_result(&self) -> Option<Ident> {
        let output = self.layer.output();
        let mut nodes = self.layer.nodes();
        let is_read = nodes.any(|node| node.saved().contains(&output));
        is_read.then(|| self.value(output))
    }

    /// The inputs as arguments: `_` for one that no operation reads.
    fn read_inputs(&self) -> Vec<Ident> {
        let inputs = self.layer.inputs.iter();
        let names = inputs.map(|id| match self.layer.reads(*id) {
            true => self.value(*id),
            false => var("_"),
        });
        names.collect()
    }

    fn emit_fused(&self) -> TokenStream {
        if self.cx.is_in_model() {
            return TokenStream::new();
        }
        let Layer {
            name, at, graph, ..
        } = self.cx;
        let sequences = self.cx.sequence_vars();
        let attended = self.cx.attended();
        let inputs = self.cx.inputs(input::read_type);
        let names = self.inputs();
        let key = if graph.cross {
            quote!(context)
        } else {
            quote!(x)
        };
        let sources = self.cx.spec.sources().map(|(name, _)| var(name));
        let read_sources =
            sources.map(|name| quote!(let #name = operation.read(#name.retaped::<T>())?;));
        let d_model = &self.cx.spec.d_model;
        let label = self.cx.label();
        let data = graph.data.iter().map(input::data_name);
        let dropout_seed = self
            .dropout()
            .map(|_| quote!(, (train && T::OWNS_TAPE).then(|| p::Seed::from(p::RandomU64::random_u64(&device)))));
        quote_spanned! {*at=>
            /// The layer as one operation on the tape: what `run` computes, on slices.
            fn fused<B: p::Dim, #(#sequences: p::Dim,)* E: p::Element, D: p::Backend<E>, T: p::Tape<E, D>>(
                layer: &#name<E, D>,
                #inputs
                #[allow(unused_variables)] train: bool,
                wanted: p::Wanted,
            ) -> Result<#attended, p::Error<D::Err>> {
                let (batch, query, _) = *p::HasShape::shape(&x);
                let key = p::HasShape::shape(&#key).1;
                let device = p::Clone::clone(x.device());
                let axes = (p::Dim::size(&batch), p::Dim::size(&query), p::Dim::size(&key));
                let mut operation = p::Operation::<E, D, T>::default();
                let x = operation.read(x)?;
                #(#read_sources)*
                let weights = read_weights(layer, &mut operation)?;
                let call = make_call(&weights, axes #(, #data)* #dropout_seed);
                let mut output = p::Output::zeros(call.sizes.queries(), #d_model);
                let numbers = x.values().len();
                let mut beside = p::BesideArrays::of([wanted.weights, wanted.lse], call.sizes);
                let saved = p::run_pass(numbers, || forward(&call, &weights, #(#names.matrix(),)* output.view_mut(), beside.view_mut()));
                let output = (output, (batch, query, p::Const));
                let shapes = ((batch, p::Const, query, key), (batch, p::Const, query));
                let (output, seen, lse) = operation.finish_attention(&device, output, beside, shapes, move |d_output, d_beside, gradients| {
                    p::run_pass(numbers, || {
                        backward(&call, &weights, #(#names.matrix(),)* saved, d_output, d_beside, #(&mut #names.target(),)* gradients)
                    })
                })?;
                Ok(p::attended(#label, output, seen, lse))
            }
        }
    }
}
