//! The layer as a module of dfdx: `BuildOnDevice`, `TensorCollection`, `Module` and `ModuleMut`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Layer, item};
use crate::graph::{InitKind, Param, ParamKind};
use crate::spec::Distribution;

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
                p::into_device(x.attend(self, p::ForwardOptions::FORWARD))
            }
        }

        impl<X: #input<E, D>, E: p::Dtype, D: p::Storage<E>> p::ModuleMut<X> for #name<E, D> {
            type Output = X::Output;
            type Error = D::Err;

            #[track_caller]
            fn try_forward_mut(&mut self, x: X) -> Result<X::Output, D::Err> {
                p::into_device(x.attend(self, p::ForwardOptions::TRAIN))
            }
        }
    }
}

/// The parameters by name, in the order of the fields.
fn emit_collection(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let visits = group(&cx.graph.params);
    let fields = nest(visits.iter().map(Visit::emit));
    let patterns = nest(visits.iter().map(Visit::emit_pattern));
    let values = cx.graph.params.iter().map(emit_field);
    let none = item::marker(cx).map(|none| quote!(#none: p::PhantomData));
    quote_spanned! {cx.at=>
        impl<E: p::Element, D: p::Device<E>> p::TensorCollection<E, D> for #name<E, D> {
            type To<E2: p::Dtype, D2: p::Device<E2>> = #name<E2, D2>;

            fn iter_tensors<V: p::ModuleVisitor<Self, E, D>>(
                visitor: &mut V,
            ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                p::ModuleVisitor::visit_fields(visitor, #fields, |#patterns| #name { #(#values,)* #none })
            }
        }
    }
}

/// `((a, b, c, d, e, f,), (g,),)`: dfdx visits a tuple of at most six fields, and each of them may be such a tuple. The depth is
/// the logarithm of the number of fields, because rustc limits the recursion of traits.
pub(crate) fn nest(items: impl Iterator<Item = TokenStream>) -> TokenStream {
    let mut items: Vec<TokenStream> = items.collect();
    while items.len() > FIELDS_AT_ONCE {
        let tuples = items.chunks(FIELDS_AT_ONCE);
        items = tuples.map(|tuple| quote!((#(#tuple,)*))).collect();
    }
    quote!((#(#items,)*))
}

/// The length of dfdx's longest tuple of fields.
const FIELDS_AT_ONCE: usize = 6;

/// Fields that are visited at once.
enum Visit {
    /// Projections that differ in nothing but their names.
    Linears {
        fields: Vec<Ident>,
        sizes: TokenStream,
        reset: TokenStream,
    },
    /// A tensor of its own.
    Weight { field: Ident, line: TokenStream },
}

/// The parameters as they are visited, those together that can be.
fn group(params: &[Param]) -> Vec<Visit> {
    let mut visits: Vec<Visit> = Vec::new();
    for param in params {
        let visit = Visit::new(param);
        match (visits.last_mut(), &visit) {
            (Some(last), Visit::Linears { fields: more, .. }) if last.is_like(&visit) => {
                if let Visit::Linears { fields, .. } = last {
                    fields.extend(more.iter().cloned());
                }
            }
            _ => visits.push(visit),
        }
    }
    visits
}

impl Visit {
    fn new(param: &Param) -> Self {
        let field = format_ident!("{}", param.field);
        let name = format!("{}.weight", param.field);
        match &param.kind {
            ParamKind::Linear {
                input,
                output,
                bias: true,
                init,
            } => {
                let input = input.arg();
                let output = output.arg();
                Visit::Linears {
                    fields: vec![field],
                    sizes: quote!(#input, #output),
                    reset: emit_reset(Some(init)),
                }
            }
            ParamKind::Linear { init, .. } => Visit::Weight {
                line: emit_weight(&field, &name, Some(init)),
                field,
            },
            ParamKind::Weight { init, .. } => Visit::Weight {
                line: emit_weight(&field, &name, init.as_ref()),
                field,
            },
        }
    }

    /// Whether both are projections of the same sizes and distribution.
    fn is_like(&self, other: &Self) -> bool {
        let text = |visit: &Self| match visit {
            Visit::Linears { sizes, reset, .. } => Some(format!("{sizes} {reset}")),
            Visit::Weight { .. } => None,
        };
        text(self).is_some() && text(self) == text(other)
    }

    /// `p::LinearFields { names: ["q_proj", "k_proj"], .. }`, or `Self::tensor("q_norm.weight", ..)`
    fn emit(&self) -> TokenStream {
        match self {
            Visit::Weight { line, .. } => line.clone(),
            Visit::Linears {
                fields,
                sizes,
                reset,
            } => {
                let names = fields.iter().map(Ident::to_string);
                quote! {
                    p::LinearFields::<Self, _, #sizes, E, D> {
                        names: [#(#names),*],
                        get: |s| [#(&s.#fields),*],
                        get_mut: |s| [#(&mut s.#fields),*],
                        reset: |t| #reset,
                    }
                }
            }
        }
    }

    /// The fields, or the tensor in one.
    fn emit_pattern(&self) -> TokenStream {
        match self {
            Visit::Linears { fields, .. } => quote!([#(#fields),*]),
            Visit::Weight { field, .. } => quote!(#field),
        }
    }
}

fn emit_weight(field: &Ident, name: &str, init: Option<&InitKind>) -> TokenStream {
    let reset = emit_reset(init);
    quote! {
        Self::tensor(#name, |s| &s.#field.weight, |s| &mut s.#field.weight, p::TensorOptions::reset_with(|t| #reset))
    }
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
        Some(init) => emit_given(&init.distribution()),
    }
}

fn emit_given(given: &Distribution) -> TokenStream {
    match given {
        Distribution::Zeros => quote!(p::init::zeros(t)),
        Distribution::Ones => quote!(p::init::ones(t)),
        Distribution::Constant(value) => quote!(p::init::constant(t, #value)),
        Distribution::Uniform { bound } => quote!(p::init::uniform(t, #bound)),
        Distribution::Normal { std } => quote!(p::init::normal(t, #std)),
        Distribution::TruncatedNormal { std } => quote!(p::init::truncated_normal(t, #std)),
        Distribution::AlibiSlopes => quote!(p::init::alibi_slopes(t)),
        other => {
            let initial = other.emit();
            quote!(#initial.fill(t))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The depth of parentheses, and the number of fields in order.
    fn depth_and_fields(nested: TokenStream) -> (usize, Vec<String>) {
        let mut depth = 0;
        let mut fields = Vec::new();
        for tree in nested {
            match tree {
                proc_macro2::TokenTree::Group(group) => {
                    let (inner, more) = depth_and_fields(group.stream());
                    depth = depth.max(inner + 1);
                    fields.extend(more);
                }
                proc_macro2::TokenTree::Punct(_) => {}
                field => fields.push(field.to_string()),
            }
        }
        (depth, fields)
    }

    #[test]
    fn nested_fields_keep_their_order_at_a_logarithmic_depth() {
        for (count, most) in [(0, 1), (1, 1), (6, 1), (7, 2), (36, 2), (37, 3), (1_296, 4)] {
            let names: Vec<_> = (0..count).map(|index| format_ident!("f{index}")).collect();
            let (depth, fields) = depth_and_fields(nest(names.iter().map(|name| quote!(#name))));
            assert_eq!(depth, most, "{count} fields");
            assert!(names.iter().eq(&fields), "{count} fields");
        }
    }
}
