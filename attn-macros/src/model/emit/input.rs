//! The trait of what `forward` accepts: its errors are the model's own words about shapes.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};

use super::opaque::Access;
use super::{Emitter, MODEL, docs, tuple};
use crate::emit::{Anything, anything, on_unimplemented};
use crate::model::graph::{Absent, ValueId};
use crate::model::types::{Axis, Type};

/// The traits: one, or two where `forward_mut` accepts something else than `forward`.
pub(super) fn emit_traits(cx: &Emitter<'_>) -> TokenStream {
    let traits = cx.accesses().iter();
    traits.map(|access| emit_trait(cx, *access)).collect()
}

/// The trait. Its `on_unimplemented` is what a user reads after passing a wrong shape.
fn emit_trait(cx: &Emitter<'_>, access: Access) -> TokenStream {
    let krate = cx.krate;
    let name = &cx.name;
    let input = cx.input(access);
    let cfgs = &cx.cfgs;
    let built = cx.built(MODEL);
    let mutability = access.mutability();
    let label = cx.label();
    let vis = &cx.model.item.vis;
    let accepted = docs::accepted(cx);
    let message = format!("`{label}` takes {accepted}, not `{{Self}}`");
    let note = docs::axes_note(cx);
    let when = match access {
        Access::Shared => "",
        Access::Exclusive => " in training",
    };
    let doc = format!("An input of [`{label}`]{when}: `{accepted}`, as dfdx tensors.");
    let label = format!("wrong input for `{label}`");
    let unimplemented = on_unimplemented(
        cx.at,
        &["Self", "E", "D"],
        &message,
        &label,
        &[note.as_str()],
    );
    quote_spanned! {cx.at=>
        #(#cfgs)*
        #[doc = #doc]
        #unimplemented
        #vis trait #input<E: #krate::__private::Dtype, D: #krate::__private::Storage<E> #built>: ::core::marker::Sized {
            /// The type that `forward` returns.
            type Output;
            #[doc(hidden)]
            fn run(
                self,
                model: & #mutability #name<E, D #built>,
                run: #krate::__private::ForwardOptions<'_>,
            ) -> ::core::result::Result<Self::Output, #krate::__private::Error<D::Err>>;
        }
    }
}

/// The types that the traits are implemented for.
pub(super) fn emit_impls(cx: &Emitter<'_>) -> TokenStream {
    let of_tensors = emit_impls_of_tensors(cx);
    let accesses = cx.accesses().iter();
    let by_name = accesses.filter_map(|access| emit_impl_by_name(cx, *access));
    of_tensors.into_iter().chain(by_name.flatten()).collect()
}

