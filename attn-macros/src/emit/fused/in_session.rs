//! A layer as `model!` calls it for some new tokens, with what it has seen before them.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::Fused;
use crate::emit::When;
use crate::emit::lines::Lines;

impl Fused<'_> {
    pub(super) fn emit_in_session(&self) -> TokenStream {
        let Some(attention) = self.attention() else {
            return TokenStream::new();
        };
        let name = &self.cx.name;
        let inputs = self.inputs();
        let output = self.name(self.steps.output);
        let (make, attention) = self.call_attention(attention);
        let no_key = self.dropout().map(|_| quote!(, None));
        let mut lines = Lines::default();
        for step in &self.steps.steps {
            self.emit_step(&mut lines, step, When::Session);
        }
        let steps = lines.code;
        quote_spanned! {self.cx.at=>
            impl<E: p::Element, D: p::Storage<E>> p::InSession<E> for #name<E, D> {
                type Past = p::Past<Call<E>, E>;

                fn past<Dev>(weights: &Self::Weights, room: p::Room) -> Result<Self::Past, p::Error<Dev>> {
                    let axes = room.axes();
                    <Self as p::InModel<E, 1>>::check(axes, &())?;
                    let made = p::Arc::new(make_call(weights, axes #no_key));
                    let call = &*made;
                    #make
                    let cache = p::Cache::new(room, &#attention)?;
                    Ok(p::Past { call: p::Clone::clone(&made), cache })
                }

                /// The steps of `forward`, for new tokens alone.
                fn decode(
                    weights: &Self::Weights,
                    p::Past { call, cache }: &mut Self::Past,
                    new: &p::NewTokens,
                    #(#inputs: p::Matrix<'_, E>,)*
                    #output: p::MatrixMut<'_, E>,
                ) {
                    let sizes = new.sizes(call.sizes);
                    #steps
                }
            }
        }
    }
}
