//! `concat(x, y, ..)`, along the last axis, and `concat::<seq>(x, y, ..)`, along any.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::pad::TO;
use super::{
    CallSite, Cost, Decode, Description, Emit, Expand, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lengths::Length;
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type, ValueKind};
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::Size;
use crate::spec::keys::{Key, KeyKind};

pub(super) static CONCAT: Operation = Operation {
    name: "concat",
    keys: &[
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "the last one",
            doc: "The axis along which they stand, by the name that it has in an operand or in the result.",
        },
        TO,
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[.., a]`, `[.., b]`, .. to `[.., a + b + ..]`",
    doc: "One after the other along an axis. PyTorch: `torch.cat(.., -1)`.",
    lower: Lower::Operands(2..=usize::MAX, &lower),
};

/// Several operands are joined one after the other, from the first two on.
fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let (axis, operands) = match call.arguments.tokens("axis").cloned() {
        Some(name) => {
            let operands = of_as_many_axes(lowering, call, builder);
            (Some(axis_of(lowering, call, &name, &operands)?), operands)
        }
        None => (None, call.operands.clone()),
    };
    let mut left = operands[0];
    for (index, right) in operands.iter().enumerate().skip(1) {
        let sides = [left, *right].map(|side| lowering.ty(side).clone());
        let is_last = index + 1 == operands.len();
        let (axis, ty) = joined(lowering, call, axis, &sides, is_last)?;
        let name = if is_last { call.result } else { "concat" };
        let along = ty.axes[axis].clone();
        let concat = Concat { along, axis };
        left = lowering.node(builder, concat, vec![left, *right], (name, ty));
    }
    Some(left)
}

/// The operands: one without the first axes of another is repeated along them.
fn of_as_many_axes(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Vec<ValueId> {
    let types = call.operands.iter().map(|id| lowering.ty(*id));
    let longest = types.rev().max_by_key(|ty| ty.axes.len());
    let all = longest.map_or(Vec::new(), |ty| ty.axes.clone());
    let operands = call.operands.iter().map(|operand| {
        let ty = lowering.ty(*operand).clone();
        let missing = all.len() - ty.axes.len();
        if missing == 0 {
            return *operand;
        }
        let axes = all[..missing].iter().chain(&ty.axes).cloned();
        let ty = Type::new(ty.kind, &axes.collect::<Vec<_>>());
        let expand = Expand::new((missing..all.len()).collect());
        lowering.node(builder, expand, vec![*operand], ("expand", ty))
    });
    operands.collect()
}

/// The index of the axis that the key names: that of an operand which has it, or the one that is of this size in the result.
fn axis_of(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    name: &TokenStream,
    operands: &[ValueId],
) -> Option<usize> {
    let types = operands.iter().map(|id| lowering.ty(*id).clone());
    let types: Vec<Type> = types.collect();
    let text = name.to_string();
    let has_it = |ty: &&Type| ty.axes.iter().any(|axis| axis.name() == Some(&*text));
    let of = types.iter().find(has_it);
    if of.is_none()
        && let Some(total) = lowering.size_named(name).and_then(|size| size.value)
    {
        let size = |ty: &Type, index: usize| ty.axes[index].size().and_then(|size| size.value);
        let sum = |index: &usize| types.iter().map(|ty| size(ty, *index)).sum::<Option<u64>>();
        let all = 0..types[0].axes.len();
        let of_size: Vec<_> = all.filter(|index| sum(index) == Some(total)).collect();
        if let [axis] = *of_size {
            return Some(axis);
        }
    }
    lowering.axis_or_last(call, of.unwrap_or(&types[0]))
}

/// The axis along which two operands stand, by default the last one, and the type of the result.
fn joined(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    axis: Option<usize>,
    [a, b]: &[Type; 2],
    is_last: bool,
) -> Option<(usize, Type)> {
    if axis.is_none() && !call.arguments.is_given("to") {
        [a, b]
            .map(|ty| lowering.width(call.at, ty))
            .into_iter()
            .collect::<Option<Vec<_>>>()?;
    }
    if let Some(ty) = [a, b].into_iter().find(|ty| ty.kind != ValueKind::Floats) {
        let message = messages::expected_floats(call.operation.name, ty);
        lowering.error(call.at.span(), message);
        return None;
    }
    let mut along = |ty: &Type| match axis {
        Some(axis) => Some(axis),
        None => lowering.axis_or_last(call, ty),
    };
    let (axis, of_b) = (along(a)?, along(b)?);
    let [of_a, of_b_axis] = [&a.axes[axis], &b.axes[of_b]];
    let mut same = b.clone();
    same.axes[of_b] = of_a.clone();
    let name = call.arguments.tokens("axis");
    let message = || messages::concat_differs(a, b, name);
    let agrees = lowering.agree(a, &same, call.at.span(), message);
    let mut ty = a.clone();
    ty.axes[axis] = match (of_a, of_b_axis) {
        (Axis::Size(of_a), Axis::Size(of_b)) if !call.arguments.is_given("to") => {
            let mut sum = of_a.plus(of_b);
            let named = name.and_then(|name| lowering.size_named(name));
            let is_sum = |named: &Size| named.value.is_some() && named.value == sum.value;
            if let Some(named) = named.filter(is_sum) {
                sum.axis = named.axis;
            }
            Axis::Size(sum)
        }
        (Axis::Size(of_a), Axis::Size(of_b)) => {
            let sum = of_a.plus(of_b);
            match is_last {
                true => lowering.resized(call, of_b_axis, &Length::Constant(sum))?,
                false => Axis::Size(sum),
            }
        }
        _ => {
            let length = lowering.length(of_a).plus(lowering.length(of_b_axis));
            match is_last {
                true => lowering.resized(call, longest_of(of_a, of_b_axis), &length)?,
                false => lowering.unnamed_axis(&length),
            }
        }
    };
    agrees.then_some((axis, ty))
}

/// One of two axes that is of any length.
fn longest_of<'a>(a: &'a Axis, b: &'a Axis) -> &'a Axis {
    match a {
        Axis::Symbol(_) => a,
        Axis::Size(_) => b,
    }
}

pub(crate) struct Concat {
    /// The axis of the result.
    along: Axis,
    /// The index of the axis along which the operands stand.
    axis: usize,
}

impl Op for Concat {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Nothing,
            kept: None,
            fusion: Fusion::Concat(self.axis),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::Computed]
    }
}

impl ModelOp for Concat {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text("concat".to_owned()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.along, "concat")
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axis = format!("axis={}", self.axis);
        Ok(call_with("Concat", axis, of.operands()))
    }
}

impl Emit<ModelFrame<'_>> for Concat {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let is_constant = matches!(self.along, Axis::Size(_));
        if self.axis + 1 < of.result_type().axes.len() || !is_constant {
            let y = of.operand(1);
            let axis = Literal::usize_unsuffixed(self.axis);
            let shape = of.shape(0);
            let axis = quote!(p::shapes::Axis::<#axis>);
            return of.define(&quote!(concat_along(&#x, &#y, #axis, #shape)));
        }
        let mut ty = of.operand_type(0).clone();
        ty.axes.pop();
        ty.axes.extend(of.operand_type(1).axes.last().cloned());
        let y = of.operand_as(1, &ty);
        of.define(&quote!(concat(&#x, &#y)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        if self.is_last(of) {
            let x = of.matrix(0);
            let y = of.matrix(1);
            let to = to.matrix();
            return quote!(p::layers::concat(#x, #y, #to));
        }
        let [x, y] = [of.slice(0), of.slice(1)];
        let axis = of.axis_of_result(self.axis);
        let of_x = &of.sizes(0)[self.axis];
        let to = to.slice();
        quote!(p::layers::concat_along(#x, #y, #axis, #of_x, #to))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let to = gradients.targets();
        let size = |operand: usize| of.sizes(operand)[self.axis].clone();
        let sizes = gradients.operands().map(size);
        let starts = gradients.operands().map(|index| match index {
            0 => quote!(0),
            _ => size(0),
        });
        if self.is_last(of) {
            let d_y = gradients.matrix();
            return quote!(#(p::layers::concat_backward(#starts, #sizes, #d_y, &mut #to, gradients);)*);
        }
        let d_y = gradients.slice();
        let axis = of.axis_of_result(self.axis);
        quote!(#(p::layers::concat_along_backward(#axis, #starts, #sizes, #d_y, &mut #to, gradients);)*)
    }
}

impl Concat {
    /// Whether the operands stand along the last axis, so that they are rows side by side.
    fn is_last(&self, of: &FusedNode<'_>) -> bool {
        self.axis + 1 == of.sizes_of_result().len()
    }
}
