//! Axes of size 1 repeated, so that two operands have one shape.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, ModelOp, Op, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::Model;

/// To the shape of the result.
pub(crate) struct Expand;

impl Op for Expand {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Expand {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("expand".to_owned()),
            vertex: VertexKind::Other,
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
}

impl Emit<ModelFrame<'_>> for Expand {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let shape = of.shape(0);
        of.define(&quote!(expand(&#x, #shape)))
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let extents = of.extents();
        let from = extents.operand(0);
        let to = extents.result();
        Footprints::of_both(quote!(p::layers::expand_footprint(&[#(#from),*], &[#(#to),*])))
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axes = growing(of);
        let y = to.slice();
        quote!(p::layers::expand(#x, #axes, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let axes = growing(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::expand_backward(#axes, #d_y, #(&mut #d_x,)* gradients);)
    }
}

/// `&p::layers::expanded_axes(&[1, 512], &[sizes.seq, 512])`
fn growing(of: &FusedNode<'_>) -> TokenStream {
    let from = of.sizes(0);
    let to = of.sizes_of_result();
    quote!(&p::layers::expanded_axes(&[#(#from),*], &[#(#to),*]))
}
