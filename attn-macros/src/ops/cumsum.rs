//! `cumsum(x)`, over the last axis, and `cumsum::<axis>(x)`, along any other.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::selection::masked;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::keys::{Key, KeyKind};

pub(super) static CUMSUM: Operation = Operation {
    name: "cumsum",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "the last one",
        doc: "Along which axis.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]`, perhaps with `lens[..]` or `bool[..]`, to the same",
    doc: "The sums along an axis up to each place: `cumsum::<seq>(x)`. PyTorch: `x.cumsum(dim)`.",
    lower: Lower::Operands(1..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    let index = lowering.axis_or_last(call, &ty)?;
    let axis = ty.axes[index].clone();
    let op = Cumsum { axis, index };
    let x = masked(lowering, call, index, 0.0, builder)?;
    Some(lowering.node(builder, op, vec![x], (call.result, ty)))
}

struct Cumsum {
    /// The axis, and its index.
    axis: Axis,
    index: usize,
}

impl Cumsum {
    fn label(&self) -> String {
        format!("cumsum {}", self.axis)
    }
}

impl Op for Cumsum {
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

impl ModelOp for Cumsum {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, CUMSUM.name)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(call(
            "CumSum",
            [of.operand(0), Term::int(self.index as i64)],
        ))
    }
}

impl Emit<ModelFrame<'_>> for Cumsum {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        of.define(&quote!(cumsum(&#x, p::shapes::Axis::<#axis>)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let y = to.slice();
        quote!(p::layers::cumsum(#x, #axis, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let axis = of.axis(0, self.index);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::cumsum_backward(#axis, #d_y, #(&mut #d_x,)* gradients);)
    }
}
