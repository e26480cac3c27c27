//! The forward pass: a line or two per step.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};

use super::score::{Score, distances};
use super::{Fused, var};
use crate::emit::ExecMode;
use crate::emit::tracked_code::{self, TrackedCode};
use crate::graph::plan::Plan;
use crate::graph::steps::{ArrayId, Role, Step};

impl Fused<'_> {
    pub(super) fn emit_forward(&self, plan: &Plan) -> TrackedCode {
        let inputs = self.read_inputs();
        let output = self.name(self.steps.output);
        let mut lines = self.tables();
        for (step, free) in self.steps.steps.iter().zip(&plan.free) {
            self.emit_step(&mut lines, step, ExecMode::Forward);
            free.iter().for_each(|id| lines.drop(&self.name(*id)));
        }
        let saved = self.saved(plan);
        lines.keep(&saved);
        let steps = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The forward pass, step by step.
            fn forward<E: p::Element>(
                call: &Call<E>,
                weights: &Weights<E>,
                #(#inputs: p::Matrix<'_, E>,)*
                #output: p::MatrixMut<'_, E>,
            ) -> Saved<E> {
                let sizes = call.sizes;
                #steps
                Saved { #(#saved),* }
            }
        });
        lines
    }

    /// The tables of the call: made before the first step, they stay until the last one of the derivative.
    fn tables(&self) -> TrackedCode {
        let mut lines = TrackedCode::default();
        let score = self.attention();
        let score = score.and_then(|attention| Score::new(self.cx, attention));
        let heads = &self.cx.spec.heads;
        for (name, _) in score.iter().flat_map(Score::tables_of_call) {
            let name = var(&name);
            lines.take(&name, tracked_code::array(&[quote!(#heads), distances()]));
            lines.keep(&[name]);
        }
        lines
    }

    /// The variables that are handed on to the derivative.
    pub(super) fn saved(&self, plan: &Plan) -> Vec<Ident> {
        let arrays = plan.saved.iter().map(|id| self.name(*id));
        arrays.chain([var("lse")]).collect()
    }

    /// An array to write for the first time: the line that makes it, and the matrix.
    fn result(&self, lines: &mut TrackedCode, id: ArrayId) -> TokenStream {
        let name = self.name(id);
        match self.steps.array(id).role {
            Role::Output => quote!(#name),
            _ => {
                self.emit_array(lines, &name, id);
                quote!(#name.view_mut())
            }
        }
    }

    pub(super) fn emit_step(&self, lines: &mut TrackedCode, step: &Step, mode: ExecMode) {
        let to = self.result(lines, step.result());
        let line = match step {
            Step::Linear {
                x,
                leaves_bias,
                to: id,
                ..
            } => {
                let projection = self.name(*id);
                let x = self.matrix(*x);
                if *leaves_bias {
                    quote!(weights.#projection.forward_without_bias(#x, #to);)
                } else {
                    quote!(weights.#projection.forward(#x, #to);)
                }
            }
            Step::HeadTransform { x, heads, how, .. } => {
                let how = self.emit_prepare(how);
                let len = self.len(*x);
                let x = self.view(*x);
                let call = match mode {
                    ExecMode::Forward => {
                        quote!(p::prepare(&#how, sizes.batch, #len, #heads, #x, #to))
                    }
                    ExecMode::Session => quote!(new.prepare(&#how, #heads, #x, #to)),
                };
                quote!(#call;)
            }
            Step::PerHeadLinear {
                x, heads, field, ..
            } => {
                let field = var(field);
                let x = self.view(*x);
                quote!(p::per_head_linear(#heads, #x, weights.#field.matrix(), #to);)
            }
            Step::Attention(attention) => {
                let views = self.views(attention);
                let (make, attention) = self.call_attention(attention);
                lines.line(make);
                match mode {
                    ExecMode::Forward => {
                        self.emit_lse(lines);
                        quote!(#attention.forward(#(#views,)* #to, lse.as_mut_slice());)
                    }
                    ExecMode::Session => {
                        quote!(cache.attend(new, &#attention, [#(#views),*], #to);)
                    }
                }
            }
        };
        lines.line(line);
    }

    fn emit_lse(&self, lines: &mut TrackedCode) {
        let heads = &self.cx.spec.heads;
        lines.line(
            quote!(let mut lse = p::Array::uninit(sizes.batch * sizes.heads, [sizes.query]);),
        );
        lines.take(
            &var("lse"),
            tracked_code::array(&[quote!(batch), quote!(#heads), quote!(query)]),
        );
    }
}
