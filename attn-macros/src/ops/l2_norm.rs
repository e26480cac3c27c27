//! `l2_norm(x)`, over the last axis.

use proc_macro2::TokenStream;
use quote::quote;

use super::norm::{asked_epsilon, epsilon};
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::spec::Real;

/// That of the key's default.
const EPSILON: f64 = 1e-12;

pub(super) static L2_NORM: Operation = Operation {
    name: "l2_norm",
    keys: &[epsilon("1e-12")],
    positional: 0,
    may_be_tied: false,
    signature: "`[.., d_model]` to the same",
    doc: "`x / max(|x|, epsilon)` over the last axis: vectors of length 1. PyTorch: `torch.nn.functional.normalize(x, dim=-1)`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let epsilon = asked_epsilon(lowering, call).unwrap_or_else(|| Real::known(EPSILON));
    let ty = lowering.floats_of(call)?;
    let operands = call.operands.clone();
    Some(lowering.node(builder, L2Norm { epsilon }, operands, (call.result, ty)))
}

struct L2Norm {
    epsilon: Real,
}

impl Op for L2Norm {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::Rows,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for L2Norm {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("l2_norm".to_owned()),
            vertex: VertexKind::Norm,
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

impl Emit<ModelFrame<'_>> for L2Norm {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let epsilon = &self.epsilon;
        of.define(&quote!(l2_norm(&#x, (#epsilon) as f64)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let [x, y] = to.rows(of);
        let epsilon = &self.epsilon;
        quote!(p::layers::l2_norm(#x, (#epsilon) as f64, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let x = of.matrix(0);
        let epsilon = &self.epsilon;
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote! {
            p::layers::l2_norm_backward(#x, (#epsilon) as f64, #d_y, #(&mut #d_x,)* gradients);
        }
    }
}
