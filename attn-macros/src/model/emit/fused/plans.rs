//! The passes of a function, or of one with a bound on its memory those of each plan.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::ModelFrame;
use crate::emit::tracked_code;
use crate::model::budget::{Budget, Work};
use crate::model::emit::{length, made_lengths};
use crate::model::graph::Step;

impl ModelFrame<'_> {
    /// The passes with what they keep, and their memory; of a function with a bound, those of each plan, and the choice of one:
    ///
    /// ```text
    /// trait ___Passes { type Saved<E>; fn forward<E>(..) -> Self::Saved<E>; fn backward<E>(..); }
    /// struct ___Plan<const N: usize>;
    /// const _: () = { struct ___GptSaved<E> { .. } fn forward .. fn backward .. impl ___Passes for ___Plan<0> { .. } };
    /// const fn ___footprint_0<E>(batch, seq, last: usize) -> p::Footprint
    /// const fn ___footprint_of_plan<E>(batch, seq, at: p::ChosenPlan) -> p::Footprint
    /// const ___ROUNDS: &[usize] = &[6];
    /// const ___CHOSEN: p::ChosenPlan = { let mut search = p::PlanSearch::new(64 MiB, ___ROUNDS, &[..]); .. };
    /// type ___Chosen = ___Plan<{ ___CHOSEN.plan }>;
    /// ```
    ///
    /// So machine code is made of the chosen one alone.
    pub(super) fn emit_plans(&self, plans: &[ModelFrame<'_>], works: &[&Work]) -> TokenStream {
        match &self.model().budget {
            Some(budget) => self.emit_choice(plans, works, budget),
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

    fn emit_choice(
        &self,
        plans: &[ModelFrame<'_>],
        works: &[&Work],
        budget: &Budget,
    ) -> TokenStream {
        let at = self.cx.at.located_at(budget.key.span());
        let each = plans.iter().enumerate();
        let each: TokenStream = each.map(|(index, plan)| plan.emit_plan(index)).collect();
        let symbols = self.lengths_of_footprint();
        let lengths = self.model().symbols.iter();
        let lengths = lengths.filter_map(|axis| budget.length(axis));
        let lengths: Vec<_> = lengths.collect();
        let of_plan = self.emit_footprint_of_plan(plans.len());
        let memory = self.emit_memory(quote!(___footprint_of_plan::<E>(#(#symbols,)* ___CHOSEN)));
        let passes = self.emit_trait_of_plans();
        let (label, axes, bytes) = (self.cx.label(), &budget.text, budget.bytes());
        let steps = self.model().grouped.steps.iter();
        let rounds = steps.filter_map(|step| match step {
            Step::Repeat(repeat) => Some(&repeat.count),
            Step::Node(_) | Step::Scan(_) => None,
        });
        let works = works.iter().map(|Work { outside, rounds }| {
            let rounds = rounds.iter().map(|[first, last]| quote!([#first, #last]));
            quote!(p::PlanWork { outside: #outside, rounds: &[#(#rounds),*] })
        });
        let name = &self.cx.name;
        let vis = &self.model().item.vis;
        let bytes_of_plan = self.cx.method("activation_bytes");
        let bytes_of_plan = format_ident!("__{bytes_of_plan}_of_plan");
        let count = plans.len();
        quote_spanned! {at=>
            const ___CHOSEN: p::ChosenPlan = {
                let mut search = p::PlanSearch::new(#bytes, ___ROUNDS, &[#(#works),*]);
                while let Some(at) = search.next() {
                    search.takes(___footprint_of_plan::<f32>(#(#lengths,)* at).bytes::<f32>());
                }
                search.chosen(#label, #axes)
            };
        }
        .into_iter()
        .chain(quote_spanned! {self.cx.at=>
            const ___ROUNDS: &[usize] = &[#(#rounds),*];
            struct ___Plan<const N: usize>;
            type ___Chosen = ___Plan<{ ___CHOSEN.plan }>;
            #passes
            #each
            #of_plan
            #memory
            impl #name {
                /// The bytes of a plan with so many last rounds, if there is one.
                #[doc(hidden)]
                #[allow(dead_code)]
                #vis const fn #bytes_of_plan(plan: usize, last: usize) -> Option<usize> {
                    match plan < #count && last <= p::all_rounds(___ROUNDS) {
                        true => Some(___footprint_of_plan::<f32>(#(#lengths,)* p::ChosenPlan { plan, last }).bytes::<f32>()),
                        false => None,
                    }
                }
            }
        })
        .collect()
    }

    /// The arguments of a footprint.
    fn lengths_of_footprint(&self) -> Vec<Ident> {
        let symbols = self.model().symbols.iter();
        symbols.map(|name| length(self.model(), name)).collect()
    }

    fn emit_footprint_of_plan(&self, count: usize) -> TokenStream {
        let symbols = self.lengths_of_footprint();
        let others = (1..count).map(|plan| {
            let footprint = format_ident!("___footprint_{plan}");
            quote!(#plan => #footprint::<E>(#(#symbols,)* ___at.last),)
        });
        quote_spanned! {self.cx.at=>
            const fn ___footprint_of_plan<E>(#(#symbols: usize,)* ___at: p::ChosenPlan) -> p::Footprint {
                match ___at.plan {
                    #(#others)*
                    _ => ___footprint_0::<E>(#(#symbols,)* ___at.last),
                }
            }
        }
    }

    /// A plan: its passes, what these keep, and their memory.
    fn emit_plan(&self, index: usize) -> TokenStream {
        let [forward, backward] = [self.emit_forward(), self.emit_backward()];
        let saved = self.emit_saved();
        let of_passes = self.whole_saved();
        let footprint = tracked_code::emit_footprint([&forward], [&backward]);
        let [forward, backward] = [forward.code, backward.code];
        let made = made_lengths(self.model());
        let first_rounds = self.emit_first_rounds(&quote!(___last));
        let name = format_ident!("___footprint_{index}");
        let symbols = self.lengths_of_footprint();
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
            const fn #name<E>(#(#symbols: usize,)* ___last: usize) -> p::Footprint {
                #made
                #first_rounds
                #footprint
            }
        }
    }

    /// `let ___again_0 = p::first_rounds(___ROUNDS, ___last, 0);` for each loop that is split.
    pub(super) fn emit_first_rounds(&self, last: &TokenStream) -> TokenStream {
        let steps = self.model().grouped.steps.iter();
        let parts = steps.filter_map(|step| match step {
            Step::Repeat(repeat) => repeat.part.as_ref().filter(|part| !part.is_last),
            Step::Node(_) | Step::Scan(_) => None,
        });
        let lines = parts.enumerate().map(|(index, part)| {
            let at = &part.at;
            quote!(let #at = p::first_rounds(___ROUNDS, #last, #index);)
        });
        lines.collect()
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
