//! The memory that both passes take, known before they run.

use proc_macro2::TokenStream;
use quote::quote;

use super::LayerFrame;
use crate::emit::Caller;
use crate::emit::block::Frame;
use crate::emit::tracked_code::{self, TrackedCode};

impl LayerFrame<'_> {
    /// The functions, and on the default type `activation_bytes` for the user, `footprint` for a model.
    pub(super) fn emit_memory(&self, forward: &TrackedCode, backward: &TrackedCode) -> TokenStream {
        let name = &self.cx.name;
        let footprint = tracked_code::emit_footprint([forward], [backward]);
        let result = self.footprint_of(self.layer.output());
        let method = match self.cx.caller {
            Caller::User => self.emit_activation_bytes(),
            Caller::Model | Caller::Session => quote! {
                const fn footprint(batch: usize, query: usize, key: usize) -> p::Footprint {
                    footprint((batch, query, key))
                }
            },
        };
        quote! {
            /// The memory that both passes take, without the result.
            #[allow(unused_variables)]
            const fn footprint((batch, query, key): (usize, usize, usize)) -> p::Footprint {
                #footprint
            }

            /// The same of the layer as an operation by itself.
            #[allow(dead_code)]
            const fn footprint_by_itself((batch, query, key): (usize, usize, usize)) -> p::Footprint {
                footprint((batch, query, key)).with_result(#result)
            }

            #[allow(dead_code)]
            impl #name {
                #method
            }
        }
    }

    fn emit_activation_bytes(&self) -> TokenStream {
        let vis = &self.cx.spec.item.vis;
        quote! {
            /// The most bytes of activations at a time, in `f32`, while a forward and a backward pass train the layer; in `f64`
            /// it is twice as many. This is exact, and known before anything runs: it is counted along the lines of the two
            /// passes, as they stand.
            ///
            /// It includes values, the memory that is kept for the derivative, gradients of values, and the output with its gradient. It
            /// does not include parameters and inputs with their gradients, the scratch memory of kernels, and the rounding of buffers.
            ///
            /// PyTorch: `torch.cuda.max_memory_allocated()`, afterwards. What does not fit is `usize::MAX`.
            #vis const fn activation_bytes(batch: usize, q_len: usize, kv_len: usize) -> usize {
                footprint_by_itself((batch, q_len, kv_len)).bytes::<f32>()
            }
        }
    }
}
