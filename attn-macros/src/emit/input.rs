//! The trait of what `forward` accepts: its errors are the layer's own words about shapes.

use proc_macro2::{Ident, TokenStream};
use quote::quote;

use super::{Layer, docs, var};
use crate::graph::MaskData;

/// The trait. Its `on_unimplemented` is what a user reads after passing a wrong shape.
pub(super) fn emit_trait(cx: &Layer<'_>) -> TokenStream {
    let Layer {
        krate,
        name,
        input,
        cfgs,
        ..
    } = cx;
    let vis = &cx.spec.item.vis;
    let words = docs::accepted(cx);
    let (message, label, note, doc) = (words.message, words.label, words.note, words.doc);
    quote! {
        #(#cfgs)*
        #[doc = #doc]
        #[diagnostic::on_unimplemented(message = #message, label = #label, note = #note)]
        #vis trait #input<E: #krate::__private::Dtype, D: #krate::__private::Storage<E>>: Sized {
            /// What `forward` returns.
            type Output;
            /// The attention weights, without a tape.
            type Weights;
            #[doc(hidden)]
            fn attend(
                self,
                layer: &#name<E, D>,
                train: bool,
            ) -> ::core::result::Result<(Self::Output, Self::Weights), #krate::__private::Error<D::Err>>;
        }
    }
}

/// What the trait is implemented for: batched and unbatched input.
pub(super) fn emit_impls(cx: &Layer<'_>) -> TokenStream {
    if cx.spec.poisoned {
        return emit_anything(cx);
    }
    [emit_impl(cx, true), emit_impl(cx, false)]
        .into_iter()
        .collect()
}

/// After an error: accept whatever is passed, so that the error stays alone.
fn emit_anything(cx: &Layer<'_>) -> TokenStream {
    let Layer { name, input, .. } = cx;
    let accept = |generics: TokenStream, ty: TokenStream, output: TokenStream| {
        quote! {
            impl<#generics> #input<E, D> for #ty {
                type Output = #output;
                type Weights = p::Tensor<(usize, usize, usize, usize), E, D>;
                fn attend(self, _: &#name<E, D>, _: bool) -> Result<(Self::Output, Self::Weights), p::Error<D::Err>> {
                    unreachable!()
                }
            }
        }
    };
    let tensor = quote!(p::Tensor<S, F, D, T>);
    let alone = quote!(S: p::Shape, F: p::Dtype, T, E: p::Element, D: p::Device<E> + p::Storage<F>);
    let tuple = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| var(name)).collect();
        accept(
            quote!(X, #(#names,)* E: p::Element, D: p::Device<E>),
            quote!((X, #(#names,)*)),
            quote!(X),
        )
    };
    let alone = accept(alone, tensor.clone(), tensor);
    [
        alone,
        tuple(&["A1"]),
        tuple(&["A1", "A2"]),
        tuple(&["A1", "A2", "A3"]),
    ]
    .into_iter()
    .collect()
}

/// ```text
/// impl<B: Dim, S: Dim, T: Tape<E, D>, E: Element, D: Device<E>> NameInput<E, D> for Tensor<(B, S, Const<512>), E, D, T> {
///     type Output = ..;
///     type Weights = ..;
///     fn attend(self, layer, train) -> .. {
///         let x = self;
///         layer.run(x, train)
///     }
/// }
/// ```
fn emit_impl(cx: &Layer<'_>, batched: bool) -> TokenStream {
    let Layer { name, input, .. } = cx;
    let (query, key) = (cx.query_var(), cx.key_var());
    let sequences = cx.sequence_vars();
    let lead = batched.then(|| quote!(B,));
    let batch = batched.then(|| quote!(B: p::Dim,));
    let (d_model, heads) = (&cx.spec.d_model, &cx.spec.heads);
    let output = quote!(p::Tensor<(#lead #query, p::Const<{ #d_model }>), E, D, T>);

    let mut tensors = vec![var("x")];
    let mut types = vec![output.clone()];
    if let Some(d_context) = &cx.spec.d_context {
        tensors.push(var("context"));
        types.push(quote!(p::Tensor<(#lead #key, p::Const<{ #d_context }>), E, D>));
    }
    let data: Vec<_> = cx.graph.data.iter().map(|data| data_name(*data)).collect();
    let data_types: Vec<_> = cx.graph.data.iter().map(|data| data_type(*data)).collect();
    let data_traits = cx.graph.data.iter().map(|data| match data {
        MaskData::Padding => quote!(p::Padding<(#lead #query, #key), D>),
        MaskData::Document => quote!(p::Documents<(#lead #query, #key), D>),
    });
    types.extend(data_types.iter().map(|ty| quote!(#ty)));
    let names: Vec<_> = tensors.iter().chain(&data).collect();
    let (ty, pattern) = match names.as_slice() {
        [one] => (quote!(#(#types)*), quote!(#one)),
        _ => (quote!((#(#types),*)), quote!((#(#names),*))),
    };
    let label = cx.label();
    let last = tensors.last();
    let axes = (!data.is_empty()).then(
        || quote!(let axes = (x.shape().0.size(), x.shape().1.size(), #last.shape().1.size());),
    );
    let body = if batched {
        quote! {
            #axes
            #(let #data = #data.read(#label, axes)?;)*
            layer.run(#(#tensors,)* #(&#data,)* train)
        }
    } else {
        quote! {
            #(let #tensors = p::add_batch(#tensors)?;)*
            #axes
            #(let #data = #data.read(#label, axes)?;)*
            let (output, weights) = layer.run(#(#tensors,)* #(&#data,)* train)?;
            Ok((p::drop_batch(output)?, p::drop_weights_batch(weights)?))
        }
    };
    quote! {
        impl<#batch #(#sequences: p::Dim,)* T: p::Tape<E, D>, #(#data_types: #data_traits,)* E: p::Element, D: p::Device<E>>
            #input<E, D> for #ty
        {
            type Output = #output;
            type Weights = p::Tensor<(#lead p::Const<{ #heads }>, #query, #key), E, D>;

            fn attend(self, layer: &#name<E, D>, train: bool) -> Result<(Self::Output, Self::Weights), p::Error<D::Err>> {
                let #pattern = self;
                #body
            }
        }
    }
}

/// The variable that holds a mask's data.
pub(super) fn data_name(data: MaskData) -> Ident {
    var(match data {
        MaskData::Padding => "padding",
        MaskData::Document => "document",
    })
}

/// The type variable of what is passed for a mask's data.
fn data_type(data: MaskData) -> Ident {
    var(match data {
        MaskData::Padding => "Lengths",
        MaskData::Document => "Ids",
    })
}
