//! A tensor of constants: `buffer slope: [heads] = |h| pow(2, -8 * (h + 1) / heads);`

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::{
    Cost, Decode, Description, Emit, Fusion, Gradient, Label, ModelOp, Op, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{self, Model};
use crate::model::types::Type;
use crate::onnx::{OnnxNode, Term};

/// The buffer of this index in the model.
pub(crate) struct Buffer {
    index: usize,
    label: String,
}

impl Buffer {
    pub(crate) fn new(index: usize, ty: &Type) -> Self {
        Buffer {
            index,
            label: format!("buffer {ty}"),
        }
    }

    /// `___BUFFER_0`: a name that no constant of the user has.
    fn item(index: usize) -> Ident {
        format_ident!("___BUFFER_{index}")
    }
}

/// `static ___BUFFER_0: p::layers::Constants<1> = p::layers::Constants::new([8], |at| 2.0 * at[0]);`
pub(crate) fn emit_buffers(model: &Model) -> TokenStream {
    let buffers = model.buffers.iter().enumerate();
    let items = buffers.map(|(index, graph::Buffer { sizes, value })| {
        let name = Buffer::item(index);
        let axes = sizes.len();
        quote! {
            #[allow(unused_variables)]
            static #name: p::layers::Constants<#axes> =
                p::layers::Constants::new([#(#sizes),*], |at| #value);
        }
    });
    items.collect()
}

impl Op for Buffer {
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

impl ModelOp for Buffer {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label.clone()),
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

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(of.buffer(&Buffer::item(self.index)))
    }
}

impl Emit<ModelFrame<'_>> for Buffer {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let name = Buffer::item(self.index);
        let device = of.device();
        let shape = of.shape(0);
        of.define(&quote!(constants(&#name, #shape, #device)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, _: &FusedNode<'_>, to: &Output) -> TokenStream {
        let name = Buffer::item(self.index);
        let y = to.slice();
        quote!(#name.forward(#y))
    }

    /// Nothing is learned.
    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
