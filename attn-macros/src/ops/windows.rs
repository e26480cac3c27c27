//! `windows::<seq, 3>(x)`: sliding windows along an axis.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::pad::TO;
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
use crate::onnx::{OnnxNode, Term, call_with};
use crate::spec::Size;
use crate::spec::keys::{Key, KeyKind};

pub(super) static WINDOWS: Operation = Operation {
    name: "windows",
    keys: &[
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "required",
            doc: "Along which axis.",
        },
        Key {
            name: "size",
            kind: KeyKind::Size,
            default: "required",
            doc: "The length of a window.",
        },
        Key {
            name: "step",
            kind: KeyKind::Size,
            default: "`1`",
            doc: "The distance from one window to the next.",
        },
        TO,
    ],
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, ..]` to `[.., (a - size) / step + 1, size, ..]`",
    doc: "Sliding windows along an axis, which becomes two. PyTorch: `x.unfold(axis, size, step)`, which puts the axis of a window last.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    let size = lowering.required(call, "size");
    let step = match call.arguments.is_given("step") {
        true => lowering.required(call, "step"),
        false => Some(Size::known(1)),
    };
    let index = match *lowering.required_axes(call, &x)? {
        [index] => index,
        ref several => {
            let message = messages::along_one_axis(call.at, several.len());
            lowering.error(call.at.span(), message);
            return None;
        }
    };
    let (size, step) = (size?, step?);
    let axis = &x.axes[index];
    let message = messages::windows_too_large(&size, axis);
    let length = match axis {
        Axis::Size(len) => {
            lowering.within(&size, len, call.at.span(), || message.clone())?;
            Length::Constant(lowering.count_of_windows(len, &size, &step))
        }
        Axis::Symbol(_) => Length::windows(lowering.length(axis), &size, &step),
    };
    let may_be_short = matches!(length, Length::Windows { .. });
    let count = lowering.resized(call, axis, &length)?;
    let mut axes = x.axes.clone();
    axes.splice(index..=index, [count, Axis::Size(size.clone())]);
    lowering.has_few_axes(call, &axes)?;
    let windows = Windows {
        axis: axis.clone(),
        index,
        size,
        step,
        may_be_short,
    };
    let ty = Type::floats(axes);
    Some(lowering.node(builder, windows, call.operands.clone(), (call.result, ty)))
}

struct Windows {
    axis: Axis,
    index: usize,
    size: Size,
    step: Size,
    /// Whether the call may have an axis that is shorter than a window.
    may_be_short: bool,
}

impl Windows {
    fn label(&self) -> String {
        format!("windows {}", self.axis)
    }

    /// How long the axis must be, if only the call knows how long it is.
    fn check(&self, model: &str, len: &TokenStream) -> Option<TokenStream> {
        let (axis, size) = (self.axis.to_string(), &self.size);
        self.may_be_short
            .then(|| quote!(p::check_at_least(#model, #axis, #len, #size)?;))
    }
}

impl Op for Windows {
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

impl ModelOp for Windows {
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

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        Windows::check(self, &of.label(), &of.sizes(0)[self.index])
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let count = of.result_type().axes[self.index].clone();
        let step = Term::new(of.size(&self.step));
        let starts = of.indices(&count).times(step).unsqueeze(&[1]);
        let places = starts.plus(of.indices(&Axis::Size(self.size.clone())));
        let axis = format!("axis={}", self.index);
        Ok(call_with("Gather", axis, [of.operand(0), places]))
    }
}

impl Emit<ModelFrame<'_>> for Windows {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let index = Literal::usize_unsuffixed(self.index);
        let check = Windows::check(self, &of.label(), &of.size(&self.axis));
        let (size, step) = (&self.size, &self.step);
        let shape = of.shape(0);
        let line =
            of.define(&quote!(windows(&#x, p::shapes::Axis::<#index>, #size, #step, #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let (size, step) = (&self.size, &self.step);
        let y = to.slice();
        quote!(p::layers::windows(#x, #axis, #size, #step, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let axis = of.axis(0, self.index);
        let (size, step) = (&self.size, &self.step);
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(p::layers::windows_backward(#axis, #size, #step, #d_y, #(&mut #d_x,)* gradients);)
    }
}
