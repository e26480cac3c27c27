//! `scatter_add::<[vocab, d_model]>(x, ids)`: sums of numbers by their indices along an axis of the result.

use proc_macro2::TokenStream;
use quote::quote;

use super::{
    Along, Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower,
    ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output, size};
use crate::messages::model as messages;
use crate::messages::onnx as words;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type, ValueKind};
use crate::onnx::{OnnxNode, Term};
use crate::spec::keys::{Key, KeyKind};

pub(super) static SCATTER_ADD: Operation = Operation {
    name: "scatter_add",
    keys: &[
        Key {
            name: "out",
            kind: KeyKind::Axes,
            default: "required",
            doc: "The axes of the result.",
        },
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "the one that `x` lacks",
            doc: "The axis of the result that the ids are indices of.",
        },
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[batch, seq, d]` and `ids[batch, seq]` to `[batch, n, d]`, and others",
    doc: "Sums of numbers by id, the derivative of `x[n = ids]`: `scatter_add::<[batch, n, d]>(x, ids)`. PyTorch: `torch.zeros(..).index_add(dim, ids, x)` or `scatter_add`.",
    lower: Lower::Operands(2..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let at = call.at.span();
    let ty = lowering.result_of_call(call, "out")?;
    let x = lowering.floats_of(call)?;
    let [numbers, ids] = *call.operands else {
        return None;
    };
    let ids_ty = lowering.ty(ids).clone();
    if ids_ty.kind != ValueKind::Ids {
        lowering.takes(call.at, "floats and ids", &ids_ty);
        return None;
    }
    let index = indexed(lowering, call, &x, &ty)?;
    let text = SCATTER_ADD.name.to_owned();
    let along = lowering.along(&ty, index, &ids_ty, (at, text))?;
    let expected = along.of(&ty, &ids_ty);
    let message = || messages::scatter_differs(&ty, &along.axis, &ids_ty, &expected, &x);
    let places = expected
        .places(&x)
        .filter(|_| x.axes.len() == expected.axes.len());
    let numbers = match places {
        Some(places) if !places.is_sorted() => lowering.in_order(numbers, &places, builder),
        Some(_) => numbers,
        None => {
            lowering.agree(&expected, &x, at, message).then_some(())?;
            numbers
        }
    };
    let bound = lowering.bound_of(ids, &along.axis, at, SCATTER_ADD.name)?;
    let new = ids_ty.axes.iter().zip(&along.shared);
    let new = new.filter(|(_, shared)| shared.is_none());
    let summed = new.map(|(axis, _)| axis.clone()).collect();
    let op = ScatterAdd {
        along,
        summed,
        bound,
    };
    Some(lowering.node(builder, op, vec![numbers, ids], (call.result, ty)))
}

/// The axis of the result that is indexed: the one that is named, or else the only one that `x` lacks.
fn indexed(lowering: &mut Lowering<'_>, call: &CallSite<'_>, x: &Type, to: &Type) -> Option<usize> {
    if call.arguments.is_given("axis") {
        return lowering.axis_or_last(call, to);
    }
    let axes = to.axes.iter().enumerate();
    let missing = axes.filter(|(_, axis)| x.candidates(axis).is_empty());
    let missing: Vec<usize> = missing.map(|(index, _)| index).collect();
    match *missing {
        [index] => Some(index),
        _ => {
            let message = messages::scatter_axis(to, x, missing.len());
            lowering.error(call.at.span(), message);
            None
        }
    }
}

struct ScatterAdd {
    along: Along,
    /// The axes of the ids that the result lacks.
    summed: Vec<Axis>,
    bound: Bound,
}

impl ScatterAdd {
    fn label(&self) -> String {
        format!("scatter_add {}", self.along.axis)
    }

    fn indexing(&self, of: &FusedNode<'_>) -> TokenStream {
        self.along.indexing(&of.sizes_of_result(), &of.sizes(1))
    }
}

impl Op for ScatterAdd {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Reads(vec![1]),
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::None]
    }
}

impl ModelOp for ScatterAdd {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: self.bound.lookup(&self.along.axis),
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        let mut axes = self.summed.iter().chain([&self.along.axis]);
        axes.try_for_each(|axis| Decode::along(axis, SCATTER_ADD.name).map(drop))?;
        Ok(Decode::PerToken)
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let count = size(&self.along.axis);
        self.bound.check(of, 1, &self.along.text, &count)
    }

    fn onnx(&self, _: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        Err(words::SCATTER_ADD.to_owned())
    }
}

impl Emit<ModelFrame<'_>> for ScatterAdd {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let [x, ids] = [0, 1].map(|operand| of.operand(operand));
        let axis = &self.along.axis;
        let check = self.bound.check_composed(of, &self.along.text, axis);
        let along = self.along.composed(&quote!(p::Ids::read(&#ids)));
        let shape = of.shape(0);
        let line = of.define(&quote!(scatter_add(&#x, #along, #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let ids = of.ids(1);
        let indexing = self.indexing(of);
        let y = to.slice();
        quote!(p::layers::scatter_add(#x, #ids, #indexing, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let ids = of.ids(1);
        let indexing = self.indexing(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::scatter_add_backward(#ids, #indexing, #d_y, #(&mut #d_x,)* gradients);)
    }
}
