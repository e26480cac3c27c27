//! `sinusoidal_position::<d_model>(x)`

use proc_macro2::TokenStream;
use quote::quote;

use super::layer;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};

pub(super) static SINUSOIDAL_POSITION: Operation = Operation {
    name: "sinusoidal_position",
    keys: &[layer::size("d_model", "required", "Width of a vector.")],
    positional: 1,
    may_be_tied: false,
    signature: "`ids[.., seq]` or `[.., seq, d_model]` to `[.., seq, d_model]`",
    doc: "Sines and cosines of the position (Vaswani et al. 2017, section 3.5), to be added.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let width = lowering.required(call, "d_model")?;
    let ty = lowering.vector_per_position(call, &width)?;
    let operands = call.operands.clone();
    Some(lowering.node(builder, SinusoidalPosition, operands, (call.result, ty)))
}

/// The result has the axes of its operand.
struct SinusoidalPosition;

impl Op for SinusoidalPosition {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::None]
    }
}

impl ModelOp for SinusoidalPosition {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("sinusoidal_position".to_owned()),
            vertex: VertexKind::Embedding,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    /// The vectors of one sequence, which are copied to the others.
    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }
}

impl Emit<ModelFrame<'_>> for SinusoidalPosition {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let shape = of.shape(1);
        of.define(&quote!(sinusoidal_position(#shape, #x.device())))
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let result = of.extents().result();
        let one = &result[result.len() - 2..];
        Footprints {
            forward: Some(quote!(p::Footprint::forward_only(&[#(#one),*]))),
            backward: None,
        }
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        match of.mode() {
            ExecMode::Forward | ExecMode::Start => {
                let len = of.length_of_result();
                let width = of.width_of_result();
                let y = to.slice();
                quote!(p::layers::sinusoidal_position(#len, #width, #y))
            }
            ExecMode::Session => {
                let y = to.matrix();
                quote!(p::layers::sinusoids(new.positions(), #y))
            }
        }
    }

    /// Nothing is learned.
    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
