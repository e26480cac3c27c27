//! `pad::<seq, before = 1>(x)` and `shift::<seq, 1>(x)`: numbers at the ends of an axis, a value moved along an axis.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::slice::Offset;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ValueId};
use crate::model::lengths::Length;
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::keys::{Key, KeyKind};
use crate::spec::parse::Value;
use crate::spec::{Real, Size};

const AXIS: Key = Key {
    name: "axis",
    kind: KeyKind::Axes,
    default: "the last one",
    doc: "Along which axis.",
};

pub(super) const TO: Key = Key {
    name: "to",
    kind: KeyKind::Axes,
    default: "none",
    doc: "The name of the axis of the result. One of any length needs a name.",
};

pub(super) static PAD: Operation = Operation {
    name: "pad",
    keys: &[
        AXIS,
        Key {
            name: "before",
            kind: KeyKind::Size,
            default: "`0`",
            doc: "How many indices come before those of the axis.",
        },
        Key {
            name: "after",
            kind: KeyKind::Size,
            default: "`0`",
            doc: "How many come behind them.",
        },
        Key {
            name: "value",
            kind: KeyKind::Number,
            default: "`0`",
            doc: "The number there.",
        },
        TO,
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[.., a, ..]` to `[.., before + a + after, ..]`",
    doc: "A number at the ends of an axis. PyTorch: `F.pad(x, (before, after), value=value)`, for the last axis.",
    lower: Lower::Operands(1..=1, &lower_pad),
};

pub(super) static SHIFT: Operation = Operation {
    name: "shift",
    keys: &[
        AXIS,
        Key {
            name: "by",
            kind: KeyKind::Index,
            default: "required",
            doc: "How many indices towards the end; negative, towards the start.",
        },
    ],
    positional: 2,
    may_be_tied: false,
    signature: "`[..]` to `[..]`",
    doc: "Moves a value along an axis; zeros come in. PyTorch: `F.pad(x, (by, -by))`, for the last axis.",
    lower: Lower::Operands(1..=1, &lower_shift),
};

fn lower_pad(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    let index = lowering.axis_or_last(call, &x)?;
    let size = |key: &str| call.arguments.size(key);
    let [before, after] = [size("before"), size("after")];
    if before.is_none() && after.is_none() {
        if call.arguments.complete {
            lowering.error(call.at.span(), messages::PAD_OF_NOTHING);
        }
        return None;
    }
    let value = match call.arguments.value("value") {
        Some(Value::Number(value)) => value.clone(),
        Some(_) => return None,
        None => Real::known(0.0),
    };
    let [before, after] = [before, after].map(|size| size.unwrap_or(Size::known(0)));
    let added = before.plus(&after);
    let axis = &x.axes[index];
    let length = match axis {
        Axis::Size(size) => Length::Constant(size.plus(&added)),
        Axis::Symbol(_) => lowering.length(axis).plus(Length::Constant(added)),
    };
    let mut axes = x.axes.clone();
    axes[index] = lowering.resized(call, axis, &length)?;
    let pad = Pad {
        what: "pad",
        axis: x.axes[index].clone(),
        index,
        by: Offset::FromStart(before),
        after,
        value,
    };
    let ty = Type::floats(axes);
    Some(lowering.node(builder, pad, call.operands.clone(), (call.result, ty)))
}

fn lower_shift(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    let index = lowering.axis_or_last(call, &x)?;
    let Some(by) = call.arguments.tokens("by").cloned() else {
        if call.arguments.complete {
            lowering.error(call.at.span(), messages::SHIFT_BY_NOTHING);
        }
        return None;
    };
    let shift = Pad {
        what: "shift",
        axis: x.axes[index].clone(),
        index,
        by: lowering.offset(&by)?,
        after: Size::known(0),
        value: Real::known(0.0),
    };
    Some(lowering.node(builder, shift, call.operands.clone(), (call.result, x)))
}

/// A value that is moved along an axis, which may get longer.
struct Pad {
    /// The name of the operation.
    what: &'static str,
    axis: Axis,
    index: usize,
    /// How many indices it is moved towards the end. `FromEnd`: towards the start.
    by: Offset,
    /// How many indices longer the axis is behind it.
    after: Size,
    value: Real,
}

impl Pad {
    fn label(&self) -> String {
        format!("{} {}", self.what, self.axis)
    }

    /// The distance, as an `isize`. One that no `isize` holds is longer than any axis.
    fn by(&self) -> TokenStream {
        match &self.by {
            Offset::FromStart(by) => quote!(p::distance(#by)),
            Offset::FromEnd(by) => quote!(-p::distance(#by)),
        }
    }

    /// The axis, the distance, and the size of the axis of the result.
    fn moved(&self, of: &FusedNode<'_>) -> [TokenStream; 3] {
        let len = of.sizes_of_result()[self.index].clone();
        [of.axis(0, self.index), self.by(), len]
    }

    fn value(&self) -> TokenStream {
        let value = &self.value;
        quote!((#value) as f64)
    }
}

impl Op for Pad {
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

impl ModelOp for Pad {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Text(self.label()),
            vertex: VertexKind::Other,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        Decode::along(&self.axis, &self.label())
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let axes = Term::ints([self.index]);
        let x = of.operand(0);
        let is_shift = self.what == SHIFT.name;
        let value = of.number(&self.value);
        let zero = || "0".to_owned();
        let [before, after] = match &self.by {
            Offset::FromStart(before) if is_shift => [of.size(before), zero()],
            Offset::FromStart(before) => [of.size(before), of.size(&self.after)],
            Offset::FromEnd(after) => [zero(), of.size(after)],
        };
        let pads = Term::ints([before, after.clone()]);
        let padded = call("Pad", [x, pads, value, axes.clone()]);
        if !is_shift {
            return Ok(padded);
        }
        let start = Term::ints([after]);
        let end = start.clone().plus(of.length(&self.axis));
        Ok(call("Slice", [padded, start, end, axes]))
    }
}

impl Emit<ModelFrame<'_>> for Pad {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::usize_unsuffixed(self.index);
        let axis = quote!(p::shapes::Axis::<#axis>);
        let Offset::FromStart(before) = &self.by else {
            let by = self.by();
            return of.define(&quote!(shift_along(&#x, #axis, #by)));
        };
        if self.what == SHIFT.name {
            let by = self.by();
            return of.define(&quote!(shift_along(&#x, #axis, #by)));
        }
        let value = self.value();
        let shape = of.shape(0);
        of.define(&quote!(pad(&#x, #axis, #before, #value, #shape)))
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let [axis, by, len] = self.moved(of);
        let value = self.value();
        let y = to.slice();
        quote!(p::layers::pad(#x, #axis, #by, #len, #value, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let [axis, by, len] = self.moved(of);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::pad_backward(#axis, #by, #len, #d_y, #(&mut #d_x,)* gradients);)
    }
}
