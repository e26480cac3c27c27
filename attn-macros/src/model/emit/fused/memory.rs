//! The memory that both passes take, known before they run.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};

use super::Fused;
use crate::emit::lines::{self, Lines};
use crate::model::diff::To;
use crate::model::emit::{facts, length};
use crate::model::graph::{Node, Op, Submodule, ValueId};
use crate::model::types::Axis;

impl Fused<'_> {
    /// `activation_bytes`, on the default type, so that it needs no type arguments.
    pub(super) fn emit_activation_bytes(&self, forward: &Lines, backward: &Lines) -> TokenStream {
        let (name, vis) = (&self.cx.name, &self.model().item.vis);
        let symbols = self.model().symbols.iter();
        let symbols = symbols.map(|name| length(self.model(), name));
        let footprint = lines::emit_footprint([forward], [backward]);
        quote_spanned! {self.cx.at=>
            #[allow(dead_code)]
            impl #name {
                /// The most bytes of activations at a time, in `f32`, while a forward and a backward pass train the model; in
                /// `f64` it is twice as many. This is exact, and known before anything runs: it is counted along the lines
                /// of the two passes, as they stand.
                ///
                /// What counts: values, what layers keep for the derivative, gradients of values, what layers take for a
                /// moment, and the results with their gradients. What does not: parameters and their gradients, inputs,
                /// a loss, the scratch memory of kernels, and what buffers are rounded up by. Without dropout it may be less.
                ///
                /// PyTorch: `torch.cuda.max_memory_allocated()`, afterwards. What does not fit is `usize::MAX`.
                #[allow(unused_variables)]
                #vis const fn activation_bytes(#(#symbols: usize),*) -> usize {
                    #footprint.bytes::<f32>()
                }
            }
        }
    }

    /// Of a value.
    pub(super) fn footprint_of(&self, id: ValueId) -> TokenStream {
        lines::array(&self.extent(id))
    }

    /// The sizes of the axes, by the names of the arguments.
    fn extent(&self, id: ValueId) -> Vec<TokenStream> {
        let axes = self.ty(id).axes.iter().map(|axis| match axis {
            Axis::Symbol(name) => length(self.model(), name).into_token_stream(),
            Axis::Size(size) => size.into_token_stream(),
        });
        axes.collect()
    }

    /// Of what an operation takes beside its result, and keeps beside values.
    pub(super) fn footprint(&self, node: &Node) -> Option<TokenStream> {
        let x = *node.operands.first()?;
        let axes = self.extent(x);
        let (width, rows) = axes.split_last()?;
        Some(match &node.op {
            Op::LayerNorm(_) | Op::RmsNorm(_) => {
                quote!(p::layers::norm_footprint(&[#(#rows),*], #width))
            }
            Op::FeedForward(place) => {
                let Some(Submodule::FeedForward {
                    hidden, activation, ..
                }) = self.model().layer(place)
                else {
                    return None;
                };
                let gated = activation.gated;
                quote!(p::layers::feed_forward_footprint(&[#(#rows),*], #hidden, #gated))
            }
            Op::Attention { index, .. } => {
                let name = &self.model().attentions[*index].0.item.name;
                let [batch, query, key] = facts::attention_axes(self.model(), node)?;
                quote!(<#name>::footprint(#batch, #query, #key))
            }
            Op::SinusoidalPosition => {
                let result = self.extent(node.result);
                let one = &result[result.len() - 2..];
                quote!(p::Footprint::forth(&[#(#one),*]))
            }
            Op::Expand => {
                let to = self.extent(node.result);
                quote!(p::layers::expand_footprint(&[#(#axes),*], &[#(#to),*]))
            }
            _ => return None,
        })
    }

    /// Of what a derivative takes beside the gradients that it writes.
    pub(super) fn footprint_backward(
        &self,
        node: &Node,
        to: &[(usize, To)],
    ) -> Option<TokenStream> {
        match &node.op {
            // What it overwrites is written elsewhere first, if it is to be added.
            Op::Activation(_) => {
                let is_new = matches!(to, [(_, To::New(_))]);
                let axes = self.extent(node.operands[0]);
                (!is_new).then(|| quote!(p::Footprint::back(&[#(#axes),*])))
            }
            Op::SinusoidalPosition => None,
            _ => self.footprint(node),
        }
    }
}
