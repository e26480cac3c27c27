//! The memory that both passes take, known before they run.

use proc_macro2::TokenStream;
use quote::quote_spanned;

use super::ModelFrame;
use crate::model::emit::{length, trainer};

impl ModelFrame<'_> {
    /// `footprint`, and on the default type, so that it needs no type arguments, `activation_bytes`.
    pub(super) fn emit_memory(&self, footprint: TokenStream) -> TokenStream {
        let name = &self.cx.name;
        let vis = &self.model().item.vis;
        let symbols = self.model().symbols.iter();
        let symbols = symbols.map(|name| length(self.model(), name));
        let symbols = symbols.collect::<Vec<_>>();
        let activation_bytes = self.cx.method("activation_bytes");
        let in_bf16 = trainer::is_loss(self.model()).then(|| {
            let name = self.cx.method("activation_bytes_bf16");
            let doc = format!(
                "[`{activation_bytes}`](Self::{activation_bytes}) of a trainer with `.dtype(Dtype::Bf16)`, which keeps the inputs of hidden layers of \
                 `feed_forward` in bf16."
            );
            quote_spanned! {self.cx.at=>
                #[doc = #doc]
                #vis const fn #name(#(#symbols: usize),*) -> usize {
                    footprint::<f32>(#(#symbols),*).bf16_bytes::<f32>()
                }
            }
        });
        quote_spanned! {self.cx.at=>
            /// The memory that both passes take.
            #[allow(unused_variables)]
            const fn footprint<E>(#(#symbols: usize),*) -> p::Footprint {
                #footprint
            }

            #[allow(dead_code)]
            impl #name {
                /// The most bytes of activations at a time, in `f32`, while a forward and a backward pass train the model; in
                /// `f64` it is twice as many. This is exact, and known before anything runs: it is counted along the lines
                /// of the two passes, as they stand.
                ///
                /// It includes values, the memory that layers keep for the derivative, gradients of values, the temporary memory of
                /// layers, and the results with their gradients. It does not include parameters and their gradients, inputs, a loss,
                /// the scratch memory of kernels, and the rounding of buffers. Without dropout it may be less.
                ///
                /// PyTorch: `torch.cuda.max_memory_allocated()`, afterwards. What does not fit is `usize::MAX`.
                #vis const fn #activation_bytes(#(#symbols: usize),*) -> usize {
                    footprint::<f32>(#(#symbols),*).bytes::<f32>()
                }

                #in_bf16
            }
        }
    }
}
