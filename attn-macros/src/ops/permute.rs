//! `permute::<[seq, batch, d_model]>(x)`: the axes in another order.

use proc_macro2::{Literal, TokenStream};
use quote::{format_ident, quote};

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
use crate::onnx::{OnnxNode, Term};
use crate::spec::keys::{Key, KeyKind};

pub(super) static PERMUTE: Operation = Operation {
    name: "permute",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "required",
        doc: "All axes, in the new order.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[a, b, ..]` to `[b, a, ..]`",
    doc: "The axes in another order: `permute::<[seq, batch, d_model]>(x)`. PyTorch: `x.permute(..)`, as a copy.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    if !call.arguments.is_given("axis") && call.arguments.complete {
        lowering.error(call.at.span(), messages::PERMUTE_WITHOUT_AXES);
    }
    let axes = lowering.axes_of(call, &x)?;
    if axes.len() != x.axes.len() {
        let message = messages::not_all_axes(axes.len(), &x);
        lowering.error(call.at.span(), message);
        return None;
    }
    if axes.is_sorted() {
        lowering.error(
            call.at.span(),
            messages::same_order(call.operation.name, &x),
        );
        return None;
    }
    let ty = Type::floats(axes.iter().map(|axis| x.axes[*axis].clone()).collect());
    let operands = call.operands.clone();
    Some(lowering.node(builder, Permute { axes }, operands, (call.result, ty)))
}

pub(crate) struct Permute {
    /// For each axis of the result, which one of the operand it is.
    axes: Vec<usize>,
}

impl Permute {
    pub(crate) fn new(axes: Vec<usize>) -> Self {
        Permute { axes }
    }

    /// The sizes of the operand, and the new order: `&[sizes.batch, sizes.seq, 8], &[1, 0, 2]`
    fn order(&self, of: &FusedNode<'_>) -> TokenStream {
        let sizes = of.sizes(0);
        let axes = literals(&self.axes);
        quote!(&[#(#sizes),*], &[#(#axes),*])
    }
}

fn literals(axes: &[usize]) -> impl Iterator<Item = Literal> {
    axes.iter().map(|axis| Literal::usize_unsuffixed(*axis))
}

impl Op for Permute {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Permute {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("permute".to_owned()),
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

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(of.operand(0).transpose(&self.axes))
    }
}

impl Emit<ModelFrame<'_>> for Permute {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let name = format_ident!("Axes{}", self.axes.len());
        let axes = literals(&self.axes);
        of.define(&quote!(permute(&#x, p::shapes::#name::<#(#axes),*>)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let order = self.order(of);
        let y = to.slice();
        quote!(p::layers::permute(#x, #order, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let order = self.order(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::permute_backward(#order, #d_y, #(&mut #d_x,)* gradients);)
    }
}
