//! A projection, or several of one value as one product.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::{LayerDescription, LayerOp, product};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::emit::{ComposedNode, LayerFrame, LayerNode};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term};
use crate::ops::{Emit, Fusion, Gradient, Op, Properties, Saved};

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

impl Op for Linear {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl LayerOp for Linear {
    fn description(&self) -> LayerDescription<'_> {
        LayerDescription {
            linear: Some(self),
            ..LayerDescription::default()
        }
    }

    fn products(&self, operands: &[&Type], result: &Type) -> Vec<Vec<Axis>> {
        vec![product(result, operands[0].axes.last())]
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let field = self.fields[0];
        Ok(of.affine(of.operand(0), of.parameter(field), of.parameter_bias(field)))
    }
}

impl Emit<LayerFrame<'_>> for Linear {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let field = format_ident!("{}", self.fields[0]);
        of.define(&quote!(p::project(#x, &layer.#field)?))
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
