//! The function of the derivative.
//!
//! A gradient that is not an input's has one contribution. So an operation may overwrite the gradients of its operands
//! (`tests/passes/steps.rs` holds that of every layer).

use quote::{format_ident, quote, quote_spanned};

use super::LayerFrame;
use crate::emit::block::{self, Frame};
use crate::emit::tracked_code::TrackedCode;

impl LayerFrame<'_> {
    pub(super) fn emit_backward(&self) -> TrackedCode {
        let inputs = self.read_inputs();
        let d_inputs = self.inputs();
        let d_inputs: Vec<_> = d_inputs
            .iter()
            .map(|name| format_ident!("d_{name}"))
            .collect();
        let read = inputs.into_iter().chain(self.read_result());
        let d_output = self.gradient_name(self.layer.output());
        let mut lines = TrackedCode::default();
        let saved = block::saved(self);
        lines.restore(&saved);
        block::emit_backward(self, &mut lines);
        let given = self.given();
        for (id, d_input) in self.layer.inputs.iter().zip(&d_inputs) {
            // A gradient that is 0 everywhere is written, too.
            if !self.layer.reads(*id) || given.contains(&self.value(*id)) {
                lines.line(quote!(#d_input.accumulate(gradients, |_| {});));
            }
        }
        // Several targets that are written at once are of one type.
        let is_one = self.layer.attention_reads_inputs();
        let lifetime = is_one.then(|| quote!('t,));
        let target = match is_one {
            true => quote!('t),
            false => quote!('_),
        };
        let derivatives = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The derivative, step by step backwards. Gradients of weights are added to in the tape's own buffers.
            #[allow(unused_variables)]
            fn backward<#lifetime E: p::Element>(
                call: &Call<E>,
                weights: &Weights<E>,
                #(#read: p::Matrix<'_, E>,)*
                saved: Saved<E>,
                #d_output: p::Matrix<'_, E>,
                d_beside: p::BesideGradients<'_, E>,
                #(#d_inputs: &mut p::GradTarget<#target, E>,)*
                gradients: &mut p::Gradients<E>,
            ) {
                let sizes = call.sizes;
                let Saved { #(#saved),* } = saved;
                #derivatives
            }
        });
        lines
    }
}
