//! A loss that computes the logits of a `linear` itself. The fused form has it, in place of the two operations.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Cost, CrossEntropy, Decode, Description, Emit, Fusion, Gradient, Kept, Linear, ModelOp, Op,
    Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::onnx as words;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame};
use crate::model::graph::{Model, ParamPath};
use crate::onnx::{OnnxNode, Term};

/// Of vectors and targets: the `loss` of what `linear` makes of the vectors.
pub(crate) struct LinearCrossEntropy {
    pub(crate) linear: Linear,
    pub(crate) loss: CrossEntropy,
}

impl LinearCrossEntropy {
    /// The operation on slices.
    fn on_slices(&self) -> TokenStream {
        self.loss.fields_of(&quote!(LinearCrossEntropy))
    }
}

impl Op for LinearCrossEntropy {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: Some(Kept::Loss),
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::None]
    }
}

impl ModelOp for LinearCrossEntropy {
    fn description(&self) -> Description<'_> {
        self.loss.description()
    }

    fn parameters(&self) -> Option<&ParamPath> {
        Some(&self.linear.place)
    }

    fn decode(&self, model: &Model) -> Result<Decode, String> {
        self.loss.decode(model)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        // Those of the declaration count, where the two operations stand.
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        self.loss.check(of)
    }

    fn onnx(&self, _: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Err(words::loss("cross_entropy"))
    }
}

impl Emit<ModelFrame<'_>> for LinearCrossEntropy {
    fn composed(&self, _: &ComposedNode<'_>) -> TokenStream {
        // The composed form has the two operations.
        TokenStream::new()
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let targets = of.extents().operand(1);
        let width = of.extents().width();
        let classes = of.extents().axis(&self.loss.classes);
        let (bias, is_mean) = (self.linear.bias, self.loss.is_mean);
        let footprint = quote! {
            p::layers::linear_cross_entropy_footprint(&[#(#targets),*], [#width, #classes], #bias, #is_mean)
        };
        Footprints {
            forward: Some(footprint),
            backward: None,
        }
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let loss = self.on_slices();
        let weights = of.weights(&self.linear.place);
        let (x, targets) = (of.matrix(0), of.ids(1));
        let losses = to.slice();
        let keep = match of.mode() {
            ExecMode::Forward => quote!(keep),
            ExecMode::Session | ExecMode::Start => quote!(false),
        };
        quote!(#loss.forward(#weights.only(), #x, #targets, #keep, #losses))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let loss = self.on_slices();
        let weights = of.weights(&self.linear.place);
        let (x, targets) = (of.matrix(0), of.ids(1));
        let kept = of.kept();
        let d_losses = gradients.slice();
        let d_x = gradients.targets();
        quote! {
            #loss.backward(#weights.only(), #x, #targets, #kept, #d_losses, #(&mut #d_x,)* gradients);
        }
    }
}
