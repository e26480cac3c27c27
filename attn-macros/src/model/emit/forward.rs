//! The forward pass: a line per operation, each with the shape of its result as the type.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};

use super::{Emitter, var};
use crate::model::graph::{Node, Op, Place, Region, Repeat, Step, Submodule};
use crate::model::types::Axis;

/// `run_graph`: computes the graph.
pub(super) fn emit(cx: &Emitter<'_>) -> TokenStream {
    if cx.model.poisoned {
        return TokenStream::new();
    }
    let (name, symbols) = (&cx.name, cx.symbols());
    let inputs = cx.model.inputs.iter().map(|id| {
        let (name, ty) = (cx.var(*id), cx.value_type(*id));
        quote!(#name: #ty)
    });
    let body = emit_region(cx, &cx.model.body);
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
        fn run_graph<#symbols E: p::Element, D: p::Backend<E>, T: p::Tape<E, D>>(
            model: &#name<E, D>,
            pass: &mut p::Pass<T>,
            #(#inputs,)*
        ) -> Result<#ty, p::Error<D::Err>> {
            #body
            Ok(#result)
        }
    }
}

fn emit_region(cx: &Emitter<'_>, region: &Region) -> TokenStream {
    let steps = region.steps.iter().map(|step| match step {
        Step::Node(node) => emit_node(cx, node),
        Step::Repeat(repeat) => emit_repeat(cx, repeat),
    });
    steps.collect()
}

fn emit_node(cx: &Emitter<'_>, node: &Node) -> TokenStream {
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
            let (layer, x) = (cx.place(place), &operands[0]);
            let others = &operands[1..];
            let input = if others.is_empty() {
                quote!(p::on(tape, &#x))
            } else {
                quote!((p::on(tape, &#x), #(p::Clone::clone(&#others)),*))
            };
            quote!(layer(&#layer, |tape| #input))
        }
        Op::Dropout(p) => {
            let x = &operands[0];
            quote!(dropout(&#x, #p))
        }
        Op::Activation(ty) => {
            let (krate, ty, x) = (cx.krate, format_ident!("{ty}"), &operands[0]);
            quote!(activate::<#krate::nn::#ty, _, _, _>(&#x))
        }
        Op::Add => quote!(add(#(&#operands),*)),
        Op::Sub => quote!(sub(#(&#operands),*)),
        Op::Mul => quote!(mul(#(&#operands),*)),
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
        Op::Concat => quote!(concat(#(&#operands),*)),
        Op::MeanPool => quote!(mean_pool(#(&#operands),*)),
        Op::PaddedMeanPool => quote!(mean_pool_padded(#(&#operands),*)),
    };
    quote!(let #result: #ty = pass.#call?;)
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
            quote!(#input.shape().#index)
        }
        None => quote!(p::Const),
    }
}

/// A loop over the sets of parameters.
fn emit_repeat(cx: &Emitter<'_>, repeat: &Repeat) -> TokenStream {
    let place = cx.place(&repeat.place);
    let module = var(&cx.model.module(repeat.module).var);
    let starts = repeat.carried.iter().map(|carried| {
        let (value, before) = (cx.var(carried.value), cx.var(carried.before));
        quote!(let mut #value = p::Clone::clone(&#before);)
    });
    let starts: Vec<_> = starts.collect();
    let values: Vec<_> = repeat.carried.iter().map(|of| cx.var(of.value)).collect();
    let ends: Vec<_> = repeat.carried.iter().map(|of| cx.var(of.after)).collect();
    let assign = match (values.as_slice(), ends.as_slice()) {
        ([value], [end]) => quote!(#value = #end;),
        _ => quote!((#(#values),*) = (#(p::Clone::clone(&#ends)),*);),
    };
    let (body, count) = (emit_region(cx, &repeat.body), &repeat.count);
    let rounds = if repeat.share {
        quote!(::core::iter::repeat_n(&#place, #count))
    } else {
        quote!(#place.modules.iter())
    };
    quote! {
        #(#starts)*
        for #module in #rounds {
            #body
            #assign
        }
    }
}
