//! The structs of the layers, what makes them citizens of dfdx, and the methods a user calls.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::inside;
use super::opaque::Access;
use super::{Emitter, MODEL, docs, field, picture};
use crate::emit::{item::missing_derives, module::nest};
use crate::model::graph::{Field, Module, ModuleId, Submodule};
use crate::spec::Distribution;

/// The structs: one for the model, one for the body of every `repeat` and for every call of a block.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    let krate = cx.krate;
    let vis = &cx.model.item.vis;
    let [e, d] = cx.generics();
    let structs = cx.model.structs().map(|ModuleId(index)| {
        let module = cx.model.module(ModuleId(index));
        let name = &module.name;
        let (attrs, docs) = if index == 0 {
            (cx.model.item.attrs.clone(), docs::model(cx))
        } else {
            let cfgs = cx.cfgs.iter().copied().chain(&module.docs).cloned();
            (cfgs.collect(), docs::module(cx, ModuleId(index)))
        };
        let picture = (index == 0 && !cx.model.poisoned).then(|| {
            let picture = picture::docs(cx.model);
            // Editors show no pictures, only the words in them.
            quote!(#[cfg_attr(doc, doc = #picture)])
        });
        let derives = missing_derives(&attrs);
        let fields = module.fields.iter().map(|of| {
            let name = field(&of.name);
            let doc = docs::field(cx, of);
            let ty = field_type(cx, of);
            quote!(#[doc = #doc] #vis #name: #ty,)
        });
        let none = marker(module);
        let none = none.map(|none| quote!(#none: #krate::__private::PhantomData<(#e, #d)>,));
        let others = cx.built_by_default(ModuleId(index));
        quote_spanned! {cx.at=>
            #(#attrs)*
            #[doc = #docs]
            #picture
            #[derive(#(#krate::__private::#derives),*)]
            #vis struct #name<
                #e: #krate::__private::Dtype = f32,
                #d: #krate::__private::Storage<#e> = #krate::__private::AutoDevice
                #others
            > {
                #(#fields)*
                #none
            }
        }
    });
    structs.collect()
}

/// A struct that has no layers with its type variables has to mention them all the same: in a field of this name.
fn marker(module: &Module) -> Option<Ident> {
    let is_opaque = |field: &Field| matches!(field.layer, Submodule::Opaque { .. });
    let is_taken = |name: &String| module.fields.iter().any(|field| field.name == *name);
    let mut names = std::iter::successors(Some("none".to_owned()), |name| Some(format!("{name}_")));
    let name = names.find(|name| !is_taken(name));
    name.filter(|_| module.fields.iter().all(is_opaque))
        .map(|name| format_ident!("{name}"))
}

fn field_type(cx: &Emitter<'_>, field: &Field) -> TokenStream {
    let [e, d] = cx.generics();
    layer_type(cx, &field.layer, &quote!(, #e, #d))
}

/// The type of a layer; with the elements and the device, unless these are the default.
pub(super) fn layer_type(cx: &Emitter<'_>, layer: &Submodule, rest: &TokenStream) -> TokenStream {
    let krate = cx.krate;
    match layer {
        Submodule::Layer(layer) => layer.ty(krate, rest),
        Submodule::Attention(index) => with_rest(&cx.model.attentions[*index].spec.item.name, rest),
        Submodule::Opaque { index, .. } => {
            let built = cx.model.opaques[*index].built();
            quote!(#built)
        }
        Submodule::Block { module, .. } => module_type(cx, *module, rest),
        Submodule::Repeat {
            module,
            count,
            share,
            ..
        } => {
            let module = module_type(cx, *module, rest);
            let count = count.arg();
            if *share {
                module
            } else {
                quote!(#krate::dfdx::nn::modules::Repeated<#module, #count>)
            }
        }
    }
}

/// The type of the body of a loop or of a call of a block.
fn module_type(cx: &Emitter<'_>, module: ModuleId, rest: &TokenStream) -> TokenStream {
    let others = (!rest.is_empty()).then(|| cx.built(module));
    with_rest(&cx.model.module(module).name, &quote!(#rest #others))
}

/// `Name<E, D>`, where the rest is what follows other arguments: `, E, D`.
fn with_rest(name: &Ident, rest: &TokenStream) -> TokenStream {
    // The rest follows a comma.
    let rest = rest.clone().into_iter().skip(1);
    let rest: TokenStream = rest.collect();
    if rest.is_empty() {
        quote!(#name)
    } else {
        quote!(#name<#rest>)
    }
}

/// dfdx's traits.
pub(super) fn emit_traits(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let built = cx.built(MODEL);
    let input = cx.input(Access::Shared);
    let input_mut = cx.input(cx.training_access());
    let modules = cx.model.structs();
    let collections = modules.map(|module| emit_module(cx, module));
    quote_spanned! {cx.at=>
        #(#collections)*

        impl<X: #input<E, D #built>, E: p::Dtype, D: p::Storage<E> #built> p::Module<X> for #name<E, D #built> {
            type Output = X::Output;
            type Error = D::Err;

            #[track_caller]
            fn try_forward(&self, x: X) -> Result<X::Output, D::Err> {
                #name::try_forward(self, x).map_err(p::Error::into_device)
            }
        }

        impl<X: #input_mut<E, D #built>, E: p::Dtype, D: p::Storage<E> #built> p::ModuleMut<X> for #name<E, D #built> {
            type Output = X::Output;
            type Error = D::Err;

            #[track_caller]
            fn try_forward_mut(&mut self, x: X) -> Result<X::Output, D::Err> {
                #name::try_forward_mut(self, x).map_err(p::Error::into_device)
            }
        }
    }
}

/// The layers of a module by name, in the order of the fields.
fn emit_module(cx: &Emitter<'_>, id: ModuleId) -> TokenStream {
    let module = cx.model.module(id);
    let name = cx.module_name(module);
    let names: Vec<_> = module.fields.iter().map(|of| field(&of.name)).collect();
    let visits = module.fields.iter().zip(&names).map(|(of, field)| {
        let saved = of.saved.trim_start_matches('+');
        if let Submodule::Repeat {
            count,
            per_round: Some(per_round),
            ..
        } = &of.layer
        {
            let count = count.arg();
            return quote!(p::NumberedRounds::<Self, _, #count> {
                name: #saved,
                per_round: #per_round,
                get: |s| &s.#field,
                get_mut: |s| &mut s.#field,
            });
        }
        let visit = quote!(Self::module(#saved, |s| &s.#field, |s| &mut s.#field));
        match of.init.as_ref().and_then(Distribution::emit) {
            None => visit,
            Some(initial) => quote!(p::InitialField { field: #visit, initial: #initial }),
        }
    });
    let visits = nest(visits);
    let patterns = nest(names.iter().map(|field| quote!(#field)));
    let built_fields = module.fields.iter().zip(&names).map(|(of, field)| {
        let epsilon = match &of.layer {
            Submodule::Layer(layer) => layer.epsilon(),
            _ => None,
        };
        let with = epsilon.map(|epsilon| quote!(: #field.with_epsilon((#epsilon) as f64)));
        quote!(#field #with)
    });
    let none = marker(module).map(|none| quote!(#none: p::PhantomData));
    let built = cx.built(id);
    let types = cx.built_types(id);
    let is_built = cx.built_where(id);
    let collections = cx.built_collections(id);
    let converted = cx.built_converted(id);
    let numbered = cx.model.is_numbered(id).then(|| {
        let visits = module.fields.iter().map(visit_numbered);
        quote! {
            impl<E: p::Element, D: p::Device<E> #collections> p::Numbered<E, D> for #name<E, D #built> {
                fn visit_numbered<M: p::TensorCollection<E, D>, V: p::ModuleVisitor<M, E, D>>(
                    visitor: &mut V,
                    name: &str,
                    first: usize,
                    get: impl Fn(&M) -> &Self + Copy,
                    get_mut: impl Fn(&mut M) -> &mut Self + Copy,
                ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                    #(#visits)*
                    let built = || Some(#name { #(#names: #names?,)* #none });
                    Ok(built())
                }
            }
        }
    });
    quote_spanned! {cx.at=>
        #numbered

        impl<E0: p::Dtype, D0: p::Storage<E0>, E: p::Element, D: p::Device<E> #built> p::BuildOnDevice<D, E> for #name<E0, D0 #built> #is_built {
            type Built = #name<E, D #types>;
        }

        impl<E: p::Element, D: p::Device<E> #collections> p::TensorCollection<E, D> for #name<E, D #built> {
            type To<E2: p::Dtype, D2: p::Device<E2>> = #name<E2, D2 #converted>;

            fn iter_tensors<V: p::ModuleVisitor<Self, E, D>>(
                visitor: &mut V,
            ) -> Result<Option<Self::To<V::E2, V::D2>>, V::Err> {
                p::ModuleVisitor::visit_fields(visitor, #visits, |#patterns| #name { #(#built_fields,)* #none })
            }
        }
    }
}

/// The visit of the layers of a round that a field has.
fn visit_numbered(of: &Field) -> TokenStream {
    let name = field(&of.name);
    let offset: usize = of.saved.parse().unwrap_or_default();
    let visit = match &of.layer {
        Submodule::Repeat { .. } => quote!(visit_layers),
        _ => quote!(visit_layer),
    };
    quote! {
        let #name = p::#visit(visitor, (name, first + #offset), |m| &get(m).#name, |m| &mut get_mut(m).#name)?;
    }
}

/// `forward` and its siblings, or those of another function.
pub(super) fn emit_forward(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let built = cx.built(MODEL);
    let vis = &cx.model.item.vis;
    let input = cx.input(Access::Shared);
    let input_mut = cx.input(cx.training_access());
    let comments = cx.model.function.iter().flat_map(|of| &of.docs);
    let names = ["forward", "try_forward", "forward_mut", "try_forward_mut"];
    let [forward, try_forward, forward_mut, try_forward_mut] = names.map(|name| cx.method(name));
    let [doc, try_doc, doc_mut, try_doc_mut] = docs::methods(cx);
    let composed = match cx.model.function {
        None => emit_composed(cx),
        Some(_) => Some(emit_composed_function(cx)),
    };
    let layer = emit_layer(cx).filter(|_| cx.model.function.is_none());
    let inside = inside::emit_methods(cx);
    quote_spanned! {cx.at=>
        #[allow(dead_code)]
        impl<E: p::Dtype, D: p::Storage<E> #built> #name<E, D #built> {
            #(#comments)*
            #[doc = #doc]
            #[track_caller]
            #vis fn #forward<X: #input<E, D #built>>(&self, x: X) -> X::Output {
                p::unwrap(self.#try_forward(x))
            }

            #[doc = #try_doc]
            #vis fn #try_forward<X: #input<E, D #built>>(&self, x: X) -> Result<X::Output, p::Error<D::Err>> {
                x.run(self, p::ForwardOptions::FORWARD)
            }

            #[doc = #doc_mut]
            #[track_caller]
            #vis fn #forward_mut<X: #input_mut<E, D #built>>(&mut self, x: X) -> X::Output {
                p::unwrap(self.#try_forward_mut(x))
            }

            #[doc = #try_doc_mut]
            #vis fn #try_forward_mut<X: #input_mut<E, D #built>>(&mut self, x: X) -> Result<X::Output, p::Error<D::Err>> {
                x.run(self, p::ForwardOptions::TRAIN)
            }

            #composed

            #inside
        }

        #layer
    }
}

/// The composed form of a function beside `forward`.
fn emit_composed_function(cx: &Emitter<'_>) -> TokenStream {
    let vis = &cx.model.item.vis;
    let input = cx.input(Access::Shared);
    let [composed, try_composed] = ["composed", "try_composed"].map(|name| cx.method(name));
    let [doc, try_doc] = docs::composed(cx);
    quote_spanned! {cx.at=>
        #[doc = #doc]
        #[track_caller]
        #vis fn #composed<X: #input<E, D>>(&self, x: X) -> X::Output {
            p::unwrap(self.#try_composed(x))
        }

        #[doc = #try_doc]
        #vis fn #try_composed<X: #input<E, D>>(&self, x: X) -> Result<X::Output, p::Error<D::Err>> {
            x.run(self, p::ForwardOptions::COMPOSED)
        }
    }
}

/// `composed`, where that is another form.
fn emit_composed(cx: &Emitter<'_>) -> Option<TokenStream> {
    let vis = &cx.model.item.vis;
    let doc = docs::COMPOSED;
    let method = quote_spanned! {cx.at=>
        #[doc = #doc]
        #vis fn composed(&self) -> p::Composed<'_, Self> {
            p::Composed::new(self)
        }
    };
    (!cx.is_opaque()).then_some(method)
}

/// The implementation that `composed` calls.
fn emit_layer(cx: &Emitter<'_>) -> Option<TokenStream> {
    let name = &cx.name;
    let input = cx.input(Access::Shared);
    let layer = quote_spanned! {cx.at=>
        impl<X: #input<E, D>, E: p::Dtype, D: p::Storage<E>> p::Layer<X> for #name<E, D> {
            type Output = X::Output;
            type Err = D::Err;

            fn run(&self, x: X, run: p::ForwardOptions<'_>) -> Result<X::Output, p::Error<D::Err>> {
                x.run(self, run)
            }
        }
    };
    (!cx.is_opaque()).then_some(layer)
}
