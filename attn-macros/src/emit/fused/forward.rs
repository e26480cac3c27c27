//! The forward pass: a line or two per step.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};

use super::score::{Score, distances};
use super::{Fused, LayerNode, var};
use crate::emit::ExecMode;
use crate::emit::tracked_code::{self, TrackedCode};
use crate::model::graph::{Node, ValueId};
use crate::model::plan::Forward;
use crate::ops::fused::FusedOp;

impl Fused<'_> {
    pub(super) fn emit_forward(&self, plan: &Forward) -> TrackedCode {
        let inputs = self.read_inputs();
        let output = self.name(self.steps.output());
        let mut lines = self.tables();
        for (node, planned) in self.steps.nodes().zip(&plan.steps) {
            self.emit_node(&mut lines, node, ExecMode::Forward);
            let free = planned.free.iter();
            free.for_each(|id| lines.drop(&self.name(*id)));
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
        let score = self.steps.attention();
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
    pub(super) fn saved(&self, plan: &Forward) -> Vec<Ident> {
        let values = plan.saved.iter().map(|id| self.name(*id));
        values.chain([var("lse")]).collect()
    }

    pub(super) fn emit_node(
        &self,
        lines: &mut TrackedCode,
        node: &Node<dyn FusedOp>,
        mode: ExecMode,
    ) {
        let to = self.result(lines, node.result);
        let fused = self;
        node.op
            .forward(&LayerNode { fused, node, mode }, &to, lines);
    }

    /// A value to write for the first time: the line that makes it, and the matrix.
    fn result(&self, lines: &mut TrackedCode, id: ValueId) -> TokenStream {
        let name = self.name(id);
        if id == self.steps.output() {
            return quote!(#name);
        }
        self.emit_array(lines, &name, id);
        quote!(#name.view_mut())
    }
}
