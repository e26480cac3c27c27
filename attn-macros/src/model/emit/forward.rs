//! The forward pass: a line per operation, each with the shape of its result as the type.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::opaque::Access;
use super::{Emitter, MODEL, copy, tuple, var};
use crate::model::graph::{Node, Op, Place, Region, Repeat, Step, Submodule, ValueId};
use crate::model::types::{Axis, Same, Type};

/// `run_graph`: computes the graph. Its twin `run_graph_mut` may change the model.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    if cx.model.poisoned {
        return TokenStream::new();
    }
    let functions = cx.accesses().iter();
    functions.map(|access| emit_function(cx, *access)).collect()
}

fn emit_function(cx: &Emitter<'_>, access: Access) -> TokenStream {
    let (name, symbols, run_graph) = (&cx.name, cx.symbols(), access.function());
    let (built, calls) = (cx.built(MODEL), cx.calls_where(access));
    let mutability = access.mutability();
    let inputs = cx.model.inputs.iter().map(|id| {
        let (name, ty) = (cx.var(*id), cx.value_type(*id));
        quote!(#name: #ty)
    });
    let body = emit_region(cx, &cx.model.body, access);
    let results: Vec<_> = cx.model.results.iter().map(|id| cx.var(*id)).collect();
    let types: Vec<_> = cx
        .model
        .results
        .iter()
        .map(|id| cx.value_type(*id))
        .collect();
    let (result, ty) = match results.as_slice() {
        [one] => (quote!(#one), quote!(#(#types)*)),
        // A value may be returned twice.
        _ => (
            quote!((#(p::Clone::clone(&#results)),*)),
            quote!((#(#types),*)),
        ),
    };
    quote_spanned! {cx.at=>
        /// The graph of the model, operation by operation.
        fn #run_graph<#symbols E: p::Element, D: p::Backend<E>, T: p::Tape<E, D> #built>(
            model: & #mutability #name<E, D #built>,
            pass: &mut p::Pass<'_, T>,
            #(#inputs,)*
        ) -> Result<#ty, p::Error<D::Err>> #calls {
            #body
            Ok(#result)
        }
    }
}

fn emit_region(cx: &Emitter<'_>, region: &Region, access: Access) -> TokenStream {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => emit_node(cx, node, access),
        Step::Repeat(repeat) => emit_repeat(cx, repeat, access),
    });
    steps.collect()
}

fn emit_node(cx: &Emitter<'_>, node: &Node, access: Access) -> TokenStream {
    let (result, ty) = (cx.var(node.result), cx.value_type(node.result));
    let operands: Vec<_> = node.operands.iter().map(|id| cx.var(*id)).collect();
    let shape = |but: usize| {
        let axes = &cx.model.value(node.result).ty.axes;
        let axes = axes[..axes.len() - but]
            .iter()
            .map(|axis| axis_value(cx, axis));
        quote!((#(#axes,)*))
    };
    let call = match &node.op {
        Op::Embedding(place) => layer_call(cx, "embedding", place, &operands),
        Op::LearnedPosition(place) => {
            let (place, shape) = (cx.place(place), shape(1));
            quote!(learned_position(#shape, &#place))
        }
        Op::SinusoidalPosition => {
            let (x, shape) = (&operands[0], shape(1));
            quote!(sinusoidal_position(#shape, #x.device()))
        }
        Op::Linear(place) => layer_call(cx, "linear", place, &operands),
        Op::TiedLinear(place) => layer_call(cx, "tied_linear", place, &operands),
        Op::FeedForward(place) => {
            let gated = matches!(
                cx.model.layer(place),
                Some(Submodule::FeedForward { activation, .. }) if activation.gated
            );
            let method = if gated {
                "gated_feed_forward"
            } else {
                "feed_forward"
            };
            layer_call(cx, method, place, &operands)
        }
        Op::LayerNorm(place) => layer_call(cx, "layer_norm", place, &operands),
        Op::RmsNorm(place) => layer_call(cx, "rms_norm", place, &operands),
        Op::Attention { place, .. } => {
            let context = operands[1..cx.model.differentiable(node)].iter().map(copy);
            let data = cx.model.data(node).into_iter();
            let data = data.map(|(_, inputs)| cx.data_of_call(node, inputs, |id| cx.var(id)));
            let input = input_with_tape(&operands[0], context.chain(data));
            let layer = cx.place(place);
            quote!(layer(&#layer, |tape| #input))
        }
        Op::Opaque(place) => {
            let others = operands[1..].iter().map(copy);
            let (module, input) = (cx.place(place), input_with_tape(&operands[0], others));
            match access {
                Access::Shared => quote!(module(&#module, |tape| #input)),
                Access::Exclusive => quote!(module_mut(&mut #module, |tape| #input)),
            }
        }
        Op::Dropout(p) => {
            let x = &operands[0];
            quote!(dropout(&#x, #p))
        }
        Op::Activation(ty) => {
            let (krate, ty, x) = (cx.krate, format_ident!("{ty}"), &operands[0]);
            quote!(activate::<#krate::nn::#ty, _, _, _>(&#x))
        }
        Op::Add | Op::Sub | Op::Mul => {
            let ty = &cx.model.value(node.result).ty;
            let [x, y] = [0, 1].map(|index| as_type(cx, node.operands[index], ty));
            let method = match node.op {
                Op::Add => quote!(add),
                Op::Sub => quote!(sub),
                _ => quote!(mul),
            };
            quote!(#method(&#x, &#y))
        }
        Op::Scale(by) => {
            let x = &operands[0];
            quote!(scale(&#x, (#by) as f64))
        }
        Op::Shift(by) => {
            let x = &operands[0];
            quote!(shift(&#x, (#by) as f64))
        }
        Op::Softmax => quote!(softmax(#(&#operands),*)),
        Op::Expand => {
            let (x, shape) = (&operands[0], shape(0));
            quote!(expand(&#x, #shape))
        }
        Op::Concat => {
            let (x, y) = (&operands[0], node.operands[1]);
            let width = cx.model.value(y).ty.axes.last().cloned();
            let mut ty = cx.model.value(node.operands[0]).ty.clone();
            ty.axes.pop();
            ty.axes.extend(width);
            let y = as_type(cx, y, &ty);
            quote!(concat(&#x, &#y))
        }
        Op::MeanPool => quote!(mean_pool(#(&#operands),*)),
        Op::PaddedMeanPool => quote!(mean_pool_padded(#(&#operands),*)),
    };
    quote!(let #result: #ty = pass.#call?;)
}

/// A value where one of this type is to be: rustc may have to find out that the two are the same.
fn as_type(cx: &Emitter<'_>, id: ValueId, ty: &Type) -> TokenStream {
    let name = cx.var(id);
    match cx.model.value(id).ty.same(ty) {
        Same::If(_) => quote!(p::asserted(&#name)),
        _ => quote!(#name),
    }
}

/// The operands, the first one with the tape.
fn input_with_tape(x: &Ident, others: impl Iterator<Item = TokenStream>) -> TokenStream {
    let x = [quote!(p::on(tape, &#x))].into_iter();
    tuple(&x.chain(others).collect::<Vec<_>>())
}

fn layer_call(cx: &Emitter<'_>, method: &str, place: &Place, operands: &[Ident]) -> TokenStream {
    let (method, place) = (format_ident!("{method}"), cx.place(place));
    quote!(#method(#(&#operands,)* &#place))
}

/// The axis of a tensor to be made: that of an input that has it, or the constant.
fn axis_value(cx: &Emitter<'_>, axis: &Axis) -> TokenStream {
    let Axis::Symbol(name) = axis else {
        return quote!(p::Const);
    };
    let found = cx.model.inputs.iter().find_map(|id| {
        let axes = &cx.model.value(*id).ty.axes;
        let is_it = |axis: &Axis| matches!(axis, Axis::Symbol(other) if other == name);
        Some((cx.var(*id), axes.iter().position(is_it)?))
    });
    match found {
        Some((input, index)) => {
            let index = syn::Index::from(index);
            quote!(p::HasShape::shape(&#input).#index)
        }
        None => quote!(p::Const),
    }
}

/// A loop over the sets of parameters.
fn emit_repeat(cx: &Emitter<'_>, repeat: &Repeat, access: Access) -> TokenStream {
    let place = cx.place(&repeat.place);
    let module = var(&cx.model.module(repeat.module).var);
    let starts = repeat.carried.iter().map(|carried| {
        let (value, before) = (cx.var(carried.value), cx.var(carried.before));
        quote!(let mut #value = p::Clone::clone(&#before);)
    });
    let starts: Vec<_> = starts.collect();
    let values: Vec<_> = repeat.carried.iter().map(|of| cx.var(of.value)).collect();
    let ends = repeat.carried.iter().map(|of| {
        let ty = &cx.model.value(of.value).ty;
        as_type(cx, of.after, ty)
    });
    let ends: Vec<_> = ends.collect();
    let assign = match (values.as_slice(), ends.as_slice()) {
        ([value], [end]) => quote!(#value = #end;),
        _ => quote!((#(#values),*) = (#(p::Clone::clone(&#ends)),*);),
    };
    let (body, count) = (emit_region(cx, &repeat.body, access), &repeat.count);
    let rounds = match (repeat.share, access) {
        (true, Access::Shared) => quote!(for #module in ::core::iter::repeat_n(&#place, #count)),
        (true, Access::Exclusive) => quote!(for _ in 0..#count),
        (false, Access::Shared) => quote!(for #module in #place.modules.iter()),
        (false, Access::Exclusive) => quote!(for #module in #place.modules.iter_mut()),
    };
    // The one set of parameters is borrowed anew in every round.
    let borrowed =
        (repeat.share && access == Access::Exclusive).then(|| quote!(let #module = &mut #place;));
    quote! {
        #(#starts)*
        #rounds {
            #borrowed
            #body
            #assign
        }
    }
}
