//! A layer as `model!` calls it for some new tokens, with what it has seen before them.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::LayerFrame;
use crate::emit::block::{self, Frame};
use crate::score::Var;

impl LayerFrame<'_> {
    pub(super) fn emit_in_session(&self) -> TokenStream {
        let Some(attention) = self.layer.attention() else {
            return TokenStream::new();
        };
        let name = &self.cx.name;
        let inputs = self.inputs();
        let count = inputs.len();
        let read_count = count + self.read_result().iter().count();
        let output = self.value(self.layer.output());
        let attention = self.call_attention(attention);
        let mask = self.cx.graph.mask();
        // Sequences have one mask where it does not ask which of them it is.
        let different = match mask.is_some_and(|mask| mask.reads(Var::B)) {
            true => quote!(room.sequences),
            false => quote!(1),
        };
        let no_seed = self.dropout().map(|_| quote!(, None));
        let steps = block::emit_forward(self).code;
        quote_spanned! {self.cx.at=>
            impl<E: p::Element, D: p::Storage<E>> p::Decode<E, #count> for #name<E, D> {
                type DecodeState = p::DecodeState<Call<E>, E>;

                fn past<Dev>(weights: &Self::Weights, room: p::Capacity) -> Result<Self::DecodeState, p::Error<Dev>> {
                    let axes = room.axes();
                    <Self as p::FusedBlock<E, #count, #read_count>>::check(axes, &())?;
                    let made = p::Arc::new(make_call(weights, axes #no_seed));
                    let call = &*made;
                    let cache = p::Cache::new(room, #different, &#attention)?;
                    Ok(p::DecodeState { call: p::Clone::clone(&made), cache })
                }

                /// The operations of `forward`, for new tokens alone.
                fn decode(
                    weights: &Self::Weights,
                    p::DecodeState { call, cache }: &mut Self::DecodeState,
                    new: &p::NewTokens,
                    [#(#inputs),*]: [p::Matrix<'_, E>; #count],
                    #output: p::MatrixMut<'_, E>,
                ) {
                    let sizes = new.sizes(call.sizes);
                    #steps
                }
            }
        }
    }
}
