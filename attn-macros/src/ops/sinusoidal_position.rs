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
use crate::model::types::Axis;
use crate::onnx::{OnnxNode, Term, call, call_with};

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

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axes = &of.result_type().axes;
        let (before, len) = (&axes[..axes.len() - 2], &axes[axes.len() - 2]);
        let width = match axes.last() {
            Some(Axis::Size(width)) => of.size(width),
            _ => String::new(),
        };
        let positions = of.indices(len).cast("F64").unsqueeze(&[1]);
        let frequencies = call_with("Sinusoid", format_args!("width={width}"), []);
        let angles = of.name(positions.times(frequencies));
        let columns = call("Range", [Term::int(0), Term::new(width), Term::int(1)]);
        let odd = call_with("Mod", "fmod=0", [columns, Term::int(2)]).cast("BOOL");
        let waves = ["Cos", "Sin"].map(|wave| call(wave, [angles.clone()]));
        let [cos, sin] = waves;
        let rows = cos.where_else(odd, sin).cast("E");
        Ok(of.repeated(rows, before))
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
