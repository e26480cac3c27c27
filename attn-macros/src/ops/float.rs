//! `float(ids)`: ids, lengths and marks as floats.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output, size};
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type, ValueKind};
use crate::onnx::{OnnxNode, Term};

pub(super) static FLOAT: Operation = Operation {
    name: "float",
    keys: &[],
    positional: 0,
    may_be_tied: false,
    signature: "`ids[..]`, `lens[..]` or `bool[..]` to `[..]`",
    doc: "Ids, lengths and marks as floats: `x * float(keep)`, where `true` is 1. PyTorch: `ids.float()`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.ty(call.operands[0]).clone();
    if x.kind == ValueKind::Floats {
        lowering.takes(call.at, "ids, lengths or a mask", &x);
        return None;
    }
    Some(Float::node(
        lowering,
        builder,
        call.operands[0],
        call.result,
    ))
}

pub(crate) struct Float {
    /// The kind of the operand.
    kind: ValueKind,
    /// Lengths that are those of an axis at most, of an operation of this name.
    within: Option<(&'static str, Axis)>,
}

impl Float {
    /// The floats of a value that has none.
    pub(crate) fn node(
        lowering: &mut Lowering<'_>,
        builder: &mut RegionBuilder,
        x: ValueId,
        name: &str,
    ) -> ValueId {
        let Type { kind, axes } = lowering.ty(x).clone();
        let result = (name, Type::floats(axes));
        let op = Float { kind, within: None };
        lowering.node(builder, op, vec![x], result)
    }

    /// The same of lengths that an operation reads along an axis.
    pub(super) fn of_lengths(
        lowering: &mut Lowering<'_>,
        builder: &mut RegionBuilder,
        lens: ValueId,
        (operation, axis): (&'static str, Axis),
    ) -> ValueId {
        let Type { kind, axes } = lowering.ty(lens).clone();
        let within = Some((operation, axis));
        let op = Float { kind, within };
        lowering.node(builder, op, vec![lens], ("float", Type::floats(axes)))
    }
}

impl Op for Float {
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

impl ModelOp for Float {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("float".to_owned()),
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

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let (operation, axis) = self.within.as_ref()?;
        let len = size(axis);
        let lens = of.input(0);
        Some(quote!(call.inputs.#lens.check_lengths(#operation, #len)?;))
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Ok(of.operand(0).cast("E"))
    }
}

impl Emit<ModelFrame<'_>> for Float {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let check = self.within.as_ref().map(|(operation, axis)| {
            let len = of.size(axis);
            quote!(p::Ids::read(&#x).check_lengths(#operation, #len)?;)
        });
        let line = of.define(&quote!(float(&#x)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let y = to.slice();
        let x = match self.kind {
            ValueKind::Bools => {
                let marks = of.input(0);
                quote!(&call.inputs.#marks)
            }
            ValueKind::Floats | ValueKind::Ids | ValueKind::Lens => of.ids(0),
        };
        quote!(p::layers::float(#x, #y))
    }

    fn backward(&self, _: &FusedNode<'_>, _: &Gradients) -> TokenStream {
        TokenStream::new()
    }
}
