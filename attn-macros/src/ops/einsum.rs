//! `einsum::<[batch, seq, e]>(x, w)`: products of values, summed over the axes that the result lacks.

mod lower;

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op, Operation,
    Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::Model;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::keys::{Key, KeyKind};

pub(super) static EINSUM: Operation = Operation {
    name: "einsum",
    keys: &[Key {
        name: "axes",
        kind: KeyKind::Axes,
        default: "required",
        doc: "The axes of the result, in their order. `[]` is a single number.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]`, `[..]`, .. to `axes`",
    doc: "The product of values, summed over the axes that the result lacks: `einsum::<[batch, seq, e]>(x, w)`. Axes are the same by their names. PyTorch: `torch.einsum(\"bsd,de->bse\", x, w)`.",
    lower: Lower::Operands(1..=usize::MAX, &lower::lower),
};

/// A product of two values. Each axis is in two of both and of the result at least.
#[derive(Clone)]
pub(crate) struct Einsum {
    /// All axes.
    all: Vec<Axis>,
    /// Those of both operands and of the result, by their indices.
    axes: [Vec<usize>; 3],
}

impl Einsum {
    /// Of these axes, by the indices of those of both operands and of the result.
    pub(crate) fn new(all: Vec<Axis>, axes: [Vec<usize>; 3]) -> Self {
        Einsum { all, axes }
    }

    /// The same at all steps along an axis, which is the first one of the result and of this operand.
    pub(crate) fn at_all_steps(&self, axis: Axis, operand: usize) -> Self {
        let mut all = self.clone();
        for axes in [operand, 2] {
            all.axes[axes].insert(0, all.all.len());
        }
        all.all.push(axis);
        all
    }

    /// The sizes of all axes, from those of both operands.
    fn sizes(&self, of: [Vec<TokenStream>; 2]) -> Vec<TokenStream> {
        let size = |axis: usize| {
            let operands = self.axes.iter().zip(&of);
            let mut sizes = operands.filter_map(|(axes, sizes)| {
                let place = axes.iter().position(|other| *other == axis)?;
                sizes.get(place).cloned()
            });
            sizes.next().unwrap_or(quote!(1))
        };
        (0..self.all.len()).map(size).collect()
    }

    /// `einsum [batch, seq, 4]`
    fn label(&self) -> String {
        let result = self.axes[2].iter().map(|axis| self.all[*axis].clone());
        format!("{} {}", EINSUM.name, Type::floats(result.collect()))
    }

    /// `[&[0, 1, 2], &[2, 3], &[0, 1, 3]]`
    fn axes(&self) -> TokenStream {
        let axes = self.axes.iter().map(|axes| {
            let axes = axes.iter().map(|axis| Literal::usize_unsuffixed(*axis));
            quote!(&[#(#axes),*])
        });
        quote!([#(#axes),*])
    }

    /// `p::layers::Contraction { sizes: &[sizes.batch, 8, 4], axes: [..] }`
    fn contraction(&self, of: &FusedNode<'_>) -> TokenStream {
        let sizes = self.sizes([of.sizes(0), of.sizes(1)]);
        let axes = self.axes();
        quote!(p::layers::Contraction { sizes: &[#(#sizes),*], axes: #axes })
    }
}

impl Op for Einsum {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::Contraction(self),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::Computed]
    }
}

impl ModelOp for Einsum {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        let summed = (0..self.all.len()).filter(|axis| !self.axes[2].contains(axis));
        let rules = summed.map(|axis| Decode::along(&self.all[axis], EINSUM.name));
        rules.fold(Ok(Decode::PerToken), Result::and)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let sizes = self.sizes([of.operand(0), of.operand(1)]);
        Cost {
            flops: Some(quote!(p::product(&[2, #(#sizes),*]))),
            ..Cost::none()
        }
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let letters = |axes: &[usize]| -> String {
            let letters = axes
                .iter()
                .map(|axis| (if *axis < 26 { b'a' } else { b'A' - 26 } + *axis as u8) as char);
            letters.collect()
        };
        let [x, y, result] = self.axes.each_ref().map(|axes| letters(axes));
        let equation = format!("equation=\"{x},{y}->{result}\"");
        Ok(call_with("Einsum", equation, of.operands()))
    }
}

impl Emit<ModelFrame<'_>> for Einsum {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let [x, y] = [of.operand(0), of.operand(1)];
        let axes = self.axes();
        let shape = of.shape(0);
        of.define(&quote!(einsum(&#x, &#y, #axes, #shape)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let [x, y] = [of.slice(0), of.slice(1)];
        let contraction = self.contraction(of);
        let to = to.slice();
        quote!(p::layers::einsum(#contraction, #x, #y, #to))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let contraction = self.contraction(of);
        let d_y = gradients.slice();
        let lines = gradients.operands().zip(gradients.targets()).map(|(operand, to)| {
            let other = of.slice(1 - operand);
            let operand = Literal::usize_unsuffixed(operand);
            quote!(p::layers::einsum_backward(#contraction, #operand, #other, #d_y, &mut #to, gradients);)
        });
        quote!(#(#lines)*)
    }
}
