//! Inputs and results by name: structs of tensors.
//!
//! ```text
//! /// The inputs of [`Gpt::forward`] by name.
//! pub struct GptInputs<Tokens, Keep> { pub tokens: Tokens, pub keep: Keep }
//! /// What [`Gpt::forward`] returns.
//! pub struct GptOutput<Logits, Hidden> { pub logits: Logits, pub hidden: Hidden }
//! ```

use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, docs, field, tuple};
use crate::emit::item::missing_derives;
use crate::model::names::camel_case;
use crate::model::types::Type;

/// The structs of a function.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    let inputs = cx.inputs_by_name();
    let inputs =
        inputs.map(|name| emit_struct(cx, &name, &docs::inputs(cx), &cx.model.input_names));
    let results = &cx.model.result_names;
    let output =
        (!results.is_empty()).then(|| emit_struct(cx, &cx.output(), &docs::results(cx), results));
    inputs.into_iter().chain(output).collect()
}

/// A struct of tensors, which its type variables are.
fn emit_struct(
    cx: &Emitter<'_>,
    name: &Ident,
    docs: &(String, Vec<String>),
    names: &[String],
) -> TokenStream {
    let types = (0..names.len()).map(|index| type_of(names, index));
    let types: Vec<_> = types.collect();
    let krate = cx.krate;
    let vis = &cx.model.item.vis;
    let cfgs = &cx.cfgs;
    let (doc, docs) = docs;
    let fields = names.iter().map(|name| field(name));
    let derives = missing_derives(&[]);
    quote_spanned! {cx.at=>
        #(#cfgs)*
        #[doc = #doc]
        #[allow(dead_code)]
        #[derive(#(#krate::__private::#derives),*)]
        #vis struct #name<#(#types),*> {
            #(#[doc = #docs] #vis #fields: #types,)*
        }
    }
}

/// The type variable of a field: its name in camel case, or its number where that is the name of another.
fn type_of(names: &[String], index: usize) -> Ident {
    let name = camel_case(&names[index]);
    let same = names.iter().filter(|other| camel_case(other) == name);
    let is_taken = same.count() > 1 || syn::parse_str::<Ident>(&name).is_err();
    match is_taken {
        true => format_ident!("Field{index}"),
        false => Ident::new(&name, Span::call_site()),
    }
}

impl Emitter<'_> {
    /// `GptInputs`, if there are several and their names are known.
    pub(super) fn inputs_by_name(&self) -> Option<Ident> {
        let are_several = self.model.input_names.len() > 1;
        are_several.then(|| format_ident!("{}Inputs", self.stem()))
    }

    /// `GptOutput`, `GptEncodeOutput`
    pub(super) fn output(&self) -> Ident {
        format_ident!("{}Output", self.stem())
    }

    /// The type of what the function returns.
    pub(super) fn returned_type<'t>(&self, results: impl Iterator<Item = &'t Type>) -> TokenStream {
        let types = results.map(|ty| self.tensor(ty, &quote!(T)));
        let types: Vec<_> = types.collect();
        match self.model.result_names.is_empty() {
            true => tuple(&types),
            false => {
                let output = self.output();
                quote!(#output<#(#types),*>)
            }
        }
    }

    /// The value of these results.
    pub(super) fn returned(&self, results: &[TokenStream]) -> TokenStream {
        match self.model.result_names.is_empty() {
            true => tuple(results),
            false => {
                let output = self.output();
                let fields = self.model.result_names.iter().map(|name| field(name));
                quote!(#output { #(#fields: #results),* })
            }
        }
    }
}
