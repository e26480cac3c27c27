//! The gradients of what the function of the score reads, from the sums that the kernel has computed.

use std::collections::BTreeSet;

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote};

use super::{
    Learned, Score, Sums, arguments, distances, is_learned, is_of_pairs, length, param_field,
};
use crate::emit::expr::{flat_index, host};
use crate::emit::fused::{ParameterGradient, var};
use crate::emit::tracked_code;
use crate::graph::Dim;
use crate::score::diff::{Wrt, diff};
use crate::score::split::{BiasTerm, bias_term_name, param_reads};

impl<'a> Score<'a> {
    /// The sums of what is learned, for the backward pass. `None` if nothing is.
    pub(in crate::emit::fused) fn emit_gradient(&self) -> Option<ParameterGradient> {
        if !self.bias_terms.iter().any(is_learned) {
            return None;
        }
        let heads = &self.cx.spec.heads;
        let given = self.given();
        let learned = self.learned.iter();
        let learned = learned.map(|learned| self.emit_learned_gradient(learned));
        let tables = self.tables().filter(|(_, bias_term)| is_learned(bias_term));
        let adds = tables.map(|(index, bias_term)| self.emit_table_gradient(index, bias_term));
        let of_pairs = self.terms_of_pairs().enumerate();
        let of_pairs =
            of_pairs.map(|(number, (_, bias_term))| self.emit_pair_gradient(number, bias_term));
        let adds: Vec<_> = learned.chain(adds).chain(of_pairs).collect();
        let [per_head, shared, per_sequence] =
            [Sums::PerHead, Sums::Shared, Sums::PerSequence].map(|sums| self.len(sums));
        let pairs = self.terms_of_pairs().count();
        let tables = self.tables().filter(|(_, bias_term)| is_learned(bias_term));
        let of_tables = tables.map(|_| vec![quote!(#heads), distances()]);
        let sums = [
            vec![quote!(#heads), quote!(#per_head)],
            vec![quote!(#shared)],
        ];
        let of_sequences = (per_sequence.value != Some(0))
            .then(|| vec![quote!(batch), quote!(#heads), quote!(#per_sequence)]);
        let pairs = (pairs > 0).then(|| {
            let pairs = Literal::usize_unsuffixed(pairs);
            let [batch, query, key] = [quote!(batch), quote!(query), quote!(key)];
            vec![quote!(#pairs), batch, quote!(#heads), query, key]
        });
        let footprints = sums.into_iter().chain(of_sequences).chain(pairs);
        let footprints = footprints.chain(of_tables);
        let lengths = self.lengths(&quote!(call));
        Some(ParameterGradient {
            make: quote! {
                #lengths
                let mut d_score = p::ScoreGradient::<E>::uninit(call.sizes, p::Score::sums(&modified(call, weights #(, #given.values())*)));
            },
            footprints: footprints.map(|axes| tracked_code::array(&axes)).collect(),
            argument: self.wanted(&quote!(d_score.as_mut())),
            add: quote!(#(#adds)*),
        })
    }

    /// Some sums, if anything wants them: a value does always.
    fn wanted(&self, sums: &TokenStream) -> TokenStream {
        let bias_terms = self.bias_terms.iter().filter(|of| is_learned(of));
        let reads = bias_terms.flat_map(|bias_term| param_reads(&bias_term.expr));
        let names: BTreeSet<_> = reads.map(|(name, _)| param_field(&var(name))).collect();
        match names.iter().any(|name| self.is_given(name)) {
            true => quote!(Some(#sums)),
            false => {
                let names = names.iter();
                quote!(p::any_wanted(&[#(&weights.#names),*]).then(|| #sums))
            }
        }
    }

    fn emit_learned_gradient(&self, learned: &Learned<'_>) -> TokenStream {
        let name = param_field(&var(learned.name));
        let start = self.start(learned);
        let len = &learned.len;
        let range = quote!(#start..#start + #len);
        self.with_gradient(&name, &|to| match learned.sums {
            Sums::PerHead => quote!(d_score.add_per_head(#range, #to);),
            Sums::Shared => quote!(d_score.add_shared(#range, #to);),
            Sums::PerSequence => {
                let place = self.place_in_sequence(learned);
                quote!(d_score.add_per_sequence(#range, #place, #to);)
            }
        })
    }

    /// `|b, h, i| place`: the element of a value of which number `i` of a head of a sequence is the sum.
    fn place_in_sequence(&self, learned: &Learned<'_>) -> TokenStream {
        let dims = self.cx.graph.dims(learned.name);
        let name = |axis: usize| format_ident!("i{axis}");
        let axes = learned.axes.iter().map(|axis| name(*axis));
        let sizes = learned.axes.iter().map(|axis| length(&dims[*axis]));
        let mut has_head = false;
        let mut has_batch = false;
        let index: Vec<TokenStream> = (0..dims.len())
            .map(|axis| {
                if learned.axes.contains(&axis) {
                    let name = name(axis);
                    quote!(#name)
                } else if dims[axis] == Dim::Batch && !has_batch {
                    has_batch = true;
                    quote!(b)
                } else {
                    has_head = true;
                    quote!(h)
                }
            })
            .collect();
        let head = format_ident!("{}", if has_head { "h" } else { "_h" });
        let flat = flat_index(self.cx, learned.name, index.into_iter());
        quote!(|b, #head, i| { let [#(#axes),*] = p::unflatten(i, [#(#sizes),*]); #flat })
    }

    /// The lines that add the gradients of the pairs of a bias term to those of the values that it reads.
    fn emit_pair_gradient(&self, number: usize, bias_term: &'a BiasTerm) -> TokenStream {
        let expr = &bias_term.expr;
        let number = Literal::usize_unsuffixed(number);
        let given = self.given();
        if let Some((name, start)) = self.start_of_row(bias_term) {
            let variables = self.variables(expr, &quote!(modified));
            return self.with_gradient(&param_field(&var(name)), &|to| {
                quote! {
                    let modified = modified(call, weights #(, #given.values())*);
                    #[allow(unused_variables)]
                    let start = |b: i64, h: i64, q_idx: i64| {
                        let kv_idx = 0_i64;
                        #variables
                        #start
                    };
                    d_score.add_pair_rows(#number, start, #to);
                }
            });
        }
        let reads = param_reads(expr).into_iter();
        let reads = reads.filter(|(name, _)| is_of_pairs(self.cx, name));
        let adds = reads.map(|(name, read)| {
            let at = flat_index(self.cx, name, read.iter().map(|index| host(index, 9)));
            let derivative = diff(expr, Wrt::Element(name, read));
            let factor = host(&derivative, 0);
            let variables = self.variables(expr, &quote!(modified));
            self.with_gradient(&param_field(&var(name)), &|to| {
                quote! {
                    let modified = modified(call, weights #(, #given.values())*);
                    #[allow(unused_variables)]
                    let read = |b: i64, h: i64, q_idx: i64, kv_idx: i64| {
                        #variables
                        (#at, #factor)
                    };
                    d_score.add_pairs(#number, read, #to);
                }
            })
        });
        quote!(#(#adds)*)
    }

    /// The line that adds to the gradient of a learned tensor, or of an input.
    fn with_gradient(&self, name: &Ident, add: &dyn Fn(TokenStream) -> TokenStream) -> TokenStream {
        if !self.is_given(name) {
            let add = add(quote!(weights.#name.gradient(gradients)));
            return quote!(if p::WantsGradient::is_wanted(&weights.#name) { #add });
        }
        let target = format_ident!("d_{name}");
        let add = add(quote!(to));
        quote!(#target.accumulate(gradients, |to| { #add });)
    }

    fn emit_table_gradient(&self, index: usize, bias_term: &BiasTerm) -> TokenStream {
        let [h, q_idx, kv_idx] = arguments(&bias_term.expr);
        let table = var(&bias_term_name(index));
        let start = self.table_start(index, &quote!(call));
        let adds = param_reads(&bias_term.expr)
            .into_iter()
            .map(|(name, read)| {
                let at = flat_index(self.cx, name, read.iter().map(|index| host(index, 9)));
                let factor = host(&diff(&bias_term.expr, Wrt::Param(name)), 0);
                let (reads, name) = (
                    self.reads(&bias_term.expr, None, &|field| match self.is_given(field) {
                        true => quote!(#field.values()),
                        false => quote!(weights.#field.values()),
                    }),
                    param_field(&var(name)),
                );
                self.with_gradient(&name, &|to| {
                    quote! {
                        call.#table.add_to_parameter(
                            d_score.per_head(#start..#start + call.#table.distances()),
                            { #reads move |#h, #q_idx, #kv_idx| (#at, #factor) },
                            #to,
                        );
                    }
                })
            });
        quote!(#(#adds)*)
    }
}
