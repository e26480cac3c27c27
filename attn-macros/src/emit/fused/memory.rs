//! The memory that both passes take, known before they run.

use proc_macro2::TokenStream;
use quote::quote;

use super::Fused;
use crate::emit::Caller;
use crate::emit::tracked_code::{self, TrackedCode};

impl Fused<'_> {
    /// For the user `activation_bytes`, on the default type, and for a model `footprint`.
    pub(super) fn emit_memory(&self, forward: &TrackedCode, backward: &TrackedCode) -> TokenStream {
        let name = &self.cx.name;
        let method = match self.cx.caller {
            Caller::User => self.emit_activation_bytes(forward, backward),
            Caller::Model | Caller::Session => {
                let footprint = tracked_code::emit_footprint([forward], [backward]);
                quote! {
                    const fn footprint(batch: usize, query: usize, key: usize) -> p::Footprint {
                        #footprint
                    }
                }
            }
        };
        quote! {
            #[allow(dead_code, unused_variables)]
            impl #name {
                #method
            }
        }
    }

    /// A layer that is an operation by itself has its output, and the gradient of that.
    fn emit_activation_bytes(&self, forward: &TrackedCode, backward: &TrackedCode) -> TokenStream {
        let vis = &self.cx.spec.item.vis;
        let output = self.steps.output();
        let [mut result, mut d_result] = [(); 2].map(|()| TrackedCode::default());
        result.take(&self.name(output), self.footprint_of(output));
        result.keep(&[self.name(output)]);
        d_result.take(&self.gradient_name(output), self.footprint_of(output));
        let footprint = tracked_code::emit_footprint([&result, forward], [&d_result, backward]);
        quote! {
            /// The most bytes of activations at a time, in `f32`, while a forward and a backward pass train the layer; in `f64`
            /// it is twice as many. This is exact, and known before anything runs: it is counted along the lines of the two
            /// passes, as they stand.
            ///
            /// What counts: values, what is kept for the derivative, gradients of values, and the output with its gradient. What
            /// does not: parameters and inputs with their gradients, the scratch memory of kernels, and what buffers are rounded
            /// up by.
            ///
            /// PyTorch: `torch.cuda.max_memory_allocated()`, afterwards. What does not fit is `usize::MAX`.
            #vis const fn activation_bytes(batch: usize, q_len: usize, kv_len: usize) -> usize {
                let (query, key) = (q_len, kv_len);
                #footprint.bytes::<f32>()
            }
        }
    }
}
