//! `group_norm::<groups>(x)`, of groups of channels.

use proc_macro2::{Literal, TokenStream};
use quote::quote;

use super::layer::{self, Layer, Rounding};
use super::norm::{Learned, asked_epsilon, bias, epsilon, epsilon_label};
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Kept, Label, Lower, ModelOp, Op,
    Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder};
use crate::model::syntax::first;
use crate::model::types::{Axis, Type};
use crate::onnx::{OnnxNode, Term, call};
use crate::spec::keys::{Key, KeyKind, gain};
use crate::spec::{Real, Size};

pub(super) static GROUP_NORM: Operation = Operation {
    name: "group_norm",
    keys: &[
        layer::size(
            "groups",
            "required",
            "The number of groups. It divides the number of channels.",
        ),
        Key {
            name: "axis",
            kind: KeyKind::Axes,
            default: "the last one",
            doc: "The axis of the channels, whose size is constant.",
        },
        epsilon("1e-5"),
        gain(),
        bias(),
    ],
    positional: 1,
    may_be_tied: false,
    signature: "`[..]` to the same",
    doc: "`(x - mean) / sqrt(var + epsilon)` with the mean and the variance of each group of channels, and of all axes behind that of the channels; then a learned gain and bias per channel (Wu and He 2018). `group_norm::<8, axis = channels>(x)` of `[batch, channels, height, width]` is `torch.nn.GroupNorm(8, channels)(x)` of PyTorch. Without `axis` the channels are the last axis, and every vector is on its own: `torch.nn.GroupNorm(8, d_model)(x.flatten(0, -2)).view_as(x)`.",
    lower: Lower::Operands(1..=1, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let ty = lowering.floats_of(call)?;
    let groups = lowering.required(call, "groups");
    let index = lowering.axis_or_last(call, &ty)?;
    let channels = channels(lowering, call, &ty, index)?;
    let groups = groups?;
    divides(lowering, &groups, &channels)?;
    let learned = Learned::of(call);
    let layer = Channels {
        channels: channels.clone(),
        groups: groups.clone(),
        learned,
        epsilon: asked_epsilon(lowering, call),
    };
    let norm = GroupNorm {
        place: lowering.layer(call, layer, &ty, builder),
        channels,
        groups,
        index,
        behind: ty.axes[index..].to_vec(),
        learned,
    };
    let operands = call.operands.clone();
    Some(lowering.node(builder, norm, operands, (call.result, ty)))
}

/// The constant size of the axis of the channels.
fn channels(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    ty: &Type,
    index: usize,
) -> Option<Size> {
    match &ty.axes[index] {
        Axis::Size(channels) => Some(channels.clone()),
        Axis::Symbol(axis) => {
            let message = messages::channels_of_any_number(&axis.name, ty);
            lowering.error(call.at.span(), message);
            None
        }
    }
}

/// Whether there is no remainder; if that is for rustc to find out, the rule is noted.
pub(super) fn divides(lowering: &mut Lowering<'_>, groups: &Size, channels: &Size) -> Option<()> {
    let at = first(&groups.origin);
    let message = messages::groups_do_not_divide(groups, channels);
    match groups.value.zip(channels.value) {
        Some((groups, channels)) if channels % groups != 0 => {
            lowering.error(at, message);
            return None;
        }
        Some(_) => {}
        // No groups at all are reported elsewhere.
        None => {
            let divides = quote!(#groups == 0 || #channels % #groups == 0);
            lowering.assume(vec![divides], at, message);
        }
    }
    Some(())
}

struct Channels {
    channels: Size,
    groups: Size,
    learned: Learned,
    epsilon: Option<Real>,
}

impl Layer for Channels {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let norm = self.learned.module("GroupNorm");
        let [channels, groups] = [&self.channels, &self.groups].map(Size::arg);
        quote!(#krate::nn::#norm<#channels, #groups #rest>)
    }

    fn label(&self) -> String {
        let norm = layer::label("group_norm", &[&self.channels]);
        let groups = &self.groups;
        let learned = self.learned.label(true);
        let epsilon = epsilon_label(self.epsilon.as_ref());
        format!("{norm}, {groups} groups{learned}{epsilon}")
    }

    fn epsilon(&self) -> Option<&Real> {
        self.epsilon.as_ref()
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }

    fn rounding(&self) -> Rounding {
        Rounding::None
    }

    fn recent(&self) -> Option<[Size; 2]> {
        None
    }
}

struct GroupNorm {
    place: ParamPath,
    channels: Size,
    groups: Size,
    /// The index of the axis of the channels.
    index: usize,
    /// The axis of the channels, and those behind it.
    behind: Vec<Axis>,
    learned: Learned,
}

impl Op for GroupNorm {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: Some(Kept::Array),
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for GroupNorm {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Norm,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        let symbol = |axis: &&Axis| matches!(axis, Axis::Symbol(_));
        match self.behind.iter().find(symbol) {
            Some(axis) => Decode::along(axis, "group_norm"),
            None => Ok(Decode::PerToken),
        }
    }

    fn cost(&self, _: &Extents<'_>) -> Cost {
        Cost::none()
    }

    fn check(&self, _: &FusedNode<'_>) -> Option<TokenStream> {
        None
    }

    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        let x = of.operand(0);
        let before = vec!["0".to_owned(); self.index];
        let groups = of.size(&self.groups);
        let shape = before.into_iter().chain([groups, "-1".to_owned()]);
        let grouped = of.name(call("Reshape", [x.clone(), Term::ints(shape)]));
        let epsilon = of.epsilon(&self.place);
        let normed = of.standardized(grouped, &epsilon);
        let normed = call("Reshape", [normed, call("Shape", [x])]);
        let behind: Vec<usize> = (1..self.behind.len()).collect();
        let learned = self.learned;
        Ok(learned.onnx(of, &self.place, &behind, normed))
    }
}

impl Emit<ModelFrame<'_>> for GroupNorm {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let axis = Literal::isize_unsuffixed(self.index as isize);
        let place = of.place(&self.place);
        of.define(&quote!(group_norm(&#x, p::shapes::Axis::<#axis>, &#place)))
    }

    fn footprints(&self, of: &FusedNode<'_>) -> Footprints {
        let axes = of.extents().operand(0);
        let outer = &axes[..self.index];
        let [groups, channels] = [&self.groups, &self.channels];
        let learned = self.learned.count();
        Footprints::of_both(
            quote!(p::layers::group_norm_footprint(&[#(#outer),*], #groups, #channels, #learned)),
        )
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let y = to.slice();
        quote!(#weights.forward(#x, #axis, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let x = of.slice(0);
        let axis = of.axis(0, self.index);
        let kept = of.kept();
        let d_y = gradients.slice();
        let d_x = gradients.targets();
        quote!(#weights.backward(#x, #axis, #kept, #d_y, #(&mut #d_x,)* gradients);)
    }
}
