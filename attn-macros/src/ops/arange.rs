//! `arange::<seq>()`: the indices of an axis.

use proc_macro2::TokenStream;
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
use crate::onnx::{OnnxNode, Term};
use crate::spec::keys::{Key, KeyKind};

pub(super) static ARANGE: Operation = Operation {
    name: "arange",
    keys: &[Key {
        name: "axis",
        kind: KeyKind::Axes,
        default: "required",
        doc: "Which axis, or how many ids.",
    }],
    positional: 1,
    may_be_tied: false,
    signature: "nothing to `ids[axis]`",
    doc: "The indices of an axis, 0, 1, 2, ..: `table[arange::<seq>()]`. PyTorch: `torch.arange(n)`.",
    lower: Lower::Operands(0..=0, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let axis = lowering.axis_of_call(call)?;
    Some(Arange::node(lowering, builder, axis, call.result))
}

pub(super) struct Arange {
    axis: Axis,
}

impl Arange {
    pub(super) fn node(
        lowering: &mut Lowering<'_>,
        builder: &mut RegionBuilder,
        axis: Axis,
        name: &str,
    ) -> ValueId {
        let op = Arange { axis: axis.clone() };
        let result = (name, vec![axis.clone()]);
        lowering.ids_node(builder, op, Vec::new(), result, axis)
    }
}

impl Op for Arange {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        Vec::new()
    }
}

impl ModelOp for Arange {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(format!("arange {}", self.axis)),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, "arange")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(of.indices(&self.axis))
    }
}

impl Emit<ModelFrame<'_>> for Arange {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let device = of.device();
        let axis = of.axis(&self.axis);
        of.define(&quote!(arange(#device, #axis)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, _: &FusedNode<'_>, to: &Output) -> TokenStream {
        let ids = to.slice();
        quote!(p::layers::arange(#ids))
    }

    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
