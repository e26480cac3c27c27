//! `stack::<[batch, 2, d_model]>(a, b)`: values along a new axis.

use proc_macro2::{Literal, TokenStream};
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
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::keys::{Key, KeyKind};

pub(super) static STACK: Operation = Operation {
    name: "stack",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "required",
        doc: "The axes of the result: those of the operands, and a new one whose size is their number.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[a, b]`, `[a, b]`, .. to `[a, n, b]`",
    doc: "Along a new axis: `stack::<[a, 2, b]>(x, y)`. PyTorch: `torch.stack((x, y), 1)`.",
    lower: Lower::Operands(1..=usize::MAX, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.common_of(&call.operands, call.at.span(), "stack")?;
    let Some(axes) = call.arguments.tokens("axis").cloned() else {
        if call.arguments.complete {
            lowering.error(call.at.span(), messages::STACK_WITHOUT_AXES);
        }
        return None;
    };
    let (place, axis) = lowering.new_axis(&axes, &ty, call.operands.len())?;
    let mut axes = ty.axes.clone();
    axes.insert(place, axis);
    lowering.has_few_axes(call, &axes)?;
    let operands = call.operands.iter();
    let operands = operands.map(|operand| lowering.expanded(*operand, &ty, builder));
    let operands: Vec<_> = operands.collect();
    let ty = Type::floats(axes);
    Some(lowering.node(builder, Stack { axis: place }, operands, (call.result, ty)))
}

struct Stack {
    /// The index of the new axis.
    axis: usize,
}

impl Op for Stack {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, operands: usize) -> Vec<Gradient> {
        vec![Gradient::Computed; operands]
    }
}

impl ModelOp for Stack {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("stack".to_owned()),
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
        let operands = of.operands().into_iter();
        let operands = operands.map(|operand| operand.unsqueeze(&[self.axis]));
        Ok(call_with(
            "Concat",
            format_args!("axis={}", self.axis),
            operands,
        ))
    }
}

impl Emit<ModelFrame<'_>> for Stack {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let axes = of.result_type().axes.iter().enumerate();
        let axes = axes.filter(|(index, _)| *index != self.axis);
        let ty = Type::floats(axes.map(|(_, axis)| axis.clone()).collect());
        let operands = (0..of.operands().len()).map(|index| of.operand_as(index, &ty));
        let axis = Literal::usize_unsuffixed(self.axis);
        let shape = of.shape(0);
        of.define(&quote!(stack([#(&#operands),*], p::shapes::Axis::<#axis>, #shape)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let operands = (0..of.operands.len()).map(|operand| of.slice(operand));
        let axis = of.axis_of_result(self.axis);
        let to = to.slice();
        quote!(p::layers::stack(&[#(#operands),*], #axis, #to))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let to = gradients.targets();
        let starts = gradients.operands().map(Literal::usize_unsuffixed);
        let axis = of.axis_of_result(self.axis);
        let d_y = gradients.slice();
        quote!(#(p::layers::concat_along_backward(#axis, #starts, 1, #d_y, &mut #to, gradients);)*)
    }
}
