//! Axes of size 1 repeated, so that two operands have one shape.

use proc_macro2::TokenStream;
use quote::quote;

use super::{Cost, Decode, Fusion, Gradient, Label, Op, Properties, Saved, Scratch};
use crate::model::emit::{Composed, Extents, FusedNode, Gradients, Output, VertexKind};
use crate::model::graph::Model;

/// To the shape of the result.
pub(crate) struct Expand;

impl Op for Expand {
    fn properties(&self) -> Properties<'_> {
        Properties {
            label: Label::Text("expand".to_owned()),
            vertex: VertexKind::Other,
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
            lookup: None,
            attention: None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let (from, to) = (of.operand(0), of.result());
        let footprint = quote!(p::layers::expand_footprint(&[#(#from),*], &[#(#to),*]));
        Cost {
            flops: None,
            forward: Some(footprint.clone()),
            backward: Scratch::Always(footprint),
            hidden: None,
        }
    }

    fn composed(&self, of: &Composed<'_>) -> TokenStream {
        let (x, shape) = (of.operand(0), of.shape(0));
        quote!(expand(&#x, #shape))
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output<'_>) -> TokenStream {
        let (x, axes, y) = (of.slice(0), growing(of), to.slice());
        quote!(p::layers::expand(#x, #axes, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let (axes, d_y, d_x) = (growing(of), gradients.slice(), gradients.targets());
        quote!(p::layers::expand_backward(#axes, #d_y, #(&mut #d_x,)* gradients);)
    }
}

/// `&p::layers::growing(&[1, 512], &[sizes.seq, 512])`
fn growing(of: &FusedNode<'_>) -> TokenStream {
    let (from, to) = (of.sizes(0), of.sizes_of_result());
    quote!(&p::layers::growing(&[#(#from),*], &[#(#to),*]))
}
