//! `conv1d::<seq, out, kernel>(x)`, `conv2d`, and transposed ones.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};

use super::group_norm::divides;
use super::layer::{self, Layer};
use super::pad::TO;
use super::{
    CallSite, Cost, Decode, Description, Emit, Fusion, Gradient, Label, Lower, ModelOp, Op,
    Operation, Permute, Properties, Saved,
};
use crate::emit::block::{Footprints, Gradients, Output};
use crate::messages::model as messages;
use crate::model::emit::{ComposedNode, Extents, FusedNode, ModelFrame, VertexKind};
use crate::model::graph::{Model, ParamPath, ValueId};
use crate::model::lengths::Length;
use crate::model::lower::{Lowering, RegionBuilder, is_without_bias, names_of_axes};
use crate::model::syntax::first;
use crate::model::types::{Axis, Type};
use crate::spec::keys::{Key, KeyKind, Word, plain};
use crate::spec::parse::Value;
use crate::spec::{Real, Size};

const AXIS: Key = Key {
    name: "axis",
    kind: KeyKind::Axes,
    default: "required",
    doc: "Along which axes.",
};

const CHANNELS: Key = Key {
    name: "channels",
    kind: KeyKind::Axes,
    default: "the last axis",
    doc: "The axis of the channels, whose size is constant.",
};

const SAME: Word = plain(
    "same",
    "As many zeros as make the result as long as the operand, one more behind it if their number is odd.",
);
const CAUSAL: Word = plain(
    "causal",
    "All zeros before the axis: no result reads later places.",
);

const GROUPS: Key = layer::size(
    "groups",
    "`1`",
    "The number of groups, of channels of the operand and of the result; the number of channels makes it depthwise.",
);

const fn sizes(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    padding(name, default, doc, &[])
}

const fn padding(
    name: &'static str,
    default: &'static str,
    doc: &'static str,
    words: &'static [Word],
) -> Key {
    Key {
        name,
        kind: KeyKind::SizePerAxis(words),
        default,
        doc,
    }
}

const OUT: Key = layer::size("out", "required", "The channels of the result.");
const KERNEL: Key = sizes("kernel", "required", "The length of a window.");
const STRIDE: Key = sizes("stride", "`1`", "The distance from one window to the next.");
const DILATION: Key = sizes(
    "dilation",
    "`1`",
    "The distance from one number of a window to the next.",
);
const BIAS: Key = layer::bias("`true`", "Whether a learned bias is added.");
const INIT: Key = layer::init(
    "uniform within `1 / sqrt(numbers of a window)`",
    "Distribution of the weight before training. That of the bias stays.",
);
const OUTPUT_PADDING: Key = sizes(
    "output_padding",
    "`0`",
    "How many numbers more the result has at its end.",
);
const CUT: Key = sizes(
    "padding",
    "`0`",
    "How many numbers are left out at both ends of the result.",
);

pub(super) static CONV1D: Operation = Operation {
    name: "conv1d",
    keys: &[
        AXIS,
        OUT,
        KERNEL,
        STRIDE,
        padding(
            "padding",
            "`0`",
            "How many zeros stand at both ends of the axis.",
            &[SAME, CAUSAL],
        ),
        DILATION,
        GROUPS,
        CHANNELS,
        BIAS,
        INIT,
        TO,
    ],
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, in]` to `[.., (a + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1, out]`",
    doc: "A convolution over an axis. PyTorch: `torch.nn.Conv1d`, whose channels come before the axis.",
    lower: Lower::Operands(1..=1, &lower_conv1d),
};

pub(super) static CONV2D: Operation = Operation {
    name: "conv2d",
    keys: &[
        AXIS,
        OUT,
        KERNEL,
        STRIDE,
        padding(
            "padding",
            "`0`",
            "How many zeros stand at both ends of the axes.",
            &[SAME],
        ),
        DILATION,
        GROUPS,
        CHANNELS,
        BIAS,
        INIT,
        TO,
    ],
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, b, in]` to `[.., new, new, out]`",
    doc: "A convolution over two axes: `conv2d::<[height, width], out = 64, kernel = 3, channels = c>(x)`. PyTorch: `torch.nn.Conv2d`, whose channels come before the axes.",
    lower: Lower::Operands(1..=1, &lower_conv2d),
};

