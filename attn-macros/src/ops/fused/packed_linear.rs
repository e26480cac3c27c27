//! Projections of one value, as one product.

use proc_macro2::TokenStream;
use quote::quote;

use super::{FusedOp, FusedProperties, LayerGradients};
use crate::emit::LayerNode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::graph::Derivative;
use crate::ops::{Fusion, Gradient, Saved};

/// `y = x Wᵀ + b`, with the parameters of all fields stacked: a part of `y` for each.
pub(crate) struct PackedLinear {
    pub(crate) fields: Vec<&'static str>,
    /// Whether `b` is left to those who read `y`: [`HeadTransform::bias`](super::HeadTransform::bias).
    pub(crate) leaves_bias: bool,
}

impl Derivative for PackedLinear {
    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }

    fn saved(&self) -> Saved {
        Saved::Operands
    }

    fn fusion(&self) -> Fusion<'_> {
        Fusion::None
    }
}

impl FusedOp for PackedLinear {
    fn properties(&self) -> FusedProperties<'_> {
        FusedProperties {
            linear: Some(self),
            ..FusedProperties::default()
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &TokenStream, lines: &mut TrackedCode) {
        let projection = of.projection();
        let x = of.matrix(0);
        lines.line(if self.leaves_bias {
            quote!(#projection.forward_without_bias(#x, #to);)
        } else {
            quote!(#projection.forward(#x, #to);)
        });
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &LayerGradients, lines: &mut TrackedCode) {
        let projection = of.projection();
        let x = of.matrix(0);
        let d_y = &gradients.d_result;
        let d_x = of.target(gradients.to[0]);
        lines.line(quote!(#projection.backward(#x, #d_y, #d_x, gradients);));
    }
}
