//! The backward pass: the derivatives of the steps, the last one first.
//!
//! A gradient that is not an input's has one contribution. So an operation may overwrite the gradients of its operands, and each
//! line is the derivative of an operation, or gives memory back (`tests/passes/steps.rs` holds that of every layer).

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::{Fused, LayerNode};
use crate::emit::ExecMode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::diff::{BackwardStep, GradSource, GradTarget, last_reads};
use crate::model::graph::Node;
use crate::model::plan::Forward;
use crate::ops::fused::{FusedOp, LayerGradients};

impl Fused<'_> {
    pub(super) fn emit_backward(&self, plan: &Forward) -> TrackedCode {
        let inputs = self.read_inputs();
        let d_inputs = self.inputs();
        let d_inputs = d_inputs.iter().map(|name| format_ident!("d_{name}"));
        let d_output = self.gradient_name(self.steps.output());
        let mut lines = TrackedCode::default();
        let saved = self.saved(plan);
        lines.restore(&saved);
        self.emit_lines(&mut lines, plan);
        for id in &self.steps.inputs {
            if !self.steps.reads(*id) {
                let d_input = self.gradient_name(*id);
                lines.line(quote!(#d_input.accumulate(gradients, |_| {});));
            }
        }
        let derivatives = std::mem::take(&mut lines.code);
        lines.line(quote_spanned! {self.cx.at=>
            /// The derivative, step by step backwards. Gradients of weights are added to in the tape's own buffers.
            fn backward<E: p::Element>(
                call: &Call<E>,
                weights: &Weights<E>,
                #(#inputs: p::Matrix<'_, E>,)*
                saved: Saved<E>,
                #d_output: p::Matrix<'_, E>,
                #(#d_inputs: &mut p::GradTarget<'_, E>,)*
                gradients: &mut p::Gradients<E>,
            ) {
                let sizes = call.sizes;
                let Saved { #(#saved),* } = saved;
                #derivatives
            }
        });
        lines
    }

    fn emit_lines(&self, emitted: &mut TrackedCode, plan: &Forward) {
        let lines = &self.backward.lines;
        let is_adjoint = |line: &BackwardStep<'_, _>| matches!(line, BackwardStep::Adjoint { .. });
        let last = lines.iter().rposition(is_adjoint).unwrap_or(0);
        let free = last_reads(self.steps.block(), lines, &plan.saved);
        for (index, (line, free)) in lines.iter().zip(free).enumerate() {
            let mut free: Vec<_> = free.iter().map(|id| self.name(*id)).collect();
            match line {
                BackwardStep::Adjoint { node, d_result, to } => {
                    self.emit_adjoint(emitted, node, *d_result, to);
                }
                BackwardStep::Free(buffer) => free.push(self.buffer(*buffer)),
                // There are none.
                BackwardStep::Zeros(_)
                | BackwardStep::Copy { .. }
                | BackwardStep::Add { .. }
                | BackwardStep::Repeat { .. } => {}
            }
            // After the last derivative, all memory goes by itself.
            if index < last {
                free.iter().for_each(|name| emitted.drop(name));
            }
        }
    }

    fn emit_adjoint(
        &self,
        lines: &mut TrackedCode,
        node: &Node<dyn FusedOp>,
        d_result: GradSource,
        to: &[(usize, GradTarget)],
    ) {
        for (_, to) in to {
            if let GradTarget::New(buffer) = to {
                let of = self.backward.buffers[buffer.0];
                self.emit_array(lines, &self.buffer(*buffer), of);
            }
        }
        let gradients = LayerGradients {
            d_result: self.gradient(d_result),
            to: to.iter().map(|(_, to)| *to).collect(),
        };
        let of = LayerNode {
            fused: self,
            node,
            mode: ExecMode::Forward,
        };
        node.op.backward(&of, &gradients, lines);
    }

    /// A gradient, to read.
    fn gradient(&self, from: GradSource) -> TokenStream {
        match from {
            GradSource::Result(_) => {
                let name = self.gradient_name(self.steps.output());
                quote!(#name)
            }
            GradSource::Buffer(buffer) => {
                let name = self.buffer(buffer);
                quote!(#name.view())
            }
        }
    }
}
