//! A learned tensor: `param token: [1, d_model] = normal(0.02);`

use proc_macro2::TokenStream;
use quote::quote;

use super::layer::{Layer, Rounding};
use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, ModelOp, Op, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath};
use crate::model::types::Type;
use crate::onnx::{OnnxNode, Term};
use crate::spec::{Real, Size};

/// The field of the model.
pub(crate) struct Tensor {
    sizes: Vec<Size>,
}

impl Tensor {
    /// One of this type, whose axes are constants.
    pub(crate) fn new(ty: &Type) -> Self {
        let sizes = ty.axes.iter().filter_map(|axis| axis.size().cloned());
        Tensor {
            sizes: sizes.collect(),
        }
    }
}

impl Layer for Tensor {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let sizes = self.sizes.iter().map(Size::arg);
        quote!(#krate::nn::Weight<(#(#krate::Const<#sizes>,)*) #rest>)
    }

    fn label(&self) -> String {
        let sizes: Vec<_> = self.sizes.iter().map(Size::to_string).collect();
        format!("param [{}]", sizes.join(", "))
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }

    fn rounding(&self) -> Rounding {
        Rounding::None
    }

    fn recent(&self) -> Option<[Size; 2]> {
        None
    }
}

/// The tensor at this place, without operands.
pub(crate) struct Param(ParamPath);

impl Param {
    pub(crate) fn new(place: ParamPath) -> Self {
        Param(place)
    }
}

impl Op for Param {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        Vec::new()
    }
}

impl ModelOp for Param {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.0),
            vertex: VertexKind::Embedding,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(of.weight(&self.0, "weight"))
    }
}

impl Emit<ModelFrame<'_>> for Param {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        of.layer("param", &self.0)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.0);
        let y = to.slice();
        quote!(#weights.forward(#y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.0);
        let d_y = gradients.slice();
        quote!(#weights.backward(#d_y, gradients);)
    }
}
