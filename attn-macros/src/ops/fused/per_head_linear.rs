//! The vectors of every head times a matrix of the head's own.

use proc_macro2::TokenStream;
use quote::quote;

use super::{FusedOp, FusedProperties, LayerGradients};
use crate::emit::LayerNode;
use crate::emit::tracked_code::TrackedCode;
use crate::model::graph::Derivative;
use crate::ops::{Fusion, Gradient, Saved};
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

impl FusedOp for PerHeadLinear {
    fn properties(&self) -> FusedProperties<'_> {
        FusedProperties {
            fields: vec![self.field],
            ..FusedProperties::default()
        }
    }

    fn forward(&self, of: &LayerNode<'_>, to: &TokenStream, lines: &mut TrackedCode) {
        let heads = &self.heads;
        let weights = of.parameter(self.field);
        let x = of.matrix(0);
        lines.line(quote!(p::per_head_linear(#heads, #x, #weights.matrix(), #to);));
    }

    fn backward(&self, of: &LayerNode<'_>, gradients: &LayerGradients, lines: &mut TrackedCode) {
        let heads = &self.heads;
        let weights = of.parameter(self.field);
        let x = of.matrix(0);
        let d_y = &gradients.d_result;
        let d_x = of.gradient_mut(0);
        lines.line(quote! {
            let d_weights = #weights.gradient_matrix(gradients);
            p::per_head_linear_backward(#heads, #x, #weights.matrix(), #d_y, #d_x, d_weights);
        });
    }
}
