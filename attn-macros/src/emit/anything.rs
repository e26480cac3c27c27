//! Implementations of an input trait for any type: after a mistake, no error follows from the first one.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

/// A type for which an input trait is implemented after a mistake.
pub(crate) struct Anything {
    /// Its type variables, with those of the elements and the device of the layer, `E` and `D`.
    pub(crate) generics: TokenStream,
    pub(crate) ty: TokenStream,
    /// The tensor, or the first part of the tuple.
    pub(crate) first: TokenStream,
}

/// A tensor, and every tuple with up to `others` parts behind the first. `bound` holds for a tape and for a part: nothing, or `: p::Clone`.
///
/// No type variable is called `T`, as a method of the trait may have one.
pub(crate) fn anything(others: usize, bound: &TokenStream) -> Vec<Anything> {
    let tensor = quote!(p::Tensor<S, F, D, X>);
    let tensor = Anything {
        generics: quote!(
            X #bound, S: p::Shape, F: p::Dtype, E: p::Element, D: p::Backend<E> + p::Storage<F>
        ),
        ty: tensor.clone(),
        first: tensor,
    };
    let tuples = (1..=others).map(|others| {
        let names = (1..=others).map(|number| format_ident!("A{number}"));
        let names: Vec<_> = names.collect();
        Anything {
            generics: quote!(X #bound, #(#names #bound,)* E: p::Element, D: p::Backend<E>),
            ty: quote!((X, #(#names,)*)),
            first: quote!(X),
        }
    });
    std::iter::once(tensor).chain(tuples).collect()
}
