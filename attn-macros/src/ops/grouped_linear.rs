//! `grouped_linear::<out, groups = experts>(x, ids)`: each row by the map of its group.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};

use super::layer::{self, Layer, Rounding};
use super::{
    Bound, CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lookup, Lower,
    ModelOp, Op, Operation, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::messages::onnx as words;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lower::{Lowering, RegionBuilder, is_without_bias};
use crate::model::types::{Axis, MOST_AXES, Type, ValueKind};
use crate::onnx::{OnnxNode, Term, call, call_with};
use crate::spec::keys::{Key, KeyKind};
use crate::spec::parse::Value;
use crate::spec::{Real, Rules, Size};

pub(super) static GROUPED_LINEAR: Operation = Operation {
    name: "grouped_linear",
    keys: &[
        layer::size("out", "required", "Width of the result."),
        layer::size(
            "groups",
            "required",
            "How many maps there are: the experts.",
        ),
        layer::bias("`true`", "Whether learned biases are added."),
        layer::init(
            "uniform within `1 / sqrt(in)`",
            "Distribution of each weight before training, as of `linear`. That of the biases stays.",
        ),
        Key {
            name: "capacity_factor",
            kind: KeyKind::Number,
            default: "no limit",
            doc: "How many times its even share of the rows a group takes, rounded up: `1.25`. The rows beyond that, in their order, are 0.",
        },
    ],
    positional: 2,
    may_be_tied: false,
    signature: "`[.., in]` and `ids[..]` to `[.., out]`, and `ids[.., k]` to `[.., k, out]`",
    doc: "`x Wᵀ + b` with the weights of a group, which the ids choose among `groups`: `grouped_linear::<out, groups = experts>(x, ids)`. PyTorch: `nn.functional.grouped_mm` of sorted rows.",
    lower: Lower::Operands(2..=2, &lower),
};

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
) -> Option<ValueId> {
    let [x, ids] = *call.operands else {
        return None;
    };
    let output = lowering.required(call, "out");
    let groups = lowering.required(call, "groups");
    let capacity = capacity(lowering, call);
    let x_ty = lowering.floats_of(call)?;
    let ids_ty = lowering.ty(ids).clone();
    if ids_ty.kind != ValueKind::Ids {
        lowering.takes(call.at, "floats and ids", &ids_ty);
        return None;
    }
    let input = lowering.width(call.at, &x_ty);
    let mut axes = rows(lowering, call, &x_ty, &ids_ty)?;
    let [output, groups, input] = [output?, groups?, input?];
    axes.push(Axis::Size(output.clone()));
    if axes.len() > MOST_AXES {
        let message = messages::too_many_axes(GROUPED_LINEAR.name, axes.len(), MOST_AXES);
        lowering.error(call.at.span(), message);
        return None;
    }
    let axis = Axis::Size(groups.clone());
    let bound = lowering.bound_of(ids, &axis, call.at.span(), GROUPED_LINEAR.name)?;
    let ty = Type::floats(axes);
    let bias = !call.arguments.entries.iter().any(is_without_bias);
    let layer = Affines {
        groups: groups.clone(),
        input,
        output,
        bias,
    };
    let op = GroupedLinear {
        place: lowering.layer(call, layer, &ty, builder),
        bias,
        groups,
        axis,
        bound,
        capacity: capacity?,
        by_group: ByGroup::default(),
    };
    Some(lowering.node(builder, op, vec![x, ids], (call.result, ty)))
}

/// The factor, if there is one and it is positive.
fn capacity(lowering: &mut Lowering<'_>, call: &CallSite<'_>) -> Option<Option<Real>> {
    let Some(Value::Number(factor)) = call.arguments.value("capacity_factor") else {
        return Some(None);
    };
    let is_positive = lowering.is_positive(factor, "capacity_factor");
    is_positive.then(|| Some(factor.clone()))
}

/// The axes of the rows of the result: those of `x` before the last one or those of the ids, of which one list begins with the other.
fn rows(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    x: &Type,
    ids: &Type,
) -> Option<Vec<Axis>> {
    let of_x = &x.axes[..x.axes.len().saturating_sub(1)];
    let [shorter, longer] = match of_x.len() < ids.axes.len() {
        true => [of_x, &*ids.axes],
        false => [&*ids.axes, of_x],
    };
    let [expected, found] = [shorter, &longer[..shorter.len()]];
    let [expected, found] = [expected, found].map(|axes| Type::floats(axes.to_vec()));
    let message = || messages::rows_and_groups_differ(x, ids);
    let agree = lowering.agree(&expected, &found, call.at.span(), message);
    agree.then(|| longer.to_vec())
}

struct Affines {
    groups: Size,
    input: Size,
    output: Size,
    bias: bool,
}

impl Layer for Affines {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let unbiased = if self.bias { "" } else { "Unbiased" };
        let name = format_ident!("{unbiased}GroupedLinear");
        let [groups, input, output] = [&self.groups, &self.input, &self.output].map(Size::arg);
        quote!(#krate::nn::#name<#groups, #input, #output #rest>)
    }

