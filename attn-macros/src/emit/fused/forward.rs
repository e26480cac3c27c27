//! The function of the forward pass.

use quote::{quote, quote_spanned};

use super::score::{Score, distances};
use super::{LayerFrame, var};
use crate::emit::block::{self, Frame};
use crate::emit::tracked_code::{self, TrackedCode};

impl LayerFrame<'_> {
    pub(super) fn emit_forward(&self) -> TrackedCode {
        let inputs = self.read_inputs();
        let output = self.value(self.layer.output());
        let mut lines = self.tables();
        lines.append(block::emit_forward(self));
        let saved = block::saved(self);
        lines.keep(&saved);
        let steps = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The forward pass, step by step.
            #[allow(unused_variables)]
            fn forward<E: p::Element>(
                call: &Call<E>,
                weights: &Weights<E>,
                #(#inputs: p::Matrix<'_, E>,)*
                #output: p::MatrixMut<'_, E>,
                beside: p::Beside<'_, E>,
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
        let score = self.layer.attention();
        let score = score.and_then(|attention| Score::new(self.cx, attention));
        let heads = &self.cx.spec.heads;
        for (name, _) in score.iter().flat_map(Score::tables_of_call) {
            let name = var(&name);
            lines.take(&name, tracked_code::array(&[quote!(#heads), distances()]));
            lines.keep(&[name]);
        }
        lines
    }
}
