//! The composed lowering: the block as dfdx operations, one line per operation, each with its shape as the type.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};

use super::{Layer, LayerFrame, bounds, expr, input, var};
use crate::graph::block::dim;
use crate::model::graph::{Node, ValueId};
use crate::ops::Emit;
use crate::ops::attention_layer::LayerOp;
use crate::score::Expr;
use crate::spec::Rotary;

/// `run`: computes the block. (A function of the block: a method could clash with the user's.)
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let name = &cx.name;
    let sequences = cx.sequence_vars();
    let attended = cx.attended();
    let inputs = cx.inputs(|data| {
        let read = input::read_type(data);
        quote!(&#read)
    });
    let check_integers = bounds::emit(cx);
    let names = cx.input_values();
    let (first, last) = (&names[0].0, &names[cx.graph.sequences() - 1].0);
    let block = &cx.graph.block;
    let mut uses = uses(cx);
    let values = names
        .iter()
        .enumerate()
        .map(|(index, (name, _))| match index {
            0 => quote!(#name),
            // dfdx has no derivative of a product of a tensor and itself, and queries may be keys.
            _ if cx.spec.of_operands.is_some() => {
                quote!(p::mul_scalar(#name.retaped::<T>(), 1.0)?)
            }
            _ => quote!(#name.retaped::<T>()),
        });
    // The body reads the others, which have no tape.
    let read = block.inputs.iter().take(cx.graph.sequences());
    let inputs_read = read.zip(values).map(|(id, value)| {
        let of = ComposedNode::new(cx, *id, Vec::new());
        of.define(&quote!(p::contiguous(#value)?))
    });
    let lines = block.nodes().map(|node| emit_node(cx, node, &mut uses));
    let lines: Vec<_> = inputs_read.chain(lines).collect();
    let result = var(&block.value(block.output()).name);
    let label = cx.label();
    quote_spanned! {cx.at=>
        #check_integers

        /// The operations of the layer, one after the other. dfdx differentiates them with its tape.
        #[allow(unused_variables)]
        fn run<B: p::Dim, #(#sequences: p::Dim,)* E: p::Element, D: p::Device<E>, T: p::Tape<E, D>>(
            layer: &#name<E, D>,
            #inputs
            train: bool,
            wanted: p::Wanted,
        ) -> Result<#attended, p::Error<D::Err>> {
            let axes = (p::HasShape::shape(&#first).0, p::HasShape::shape(&#first).1, p::HasShape::shape(&#last).1);
            let device = p::Clone::clone(#first.device());
            #(#lines)*
            Ok(p::attended(#label, #result, seen, lse))
        }
    }
}

/// How often each value is read.
fn uses(cx: &Layer<'_>) -> Vec<usize> {
    let block = &cx.graph.block;
    let mut uses = vec![0; block.values.len()];
    for operand in block.nodes().flat_map(|node| &node.operands) {
        uses[operand.0] += 1;
    }
    uses
}

/// The lines of an operation. `uses` counts down the reads that are still to come of each value.
fn emit_node(cx: &Layer<'_>, node: &Node<dyn LayerOp>, uses: &mut [usize]) -> TokenStream {
    let operands = node.operands.iter().map(|id| read(cx, *id, uses));
    let of = ComposedNode::new(cx, node.result, operands.collect());
    Emit::<LayerFrame<'_>>::composed(&*node.op, &of)
}

/// A value where it is read: the last reader gets it with its tape, those before get it with an empty one.
fn read(cx: &Layer<'_>, id: ValueId, uses: &mut [usize]) -> TokenStream {
    let name = var(&cx.graph.block.value(id).name);
    uses[id.0] -= 1;
    if uses[id.0] == 0 {
        quote!(#name)
    } else {
        quote!(p::WithEmptyTape::with_empty_tape(&#name))
    }
}

/// An operation where it stands in the composed form: its operands are tensors.
pub(crate) struct ComposedNode<'a> {
    cx: &'a Layer<'a>,
    result: ValueId,
    operands: Vec<TokenStream>,
}

impl<'a> ComposedNode<'a> {
    fn new(cx: &'a Layer<'a>, result: ValueId, operands: Vec<TokenStream>) -> Self {
        ComposedNode {
            cx,
            result,
            operands,
        }
    }

    pub(crate) fn operand(&self, index: usize) -> &TokenStream {
        &self.operands[index]
    }

    /// The last one before so many others.
    pub(crate) fn operand_before(&self, others: usize) -> Option<&TokenStream> {
        let last = self.operands.len().checked_sub(others + 1)?;
        self.operands.get(last)
    }

    /// `let q: p::Tensor<..> = value;`
    pub(crate) fn define(&self, value: &TokenStream) -> TokenStream {
        let result = self.cx.graph.block.value(self.result);
        let name = var(&result.name);
        let shape: Vec<_> = result.ty.axes.iter().map(dim).collect();
        let ty = self.cx.tensor(&shape, &quote!(T));
        quote!(let #name: #ty = #value;)
    }

    /// The tensor of a parameter.
    pub(crate) fn weight(&self, field: &str) -> TokenStream {
        let field = format_ident!("{field}");
        quote!(&layer.#field.weight)
    }

    /// The rotation of queries or keys, and the positions of the call, if it passes them.
    pub(crate) fn rotary(&self, rotary: &Rotary, of_keys: bool) -> (TokenStream, TokenStream) {
        let tokens = rotary.tokens();
        let method = format_ident!("{}", if of_keys { "of_keys" } else { "of_queries" });
        let (longest, positions) = match rotary.position_ids {
            true => (
                quote!(position_ids.longest()),
                quote!(Some(position_ids.#method())),
            ),
            false => (
                quote!(p::max(p::Dim::size(&axes.1), p::Dim::size(&axes.2))),
                quote!(None),
            ),
        };
        match rotary.depends_on_len() {
            true => (quote!(#tokens.for_len(#longest)), positions),
            false => (tokens, positions),
        }
    }

    /// The type of scores and weights.
    pub(crate) fn weights_type(&self) -> TokenStream {
        self.cx.tensor(&self.cx.graph.weights, &quote!(T))
    }

    /// The type of the logarithms of sums of weights.
    pub(crate) fn lse_type(&self) -> TokenStream {
        self.cx.tensor(&self.cx.graph.weights[..3], &quote!(T))
    }

    /// The lines that replace `scores` by the value of an expression.
    pub(crate) fn map_scores(&self, expr: &Expr) -> TokenStream {
        expr::emit_map(self.cx, expr, &self.weights_type())
    }

    /// The lines that make `mask`.
    pub(crate) fn mask(&self, mask: &Expr) -> TokenStream {
        expr::emit_mask(self.cx, mask)
    }
}
