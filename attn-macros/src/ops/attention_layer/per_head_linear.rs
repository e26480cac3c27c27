//! The vectors of every head times a matrix of the head's own.

use proc_macro2::TokenStream;
use quote::quote;

use super::{LayerDescription, LayerOp, product};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::emit::{ComposedNode, LayerFrame, LayerNode};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call};
use crate::ops::{Emit, Fusion, Gradient, Op, Properties, Saved};
use crate::spec::Size;

pub(crate) struct PerHeadLinear {
    pub(crate) heads: Size,
    pub(crate) field: &'static str,
}

impl Op for PerHeadLinear {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Overwritten]
    }
}

impl LayerOp for PerHeadLinear {
    fn description(&self) -> LayerDescription<'_> {
        LayerDescription {
            fields: vec![self.field],
            ..LayerDescription::default()
        }
    }

    fn products(&self, operands: &[&Type], result: &Type) -> Vec<Vec<Axis>> {
        vec![product(result, operands[0].axes.last())]
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(call("MatMul", [of.operand(0), of.parameter(self.field)]))
    }
}

impl Emit<LayerFrame<'_>> for PerHeadLinear {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let weight = of.weight(self.field);
        of.define(&quote!(p::bilinear(#x, #weight)?))
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
            let d_weights = p::WantsGradient::is_wanted(&#weights);
            let d_weights = d_weights.then(|| #weights.gradient_matrix(gradients));
            p::per_head_linear_backward(#heads, #x, #weights.matrix(), #d_y, #d_x, d_weights);
        }
    }
}
