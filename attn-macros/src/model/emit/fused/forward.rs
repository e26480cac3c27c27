//! The function of the forward pass.

use quote::{format_ident, quote, quote_spanned};

use super::ModelFrame;
use crate::emit::block::{self, Frame};
use crate::emit::tracked_code::TrackedCode;
use crate::model::plan::is_written_directly;

impl ModelFrame<'_> {
    pub(super) fn emit_forward(&self) -> TrackedCode {
        let model = self.model();
        let results: Vec<_> = (0..model.results.len())
            .map(|index| format_ident!("result_{index}"))
            .collect();
        let mut lines = TrackedCode::default();
        let made = (0..results.len()).map(|index| self.own("result", index));
        let made: Vec<_> = made.collect();
        for (id, result) in model.results.iter().zip(&made) {
            lines.take(result, self.footprint_of(*id));
        }
        lines.append(block::emit_forward(self));
        for (id, result) in model.results.iter().zip(&results) {
            if !is_written_directly(model.block(), *id, self.plan()) {
                let numbers = self.read(*id).slice;
                lines.line(quote!(#result.as_mut_slice().copy_from_slice(#numbers);));
            }
        }
        let module = &model.modules[0];
        let weights = self.weights_type(module);
        let saved = self.whole_saved();
        let fields = block::saved(self);
        lines.keep(&fields);
        // The tape has them until the derivative is done.
        lines.keep(&made);
        let steps = std::mem::take(&mut lines.code);
        let first_rounds = self.emit_first_rounds(&quote!(___CHOSEN.last));
        lines.line(quote_spanned! {self.cx.at=>
            /// The forward pass, operation by operation. `keep` says whether a derivative will be asked for.
            #[allow(unused_variables, unused_mut)]
            fn forward<E: p::Element>(
                call: &Call<E>,
                weights: &#weights<E>,
                random: p::Random<'_>,
                keep: bool,
                #(#results: &mut p::Output<E>,)*
            ) -> #saved<E> {
                let sizes = call.sizes;
                #first_rounds
                #steps
                #saved { #(#fields,)* __types: p::PhantomData }
            }
        });
        lines
    }
}
