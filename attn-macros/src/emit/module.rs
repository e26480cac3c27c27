//! What makes the layer a citizen of dfdx: `BuildOnDevice`, `TensorCollection`, `Module` and `ModuleMut`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::Layer;
use crate::graph::{InitKind, Param, ParamKind};
use crate::spec::Size;

pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let Layer { name, input, .. } = cx;
    let collection = emit_collection(cx);
    quote_spanned! {cx.at=>
        impl<E0: p::Dtype, D0: p::Storage<E0>, E: p::Element, D: p::Device<E>> p::BuildOnDevice<D, E> for #name<E0, D0> {
            type Built = #name<E, D>;
        }

        #collection

        impl<X: #input<E, D>, E: p::Dtype, D: p::Storage<E>> p::Module<X> for #name<E, D> {
            type Output = X::Output;
            type Error = D::Err;

            #[track_caller]
            fn try_forward(&self, x: X) -> Result<X::Output, D::Err> {
                #name::try_forward(self, x).map_err(p::Error::into_device)
            }
        }

        impl<X: #input<E, D>, E: p::Dtype, D: p::Storage<E>> p::ModuleMut<X> for #name<E, D> {
            type Output = X::Output;
            type Error = D::Err;

            #[track_caller]
            fn try_forward_mut(&mut self, x: X) -> Result<X::Output, D::Err> {
                #name::try_forward_mut(self, x).map_err(p::Error::into_device)
            }
        }
    }
}

/// The parameters by name, in the order of the fields.
fn emit_collection(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let params = &cx.graph.params;
    let visits = nest(params.iter().map(emit_visit));
    let patterns = nest(params.iter().map(emit_pattern));
    let fields = params.iter().map(emit_field);
    quote_spanned! {cx.at=>
        impl<E: p::Element, D: p::Device<E>> p::TensorCollection<E, D> for #name<E, D> {
            type To<E2: p::Dtype, D2: p::Device<E2>> = #name<E2, D2>;

            fn iter_tensors<V: p::ModuleVisitor<Self, E, D>>(
                visitor: &mut V,
            ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                visitor.visit_fields(#visits, |#patterns| #name { #(#fields),* })
            }
        }
    }
}

/// `(a, (b, (c, ())))`: dfdx visits at most six fields at once, but these may be tuples again.
fn nest(items: impl DoubleEndedIterator<Item = TokenStream>) -> TokenStream {
    items.rfold(quote!(()), |rest, item| quote!((#item, #rest)))
}

/// `p::LinearField { names: ["q_proj.weight", "q_proj.bias"], .. }`, or `Self::tensor("q_norm.weight", ..)`
fn emit_visit(param: &Param) -> TokenStream {
    let field = format_ident!("{}", param.field);
    let weight = format!("{}.weight", param.field);
    match &param.kind {
        ParamKind::Linear {
            input,
            output,
            bias: true,
            init,
        } => {
            let (bias, reset) = (format!("{}.bias", param.field), emit_reset(Some(init)));
            let (input, output) = (input.arg(), output.arg());
            quote! {
                p::LinearField::<Self, #input, #output, E, D> {
                    names: [#weight, #bias],
                    get: |s| &s.#field,
                    get_mut: |s| &mut s.#field,
                    reset: |t| #reset,
                }
            }
        }
        ParamKind::Linear { init, .. } => emit_weight(&field, &weight, Some(init)),
        ParamKind::Weight { init, .. } => emit_weight(&field, &weight, init.as_ref()),
    }
}

fn emit_weight(field: &Ident, name: &str, init: Option<&InitKind>) -> TokenStream {
    let reset = emit_reset(init);
    quote! {
        Self::tensor(#name, |s| &s.#field.weight, |s| &mut s.#field.weight, p::TensorOptions::reset_with(|t| #reset))
    }
}

/// The field, or the tensor in it.
fn emit_pattern(param: &Param) -> TokenStream {
    let field = format_ident!("{}", param.field);
    quote!(#field)
}

/// `q_proj` or `q_norm: Weight { weight: q_norm }`
fn emit_field(param: &Param) -> TokenStream {
    let field = format_ident!("{}", param.field);
    match &param.kind {
        ParamKind::Linear { bias: true, .. } => quote!(#field),
        ParamKind::Linear { .. } => quote!(#field: p::UnbiasedLinear { weight: #field }),
        ParamKind::Weight { .. } => quote!(#field: p::Weight { weight: #field }),
    }
}

fn emit_reset(init: Option<&InitKind>) -> TokenStream {
    match init {
        None => quote!(p::init::zeros(t)),
        Some(InitKind::Ones) => quote!(p::init::ones(t)),
        Some(InitKind::Constant(value)) => quote!(p::init::constant(t, #value)),
        Some(InitKind::Within(bound)) => quote!(p::init::uniform(t, #bound)),
        Some(InitKind::AlibiSlopes) => quote!(p::init::alibi_slopes(t)),
        Some(InitKind::Uniform { gain, fans }) => {
            let bound = root_of_ratio(f64::from(*gain), fans);
            quote!(p::init::uniform(t, #bound))
        }
        Some(InitKind::Normal { std }) => quote!(p::init::normal(t, #std)),
        Some(InitKind::NormalByFan { fan }) => {
            let std = root_of_ratio(1.0, std::slice::from_ref(fan));
            quote!(p::init::normal(t, #std))
        }
    }
}

/// `sqrt(gain / Σ fans)`
fn root_of_ratio(gain: f64, fans: &[Size]) -> TokenStream {
    let total = fans.iter().map(|fan| fan.value).sum::<Option<u64>>();
    match total {
        Some(total) => {
            let root = (gain / total.max(1) as f64).sqrt();
            quote!(#root)
        }
        None => quote!((#gain / (#((#fans))+*) as f64).sqrt()),
    }
}
