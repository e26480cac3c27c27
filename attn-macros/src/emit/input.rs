//! The trait of what `forward` accepts: its errors are the layer's own words about shapes.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};

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
    quote_spanned! {cx.at=>
        #(#cfgs)*
        #[doc = #doc]
        #[diagnostic::on_unimplemented(message = #message, label = #label, note = #note)]
        #vis trait #input<E: #krate::__private::Dtype, D: #krate::__private::Storage<E>>: ::core::marker::Sized {
            /// What `forward` returns.
            type Output;
            /// The attention weights, without a tape.
            type Weights;
            #[doc(hidden)]
            fn attend(
                self,
                layer: &#name<E, D>,
                train: bool,
            ) -> ::core::result::Result<Self::Output, #krate::__private::Error<D::Err>>;
            #[doc(hidden)]
            fn attend_composed(
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
                fn attend(self, _: &#name<E, D>, _: bool) -> Result<Self::Output, p::Error<D::Err>> {
                    ::core::unreachable!()
                }
                fn attend_composed(self, _: &#name<E, D>, _: bool) -> Result<(Self::Output, Self::Weights), p::Error<D::Err>> {
                    ::core::unreachable!()
                }
            }
        }
    };
    let tensor = quote!(p::Tensor<S, F, D, T>);
    let alone =
        quote!(S: p::Shape, F: p::Dtype, T, E: p::Element, D: p::Backend<E> + p::Storage<F>);
    let tuple = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| var(name)).collect();
        accept(
            quote!(X, #(#names,)* E: p::Element, D: p::Backend<E>),
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
/// impl<B: Dim, S: Dim, T: Tape<E, D>, E: Element, D: Backend<E>> NameInput<E, D> for Tensor<(B, S, Const<512>), E, D, T> {
///     type Output = ..;
///     type Weights = ..;
///     fn attend(self, layer, train) -> .. {
///         let x = self;
///         fused(layer, x, train)
///     }
///     fn attend_composed(self, layer, train) -> .. {
///         let x = self;
///         run(layer, x, train)
///     }
/// }
/// ```
fn emit_impl(cx: &Layer<'_>, batched: bool) -> TokenStream {
    let Layer { name, input, .. } = cx;
    let (query, key) = (cx.query_var(), cx.key_var());
    let lead = batched.then(|| quote!(B,));
    let (d_model, heads) = (cx.spec.d_model.arg(), cx.spec.heads.arg());
    let parts = parts(cx, batched);
    let Parts {
        generics,
        names,
        types,
        fits,
        ..
    } = &parts;
    let (ty, pattern) = match names.as_slice() {
        [one] => (quote!(#(#types)*), quote!(#one)),
        _ => (quote_spanned!(cx.at=> (#(#types),*)), quote!((#(#names),*))),
    };
    let bounds = fits.iter().map(|(_, ty, bound)| quote!(#ty: #bound,));
    let fit = fits
        .iter()
        .map(|(tensor, ty, bound)| quote!(let #tensor = <#ty as #bound>::fit(#tensor);));
    let (tensors, data) = names.split_at(if cx.graph.cross { 2 } else { 1 });
    let (label, last) = (cx.label(), tensors.last());
    let axes = if batched {
        quote!((x.shape().0.size(), x.shape().1.size(), #last.shape().1.size()))
    } else {
        quote!((1, x.shape().0.size(), #last.shape().0.size()))
    };
    let check_batch = (batched && cx.graph.cross).then(
        || quote!(p::check_batch(#label, "context", x.shape().0.size(), context.shape().0.size())?;),
    );
    let add_batch = (!batched).then(|| quote!(#(let #tensors = p::add_batch(#tensors)?;)*));
    let prepare = quote! {
        let #pattern = self;
        #(#fit)*
        #check_batch
        let axes = #axes;
        check_sizes(axes)?;
        #add_batch
        #(let #data = #data.read(#label, axes)?;)*
    };
    let fused = quote!(fused(layer, #(#tensors,)* #(#data,)* train));
    let composed = quote!(run(layer, #(#tensors,)* #(&#data,)* train));
    let (fused, composed) = if batched {
        (fused, composed)
    } else {
        let composed = quote! {
            let (output, weights) = #composed?;
            Ok((p::drop_batch(output)?, p::drop_weights_batch(weights)?))
        };
        (quote!(Ok(p::drop_batch(#fused?)?)), composed)
    };
    let composed_only = quote!(Ok(#input::attend_composed(self, layer, train)?.0));
    let attend = match cx.steps {
        None => composed_only,
        Some(_) => quote! {
            if !D::FUSED {
                return #composed_only;
            }
            #prepare
            #fused
        },
    };
    quote_spanned! {cx.at=>
        impl<#generics E: p::Element, D: p::Backend<E>> #input<E, D> for #ty
        where
            #(#bounds)*
        {
            type Output = p::Tensor<(#lead #query, p::Const<#d_model>), E, D, T>;
            type Weights = p::Tensor<(#lead p::Const<#heads>, #query, #key), E, D>;

            fn attend(self, layer: &#name<E, D>, train: bool) -> Result<Self::Output, p::Error<D::Err>> {
                #attend
            }

            fn attend_composed(
                self,
                layer: &#name<E, D>,
                train: bool,
            ) -> Result<(Self::Output, Self::Weights), p::Error<D::Err>> {
                #prepare
                #composed
            }
        }
    }
}

/// The inputs of one implementation.
struct Parts {
    generics: TokenStream,
    names: Vec<Ident>,
    types: Vec<TokenStream>,
    /// Name, type, and the bound that says which type it must have: in a tuple, where rustc would not show it.
    fits: Vec<(Ident, TokenStream, TokenStream)>,
}

/// `x`, perhaps `context`, and the mask's data. A single input is given its exact shape.
fn parts(cx: &Layer<'_>, batched: bool) -> Parts {
    let name = &cx.name;
    let (query, key, sequences) = (cx.query_var(), cx.key_var(), cx.sequence_vars());
    let (batch, lead) = (
        batched.then(|| quote!(B: p::Dim,)),
        batched.then(|| quote!(B,)),
    );
    let d_model = cx.spec.d_model.arg();
    let mut parts = Parts {
        generics: quote!(#batch #(#sequences: p::Dim,)* T: p::Tape<E, D>,),
        names: vec![var("x")],
        types: vec![quote_spanned!(cx.at=> p::Tensor<(#lead #query, p::Const<#d_model>), E, D, T>)],
        fits: Vec::new(),
    };
    if !cx.graph.cross && cx.graph.data.is_empty() {
        return parts;
    }
    let given = quote_spanned!(cx.at=> p::Tensor<(#lead #query, p::Const<{ WIDTH }>), E, D, T>);
    let expected = &parts.types[0];
    let bound = quote!(p::XFits<#name<E, D>, #expected>);
    parts.generics.extend(quote!(const WIDTH: usize,));
    parts.types = vec![given.clone()];
    parts.fits.push((var("x"), given, bound));
    if let Some(d_context) = &cx.spec.d_context {
        let (batch, other) = (
            batched.then(|| quote!(B2: p::Dim,)),
            batched.then(|| quote!(B2,)),
        );
        let given = quote_spanned!(cx.at=> p::Tensor<(#other #key, p::Const<{ CONTEXT_WIDTH }>), E2, D2, T2>);
        let d_context = d_context.arg();
        let expected = quote!(p::Tensor<(#lead #key, p::Const<#d_context>), E, D>);
        let bound = quote!(p::ContextFits<#name<E, D>, #expected>);
        parts.generics.extend(
            quote!(#batch const CONTEXT_WIDTH: usize, E2: p::Dtype, D2: p::Storage<E2>, T2,),
        );
        parts.names.push(var("context"));
        parts.types.push(given.clone());
        parts.fits.push((var("context"), given, bound));
    }
    for data in &cx.graph.data {
        let ty = data_type(*data);
        let bound = match data {
            MaskData::Padding => quote!(p::Padding<(#lead #query, #key), D>),
            MaskData::Document => quote!(p::Documents<(#lead #query, #key), D>),
        };
        parts.generics.extend(quote!(#ty: #bound,));
        parts.names.push(data_name(*data));
        parts.types.push(quote!(#ty));
    }
    parts
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
        MaskData::Padding => "Padding",
        MaskData::Document => "Document",
    })
}
