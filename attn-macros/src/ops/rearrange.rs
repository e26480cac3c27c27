//! `rearrange::<[batch, (h, w)] -> [w, batch, h]>(x)`: axes that are split, put in another order and merged.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{self, Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term};
use crate::spec::Size;
use crate::spec::keys::{Key, KeyKind};

pub(super) static REARRANGE: Operation = Operation {
    name: "rearrange",
    keys: &[Key {
        name: "axes",
        kind: KeyKind::Pattern,
        default: "required",
        doc: "The axes of the result; before `->` those of the operand, if one is split. In parentheses are neighbours that are one axis.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[a, b * c]` to `[c, a * b]`",
    doc: "Splits axes, puts them in another order and merges them: `rearrange::<[a, (b, c)] -> [c, (a, b)]>(x)`. einops: `rearrange(x, 'a (b c) -> c (a b)', ..)`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    let Some(pattern) = call.arguments.tokens("axes").cloned() else {
        if call.arguments.complete {
            lowering.error(call.at.span(), messages::REARRANGE_WITHOUT_AXES);
        }
        return None;
    };
    let rearranged = lowering.rearranged(call, &pattern, &x)?;
    let op = Rearrange {
        split: rearranged.split,
        order: rearranged.order,
        multiples: rearranged.multiples,
    };
    let ty = Type::floats(rearranged.axes);
    Some(lowering.node(builder, op, call.operands.clone(), (call.result, ty)))
}

pub(crate) struct Rearrange {
    /// The axes of the operand, split.
    pub(crate) split: Vec<Axis>,
    /// For each of them in the result, which one it is.
    pub(crate) order: Vec<usize>,
    /// The axes of any length that the call must have as multiples of a size.
    multiples: Vec<(Axis, Size)>,
}

impl Rearrange {
    /// The axes in another order, of which neighbours may become one.
    pub(crate) fn of_axes(axes: Vec<Axis>, order: Vec<usize>) -> Self {
        Rearrange {
            split: axes,
            order,
            multiples: Vec::new(),
        }
    }

    fn order(&self) -> impl Iterator<Item = Literal> {
        let order = self.order.iter();
        order.map(|axis| Literal::usize_unsuffixed(*axis))
    }

    /// The sizes of the axes, and their order: `&[sizes.batch, 8, 2], &[1, 0, 2]`
    fn sizes(&self) -> TokenStream {
        let sizes = self.split.iter().map(block::size);
        let order = self.order();
        quote!(&[#(#sizes),*], &[#(#order),*])
    }

    fn check(&self, model: &str, size: impl Fn(&Axis) -> TokenStream) -> Option<TokenStream> {
        let checks = self.multiples.iter().map(|(axis, of)| {
            let name = axis.to_string();
            let size = size(axis);
            quote!(p::check_multiple(#model, #name, #size, #of)?;)
        });
        (!self.multiples.is_empty()).then(|| checks.collect())
    }
}

impl Op for Rearrange {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: match self.order.is_sorted() {
                true => Fusion::Reshape,
                false => Fusion::Transpose(self),
            },
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Rearrange {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("rearrange".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        Rearrange::check(self, &of.label(), block::size)
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let from = &of.operand_type(0).axes;
        let split = of.reshape(of.operand(0), from, &self.split);
        let moved = split.transpose(&self.order);
        let axes = self.order.iter().map(|axis| self.split[*axis].clone());
        let to = &of.result_type().axes;
        Ok(of.reshape(moved, &axes.collect::<Vec<_>>(), to))
    }
}

impl Emit<ModelFrame<'_>> for Rearrange {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let check = Rearrange::check(self, &of.label(), |axis| of.size(axis));
        let split = self.split.iter().map(|axis| of.size(axis));
        let order = self.order();
        let shape = of.shape(0);
        let line = of.define(&quote!(rearrange(&#x, [#(#split),*], [#(#order),*], #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let sizes = self.sizes();
        let y = to.slice();
        quote!(p::layers::permute(#x, #sizes, #y))
    }

    fn backward(&self, _: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let sizes = self.sizes();
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::permute_backward(#sizes, #d_y, #(&mut #d_x,)* gradients);)
    }
}
