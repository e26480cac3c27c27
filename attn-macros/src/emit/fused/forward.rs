//! The forward pass: a line or two per step.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::{Fused, var};
use crate::emit::When;
use crate::graph::plan::Plan;
use crate::graph::steps::{ArrayId, Role, Step};

impl Fused<'_> {
    pub(super) fn emit_forward(&self, plan: &Plan) -> TokenStream {
        let inputs = self.inputs();
        let output = self.name(self.steps.output);
        let steps = self.steps.steps.iter().zip(&plan.free).map(|(step, free)| {
            let (line, free) = (
                self.emit_step(step, When::Forward),
                free.iter().map(|id| self.name(*id)),
            );
            quote!(#line #(p::drop(#free);)*)
        });
        let saved = plan.saved.iter().map(|id| self.name(*id));
        quote_spanned! {self.cx.at=>
            /// The forward pass, step by step.
            fn forward<E: p::Element>(
                call: &Call<E>,
                weights: &Weights<E>,
                #(#inputs: p::Matrix<'_, E>,)*
                #output: p::MatrixMut<'_, E>,
            ) -> Saved<E> {
                let sizes = call.sizes;
                #(#steps)*
                Saved { #(#saved,)* lse }
            }
        }
    }

    /// An array to write for the first time: the line that makes it, and the matrix.
    fn result(&self, id: ArrayId) -> (TokenStream, TokenStream) {
        let name = self.name(id);
        match self.steps.array(id).role {
            Role::Output => (TokenStream::new(), quote!(#name)),
            _ => (self.emit_array(&name, id), quote!(#name.all_mut())),
        }
    }

    pub(super) fn emit_step(&self, step: &Step, when: When) -> TokenStream {
        let (array, to) = self.result(step.result());
        match step {
            Step::Linear { x, to: id, .. } => {
                let (projection, x) = (self.name(*id), self.matrix(*x));
                quote! {
                    #array
                    weights.#projection.forward(#x, #to);
                }
            }
            Step::Prepare { x, heads, how, .. } => {
                let (how, len, x) = (self.emit_prepare(how), self.len(*x), self.view(*x));
                let call = match when {
                    When::Forward => quote!(p::prepare(&#how, sizes.batch, #len, #heads, #x, #to)),
                    When::Session => quote!(new.prepare(&#how, #heads, #x, #to)),
                };
                quote!(#array #call;)
            }
            Step::PerHeadLinear {
                x, heads, field, ..
            } => {
                let (field, x) = (var(field), self.view(*x));
                quote! {
                    #array
                    p::per_head_linear(#heads, #x, weights.#field.matrix(), #to);
                }
            }
            Step::Attention(attention) => {
                let views = [attention.q, attention.k, attention.v].map(|view| self.view(view));
                let (make, attention) = self.call_attention(attention);
                let call = match when {
                    When::Forward => quote! {
                        let mut lse = p::Array::stale(sizes.batch * sizes.heads, [sizes.query]);
                        #attention.forward(#(#views,)* #to, lse.numbers_mut());
                    },
                    When::Session => quote!(cache.attend(new, &#attention, [#(#views),*], #to);),
                };
                quote!(#array #make #call)
            }
        }
    }
}
