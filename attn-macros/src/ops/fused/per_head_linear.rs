//! The vectors of every head times a matrix of the head's own.

use proc_macro2::TokenStream;
use quote::quote;

use super::{LayerOp, LayerProperties};
use crate::emit::block::{Footprints, FusedOp, Gradients, Output};
use crate::emit::{LayerFrame, LayerNode};
use crate::model::graph::Derivative;
use crate::ops::{Fusion, Gradient, Kept, Saved};
use crate::spec::Size;

pub(crate) struct PerHeadLinear {
    pub(crate) heads: Size,
    pub(crate) field: &'static str,
}

impl Derivative for PerHeadLinear {
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

impl LayerOp for PerHeadLinear {
    fn properties(&self) -> LayerProperties<'_> {
        LayerProperties {
            fields: vec![self.field],
            ..LayerProperties::default()
        }
    }
}

impl FusedOp<LayerFrame<'_>> for PerHeadLinear {
    fn kept(&self) -> Option<Kept> {
        None
    }

    fn footprints(&self, _: &LayerNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &LayerNode<'_>, to: &Output) -> TokenStream {
        let heads = &self.heads;
        let weights = of.parameter(self.field);
        let x = of.matrix(0);
        let y = to.matrix();
        quote!(p::per_head_linear(#heads, #x, #weights.matrix(), #y))
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &Gradients) -> TokenStream {
        let heads = &self.heads;
        let weights = of.parameter(self.field);
        let x = of.matrix(0);
        let d_y = gradients.matrix();
        let d_x = of.gradient_mut(gradients, 0);
        quote! {
            let d_weights = #weights.gradient_matrix(gradients);
            p::per_head_linear_backward(#heads, #x, #weights.matrix(), #d_y, #d_x, d_weights);
        }
    }
}
