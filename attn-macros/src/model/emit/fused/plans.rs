//! The passes of a function, or of one with a bound on its memory those of each plan.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::ModelFrame;
use crate::emit::tracked_code;
use crate::model::budget::Budget;
use crate::model::emit::{length, made_lengths};

impl ModelFrame<'_> {
    /// The passes with what they keep, and their memory; of a function with a bound, those of each plan, and the choice of one:
    ///
    /// ```text
    /// trait ___Passes { type Saved<E>; fn forward<E>(..) -> Self::Saved<E>; fn backward<E>(..); }
    /// struct ___Plan<const N: usize>;
    /// const _: () = { struct ___GptSaved<E> { .. } fn forward .. fn backward .. impl ___Passes for ___Plan<0> { .. } };
    /// const fn ___footprint_0<E>(batch, seq) -> p::Footprint
    /// const ___CHOSEN: usize = p::first_that_fits("Gpt", "batch = 8", 64 MiB, &[___footprint_0::<f32>(8).bytes::<f32>(), ..]);
    /// type ___Chosen = ___Plan<{ ___CHOSEN }>;
    /// ```
    ///
    /// So machine code is made of the chosen one alone.
    pub(super) fn emit_plans(&self, plans: &[ModelFrame<'_>]) -> TokenStream {
        match &self.model().budget {
            Some(budget) => self.emit_choice(plans, budget),
            None => {
                let [forward, backward] = [self.emit_forward(), self.emit_backward()];
                let made = made_lengths(self.model());
                let footprint = tracked_code::emit_footprint([&forward], [&backward]);
                let parts = [
                    self.emit_memory(quote!(#made #footprint)),
                    forward.code,
                    backward.code,
                ];
                parts.into_iter().collect()
            }
        }
    }

    fn emit_choice(&self, plans: &[ModelFrame<'_>], budget: &Budget) -> TokenStream {
        let at = self.cx.at.located_at(budget.key.span());
        let symbols = self.model().symbols.iter();
        let symbols: Vec<_> = symbols.map(|name| length(self.model(), name)).collect();
        let each = plans.iter().enumerate();
        let each: TokenStream = each.map(|(index, plan)| plan.emit_plan(index)).collect();
        let footprints = (0..plans.len()).map(|index| format_ident!("___footprint_{index}"));
        let footprints: Vec<_> = footprints.collect();
        let lengths = self.model().symbols.iter();
        let lengths = lengths.filter_map(|axis| budget.length(axis));
        let lengths: Vec<_> = lengths.collect();
        let (first, others) = (&footprints[0], &footprints[1..]);
        let others = others.iter().enumerate().map(|(index, footprint)| {
            let plan = index + 1;
            quote!(#plan => #footprint::<E>(#(#symbols),*),)
        });
        let memory = self.emit_memory(quote! {
            match ___CHOSEN {
                #(#others)*
                _ => #first::<E>(#(#symbols),*),
            }
        });
        let passes = self.emit_trait_of_plans();
        let (label, axes, bytes) = (self.cx.label(), &budget.text, budget.bytes());
        let name = &self.cx.name;
        let vis = &self.model().item.vis;
        let of_plans = self.cx.method("activation_bytes");
        let of_plans = format_ident!("__{of_plans}_of_plans");
        let bytes_of_plans = footprints
            .iter()
            .map(|footprint| quote!(#footprint::<f32>(#(#lengths),*).bytes::<f32>()));
        let bytes_of_plans: Vec<_> = bytes_of_plans.collect();
        quote_spanned! {at=>
            const ___BYTES: &[usize] = &[#(#bytes_of_plans),*];
            const ___CHOSEN: usize = p::first_that_fits(#label, #axes, #bytes, ___BYTES);
        }
        .into_iter()
        .chain(quote_spanned! {self.cx.at=>
            struct ___Plan<const N: usize>;
            type ___Chosen = ___Plan<{ ___CHOSEN }>;
            #passes
            #each
            #memory
            impl #name {
                #[doc(hidden)]
                #[allow(dead_code)]
                #vis const fn #of_plans() -> &'static [usize] {
                    ___BYTES
                }
            }
        })
        .collect()
    }

    /// A plan: its passes, what these keep, and their memory.
    fn emit_plan(&self, index: usize) -> TokenStream {
        let [forward, backward] = [self.emit_forward(), self.emit_backward()];
        let saved = self.emit_saved();
        let of_passes = self.whole_saved();
        let footprint = tracked_code::emit_footprint([&forward], [&backward]);
        let [forward, backward] = [forward.code, backward.code];
        let made = made_lengths(self.model());
        let name = format_ident!("___footprint_{index}");
        let symbols = self.model().symbols.iter();
        let symbols = symbols.map(|name| length(self.model(), name));
        quote_spanned! {self.cx.at=>
            const _: () = {
                #saved

                impl ___Passes for ___Plan<#index> {
                    type Saved<E: p::Element> = #of_passes<E>;

                    #forward
                    #backward
                }
            };

            #[allow(unused_variables)]
            const fn #name<E>(#(#symbols: usize),*) -> p::Footprint {
                #made
                #footprint
            }
        }
    }

    /// What plans have in common, and the passes of the chosen one.
    fn emit_trait_of_plans(&self) -> TokenStream {
        let model = self.model();
        let weights = self.weights_type(&model.modules[0]);
        let results = (0..model.results.len()).map(|index| format_ident!("result_{index}"));
        let results: Vec<_> = results.collect();
        let d_results = results.iter().map(|name| format_ident!("d_{name}"));
        let d_results: Vec<_> = d_results.collect();
        let forward = |saved: &TokenStream| {
            quote! {
                fn forward<E: p::Element>(
                    call: &Call<E>,
                    weights: &#weights<E>,
                    random: p::Random<'_>,
                    keep: bool,
                    #(#results: &mut p::Output<E>,)*
                ) -> #saved<E>
            }
        };
        let backward = |saved: &TokenStream| {
            quote! {
                fn backward<E: p::Element>(
                    call: &Call<E>,
                    weights: &#weights<E>,
                    saved: #saved<E>,
                    #(#d_results: &[E],)*
                    gradients: &mut p::Gradients<E>,
                )
            }
        };
        let saved = [quote!(Self::Saved), quote!(<___Chosen as ___Passes>::Saved)];
        let [of_trait, of_chosen] = [0, 1].map(|of| (forward(&saved[of]), backward(&saved[of])));
        let [(forward, backward), (chosen_forward, chosen_backward)] = [of_trait, of_chosen];
        quote_spanned! {self.cx.at=>
            /// The passes of a plan.
            trait ___Passes {
                type Saved<E: p::Element>;

                #forward;

                #backward;
            }

            #chosen_forward {
                <___Chosen as ___Passes>::forward(call, weights, random, keep, #(#results),*)
            }

            #chosen_backward {
                <___Chosen as ___Passes>::backward(call, weights, saved, #(#d_results,)* gradients)
            }
        }
    }
}
