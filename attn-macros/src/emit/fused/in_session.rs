//! A layer as `model!` calls it for some new tokens, with what it has seen before them.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::LayerFrame;
use crate::emit::block::{self, BlockNode, Frame};
use crate::emit::{bounds, input};
use crate::graph::InSession;
use crate::ops::attention_layer::vectors;
use crate::score::Var;
use crate::spec::Size;

impl LayerFrame<'_> {
    /// A layer with a context, whose keys and values `start` computes.
    pub(super) fn emit_with_context(&self, start: &LayerFrame<'_>) -> TokenStream {
        let Some(of_layer) = self.layer.attention() else {
            return TokenStream::new();
        };
        let name = &self.cx.name;
        let output = self.value(self.layer.output());
        let attention = self.call_attention(of_layer);
        let inputs = self.inputs();
        let [x, sources @ ..] = inputs.as_slice() else {
            return TokenStream::new();
        };
        let [of_inputs, of_sources] = [inputs.len(), sources.len()];
        let read = of_inputs + self.read_result().iter().count();
        let data: Vec<_> = self.cx.graph.data.iter().map(input::data_name).collect();
        let no_seed = self.dropout().map(|_| quote!(, None));
        let check_sizes = input::emit_check(self.cx);
        let mut nodes = self.layer.nodes();
        let node = nodes.find(|node| node.op.description().attention.is_some());
        let operands = node.map(|node| BlockNode::new(start, node).matrices());
        let [_, keys, values] = vectors(operands.unwrap_or_default(), "Matrix");
        let [of_start, steps] = [start, self].map(|frame| block::emit_forward(frame).code);
        quote_spanned! {self.cx.at=>
            impl<E: p::Element, D: p::Storage<E>> p::DecodeWithContext<E, #of_inputs, #read, #of_sources> for #name<E, D> {
                type DecodeState = p::ContextState<Call<E>, E>;

                /// The operations of `forward`, for the context alone.
                #[allow(unused_variables)]
                fn past<Dev>(
                    weights: &Self::Weights,
                    axes: (usize, usize, usize),
                    (#(#data,)*): &Self::Data,
                    [#(#sources),*]: [p::Matrix<'_, E>; #of_sources],
                ) -> Result<Self::DecodeState, p::Error<Dev>> {
                    #check_sizes
                    let made = p::Arc::new(make_call(weights, axes #(, p::Clone::clone(#data))* #no_seed));
                    let call = &*made;
                    let sizes = call.sizes;
                    #of_start
                    let cache = p::ContextCache::new(&#attention, #keys, #values)?;
                    Ok(p::ContextState { call: p::Clone::clone(&made), cache: p::Arc::new(cache) })
                }

                /// The operations of `forward`, for new tokens alone.
                #[allow(unused_variables)]
                fn decode(
                    weights: &Self::Weights,
                    p::ContextState { call, cache }: &mut Self::DecodeState,
                    new: &p::NewTokens,
                    #x: p::Matrix<'_, E>,
                    #output: p::MatrixMut<'_, E>,
                    lse: Option<&mut [E]>,
                ) {
                    let sizes = new.sizes(call.sizes);
                    #steps
                }
            }
        }
    }

    pub(super) fn emit_in_session(&self) -> TokenStream {
        let Some(attention) = self.layer.attention() else {
            return TokenStream::new();
        };
        let name = &self.cx.name;
        let inputs = self.inputs();
        let count = inputs.len();
        let output = self.value(self.layer.output());
        let attention = self.call_attention(attention);
        let mask = self.cx.graph.mask();
        // Sequences have one mask where it does not ask which of them it is.
        let different = match mask.is_some_and(|mask| mask.reads(Var::B)) {
            true => quote!(room.sequences),
            false => quote!(1),
        };
        let check_sizes = input::emit_room_check(self.cx);
        let check_grid = input::emit_grid_capacity(self.cx);
        let check_integers = bounds::emit_call(self.cx);
        let no_seed = self.dropout().map(|_| quote!(, None));
        let cache = match self.cx.values_in_keys {
            Some(start) => quote!(with_values_in_keys(room, #different, &#attention, #start)),
            None => quote!(new(room, #different, &#attention)),
        };
        let steps = block::emit_forward(self).code;
        // What is given has rows for tokens, and there are none yet. What it is for all tokens is known with them.
        let given = self.given();
        let numbers = given.iter().zip(&self.cx.graph.given);
        let zeros = numbers.map(|(name, given)| {
            let numbers = match InSession::of(&given.dims) {
                Some(InSession::Table) => given.numbers(),
                _ => Size::known(0),
            };
            quote! {
                let #name = p::Array::<E>::zeros(1, [#numbers]);
                let #name = #name.view();
            }
        });
        let given_numbers = given.iter().map(|given| quote!(, #given.values()));
        let (of_keys, widths): (Vec<_>, Vec<_>) = self.given_of_keys().into_iter().unzip();
        let read = of_keys.len();
        quote_spanned! {self.cx.at=>
            impl<E: p::Element, D: p::Storage<E>> p::Decode<E, #count> for #name<E, D> {
                type DecodeState = p::DecodeState<Call<E>, E, #read>;

                fn past<Dev>(weights: &Self::Weights, room: p::Capacity) -> Result<Self::DecodeState, p::Error<Dev>> {
                    let axes = room.axes();
                    #check_sizes
                    #check_grid
                    #check_integers
                    #(#zeros)*
                    let made = p::Arc::new(make_call(weights, axes #no_seed #(#given_numbers)*));
                    let call = &*made;
                    let cache = p::Cache::#cache?;
                    let of_keys = [#(p::KeyRows::new(room, #widths)?),*];
                    Ok(p::DecodeState { call: p::Clone::clone(&made), cache, of_keys })
                }

                /// The operations of `forward`, for new tokens alone.
                #[allow(unused_variables)]
                fn decode(
                    weights: &Self::Weights,
                    p::DecodeState { call, cache, of_keys }: &mut Self::DecodeState,
                    new: &p::NewTokens,
                    [#(#inputs),*]: [p::Matrix<'_, E>; #count],
                    #output: p::MatrixMut<'_, E>,
                    lse: Option<&mut [E]>,
                ) {
                    let sizes = new.sizes(call.sizes);
                    #steps
                }
            }
        }
    }
}
