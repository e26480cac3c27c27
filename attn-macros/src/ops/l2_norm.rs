//! `l2_norm(x)`, over the last axis.

use proc_macro2::TokenStream;
use quote::quote;

use super::norm::{asked_epsilon, epsilon};
use super::{
    CallSite, Cost, Decode, Fusion, Gradient, Label, Lower, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Gradients, Output};
use crate::model::emit::{Composed, Extents, FusedNode, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Frame, Lowering};
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

fn lower(lowering: &mut Lowering<'_>, call: &CallSite<'_>, frame: &mut Frame) -> Option<ValueId> {
    let epsilon = asked_epsilon(lowering, call).unwrap_or_else(|| Real::known(EPSILON));
    let ty = lowering.floats_of(call)?;
    let operands = call.operands.clone();
    Some(lowering.node(frame, L2Norm { epsilon }, operands, (call.result, ty)))
}

struct L2Norm {
    epsilon: Real,
}

impl Op for L2Norm {
    fn properties(&self) -> Properties<'_> {
        Properties {
            label: Label::Text("l2_norm".to_owned()),
            vertex: VertexKind::Norm,
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::Rows,
            lookup: None,
            attention: None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }

    /// Over the vector of a token. Over tokens, the result has no vector for each of them.
    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        let x = of.operand(0);
        let epsilon = &self.epsilon;
        quote!(l2_norm(&#x, (#epsilon) as f64))
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
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
