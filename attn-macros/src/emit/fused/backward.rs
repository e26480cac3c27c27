//! The backward pass: the derivatives of the steps, the last one first.
//!
//! A gradient that is not an input's has one contribution, so the steps that only overwrite are enough
//! (`tests/passes/steps.rs` holds that of every layer).

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::attention::{gain, sink, weights_of};
use super::score::Score;
use super::{Fused, var};
use crate::emit::tracked_code::{self, TrackedCode};
use crate::graph::diff::{Adjoint, Into};
use crate::graph::plan::Plan;
use crate::graph::steps::{ArrayId, Attention, HeadTransform, Role, Step, View};

impl Fused<'_> {
    pub(super) fn emit_backward(&self, adjoints: &[Adjoint], plan: &Plan) -> TrackedCode {
        let inputs = self.read_inputs();
        let d_inputs = self
            .inputs()
            .into_iter()
            .map(|name| format_ident!("d_{name}"));
        let d_output = self.gradient_name(self.steps.output);
        let mut made = Vec::new();
        let mut lines = TrackedCode::default();
        let saved = self.saved(plan);
        lines.restore(&saved);
        for (adjoint, free) in adjoints.iter().zip(&plan.free_backward) {
            self.emit_adjoint(&mut lines, adjoint, &mut made);
            let saved = free.saved.iter().map(|id| self.name(*id));
            let gradients = free.gradients.iter().map(|id| self.gradient_name(*id));
            saved.chain(gradients).for_each(|name| lines.drop(&name));
        }
        for id in self.input_ids().filter(|id| !self.steps.reads(*id)) {
            let d_input = self.gradient_name(id);
            lines.line(quote!(#d_input.accumulate(gradients, |_| {});));
        }
        let adjoints = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The derivative, step by step backwards. Gradients of weights are added to in the tape's own buffers.
            fn backward<E: p::Element>(
                call: &Call<E>,
                weights: &Weights<E>,
                #(#inputs: p::Matrix<'_, E>,)*
                saved: Saved<E>,
                #d_output: p::Matrix<'_, E>,
                #(#d_inputs: &mut p::Target<'_, E>,)*
                gradients: &mut p::Gradients<E>,
            ) {
                let sizes = call.sizes;
                let Saved { #(#saved),* } = saved;
                #adjoints
            }
        });
        lines
    }

    /// The lines that make the gradient arrays of `operands` that are not there yet.
    fn make_gradients(
        &self,
        lines: &mut TrackedCode,
        operands: &[(View, Into)],
        made: &mut Vec<ArrayId>,
    ) {
        for (View { array, .. }, _) in operands {
            if self.steps.array(*array).role != Role::Input && !made.contains(array) {
                made.push(*array);
                self.emit_array(lines, &self.gradient_name(*array), *array);
            }
        }
    }

    /// The gradient of an array, to read.
    fn gradient(&self, id: ArrayId) -> TokenStream {
        let name = self.gradient_name(id);
        match self.steps.array(id).role {
            Role::Output => quote!(#name),
            _ => quote!(#name.view()),
        }
    }

    fn emit_adjoint(&self, lines: &mut TrackedCode, adjoint: &Adjoint, made: &mut Vec<ArrayId>) {
        let step = &self.steps.steps[adjoint.step];
        self.make_gradients(lines, &adjoint.operands, made);
        let d_to = self.gradient(step.result());
        let line = match step {
            Step::Linear { x, to, .. } => {
                let projection = self.name(*to);
                let into = emit_into(adjoint.operands[0].1);
                let d_x = self.gradient_name(*x);
                let d_x = match self.steps.array(*x).role {
                    Role::Input => quote!(#d_x),
                    _ => quote!(&mut p::Target::array(&mut #d_x, #into)),
                };
                let x = self.matrix(*x);
                quote!(weights.#projection.backward(#x, #d_to, #d_x, gradients);)
            }
            Step::HeadTransform { x, heads, how, .. } => {
                let len = self.len(*x);
                let view = self.view(*x);
                let d_x = self.gradient_name(x.array);
                let part = Literal::usize_unsuffixed(x.part);
                let (gain, add_gain) = self.emit_gain(lines, "gain", how);
                let how = self.emit_prepare(how);
                quote! {
                    p::prepare_backward(&#how, sizes.batch, #len, #heads, #view, #d_to, #d_x.part_mut(#part), #gain);
                    #add_gain
                }
            }
            Step::PerHeadLinear {
                x, heads, field, ..
            } => {
                let field = var(field);
                let view = self.view(*x);
                let d_x = self.gradient_name(x.array);
                let part = Literal::usize_unsuffixed(x.part);
                quote! {
                    let d_weights = weights.#field.gradient_matrix(gradients);
                    p::per_head_linear_backward(#heads, #view, weights.#field.matrix(), #d_to, #d_x.part_mut(#part), d_weights);
                }
            }
            Step::Attention(attention) => {
                return self.emit_attention_adjoint(lines, attention, &d_to);
            }
        };
        lines.line(line);
    }

    /// For a norm with a gain: makes an array for its gradient; the argument, and the line that adds it.
    fn emit_gain(
        &self,
        lines: &mut TrackedCode,
        name: &str,
        how: &HeadTransform,
    ) -> (TokenStream, TokenStream) {
        let name = format_ident!("d_{name}");
        self.emit_own_gradient(lines, &name, gain(how), quote!(as_mut_slice))
    }

    fn emit_own_gradient(
        &self,
        lines: &mut TrackedCode,
        name: &Ident,
        field: Option<&'static str>,
        view: TokenStream,
    ) -> (TokenStream, TokenStream) {
        let Some(field) = field else {
            return (quote!(None), TokenStream::new());
        };
        let tensors = self.cx.graph.param(field).map(|param| param.tensors());
        let sizes = tensors.iter().flatten().flat_map(|(_, dims, _)| dims);
        let sizes: Vec<_> = sizes.map(|size| quote!(#size)).collect();
        let field = var(field);
        lines.line(quote!(let mut #name = p::Array::<E>::like(weights.#field.matrix());));
        lines.take(name, tracked_code::array(&sizes));
        (
            quote!(Some(#name.#view())),
            quote!(p::accumulate(weights.#field.gradient(gradients), #name.as_slice());),
        )
    }

    fn emit_attention_adjoint(
        &self,
        lines: &mut TrackedCode,
        attention: &Attention,
        d_to: &TokenStream,
    ) {
        let views = self.views(attention);
        let (split, [to_q, to_k, to_v]) = self.emit_results(attention);
        let attended = self.matrix(attention.to);
        let (make, call) = self.call_attention(attention);
        lines.line(make);
        let [query, key] = attention.prepares();
        let (query, add_query) = self.emit_gain(lines, "query_gain", &query);
        let (key, add_key) = self.emit_gain(lines, "key_gain", &key);
        let (w, add_w) = self.emit_own_gradient(
            lines,
            &var("d_w"),
            weights_of(&attention.similarity),
            quote!(view_mut),
        );
        let (d_sink, add_sink) = self.emit_own_gradient(
            lines,
            &var("d_sink"),
            sink(attention.normalizer),
            quote!(as_mut_slice),
        );
        let score = Score::new(self.cx, attention).and_then(|score| score.emit_gradient(lines));
        let [score, add_score] = score.unwrap_or_else(|| [quote!(None), TokenStream::new()]);
        lines.line(quote! {
            #split
            #call.backward(
                #(#views,)*
                #attended,
                lse.as_slice(),
                #d_to,
                p::AttentionGradients {
                    q: #to_q,
                    k: #to_k,
                    v: #to_v,
                    score: #score,
                    query_gain: #query,
                    key_gain: #key,
                    w: #w,
                    sink: #d_sink,
                },
            );
            #add_query #add_key #add_w #add_sink #add_score
        });
        if attention.normalizer.is_sparse() {
            lines.differentiate(self.centres());
        }
    }

    /// The temporary values of the kernel for a sparse normalizer: as many numbers as the attended values, and a copy of the
    /// thresholds.
    fn centres(&self) -> TokenStream {
        let heads = &self.cx.spec.heads;
        let width = &self.cx.spec.value_head_dim;
        quote!(p::Footprint::back(&[batch, #heads, query, (#width) + 1]))
    }

    /// `let [to_q] = d_q.parts_mut(); let [to_k, to_v] = d_k_v.parts_mut();`, and where the gradients of queries, keys and
    /// values go.
    fn emit_results(&self, attention: &Attention) -> (TokenStream, [TokenStream; 3]) {
        let [to_q, to_k, to_v] = ["to_q", "to_k", "to_v"].map(var);
        let Some([q, k]) = &attention.vectors else {
            let none = |rows| quote!(p::MatrixMut::without_cols(sizes.#rows()));
            let results = [none(var("queries")), none(var("keys")), quote!(#to_v)];
            return (self.emit_split(&[(attention.values.view, &to_v)]), results);
        };
        let views = [
            (q.view, &to_q),
            (k.view, &to_k),
            (attention.values.view, &to_v),
        ];
        let results = [quote!(#to_q), quote!(#to_k), quote!(#to_v)];
        (self.emit_split(&views), results)
    }

    fn emit_split(&self, views: &[(View, &Ident)]) -> TokenStream {
        let mut lines = TokenStream::new();
        let mut arrays: Vec<ArrayId> = views.iter().map(|(view, _)| view.array).collect();
        arrays.dedup();
        for array in arrays {
            let parts = (0..self.steps.array(array).parts.len()).map(|part| {
                let place = views.iter().find(|(view, _)| *view == View { array, part });
                place.map_or_else(|| var("_"), |(_, name)| (*name).clone())
            });
            let name = self.gradient_name(array);
            lines.extend(quote!(let [#(#parts),*] = #name.parts_mut();));
        }
        lines
    }
}

fn emit_into(into: Into) -> TokenStream {
    match into {
        Into::Overwrite => quote!(p::WriteMode::Overwrite),
        Into::Add => quote!(p::WriteMode::Add),
    }
}
