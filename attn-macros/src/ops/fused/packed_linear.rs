//! Projections of one value, as one product.

use proc_macro2::TokenStream;
use quote::quote;

use super::{LayerOp, LayerProperties};
use crate::emit::block::{Footprints, FusedOp, Gradients, Output};
use crate::emit::{LayerFrame, LayerNode};
use crate::model::graph::Derivative;
use crate::ops::{Fusion, Gradient, Kept, Saved};

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

impl LayerOp for PackedLinear {
    fn properties(&self) -> LayerProperties<'_> {
        LayerProperties {
            linear: Some(self),
            ..LayerProperties::default()
        }
    }
}

impl FusedOp<LayerFrame<'_>> for PackedLinear {
    fn kept(&self) -> Option<Kept> {
        None
    }

    fn footprints(&self, _: &LayerNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &LayerNode<'_>, to: &Output) -> TokenStream {
        let projection = of.projection();
        let x = of.matrix(0);
        let y = to.matrix();
        if self.leaves_bias {
            quote!(#projection.forward_without_bias(#x, #y))
        } else {
            quote!(#projection.forward(#x, #y))
        }
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &Gradients) -> TokenStream {
        let projection = of.projection();
        let x = of.matrix(0);
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote!(#projection.backward(#x, #d_y, #(&mut #d_x,)* gradients);)
    }
}
