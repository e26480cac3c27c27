//! The composed lowering: the graph as dfdx operations, one line per node, each with its shape as the type.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::{Layer, bounds, expr, input, var};
use crate::graph::{Attention, NodeId, Op, Scores};
use crate::spec::Normalizer;

/// `run`: computes the graph. (A function of the block: a method could clash with the user's.)
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let sequences = cx.sequence_vars();
    let attended = cx.attended();
    let inputs = cx.inputs(|data| {
        let read = input::read_type(data);
        quote!(&#read)
    });
    let check_integers = bounds::emit(cx);
    let q = quote!(p::HasShape::shape(&x).1);
    let k = if cx.graph.cross {
        quote!(p::HasShape::shape(&context).1)
    } else {
        quote!(p::HasShape::shape(&x).1)
    };
    let mut uses = cx.graph.uses();
    let lines = (0..cx.graph.nodes.len()).map(|index| emit_node(cx, NodeId(index), &mut uses));
    let lines: Vec<_> = lines.collect();
    let result = var(cx.graph.node(cx.graph.output).name);
    quote_spanned! {cx.at=>
        #check_integers

        /// The operations of the layer. dfdx's tape differentiates them.
        #[allow(unused_variables)]
        fn run<B: p::Dim, #(#sequences: p::Dim,)* E: p::Element, D: p::Device<E>, T: p::Tape<E, D>>(
            layer: &#name<E, D>,
            #inputs
            train: bool,
        ) -> Result<#attended, p::Error<D::Err>> {
            let axes = (p::HasShape::shape(&x).0, #q, #k);
            let device = p::Clone::clone(x.device());
            #(#lines)*
            Ok((#result, Some(seen)))
        }
    }
}

/// The line of one node. `uses` counts down the reads that are still to come of each.
fn emit_node(cx: &Layer<'_>, id: NodeId, uses: &mut [usize]) -> TokenStream {
    let graph = cx.graph;
    let node = graph.node(id);
    let name = var(node.name);
    let ty = cx.tensor(&node.shape, &quote!(T));
    let operands: Vec<_> = node
        .op
        .operands()
        .iter()
        .map(|id| read(cx, *id, uses))
        .collect();
    let value = match &node.op {
        Op::Input => quote!(p::contiguous(x)?),
        Op::Context => quote!(p::contiguous(context.retaped::<T>())?),
        Op::Linear { field, .. } => {
            let field = format_ident!("{field}");
            quote!(p::project(#(#operands)*, &layer.#field)?)
        }
        Op::SplitHeads { .. } => quote!(p::split_heads(#(#operands)*)?),
        Op::MergeHeads { .. } => quote!(p::merge_heads(#(#operands)*)?),
        Op::RmsNorm { field, .. } => {
            let gain = weight(field);
            quote!(p::rms_norm(#(#operands)*, #gain)?)
        }
        Op::L2Norm { .. } => quote!(p::l2_norm(#(#operands)*)?),
        Op::Rope { theta, .. } => quote!(p::rope(#(#operands)*, #theta)?),
        Op::PerHeadLinear { field, .. } => {
            let weight = weight(field);
            quote!(p::bilinear(#(#operands)*, #weight)?)
        }
        Op::Attend(attention) => {
            let (others, values) = operands.split_at(operands.len() - 1);
            let weights = emit_weights(cx, attention, others);
            return quote! {
                #weights
                let #name: #ty = p::attend(weights, #(#values)*)?;
            };
        }
    };
    quote!(let #name: #ty = #value;)
}

/// The lines from queries and keys to `weights`, which are returned without a tape as well, as `seen`.
fn emit_weights(cx: &Layer<'_>, attention: &Attention, operands: &[TokenStream]) -> TokenStream {
    let ty = cx.tensor(&cx.graph.weights, &quote!(T));
    let scores = match attention.scores {
        Scores::Dot { .. } => quote!(p::dot_scores(#(#operands),*)?),
        Scores::Additive { field, .. } => {
            let weight = weight(field);
            quote!(p::additive_scores(#(#operands),*, #weight)?)
        }
        Scores::Zero { .. } => quote!(p::zero_scores(#(#operands)*, axes.2)?),
    };
    let functions = attention.functions.iter();
    let functions = functions.chain(attention.normalizer.weight());
    let functions = functions.map(|expr| expr::emit_map(cx, expr, &ty));
    let (line, mask) = match &attention.mask {
        Some(mask) => (expr::emit_mask(cx, mask), quote!(Some(mask))),
        None => (TokenStream::new(), quote!(None)),
    };
    let function = var(match attention.normalizer {
        Normalizer::Elementwise(_) => "identity",
        Normalizer::Softmax => "softmax",
        Normalizer::Softmax1 => "softmax1",
        Normalizer::Sink => "sink",
        Normalizer::Sparsemax => "sparsemax",
        Normalizer::Entmax15 => "entmax15",
    });
    let learned = attention.normalizer.field().map(|field| {
        let weight = weight(field);
        quote!(, #weight)
    });
    let dropout = attention.dropout.as_ref().map(|p| {
        quote! {
            let weights: #ty = match (train && T::OWNS_TAPE).then(|| p::RandomU64::random_u64(&device)) {
                Some(key) => p::dropout(weights, #p, key)?,
                None => weights,
            };
        }
    });
    quote! {
        let scores: #ty = #scores;
        #(#functions)*
        #line
        let weights: #ty = p::#function(scores, #mask #learned)?;
        #dropout
        let seen = weights.retaped::<p::NoneTape>();
    }
}

/// The tensor of a parameter.
fn weight(field: &str) -> TokenStream {
    let field = format_ident!("{field}");
    quote!(&layer.#field.weight)
}

/// A node where it is read: the last reader gets it with its tape, those before get it with an empty one.
fn read(cx: &Layer<'_>, id: NodeId, uses: &mut [usize]) -> TokenStream {
    let name = var(cx.graph.node(id).name);
    uses[id.0] -= 1;
    if uses[id.0] == 0 {
        quote!(#name)
    } else {
        quote!(p::WithEmptyTape::with_empty_tape(&#name))
    }
}
