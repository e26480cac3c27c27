//! `softmax(x)`, over the last axis.

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

pub(super) static SOFTMAX: Operation = Operation {
    name: "softmax",
    keys: &[],
    positional: 0,
    may_be_tied: false,
    signature: "`[..]` to the same",
    doc: "`exp(x) / Σ exp(x)` over the last axis. PyTorch: `torch.softmax(x, -1)`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    Some(lowering.node(builder, Softmax, call.operands.clone(), (call.result, ty)))
}

struct Softmax;

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

    /// Over the vector of a token. Over tokens, the result has no vector for each of them.
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
