//! The shape of the result, and how windows slide.

use proc_macro2::TokenStream;
use quote::quote;

use super::keys::CAUSAL;
use super::layer::Weights;
use super::{Convolution, Kind, Order, Slide, sum};
use crate::messages::model as messages;
use crate::model::graph::ValueId;
use crate::model::lengths::Length;
use crate::model::lower::{Lowering, RegionBuilder, is_without_bias, names_of_axes};
use crate::model::syntax::first;
use crate::model::types::{Axis, Type};
use crate::ops::group_norm::divides;
use crate::ops::{CallSite, Permute};
use crate::spec::Size;
use crate::spec::parse::Value;

macro_rules! lower {
    ($($name:ident: $axes:literal, $is_transposed:literal;)*) => {$(
        pub(super) fn $name(
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
        recent: recent(&x, &along, place, &slides, call),
        slides,
        bias: !call.arguments.entries.iter().any(is_without_bias),
    };
    let (slides, bias) = (layer.slides.clone(), layer.bias);
    let kernel = layer.slides.iter().map(|slide| slide.kernel.clone());
    let kernel = kernel.collect();
    let order = Order::of(&x, &along, place);
    let node = Convolution {
        name: call.operation.name,
        kind,
        tokens: layer.recent.is_some().then(|| x.axes[..place].to_vec()),
        along: along.iter().map(|index| x.axes[*index].clone()).collect(),
        indices: along.iter().map(|index| order.place(*index)).collect(),
        least,
        layout: order.layout,
        channels: if kind.is_transposed { out } else { input },
        groups,
        kernel,
        slides,
        bias,
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
    let plain = |axis: usize| Slide {
        kernel: kernel[axis].clone(),
        stride: stride[axis].clone(),
        before: padding[axis].clone(),
        after: padding[axis].clone(),
        dilation: dilation[axis].clone(),
        more: more[axis].clone(),
    };
    let mut slides = Vec::with_capacity(kind.axes);
    for mut slide in (0..kind.axes).map(plain) {
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

/// The numbers of rows and columns that a session remembers: of a causal convolution along the last axis but that of the channels, where all
/// other axes are of any length.
fn recent(
    x: &Type,
    along: &[usize],
    channels: usize,
    slides: &[Slide],
    call: &CallSite<'_>,
) -> Option<[Size; 2]> {
    let [slide] = slides else { return None };
    let tokens = x.axes[..channels].iter();
    let is_recent = call.arguments.word("padding") == Some(CAUSAL.name)
        && slide.stride.value == Some(1)
        && channels + 1 == x.axes.len()
        && along == [channels.checked_sub(1)?]
        && tokens.clone().all(|axis| matches!(axis, Axis::Symbol(_)));
    is_recent.then(|| Some([slide.before.clone(), x.axes[channels].size()?.clone()]))?
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
            let may_be =
                |(other, axis): &(usize, &Axis)| axis.size().is_some() && !along.contains(other);
            let others = x.axes.iter().enumerate().filter(may_be);
            let others: Vec<_> = others.map(|(_, axis)| axis).collect();
            let message = messages::channels_along(call.at, axis, &others, x);
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
    let is_same = match call.arguments.word("padding") {
        Some("same") => true,
        Some(_) => slide.stride.value == Some(1),
        None => false,
    };
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
            let may_be_short = matches!(length, Length::Windows { .. }) && least.value != Some(0);
            Some((length, may_be_short.then_some(least)))
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