/// The inputs by name are taken as their tuple is.
fn emit_impl_by_name(cx: &Emitter<'_>, access: Access) -> Option<TokenStream> {
    let inputs = cx.inputs_by_name()?;
    let name = &cx.name;
    let input = cx.input(access);
    let built = cx.built(MODEL);
    let mutability = access.mutability();
    let names = cx.model.input_names.iter();
    let fields: Vec<_> = names.map(|name| super::field(name)).collect();
    let types = (0..fields.len()).map(|index| format_ident!("Input{index}"));
    let types: Vec<_> = types.collect();
    Some(quote_spanned! {cx.at=>
        #[diagnostic::do_not_recommend]
        impl<#(#types,)* E: p::Dtype, D: p::Storage<E> #built> #input<E, D #built> for #inputs<#(#types),*>
        where
            (#(#types,)*): #input<E, D #built>,
        {
            type Output = <(#(#types,)*) as #input<E, D #built>>::Output;

            fn run(self, model: & #mutability #name<E, D #built>, run: p::ForwardOptions<'_>) -> Result<Self::Output, p::Error<D::Err>> {
                #input::run((#(self.#fields,)*), model, run)
            }
        }
    })
}

fn emit_impls_of_tensors(cx: &Emitter<'_>) -> TokenStream {
    if cx.model.poisoned {
        let signature = cx.model.signature.as_ref();
        return signature.map_or_else(|| emit_anything(cx), |results| emit_declared(cx, results));
    }
    let impls = cx.accesses().iter();
    impls.map(|access| emit_impl(cx, *access)).collect()
}

/// The type that a trait is implemented for. The first input carries the tape.
fn emit_impl(cx: &Emitter<'_>, access: Access) -> TokenStream {
    let name = &cx.name;
    let input = cx.input(access);
    let symbols = cx.symbols();
    let built = cx.built(MODEL);
    let calls = cx.calls_where(access);
    let mutability = access.mutability();
    let run_graph = access.function();
    let model = cx.model;
    let inputs = &cx.model.inputs;
    let names: Vec<_> = inputs.iter().map(|id| cx.var(*id)).collect();
    let idents = |names: &[Ident]| {
        let names = names.iter().map(ToTokens::to_token_stream);
        tuple(&names.collect::<Vec<_>>())
    };
    let ty = emit_accepted(cx);
    let pattern = idents(&names);
    let first = &names[0];
    let defaults = emit_defaults(cx);
    let checks = emit_checks(cx);
    let fused = (!cx.is_opaque()).then(|| {
        quote! {
            if run.is_one_operation::<E, D>() {
                return fused(p::Operation::default(), model, #(#names,)* run.train);
            }
        }
    });
    let output = cx.returned_type(model.results.iter().map(|id| &model.value(*id).ty));
    let results: Vec<_> = (0..model.results.len())
        .map(|index| format_ident!("result_{index}"))
        .collect();
    let pattern_of_results = idents(&results);
    let wrapped = emit_outputs(cx, &results);
    quote_spanned! {cx.at=>
        impl<#symbols T: p::Tape<E, D>, E: p::Element, D: p::Backend<E> #built> #input<E, D #built> for #ty #calls {
            type Output = #output;

            fn run(self, model: & #mutability #name<E, D #built>, run: p::ForwardOptions<'_>) -> Result<Self::Output, p::Error<D::Err>> {
                let #pattern = self;
                #defaults
                #checks
                #fused
                let mut pass = p::Pass::<T>::new(run);
                let #first = p::Pass::input(&mut pass, #first);
                let #pattern_of_results = #run_graph(model, &mut pass, #(#names),*)?;
                #wrapped
            }
        }
    }
}

/// The results with their tapes: the last expression of a function that has the `pass`.
fn emit_outputs(cx: &Emitter<'_>, results: &[Ident]) -> TokenStream {
    match results {
        [one] => {
            let returned = cx.returned(&[quote!(p::Pass::output(&mut pass, #one))]);
            quote!(Ok(#returned))
        }
        several => cx.put_tapes(several, &quote!(pass.into_tape())),
    }
}

/// Axes of one name have one size.
pub(super) fn emit_checks(cx: &Emitter<'_>) -> TokenStream {
    let label = cx.label();
    let mut first: Vec<(&str, ValueId, usize)> = Vec::new();
    let mut checks = TokenStream::new();
    for id in &cx.model.inputs {
        let input = cx.model.value(*id);
        for (index, axis) in input.ty.axes.iter().enumerate() {
            let Axis::Symbol(symbol) = axis else { continue };
            let name = symbol.length.as_str();
            let Some((_, of, place)) = first.iter().find(|(other, ..)| *other == name) else {
                first.push((name, *id, index));
                continue;
            };
            let a = cx.var(*of);
            let b = cx.var(*id);
            let names = [&cx.model.value(*of).source, &input.source];
            checks.extend(quote! {
                p::check_axis(#label, #name, [#(#names),*], p::axis(&#a, #place), p::axis(&#b, #index))?;
            });
        }
    }
    checks
}

/// After a mistake in the body: what `forward` declares, so that the error stays alone.
fn emit_declared(cx: &Emitter<'_>, results: &[Type]) -> TokenStream {
    let name = &cx.name;
    let input = cx.input(Access::Shared);
    let symbols = cx.symbols();
    let ty = emit_accepted(cx);
    let output = cx.returned_type(results.iter());
    quote_spanned! {cx.at=>
        impl<#symbols T: p::Tape<E, D>, E: p::Element, D: p::Backend<E>> #input<E, D> for #ty {
            type Output = #output;

            fn run(self, _: &#name<E, D>, _: p::ForwardOptions<'_>) -> Result<Self::Output, p::Error<D::Err>> {
                ::core::unreachable!()
            }
        }
    }
}

/// The type of what `forward` accepts. The first input carries the tape.
fn emit_accepted(cx: &Emitter<'_>) -> TokenStream {
    let types = cx.model.inputs.iter().enumerate().map(|(index, id)| {
        let tape = if index == 0 {
            quote!(T)
        } else {
            TokenStream::new()
        };
        let ty = cx.tensor(&cx.model.value(*id).ty, &tape);
        match cx.model.default_of(index) {
            None => ty,
            Some(_) => quote!(Option<#ty>),
        }
    });
    tuple(&types.collect::<Vec<_>>())
}

/// The lines that put a tensor in the place of each input that the call leaves out.
pub(super) fn emit_defaults(cx: &Emitter<'_>) -> TokenStream {
    let label = cx.label();
    let inputs = cx.model.inputs.iter().enumerate();
    let lines = inputs.filter_map(|(index, id)| {
        let default = cx.model.default_of(index)?;
        let [name, first] = [*id, cx.model.inputs[0]].map(|id| cx.var(id));
        let axes = &cx.model.value(*id).ty.axes;
        let shape = axes.iter().map(|axis| match axis {
            Axis::Symbol(symbol) => cx.axis_of_input(&symbol.length, |id| cx.var(id)),
            Axis::Size(_) => quote!(p::Const),
        });
        let shape: Vec<_> = shape.collect();
        let sizes = axes.iter().zip(&shape).map(|(axis, of_call)| {
            let name = axis.to_string();
            let size = match axis {
                Axis::Symbol(_) => quote!(p::Dim::size(&#of_call)),
                Axis::Size(size) => size.to_token_stream(),
            };
            quote!((#name, #size))
        });
        let (or, value) = match default {
            Absent::Number(number) => (quote!(or_full), quote!(p::Element::of((#number) as f64))),
            Absent::Length(Axis::Size(size)) => (quote!(or_full), quote!(#size)),
            Absent::Length(Axis::Symbol(symbol)) => {
                let axis = cx.axis_of_input(&symbol.length, |id| cx.var(id));
                (quote!(or_full), quote!(p::Dim::size(&#axis)))
            }
            Absent::From(start) => (quote!(or_count), quote!(#start)),
            Absent::Marks(value) => (quote!(or_marks), quote!(#value)),
        };
        Some(quote! {
            p::check_sizes(#label, &[#(#sizes),*])?;
            let #name = p::#or(#name, #first.device(), (#(#shape,)*), #value)?;
        })
    });
    lines.collect()
}

/// After a mistake in what `forward` declares: accept whatever is passed, so that the error stays alone.
fn emit_anything(cx: &Emitter<'_>) -> TokenStream {
    let name = &cx.name;
    let input = cx.input(Access::Shared);
    let others = cx.model.inputs.len().clamp(4, 11);
    let accepted = anything(others, &TokenStream::new()).into_iter();
    let impls = accepted.map(|of| {
        let Anything {
            generics,
            ty,
            first,
        } = of;
        quote! {
            impl<#generics> #input<E, D> for #ty {
                type Output = #first;
                fn run(self, _: &#name<E, D>, _: p::ForwardOptions<'_>) -> Result<Self::Output, p::Error<D::Err>> {
                    ::core::unreachable!()
                }
            }
        }
    });
    impls.collect()
}
