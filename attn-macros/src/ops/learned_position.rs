//! `learned_position::<max_len, d_model>(x)`

use proc_macro2::TokenStream;
use quote::quote;

use super::layer::{self, Layer};
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lookup, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::ExecMode;
use crate::emit::block::{Footprints, Gradients, Output};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::spec::{Real, Size};

pub(super) static LEARNED_POSITION: Operation = Operation {
    name: "learned_position",
    keys: &[
        layer::size(
            "max_len",
            "required",
            "How many positions there are: the longest sequence.",
        ),
        layer::size("d_model", "required", "Width of a vector."),
        layer::init(
            "`normal(0.02)`",
            "Distribution of the table before training, as of `embedding`.",
        ),
    ],
    positional: 2,
    may_be_tied: false,
    signature: "`ids[.., seq]` or `[.., seq, d_model]` to `[.., seq, d_model]`",
    doc: "A learned vector per position (Gehring et al. 2017), to be added.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let max_len = lowering.required(call, "max_len");
    let width = lowering.required(call, "d_model");
    let max_len = max_len?;
    let width = width?;
    let ty = lowering.vector_per_position(call, &width)?;
    let layer = Table {
        max_len: max_len.clone(),
        width,
    };
    let place = lowering.layer(call, layer, &ty, builder);
    let position = LearnedPosition { place, max_len };
    let operands = call.operands.clone();
    Some(lowering.node(builder, position, operands, (call.result, ty)))
}

struct Table {
    max_len: Size,
    width: Size,
}

impl Layer for Table {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let [max_len, width] = [&self.max_len, &self.width].map(Size::arg);
        quote!(#krate::nn::LearnedPosition<#max_len, #width #rest>)
    }

    fn label(&self) -> String {
        layer::label("learned_position", &[&self.max_len, &self.width])
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }
}

/// Of the axes of its operand.
struct LearnedPosition {
    place: ParamPath,
    max_len: Size,
}

impl Op for LearnedPosition {
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

impl ModelOp for LearnedPosition {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Embedding,
            lookup: Some(Lookup::ByPosition {
                table: &self.place,
                max_len: &self.max_len,
            }),
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let len = of.length_of_result();
        let max_len = &self.max_len;
        Some(quote!(p::check_length(#len, #max_len)?;))
    }
}

impl Emit<ModelFrame<'_>> for LearnedPosition {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let place = of.place(&self.place);
        let shape = of.shape(1);
        of.define(&quote!(learned_position(#shape, &#place)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let len = of.length_of_result();
        let y = to.matrix();
        match of.mode() {
            ExecMode::Forward => quote!(#weights.forward_positions(#len, #y)),
            ExecMode::Session => quote!(#weights.forward(new.positions(), #y)),
        }
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let len = of.length_of_result();
        let d_y = gradients.matrix();
        quote!(#weights.backward_positions(#len, #d_y, gradients);)
    }
}