const TRANSPOSED: &[Key] = &[
    AXIS,
    OUT,
    KERNEL,
    STRIDE,
    CUT,
    OUTPUT_PADDING,
    DILATION,
    GROUPS,
    CHANNELS,
    BIAS,
    INIT,
    TO,
];

pub(super) static CONV_TRANSPOSE1D: Operation = Operation {
    name: "conv_transpose1d",
    keys: TRANSPOSED,
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, in]` to `[.., (a - 1) * stride + dilation * (kernel - 1) + 1 + output_padding - 2 * padding, out]`",
    doc: "The derivative of a convolution over an axis, as a layer: a longer axis. PyTorch: `torch.nn.ConvTranspose1d`.",
    lower: Lower::Operands(1..=1, &lower_conv_transpose1d),
};

pub(super) static CONV_TRANSPOSE2D: Operation = Operation {
    name: "conv_transpose2d",
    keys: TRANSPOSED,
    positional: 3,
    may_be_tied: false,
    signature: "`[.., a, b, in]` to `[.., new, new, out]`",
    doc: "The same over two axes. PyTorch: `torch.nn.ConvTranspose2d`.",
    lower: Lower::Operands(1..=1, &lower_conv_transpose2d),
};

macro_rules! lower {
    ($($name:ident: $axes:literal, $is_transposed:literal;)*) => {$(
        fn $name(
            lowering: &mut Lowering<'_>,
            call: &CallSite<'_>,
            builder: &mut RegionBuilder,
        ) -> Option<ValueId> {
            lower(lowering, call, builder, Kind { axes: $axes, is_transposed: $is_transposed })
        }
    )*};
}

lower! {
    lower_conv1d: 1, false;
    lower_conv2d: 2, false;
    lower_conv_transpose1d: 1, true;
    lower_conv_transpose2d: 2, true;
}

#[derive(Clone, Copy)]
struct Kind {
    /// The number of axes that it goes along.
    axes: usize,
    is_transposed: bool,
}

/// How windows slide along an axis.
struct Slide {
    kernel: Size,
    stride: Size,
    before: Size,
    after: Size,
    dilation: Size,
    more: Size,
}

impl Slide {
    /// The indices from the first to the last number of a window.
    fn reach(&self) -> Size {
        match self.dilation.value {
            Some(1) => self.kernel.clone(),
            _ => self.steps().plus(&Size::known(1)),
        }
    }

    fn steps(&self) -> Size {
        self.dilation.times(&self.kernel.minus(&Size::known(1)))
    }

    fn padding(&self) -> Size {
        sum(&self.before, &self.after)
    }

    /// As a type.
    fn ty(&self, krate: &TokenStream) -> TokenStream {
        let sizes = [
            &self.stride,
            &self.before,
            &self.after,
            &self.dilation,
            &self.more,
        ];
        let sizes = sizes.map(Size::arg);
        quote!(#krate::nn::Slide<#(#sizes),*>)
    }
}

/// `a + b`, without a 0.
fn sum(a: &Size, b: &Size) -> Size {
    match (a.value, b.value) {
        (Some(0), _) => b.clone(),
        (_, Some(0)) => a.clone(),
        _ => a.plus(b),
    }
}

fn lower(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    builder: &mut RegionBuilder,
    kind: Kind,
) -> Option<ValueId> {
    let x = lowering.floats_of(call)?;
    let out = lowering.required(call, "out");
    let slides = slides(lowering, call, kind);
    let along = lowering.required_axes(call, &x)?;
    if along.len() != kind.axes {
        let message = messages::convolved_axes(call.at, kind.axes, along.len());
        lowering.error(call.at.span(), message);
        return None;
    }
    let (place, input) = channels(lowering, call, &x, &along)?;
    let groups = match call.arguments.is_given("groups") {
        true => lowering.required(call, "groups"),
        false => Some(Size::known(1)),
    };
    let (out, slides, groups) = (out?, slides?, groups?);
    divides(lowering, &groups, &input)?;
    divides(lowering, &groups, &out)?;

    let mut axes = x.axes.clone();
    let mut least = Vec::new();
    let names = names_of_result(lowering, call, kind)?;
    for ((index, slide), name) in along.iter().zip(&slides).zip(names) {
        let axis = &x.axes[*index];
        let (length, needed) = match kind.is_transposed {
            false => length(lowering, call, axis, slide)?,
            true => transposed_length(lowering, call, axis, slide)?,
        };
        least.push(needed);
        axes[*index] = lowering.resized_to(call, axis, &length, name.as_ref())?;
    }
    axes[place] = Axis::Size(out.clone());
    let ty = Type::floats(axes);

    let layer = Weights {
        kind,
        input: input.clone(),
        out: out.clone(),
        groups: groups.clone(),
        slides,
        bias: !call.arguments.entries.iter().any(is_without_bias),
    };
    let kernel = layer.slides.iter().map(|slide| slide.kernel.clone());
    let kernel = kernel.collect();
    let order = Order::of(&x, &along, place);
    let node = Convolution {
        name: call.operation.name,
        kind,
        along: along.iter().map(|index| x.axes[*index].clone()).collect(),
        indices: along.iter().map(|index| order.place(*index)).collect(),
        least,
        layout: order.layout,
        channels: if kind.is_transposed { out } else { input },
        groups,
        kernel,
        place: lowering.layer(call, layer, &ty, builder),
    };
    let operand = call.operands[0];
    if order.axes.is_sorted() {
        return Some(lowering.node(builder, node, vec![operand], (call.result, ty)));
    }
    let ordered = Permute::new(order.axes.clone());
    let x = (call.operation.name, order.apply(&x));
    let operand = lowering.node(builder, ordered, vec![operand], x);
    let y = (call.operation.name, order.apply(&ty));
    let y = lowering.node(builder, node, vec![operand], y);
    let back = Permute::new(order.back());
    Some(lowering.node(builder, back, vec![y], (call.result, ty)))
}

/// How windows slide along each axis.
fn slides(lowering: &mut Lowering<'_>, call: &CallSite<'_>, kind: Kind) -> Option<Vec<Slide>> {
    let kernel = per_axis(lowering, call, "kernel", kind.axes, None);
    let stride = per_axis(lowering, call, "stride", kind.axes, Some(1));
    let dilation = per_axis(lowering, call, "dilation", kind.axes, Some(1));
    let more = match kind.is_transposed {
        true => per_axis(lowering, call, "output_padding", kind.axes, Some(0)),
        false => Some(vec![Size::known(0); kind.axes]),
    };
    let word = call.arguments.word("padding");
    let padding = match word {
        None => per_axis(lowering, call, "padding", kind.axes, Some(0)),
        Some(_) => Some(vec![Size::known(0); kind.axes]),
    };
    let (kernel, stride, dilation) = (kernel?, stride?, dilation?);
    let (padding, more) = (padding?, more?);
    let mut slides = Vec::with_capacity(kind.axes);
    for axis in 0..kind.axes {
        let mut slide = Slide {
            kernel: kernel[axis].clone(),
            stride: stride[axis].clone(),
            before: padding[axis].clone(),
            after: padding[axis].clone(),
            dilation: dilation[axis].clone(),
            more: more[axis].clone(),
        };
        match word {
            Some("same") => {
                same(lowering, call, &slide.stride)?;
                let steps = slide.steps();
                slide.before = Size::derive(
                    steps.value.map(|steps| steps / 2),
                    quote!(((#steps) / 2)),
                    format!("({steps}) / 2"),
                );
                slide.after = steps.minus(&slide.before);
            }
            Some(_) => slide.before = slide.steps(),
            None => {}
        }
        has_room(lowering, call, &slide)?;
        slides.push(slide);
    }
    Some(slides)
}

/// `padding = same` needs a stride of 1.
fn same(lowering: &mut Lowering<'_>, call: &CallSite<'_>, stride: &Size) -> Option<()> {
    let message = messages::same_with_stride(call.at, stride);
    match stride.value {
        Some(1) => {}
        Some(_) => {
            lowering.error(first(&stride.origin), message);
            return None;
        }
        None => lowering.assume(vec![quote!(#stride == 1)], first(&stride.origin), message),
    }
    Some(())
}

/// `output_padding` says which of the lengths is meant that a convolution would make equal, so it is less than the stride or the dilation.
fn has_room(lowering: &mut Lowering<'_>, call: &CallSite<'_>, slide: &Slide) -> Option<()> {
    let Slide {
        more,
        stride,
        dilation,
        ..
    } = slide;
    if more.value == Some(0) {
        return Some(());
    }
    let message = messages::output_padding_too_large(call.at, more, stride, dilation);
    let at = first(&more.origin);
    match (more.value, stride.value, dilation.value) {
        (Some(more), Some(stride), Some(dilation)) if more < stride.max(dilation) => {}
        (Some(_), Some(_), Some(_)) => {
            lowering.error(at, message);
            return None;
        }
        _ => {
            let conditions = vec![quote!(#more < #stride || #more < #dilation)];
            lowering.assume(conditions, at, message);
        }
    }
    Some(())
}

/// The sizes of a key: one for each axis, or one for all of them. Without a default they are required. All but those of paddings are at
/// least 1.
fn per_axis(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    key: &str,
    axes: usize,
    default: Option<u64>,
) -> Option<Vec<Size>> {
    let sizes = match (call.arguments.value(key), default) {
        (Some(Value::Sizes(sizes)), _) => sizes.clone(),
        (Some(_), _) => return None,
        (None, Some(default)) => return Some(vec![Size::known(default); axes]),
        (None, None) => {
            if call.arguments.complete {
                let message = messages::missing_key_of(call.at, key);
                lowering.error(call.at.span(), message);
            }
            return None;
        }
    };
    if sizes.len() != 1 && sizes.len() != axes {
        let at = sizes
            .first()
            .map_or(call.at.span(), |size| first(&size.origin));
        let message = messages::sizes_of_axes(key, axes, sizes.len());
        lowering.error(at, message);
        return None;
    }
    if default != Some(0) {
        for size in &sizes {
            let at = first(&size.origin);
            if !lowering.at_least_one(size, at, messages::zero_size(key)) {
                return None;
            }
        }
    }
    Some(sizes.iter().cycle().take(axes).cloned().collect())
}

/// The index and the size of the axis of the channels.
fn channels(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    x: &Type,
    along: &[usize],
) -> Option<(usize, Size)> {
    let index = match call.arguments.tokens("channels").cloned() {
        Some(tokens) => lowering.index_of_axis(&tokens, x)?,
        None if call.arguments.is_given("channels") => return None,
        None => x.axes.len().checked_sub(1)?,
    };
    match &x.axes[index] {
        axis if along.contains(&index) => {
            let message = messages::channels_along(call.at, axis, x);
            lowering.error(call.at.span(), message);
            None
        }
        Axis::Size(size) => Some((index, size.clone())),
        Axis::Symbol(axis) => {
            let message = messages::convolved_channels(call.at, &axis.name, x);
            lowering.error(call.at.span(), message);
            None
        }
    }
}

/// The names that the key `to` has for the axes of the result.
fn names_of_result(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    kind: Kind,
) -> Option<Vec<Option<TokenStream>>> {
    let Some(tokens) = call.arguments.tokens("to") else {
        return Some(vec![None; kind.axes]);
    };
    let names = names_of_axes(tokens);
    if names.len() != kind.axes {
        let message = messages::names_of_axes(call.at, kind.axes, names.len());
        lowering.error(first(tokens), message);
        return None;
    }
    Some(names.into_iter().map(Some).collect())
}

/// The length of an axis of the result, and how long that of the operand must be, if only the call knows how long it is.
fn length(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    axis: &Axis,
    slide: &Slide,
) -> Option<(Length, Option<Size>)> {
    let (reach, padding) = (slide.reach(), slide.padding());
    let is_same = slide.stride.value == Some(1) && call.arguments.word("padding").is_some();
    if is_same {
        return Some((lowering.length(axis), None));
    }
    match axis {
        Axis::Size(len) => {
            let padded = sum(len, &padding);
            let message = || messages::window_too_large(call.at, &reach, axis, &padding);
            lowering.within(&reach, &padded, call.at.span(), message)?;
            let count = lowering.count_of_windows(&padded, &reach, &slide.stride);
            Some((Length::Constant(count), None))
        }
        Axis::Symbol(_) => {
            let padded = lowering
                .length(axis)
                .plus(Length::Constant(padding.clone()));
            let length = Length::windows(padded, &reach, &slide.stride);
            let least = reach.value.zip(padding.value);
            let least = Size::derive(
                least.map(|(reach, padding)| reach.saturating_sub(padding)),
                quote!(usize::saturating_sub(#reach, #padding)),
                format!("{reach} - {padding}"),
            );
            Some((length, (least.value != Some(0)).then_some(least)))
        }
    }
}

/// The same of a transposed convolution.
fn transposed_length(
    lowering: &mut Lowering<'_>,
    call: &CallSite<'_>,
    axis: &Axis,
    slide: &Slide,
) -> Option<(Length, Option<Size>)> {
    let reach = sum(&slide.reach(), &slide.more);
    let (stride, cut) = (&slide.stride, slide.padding());
    let least = lowering.least_windows(&reach, stride, &cut);
    match axis {
        Axis::Size(len) => {
            let message = || messages::nothing_left(call.at, axis, &cut);
            lowering.within(&least, len, call.at.span(), message)?;
            let length = lowering.length_of_windows(len, &reach, stride, &cut);
            Some((Length::Constant(length), None))
        }
        Axis::Symbol(_) => {
            let length = Length::of_windows(lowering.length(axis), &reach, stride, &cut);
            Some((length, (least.value != Some(0)).then_some(least)))
        }
    }
}

/// The order of axes that the kernel knows: those that it does not go along, then the others and the channels.
struct Order {
    /// For each axis, which one of the operand it is.
    axes: Vec<usize>,
    layout: &'static str,
}

impl Order {
    fn of(x: &Type, along: &[usize], channels: usize) -> Self {
        let is_other = |index: &usize| !along.contains(index) && *index != channels;
        let others = || (0..x.axes.len()).filter(is_other);
        let axes = || along.iter().copied();
        let first: Vec<usize> = others().chain([channels]).chain(axes()).collect();
        let last: Vec<usize> = others().chain(axes()).chain([channels]).collect();
        match first.is_sorted() {
            true => Order {
                axes: first,
                layout: "First",
            },
            false => Order {
                axes: last,
                layout: "Last",
            },
        }
    }

    /// The place of an axis of the operand.
    fn place(&self, axis: usize) -> usize {
        let place = self.axes.iter().position(|other| *other == axis);
        place.unwrap_or(axis)
    }

    fn apply(&self, ty: &Type) -> Type {
        let axes = self.axes.iter().map(|axis| ty.axes[*axis].clone());
        Type::floats(axes.collect())
    }

    /// The order of the operand again.
    fn back(&self) -> Vec<usize> {
        (0..self.axes.len()).map(|axis| self.place(axis)).collect()
    }
}

/// The layer.
struct Weights {
    kind: Kind,
    input: Size,
    out: Size,
    groups: Size,
    slides: Vec<Slide>,
    bias: bool,
}

impl Layer for Weights {
    fn ty(&self, krate: &TokenStream, rest: &TokenStream) -> TokenStream {
        let name = format!(
            "{}Conv{}{}d",
            if self.bias { "" } else { "Unbiased" },
            if self.kind.is_transposed {
                "Transpose"
            } else {
                ""
            },
            self.kind.axes
        );
        let name = format_ident!("{name}");
        let of_group = |channels: &Size| match self.groups.value {
            Some(1) => channels.arg(),
            _ => channels.over(&self.groups, krate).arg(),
        };
        let kernel = self.slides.iter().map(|slide| slide.kernel.arg());
        let slides = self.slides.iter().map(|slide| slide.ty(krate));
        let (input, out) = (self.input.arg(), self.out.arg());
        match self.kind.is_transposed {
            false => {
                let input = of_group(&self.input);
                quote!(#krate::nn::#name<#input, #out, #(#kernel,)* #(#slides),* #rest>)
            }
            true => {
                let of_group = of_group(&self.out);
                quote!(#krate::nn::#name<#input, #of_group, #(#kernel,)* #(#slides,)* #out #rest>)
            }
        }
    }

    fn label(&self) -> String {
        let name = match (self.kind.axes, self.kind.is_transposed) {
            (1, false) => CONV1D.name,
            (_, false) => CONV2D.name,
            (1, true) => CONV_TRANSPOSE1D.name,
            (_, true) => CONV_TRANSPOSE2D.name,
        };
        let kernel: Vec<_> = self
            .slides
            .iter()
            .map(|slide| slide.kernel.to_string())
            .collect();
        let groups = match self.groups.value {
            Some(1) => String::new(),
            _ => format!(", {} groups", self.groups),
        };
        let bias = if self.bias { "" } else { ", without bias" };
        let name = layer::label(name, &[&self.input, &self.out]);
        format!("{name}, kernel {}{groups}{bias}", kernel.join(" x "))
    }

    fn epsilon(&self) -> Option<&Real> {
        None
    }

    fn table(&self) -> Option<[&Size; 2]> {
        None
    }
}

struct Convolution {
    /// The name of the operation.
    name: &'static str,
    kind: Kind,
    place: ParamPath,
    /// The axes that it goes along, and their indices.
    along: Vec<Axis>,
    indices: Vec<usize>,
    /// How long they must be, if only the call knows how long they are.
    least: Vec<Option<Size>>,
    /// Where the channels are: `First` or `Last`.
    layout: &'static str,
    /// The channels that the groups divide in the weight.
    channels: Size,
    groups: Size,
    kernel: Vec<Size>,
}

impl Convolution {
    fn layout(&self) -> TokenStream {
        let layout: Ident = format_ident!("{}", self.layout);
        quote!(p::layers::Channels::#layout)
    }

    /// The lines that find axes that are too short.
    fn check(&self, model: &str, len: impl Fn(usize) -> TokenStream) -> Option<TokenStream> {
        let lines = self.least.iter().enumerate().filter_map(|(index, least)| {
            let (axis, least) = (self.along[index].to_string(), least.as_ref()?);
            let len = len(index);
            Some(quote!(p::check_at_least(#model, #axis, #len, #least)?;))
        });
        let lines: Vec<_> = lines.collect();
        (!lines.is_empty()).then(|| quote!(#(#lines)*))
    }

    /// The sizes of the operand and of the result.
    fn sizes(&self, of: &FusedNode<'_>) -> TokenStream {
        let (from, to) = (of.sizes(0), of.sizes_of_result());
        quote!([&[#(#from),*], &[#(#to),*]])
    }
}

impl Op for Convolution {
    fn properties(&self) -> Properties<'_> {
        Properties {
            saved: Saved::Operands,
            kept: None,
            fusion: Fusion::None,
        }
    }

    fn gradients(&self, _: usize) -> Vec<Gradient> {
        vec![Gradient::Computed]
    }
}

impl ModelOp for Convolution {
    fn description(&self) -> Description<'_> {
        Description {
            label: Label::Layer(&self.place),
            vertex: VertexKind::Linear,
            lookup: None,
            attention: None,
        }
    }

    fn decode(&self, _: &Model) -> Result<Decode, String> {
        for axis in &self.along {
            Decode::along(axis, self.name)?;
        }
        Ok(Decode::PerToken)
    }

    fn cost(&self, of: &Extents<'_>) -> Cost {
        let rows = match self.kind.is_transposed {
            false => of.result(),
            true => of.operand(0),
        };
        let (channels, groups, kernel) = (&self.channels, &self.groups, &self.kernel);
        let channels = match groups.value {
            Some(1) => quote!(#channels),
            _ => quote!(p::quotient(#channels, #groups)),
        };
        Cost {
            flops: Some(quote!(p::product(&[2, #(#rows,)* #channels, #(#kernel),*]))),
            ..Cost::none()
        }
    }

    fn check(&self, of: &FusedNode<'_>) -> Option<TokenStream> {
        let sizes = of.sizes(0);
        Convolution::check(self, &of.label(), |index| {
            sizes[self.indices[index]].clone()
        })
    }
}

impl Emit<ModelFrame<'_>> for Convolution {
    fn composed(&self, of: &ComposedNode<'_>) -> TokenStream {
        let x = of.operand(0);
        let check = Convolution::check(self, &of.label(), |index| of.size(&self.along[index]));
        let (place, layout, shape) = (of.place(&self.place), self.layout(), of.shape(0));
        let line = of.define(&quote!(convolve(&#x, &#place, #layout, #shape)));
        quote!(#check #line)
    }

    fn footprints(&self, _: &FusedNode<'_>) -> Footprints {
        Footprints::default()
    }

    fn forward(&self, of: &FusedNode<'_>, to: &Output) -> TokenStream {
        let weights = of.weights(&self.place);
        let (x, sizes, layout, y) = (of.slice(0), self.sizes(of), self.layout(), to.slice());
        quote!(#weights.forward(#x, #sizes, #layout, #y))
    }

    fn backward(&self, of: &FusedNode<'_>, gradients: &Gradients) -> TokenStream {
        let weights = of.weights(&self.place);
        let (x, sizes, layout) = (of.slice(0), self.sizes(of), self.layout());
        let (d_y, d_x) = (gradients.slice(), gradients.targets());
        quote!(#weights.backward(#x, #sizes, #layout, #d_y, #(&mut #d_x,)* gradients);)
    }
}
