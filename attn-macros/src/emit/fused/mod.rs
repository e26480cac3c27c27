//! The fused lowering: the steps and their derivatives as straight-line code over slices, a line or two per step.

mod attention;
mod backward;
mod call;
mod forward;
mod in_model;
mod in_session;
mod memory;
mod score;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::tracked_code::{self, TrackedCode};
use super::{Caller, Layer, input, places, var};
use crate::graph::Dim;
use crate::graph::diff::diff;
use crate::graph::plan::plan;
use crate::graph::steps::{ArrayId, Attention, Role, Step, Steps, View};

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
/// const fn activation_bytes(batch, q_len, kv_len) -> usize   // the memory that the two take; in a model, `footprint`
/// impl FusedBlock for Name              // for `model!`
/// impl Decode for Name            // for one that goes on token by token
/// ```
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let Some(steps) = &cx.steps else {
        return TokenStream::new();
    };
    let adjoints = diff(steps);
    let plan = plan(steps, &adjoints);
    let cx = &Fused { cx, steps };
    let attentions = steps.steps.iter().filter_map(|step| match step {
        Step::Attention(attention) => Some(&**attention),
        _ => None,
    });
    let attentions = attentions.map(|attention| cx.emit_attention(attention));
    let attentions: Vec<_> = attentions.collect();
    let structs = [cx.emit_weights(), cx.emit_call(), cx.emit_saved(&plan)];
    let forward = cx.emit_forward(&plan);
    let backward = cx.emit_backward(&adjoints, &plan);
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
        #(#attentions)*
        #memory
        #in_model
        #in_session
    }
}

struct Fused<'a> {
    cx: &'a Layer<'a>,
    steps: &'a Steps,
}

impl Fused<'_> {
    fn attention(&self) -> Option<&Attention> {
        self.steps.steps.iter().find_map(|step| match step {
            Step::Attention(attention) => Some(&**attention),
            _ => None,
        })
    }

    fn name(&self, array: ArrayId) -> Ident {
        var(&self.steps.array(array).name)
    }

    fn gradient_name(&self, array: ArrayId) -> Ident {
        format_ident!("d_{}", self.steps.array(array).name)
    }

    fn input_ids(&self) -> impl Iterator<Item = ArrayId> {
        let ids = (0..self.steps.arrays.len()).map(ArrayId);
        ids.filter(|id| self.steps.array(*id).role == Role::Input)
    }

    fn inputs(&self) -> Vec<Ident> {
        self.input_ids().map(|id| self.name(id)).collect()
    }

    /// The inputs as arguments: `_` for one that no step reads.
    fn read_inputs(&self) -> Vec<Ident> {
        let name = |id| match self.steps.reads(id) {
            true => self.name(id),
            false => var("_"),
        };
        self.input_ids().map(name).collect()
    }

    /// `let mut q_k_v = p::Array::uninit(sizes.queries(), [512, 512, 512]);`
    fn emit_array(&self, lines: &mut TrackedCode, name: &Ident, id: ArrayId) {
        let array = self.steps.array(id);
        let rows = match array.rows {
            Dim::Key => quote!(sizes.keys()),
            _ => quote!(sizes.queries()),
        };
        let widths = array.parts.iter().map(|part| &part.width);
        lines.line(quote!(let mut #name = p::Array::<E, _>::uninit(#rows, [#(#widths),*]);));
        lines.take(name, self.footprint_of(id));
    }

    fn footprint_of(&self, id: ArrayId) -> TokenStream {
        let array = self.steps.array(id);
        let len = match array.rows {
            Dim::Key => quote!(key),
            _ => quote!(query),
        };
        let widths = array.parts.iter().map(|part| part.width.clone());
        let width = widths.reduce(|a, b| a.plus(&b));
        tracked_code::array(&[quote!(batch), len, quote!(#width)])
    }

    /// The whole of an array, to read.
    fn matrix(&self, id: ArrayId) -> TokenStream {
        let name = self.name(id);
        match self.steps.array(id).role {
            Role::Input => quote!(#name),
            _ => quote!(#name.view()),
        }
    }

    /// One matrix of an array, to read.
    fn view(&self, view: View) -> TokenStream {
        let name = self.name(view.array);
        let part = Literal::usize_unsuffixed(view.part);
        match self.steps.array(view.array).role {
            Role::Input => quote!(#name),
            _ => quote!(#name.part(#part)),
        }
    }

    /// The number of tokens of a sequence.
    fn len(&self, view: View) -> TokenStream {
        match self.steps.array(view.array).rows {
            Dim::Key => quote!(sizes.key),
            _ => quote!(sizes.query),
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
                let saved = p::inside(numbers, || forward(&call, &weights, #(#names.matrix(),)* output.view_mut()));
                let output = operation.finish_matrix(&device, output, shape, move |d_output, gradients| {
                    p::inside(numbers, || {
                        backward(&call, &weights, #(#names.matrix(),)* saved, d_output, #(&mut #names.target(),)* gradients)
                    })
                })?;
                Ok((output, None))
            }
        }
    }
}
