//! A projection, or several of one value as one product.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{LayerOp, LayerProperties, product};
use crate::emit::block::{Footprints, FusedOp, Gradients, Output};
use crate::emit::{ComposedNode, LayerFrame, LayerNode};
use crate::model::graph::Derivative;
use crate::model::types::{Axis, Type};
use crate::ops::{Fusion, Gradient, Kept, Saved};

/// `y = x Wᵀ + b`, with the parameters of all fields stacked: a part of `y` for each. As built it has one field.
pub(crate) struct Linear {
    pub(crate) fields: Vec<&'static str>,
    /// Whether `b` is left to those who read `y`: [`HeadTransform::bias`](super::HeadTransform::bias).
    pub(crate) leaves_bias: bool,
}

impl Linear {
    pub(crate) fn new(field: &'static str) -> Self {
        Linear {
            fields: vec![field],
            leaves_bias: false,
        }
    }
}

impl Derivative for Linear {
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

impl LayerOp for Linear {
    fn properties(&self) -> LayerProperties<'_> {
        LayerProperties {
            linear: Some(self),
            ..LayerProperties::default()
        }
    }

    fn products(&self, operands: &[&Type], result: &Type) -> Vec<Vec<Axis>> {
        vec![product(result, operands[0].axes.last())]
    }

    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let field = format_ident!("{}", self.fields[0]);
        of.define(&quote!(p::project(#x, &layer.#field)?))
    }
}

impl FusedOp<LayerFrame<'_>> for Linear {
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
