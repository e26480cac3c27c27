//! `detach(x)`: a value without its gradient.

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
use crate::onnx::{OnnxNode, Term};

pub(super) static DETACH: Operation = Operation {
    name: "detach",
    keys: &[],
    positional: 0,
    may_be_tied: false,
    signature: "`[..]` to the same",
    doc: "The same numbers, through which no gradient flows: `x + detach(y - x)`. It takes no memory. PyTorch: `x.detach()`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    lowering.floats_of(call)?;
    Some(lowering.alias(builder, Detach, call.operands[0], call.result))
}

/// Its result is an alias: the fused form has no line for it, forward or backward.
struct Detach;

impl Op for Detach {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::None]
    }
}

impl ModelOp for Detach {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("detach".to_owned()),
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
        Ok(of.operand(0))
    }
}

impl Emit<ModelFrame<'_>> for Detach {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        of.define(&quote!(detach(&#x)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, _: &FusedNode<'_>, _: &Output) -> TokenStream {
        TokenStream::new()
    }

    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
