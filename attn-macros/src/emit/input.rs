//! The trait of what `forward` accepts: its errors are the layer's own words about shapes.

use proc_macro2::{Ident, Literal, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Layer, bounds, docs, var};
use crate::graph::{CallData, Declared, Dim};
use crate::score::Type;

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
    // `context`, `padding`, `document`, and what the body declares: after too many of them, no more than tuples can have.
    let most = (3 + cx.spec.body.data.len()).min(11);
    let tuples = (1..=most).map(|others| {
        let names = (1..=others).map(|number| format_ident!("A{number}"));
        let names: Vec<_> = names.collect();
        accept(
            quote!(X, #(#names,)* E: p::Element, D: p::Backend<E>),
            quote!((X, #(#names,)*)),
            quote!(X),
        )
    });
    let alone = accept(alone, tensor.clone(), tensor);
    [alone].into_iter().chain(tuples).collect()
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
    let read = cx
        .graph
        .data
        .iter()
        .map(|data| emit_read(cx, data, batched));
    let check_indices = bounds::emit_call(cx);
    let prepare = quote! {
        let #pattern = self;
        #(#fit)*
        #check_batch
        let axes = #axes;
        check_sizes(axes)?;
        #(#read)*
        #check_indices
        #add_batch
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

/// The line that reads data of the call, and checks them against `axes`.
fn emit_read(cx: &Layer<'_>, data: &CallData, batched: bool) -> TokenStream {
    let (name, label) = (data_name(data), cx.label());
    let CallData::Declared(Declared { name: of, dims, .. }) = data else {
        return quote!(let #name = #name.read(#label, axes)?;);
    };
    let axes = dims.iter().map(|dim| {
        let text = dim.to_string();
        match dim {
            Dim::Batch => quote!((#text, axes.0)),
            Dim::Query => quote!((#text, axes.1)),
            Dim::Key => quote!((#text, axes.2)),
            Dim::Size(size) => quote!((#text, #size)),
        }
    });
    let axes = quote!([#(#axes),*]);
    quote! {
        let #name = #name.read(p::Declared { layer: #label, data: #of, axes: #axes, batched: #batched })?;
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
    for (index, data) in cx.graph.data.iter().enumerate() {
        let (ty, bound) = match data {
            CallData::Padding => (var("Padding"), quote!(p::Padding<(#lead #query, #key), D>)),
            CallData::Document => (
                var("Document"),
                quote!(p::Documents<(#lead #query, #key), D>),
            ),
            CallData::Declared(declared) => {
                let ty = format_ident!("A{}", index + 1);
                (ty, declared_bound(cx, declared, batched))
            }
        };
        parts.generics.extend(quote!(#ty: #bound,));
        parts.names.push(data_name(data));
        parts.types.push(quote!(#ty));
    }
    parts
}

/// What is passed for data of the body: a tensor of this shape.
fn declared_bound(cx: &Layer<'_>, declared: &Declared, batched: bool) -> TokenStream {
    let name = &cx.name;
    let is_given = |dim: &&Dim| batched || !matches!(dim, Dim::Batch);
    let dims = declared.dims.iter().filter(is_given);
    let dims = dims.map(|dim| cx.dim(dim));
    let element = element(declared);
    quote!(p::Data<#name<E, D>, (#(#dims,)*), #element, D>)
}

fn element(declared: &Declared) -> TokenStream {
    match declared.ty {
        Type::Int => quote!(usize),
        _ => quote!(E),
    }
}

/// The variable that holds data of the call.
pub(super) fn data_name(data: &CallData) -> Ident {
    match data {
        CallData::Padding => var("padding"),
        CallData::Document => var("document"),
        CallData::Declared(declared) => declared_name(&declared.name),
    }
}

/// The same for what the body declares: no name of the emitted code.
pub(super) fn declared_name(name: &str) -> Ident {
    format_ident!("data_{name}")
}

/// What data of the call are read into.
pub(super) fn read_type(data: &CallData) -> TokenStream {
    match data {
        CallData::Padding => quote!(p::PaddingData),
        CallData::Document => quote!(p::DocumentData),
        CallData::Declared(declared) => {
            let rank = Literal::usize_unsuffixed(declared.dims.len());
            let element = element(declared);
            quote!(p::Table<#element, #rank>)
        }
    }
}
