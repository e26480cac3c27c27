//! `concat(x, y, ..)`, along the last axis.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Type;

pub(super) static CONCAT: Operation = Operation {
    name: "concat",
    keys: &[],
    positional: 0,
    may_be_tied: false,
    signature: "`[.., a]`, `[.., b]`, .. to `[.., a + b + ..]`",
    doc: "Side by side along the last axis. PyTorch: `torch.cat(.., -1)`.",
    lower: Lower::Operands(2..=usize::MAX, &lower),
};

/// Of several operands, the first two and then one after the other.
fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let mut left = call.operands[0];
    for (index, right) in call.operands.iter().enumerate().skip(1) {
        let [a, b] = [left, *right].map(|side| lowering.ty(side).clone());
        let a_width = lowering.width(call.at, &a)?;
        let b_width = lowering.width(call.at, &b)?;
        let same_last = Type::floats(b.ending_in(a_width.clone()).axes);
        let message = || messages::concat_differs(&a, &b);
        if !lowering.agree(&a, &same_last, call.at.span(), message) {
            return None;
        }
        let ty = a.ending_in(a_width.plus(&b_width));
        let is_last = index + 1 == call.operands.len();
        let name = if is_last { call.result } else { "concat" };
        left = lowering.node(builder, Concat, vec![left, *right], (name, ty));
    }
    Some(left)
}

struct Concat;

impl Op for Concat {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::Computed]
    }
}

impl ModelOp for Concat {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("concat".to_owned()),
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

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }
}

impl Emit<ModelFrame<'_>> for Concat {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let mut ty = of.operand_type(0).clone();
        ty.axes.pop();
        ty.axes.extend(of.operand_type(1).axes.last().cloned());
        let y = of.operand_as(1, &ty);
        of.define(&quote!(concat(&#x, &#y)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.matrix(0);
        let y = of.matrix(1);
        let to = to.matrix();
        quote!(p::layers::concat(#x, #y, #to))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let d_y = gradients.matrix();
        let to = gradients.targets();
        let widths = gradients.operands().map(|index| of.width(index));
        let starts = gradients.operands().map(|index| match index {
            0 => Some(quote!(0)),
            _ => of.width(0),
        });
        quote!(#(p::layers::concat_backward(#starts, #widths, #d_y, &mut #to, gradients);)*)
    }
}