    fn label(&self) -> String {
        let bias = if self.bias { "" } else { ", without biases" };
        let name = layer::label(GROUPED_LINEAR.name, &[&self.input, &self.output]);
        format!("{name}, {} groups{bias}", self.groups)
    }

    fn epsilon(&self) -> Option<&Real> {
        None
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

#[derive(Clone)]
pub(crate) struct GroupedLinear {
    place: ParamPath,
    bias: bool,
    groups: Size,
    /// The same as an axis.
    axis: Axis,
    bound: Bound,
    capacity: Option<Real>,
    by_group: ByGroup,
}

/// The values whose rows stand in the order of their groups, as the fused form has them between two maps.
#[derive(Clone, Copy, Default)]
pub(crate) struct ByGroup {
    pub(crate) input: bool,
    pub(crate) result: bool,
}

impl GroupedLinear {
    /// The order of its values.
    #[cfg(test)]
    pub(crate) fn order(&self) -> ByGroup {
        self.by_group
    }

    /// The same map of values in this order.
    pub(crate) fn with_order(&self, by_group: ByGroup) -> Self {
        GroupedLinear {
            by_group,
            ..self.clone()
        }
    }

    /// `None`, `Some(1.25)`
    fn capacity(&self) -> TokenStream {
        match &self.capacity {
            None => quote!(None),
            Some(factor) => quote!(Some((#factor) as f64)),
        }
    }

    fn routing(&self, of: &FusedNode<'_>) -> TokenStream {
        let ids = of.ids(1);
        let capacity = self.capacity();
        let ByGroup { input, result } = self.by_group;
        quote!(p::layers::Routing {
            ids: #ids,
            capacity_factor: #capacity,
            by_group: p::layers::ByGroup { input: #input, result: #result },
        })
    }
}

impl Op for GroupedLinear {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Reads(vec![0, 1]),
            kept: None,
            fusion: Fusion::Grouped(self),
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed, Gradient::None]
    }
}

impl ModelOp for GroupedLinear {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Linear,
            lookup: Some(Lookup::ById {
                table: None,
                vocab: self.bound.vocab(&self.groups),
            }),
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        match self.capacity {
            None => Ok(Decode::PerToken),
            Some(_) => Err(messages::session_capacity(&self.place.field)),
        }
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let result = of.result();
        let input = of.width();
        Cost {
            flops: Some(quote!(p::product(&[2, #(#result,)* #input]))),
            ..Cost::none()
        }
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let groups = &self.groups;
        self.bound
            .check(of, 1, GROUPED_LINEAR.name, &quote!(#groups))
    }

    /// The rows of all groups, and of those the one that the id chooses.
    fn onnx(&self, of: &mut OnnxNode<'_, '_>) -> Result<Term, String> {
        if self.capacity.is_some() {
            return Err(words::CAPACITY.to_owned());
        }
        let x = &of.operand_type(0).axes;
        let result = &of.result_type().axes;
        let [Some(input), Some(output)] = [x, result].map(|axes| axes.last()) else {
            return Ok(of.operand(0));
        };
        let rows = &x[..x.len() - 1];
        let of_all = [rows, &[self.axis.clone(), output.clone()]].concat();
        let width = input.size().map(|size| of.size(size)).unwrap_or_default();
        let weight = of.weight(&self.place, "weight").transpose(&[2, 0, 1]);
        let weight = call("Reshape", [weight, Term::ints([width.as_str(), "-1"])]);
        let product = call("MatMul", [of.operand(0), weight]);
        let mut all = of.reshape(product, x, &of_all);
        if self.bias {
            all = all.plus(of.weight(&self.place, "bias"));
        }
        // The axis of the groups becomes that of the ids of a row, or has length 1.
        let own = of.operand_type(1).axes.len();
        let of_ids = match own > rows.len() {
            true => result.clone(),
            false => [rows, &[Axis::Size(Size::known(1)), output.clone()]].concat(),
        };
        let new: Vec<usize> = (own..of_ids.len()).collect();
        let shape = of.shape(&of_ids);
        let ids = call("Expand", [of.operand(1).unsqueeze(&new), shape]);
        let axis = rows.len();
        let chosen = call_with("GatherElements", format_args!("axis={axis}"), [all, ids]);
        Ok(match own > rows.len() {
            true => chosen,
            false => chosen.squeeze(&[axis]),
        })
    }
}

impl Emit<ModelFrame<'_>> for GroupedLinear {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let check = self
            .bound
            .check_composed(of, GROUPED_LINEAR.name, &self.axis);
        let [x, ids] = [of.operand(0), of.operand(1)];
        let place = of.place(&self.place);
        let capacity = self.capacity();
        let groups =
            quote!(p::layers::Groups { ids: p::Ids::read(&#ids), capacity_factor: #capacity });
        let shape = of.shape(0);
        let line = of.define(&quote!(grouped_linear(&#x, &#place, #groups, #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let x = of.matrix(0);
        let routing = self.routing(of);
        let y = to.matrix();
        quote!(#weights.forward(#x, #routing, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let x = of.matrix(0);
        let routing = self.routing(of);
        let d_y = gradients.matrix();
        let d_x = gradients.targets();
        quote!(#weights.backward(#x, #routing, #d_y, #(&mut #d_x,)* gradients);)
    }
}
