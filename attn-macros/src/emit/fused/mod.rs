//! The fused lowering: the steps and their derivatives as straight-line code over slices, a line or two per step.

mod attention;
mod backward;
mod call;
mod forward;
mod in_model;
mod in_session;
mod memory;
mod node;
mod score;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::tracked_code::{self, TrackedCode};
use super::{Caller, Layer, input, places, var};
use crate::graph::steps::{Steps, is_by_key};
use crate::model::diff::{Backward, BufferId, diff};
use crate::model::graph::ValueId;
use crate::model::plan::plan;
use crate::ops::fused::FusedOp;

pub(crate) use node::LayerNode;

/// ```text
/// struct Attends { .. }           // the mask
/// struct Modified;                // what becomes of a score
/// struct Weights<E> { .. }     // what is read of the layer
/// struct Call<E> { .. }           // sizes and data of one call
/// struct Saved<E> { .. }          // what the derivative reads again
///
/// fn read_weights(layer) -> Result<Weights<E>, ..>
/// fn make_call(weights, axes, ..) -> Call<E>
/// fn fused(layer, x, .., train) -> Result<Tensor<..>, ..>                 // one operation on the tape
/// fn forward(call, weights, x, .., output) -> Saved<E>
/// fn backward(call, weights, x, .., saved, d_output, gradients) -> Result<(), ..>
/// fn attention(call, weights) -> p::Attention<E>
/// const fn footprint(axes) -> p::Footprint                   // the memory that the two take
/// const fn footprint_by_itself(axes) -> p::Footprint         // with the result
/// const fn activation_bytes(batch, q_len, kv_len) -> usize   // the same in bytes; in a model, `footprint`
/// impl FusedBlock for Name              // for `model!`
/// impl Decode for Name            // for one that goes on token by token
/// ```
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let Some(steps) = cx.steps else {
        return TokenStream::new();
    };
    let backward = &diff(steps.block());
    let plan = plan(steps.block());
    let cx = &Fused {
        cx,
        steps,
        backward,
    };
    let attention = steps.attention();
    let attention = attention.map(|attention| cx.emit_attention(attention));
    let structs = [cx.emit_weights(), cx.emit_call(), cx.emit_saved(&plan)];
    let forward = cx.emit_forward(&plan);
    let backward = cx.emit_backward(&plan);
    let memory = cx.emit_memory(&forward, &backward);
    let in_model = (cx.cx.caller != Caller::User).then(|| cx.emit_in_model());
    let functions = [
        cx.emit_read_weights(),
        cx.emit_make_call(),
        cx.emit_fused(),
        forward.code,
        backward.code,
    ];
    let in_session = (cx.cx.caller == Caller::Session).then(|| cx.emit_in_session());
    quote! {
        #(#structs)*
        #(#functions)*
        #attention
        #memory
        #in_model
        #in_session
    }
}

struct Fused<'a> {
    cx: &'a Layer<'a>,
    steps: &'a Steps,
    backward: &'a Backward<'a, dyn FusedOp>,
}

impl Fused<'_> {
    /// The variable that a value is in.
    fn name(&self, id: ValueId) -> Ident {
        let memory = self.steps.block().memory(id);
        var(&self.steps.value(memory).name)
    }

    /// The same of its gradient.
    fn gradient_name(&self, id: ValueId) -> Ident {
        format_ident!("d_{}", self.name(id))
    }

    fn buffer(&self, id: BufferId) -> Ident {
        self.gradient_name(self.backward.buffers[id.0])
    }

    fn inputs(&self) -> Vec<Ident> {
        let inputs = self.steps.inputs.iter();
        inputs.map(|id| self.name(*id)).collect()
    }

    /// The inputs as arguments: `_` for one that no step reads.
    fn read_inputs(&self) -> Vec<Ident> {
        let inputs = self.steps.inputs.iter();
        let names = inputs.map(|id| match self.steps.reads(*id) {
            true => self.name(*id),
            false => var("_"),
        });
        names.collect()
    }

    /// `let mut q_k_v = p::Array::uninit(sizes.queries(), [512, 512, 512]);`
    fn emit_array(&self, lines: &mut TrackedCode, name: &Ident, id: ValueId) {
        let rows = match is_by_key(&self.steps.value(id).ty) {
            true => quote!(sizes.keys()),
            false => quote!(sizes.queries()),
        };
        let parts = self.steps.parts(id).into_iter();
        let widths = parts.filter_map(|part| self.steps.value(part).ty.width());
        lines.line(quote!(let mut #name = p::Array::<E, _>::uninit(#rows, [#(#widths),*]);));
        lines.take(name, self.footprint_of(id));
    }

    fn footprint_of(&self, id: ValueId) -> TokenStream {
        let ty = &self.steps.value(id).ty;
        let len = match is_by_key(ty) {
            true => quote!(key),
            false => quote!(query),
        };
        let width = ty.width();
        tracked_code::array(&[quote!(batch), len, quote!(#width)])
    }

    /// A value, to read.
    fn matrix(&self, id: ValueId) -> TokenStream {
        let name = self.name(id);
        if self.steps.inputs.contains(&id) {
            return quote!(#name);
        }
        match self.steps.value(id).view {
            None => quote!(#name.view()),
            Some(view) => {
                let part = Literal::usize_unsuffixed(view.part);
                quote!(#name.part(#part))
            }
        }
    }

    fn emit_fused(&self) -> TokenStream {
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
        let read_context = graph
            .cross
            .then(|| quote!(let context = operation.read(context.retaped::<T>())?;));
        let d_model = &self.cx.spec.d_model;
        let data = graph.data.iter().map(input::data_name);
        let dropout_seed = self
            .dropout()
            .map(|_| quote!(, (train && T::OWNS_TAPE).then(|| p::RandomU64::random_u64(&device))));
        quote_spanned! {*at=>
            /// The layer as one operation on the tape: what `run` computes, on slices.
            fn fused<B: p::Dim, #(#sequences: p::Dim,)* E: p::Element, D: p::Backend<E>, T: p::Tape<E, D>>(
                layer: &#name<E, D>,
                #inputs
                #[allow(unused_variables)] train: bool,
            ) -> Result<#attended, p::Error<D::Err>> {
                let (batch, query, _) = *p::HasShape::shape(&x);
                let shape = (batch, query, p::Const);
                let device = p::Clone::clone(x.device());
                let axes = (p::Dim::size(&batch), p::Dim::size(&query), p::Dim::size(&p::HasShape::shape(&#key).1));
                let mut operation = p::Operation::<E, D, T>::default();
                let x = operation.read(x)?;
                #read_context
                let weights = read_weights(layer, &mut operation)?;
                let call = make_call(&weights, axes #(, #data)* #dropout_seed);
                let mut output = p::Output::zeros(call.sizes.queries(), #d_model);
                let numbers = x.values().len();
                let saved = p::run_pass(numbers, || forward(&call, &weights, #(#names.matrix(),)* output.view_mut()));
                let output = operation.finish_matrix(&device, output, shape, move |d_output, gradients| {
                    p::run_pass(numbers, || {
                        backward(&call, &weights, #(#names.matrix(),)* saved, d_output, #(&mut #names.target(),)* gradients)
                    })
                })?;
                Ok((output, None))
            }
        }
    }
}
