//! `softmax(x)`, over the last axis, and `softmax::<axis>(x)`, along any other.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::spec::keys::{Key, KeyKind};

pub(super) static SOFTMAX: Operation = Operation {
    name: "softmax",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "the last one",
        doc: "Along which axis the sum is 1.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]` to the same",
    doc: "`exp(x) / Σ exp(x)` along an axis: `softmax(x)`, `softmax::<seq>(x)`. PyTorch: `torch.softmax(x, dim)`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    let x = call.operands.clone();
    let index = lowering.axis_or_last(call, &ty)?;
    let axis = ty.axes[index].clone();
    let result = (call.result, ty);
    let is_last = index + 1 == result.1.axes.len();
    Some(match is_last {
        true => lowering.node(builder, Softmax { axis }, x, result),
        false => lowering.node(builder, SoftmaxAlong { axis, index }, x, result),
    })
}

/// Over the last axis.
struct Softmax {
    axis: Axis,
}

/// Along another axis.
struct SoftmaxAlong {
    axis: Axis,
    /// Its index.
    index: usize,
}

impl Op for Softmax {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Result,
            kept: None,
            fusion: Fusion::Rows,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Softmax {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("softmax".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "softmax")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }
}

impl Emit<ModelFrame<'_>> for Softmax {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        of.define(&quote!(softmax(&#x)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let [x, y] = to.rows(of);
        quote!(p::layers::softmax(#x, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let y = of.matrix_of_result();
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote!(p::layers::softmax_backward(#y, #d_y, #(&mut #d_x,)* gradients);)
    }
}

impl Op for SoftmaxAlong {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Result,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for SoftmaxAlong {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("softmax {}", self.axis)),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "softmax")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }
}

impl Emit<ModelFrame<'_>> for SoftmaxAlong {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        of.define(&quote!(softmax_along(&#x, p::shapes::Axis::<#axis>)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let y = to.slice();
        quote!(p::layers::softmax_along(#x, #axis, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let y = of.slice_of_result();
        let axis = of.axis(0, self.index);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::softmax_along_backward(#y, #axis, #d_y, #(&mut #d_x,)* gradients);)
    }
}
