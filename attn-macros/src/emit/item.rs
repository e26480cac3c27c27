//! The struct, and the methods a user calls on it.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::{Layer, docs};
use crate::graph::{Param, ParamKind};
use crate::spec::Size;

/// The struct: one field per parameter.
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let krate = cx.krate;
    let item = &cx.spec.item;
    let attrs = &item.attrs;
    let vis = &item.vis;
    let name = &item.name;
    let derives = missing_derives(attrs);
    let (docs, [e, d]) = (docs::layer(cx), cx.generics());
    let fields = cx.graph.params.iter().map(|param| {
        let field = format_ident!("{}", param.field);
        let doc = docs::field(param);
        let ty = field_type(cx, param);
        quote!(#[doc = #doc] #vis #field: #ty)
    });
    let none = marker(cx);
    let none = none.map(|none| quote!(#none: #krate::__private::PhantomData<(#e, #d)>,));
    quote_spanned! {cx.at=>
        #(#attrs)*
        #[doc = #docs]
        #[derive(#(#krate::__private::#derives),*)]
        #vis struct #name<
            #e: #krate::__private::Dtype = f32,
            #d: #krate::__private::Storage<#e> = #krate::__private::AutoDevice,
        > {
            #(#fields,)*
            #none
        }
    }
}

/// The field of a struct without parameters, which has to mention its type variables all the same.
pub(super) fn marker(cx: &Layer<'_>) -> Option<Ident> {
    cx.graph.params.is_empty().then(|| format_ident!("none"))
}

/// Traits that are derived for every struct, except those that the user derives.
pub(crate) fn missing_derives(attrs: &[syn::Attribute]) -> Vec<Ident> {
    let missing = ["Clone", "Debug"].into_iter();
    let missing = missing.filter(|derive| !derives(attrs, derive));
    missing.map(|derive| format_ident!("{derive}")).collect()
}

/// Whether the user asks for this derive already.
fn derives(attrs: &[syn::Attribute], name: &str) -> bool {
    attrs
        .iter()
        .filter(|attr| attr.path().is_ident("derive"))
        .any(|attr| {
            let tokens = attr
                .meta
                .to_token_stream()
                .into_iter()
                .flat_map(|token| match token {
                    proc_macro2::TokenTree::Group(group) => group.stream(),
                    other => other.into(),
                });
            tokens.into_iter().any(|token| token.to_string() == name)
        })
}

/// `Linear<512, 512, E, D>` and so on.
fn field_type(cx: &Layer<'_>, param: &Param) -> TokenStream {
    let (krate, [e, d]) = (cx.krate, cx.generics());
    match &param.kind {
        ParamKind::Linear {
            input,
            output,
            bias,
            ..
        } => {
            let linear = format_ident!("{}", if *bias { "Linear" } else { "UnbiasedLinear" });
            let input = input.arg();
            let output = output.arg();
            quote!(#krate::__private::#linear<#input, #output, #e, #d>)
        }
        ParamKind::Weight { dims, .. } => {
            let dims = dims.iter().map(Size::arg);
            quote!(#krate::__private::Weight<(#(#krate::__private::Const<#dims>,)*), #e, #d>)
        }
    }
}

/// `forward` and its siblings.
pub(super) fn emit_forward(cx: &Layer<'_>) -> TokenStream {
    let Layer { name, input, .. } = cx;
    let vis = &cx.spec.item.vis;
    let [
        forward,
        try_forward,
        forward_mut,
        try_forward_mut,
        with_weights,
        try_with_weights,
        mut_with_weights,
        try_mut_with_weights,
        composed,
    ] = docs::methods(cx);
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Dtype, D: p::Storage<E>> #name<E, D> {
            #[doc = #forward]
            #[track_caller]
            #vis fn forward<X: #input<E, D>>(&self, x: X) -> X::Output {
                p::unwrap(self.try_forward(x))
            }

            #[doc = #try_forward]
            #vis fn try_forward<X: #input<E, D>>(&self, x: X) -> Result<X::Output, p::Error<D::Err>> {
                p::output(x.attend(self, p::ForwardOptions::FORWARD))
            }

            #[doc = #forward_mut]
            #[track_caller]
            #vis fn forward_mut<X: #input<E, D>>(&mut self, x: X) -> X::Output {
                p::unwrap(self.try_forward_mut(x))
            }

            #[doc = #try_forward_mut]
            #vis fn try_forward_mut<X: #input<E, D>>(&mut self, x: X) -> Result<X::Output, p::Error<D::Err>> {
                p::output(x.attend(self, p::ForwardOptions::TRAIN))
            }

            #[doc = #with_weights]
            #[track_caller]
            #vis fn forward_with_weights<X: #input<E, D>>(&self, x: X) -> (X::Output, X::Weights) {
                p::unwrap(self.try_forward_with_weights(x))
            }

            #[doc = #try_with_weights]
            #vis fn try_forward_with_weights<X: #input<E, D>>(
                &self,
                x: X,
            ) -> Result<(X::Output, X::Weights), p::Error<D::Err>> {
                p::with_weights(x.attend(self, p::ForwardOptions::WITH_WEIGHTS))
            }

            #[doc = #mut_with_weights]
            #[track_caller]
            #vis fn forward_mut_with_weights<X: #input<E, D>>(&mut self, x: X) -> (X::Output, X::Weights) {
                p::unwrap(self.try_forward_mut_with_weights(x))
            }

            #[doc = #try_mut_with_weights]
            #vis fn try_forward_mut_with_weights<X: #input<E, D>>(
                &mut self,
                x: X,
            ) -> Result<(X::Output, X::Weights), p::Error<D::Err>> {
                p::with_weights(x.attend(self, p::ForwardOptions::TRAIN_WITH_WEIGHTS))
            }

            #[doc = #composed]
            #vis fn composed(&self) -> p::Composed<'_, Self> {
                p::Composed::new(self)
            }
        }

        impl<X: #input<E, D>, E: p::Dtype, D: p::Storage<E>> p::Layer<X> for #name<E, D> {
            type Output = X::Output;
            type Err = D::Err;

            fn run(&self, x: X, run: p::ForwardOptions<'_>) -> Result<X::Output, p::Error<D::Err>> {
                run.output(x.attend(self, run))
            }
        }

        impl<X: #input<E, D>, E: p::Dtype, D: p::Storage<E>> p::Attends<X> for #name<E, D> {
            type Weights = X::Weights;
            type Lse = X::Lse;

            fn attend(
                &self,
                x: X,
                run: p::ForwardOptions<'_>,
            ) -> Result<p::Attended<X::Output, X::Weights, X::Lse>, p::Error<D::Err>> {
                x.attend(self, run)
            }
        }
    }
}
