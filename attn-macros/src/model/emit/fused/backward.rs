//! The function of the derivative.

use quote::{format_ident, quote, quote_spanned};

use super::ModelFrame;
use crate::emit::block::{self, Frame};
use crate::emit::tracked_code::TrackedCode;

impl ModelFrame<'_> {
    pub(super) fn emit_backward(&self) -> TrackedCode {
        let model = self.model();
        let d_results = (0..model.results.len()).map(|index| format_ident!("d_result_{index}"));
        let module = &model.modules[0];
        let weights = self.weights_type(module);
        let saved = self.whole_saved();
        let fields = block::saved(self);
        let mut lines = TrackedCode::default();
        for (index, id) in model.results.iter().enumerate() {
            lines.take(&self.own("d_result", index), self.footprint_of(*id));
        }
        lines.restore(&fields);
        block::emit_backward(self, &mut lines);
        let derivatives = std::mem::take(&mut lines.code);
        let first_rounds = self.emit_first_rounds(&quote!(___CHOSEN.last));
        lines.line(quote_spanned! {self.cx.at=>
            /// The derivative, operation by operation backwards. Gradients of parameters and inputs are added to in the tape's own
            /// buffers.
            #[allow(unused_variables, unused_mut)]
            fn backward<E: p::Element>(
                call: &Call<E>,
                weights: &#weights<E>,
                saved: #saved<E>,
                #(#d_results: &[E],)*
                gradients: &mut p::Gradients<E>,
            ) {
                let sizes = call.sizes;
                #first_rounds
                let #saved { #(#fields,)* .. } = saved;
                #derivatives
            }
        });
        lines
    }
}
