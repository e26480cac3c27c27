//! Convolutions: each leaves the axes of a value as they are.

use super::operations::{SEQUENCE, along};
use super::writer::{Axis, Writer, width};

/// The axes that stand before the channels, of any size or of a constant one.
fn before_channels(axes: &[Axis], is_session: bool) -> Vec<Axis> {
    let before = axes[..axes.len().saturating_sub(1)].iter().copied();
    let of = before.filter(|axis| !is_session || axis.size().is_some());
    of.collect()
}

pub(super) fn conv1d(w: &mut Writer) -> Option<()> {
    let suits = |axes: &[Axis], axis: Axis| width(axes).is_some() && axes.last() != Some(&axis);
    let (x, axis) = along(w, suits)?;
    let axes = w.axes(x);
    let channels = axes.last()?.text();
    let x = w.read(x);
    let keys = match w.numbers.below(5) {
        0 => "2, padding = same".to_owned(),
        1 => "3, padding = 1, bias = false".to_owned(),
        2 => "2, padding = causal, dilation = 2".to_owned(),
        3 => format!("3, padding = same, groups = {channels}"),
        _ => "1".to_owned(),
    };
    let axis = axis.text();
    w.define(&format!("conv1d::<{axis}, {channels}, {keys}>({x})"), axes)
}

/// Along the tokens, also in a session.
pub(super) fn causal(w: &mut Writer) -> Option<()> {
    let x = w.find(|axes| *axes == SEQUENCE)?;
    let axes = w.axes(x);
    let x = w.read(x);
    let keys = *w
        .numbers
        .pick(&["3", "2, dilation = 2, groups = 2", "4, groups = d"]);
    w.define(
        &format!("conv1d::<seq, d, {keys}, padding = causal>({x})"),
        axes,
    )
}

pub(super) fn conv2d(w: &mut Writer) -> Option<()> {
    over_two_axes(w, |w| {
        let padding = ["[2, 3], padding = same", "3, padding = 1"];
        ("conv2d", *w.numbers.pick(&padding))
    })
}

pub(super) fn conv_transpose1d(w: &mut Writer) -> Option<()> {
    let suits = |axes: &[Axis], axis: Axis| width(axes).is_some() && axes.last() != Some(&axis);
    let (x, axis) = along(w, suits)?;
    let axes = w.axes(x);
    let (axis, channels) = (axis.text(), axes.last()?.text());
    let x = w.read(x);
    let keys = *w.numbers.pick(&["3, padding = 1", "1"]);
    w.define(
        &format!("conv_transpose1d::<{axis}, {channels}, {keys}>({x})"),
        axes,
    )
}

pub(super) fn conv_transpose2d(w: &mut Writer) -> Option<()> {
    over_two_axes(w, |_| {
        ("conv_transpose2d", "[3, 1], padding = [1, 0], bias = false")
    })
}

fn over_two_axes(
    w: &mut Writer,
    call: impl Fn(&mut Writer) -> (&'static str, &'static str),
) -> Option<()> {
    let is_session = w.is_session;
    let suits =
        |axes: &[Axis]| width(axes).is_some() && before_channels(axes, is_session).len() > 1;
    let x = w.find(suits)?;
    let axes = w.axes(x);
    let along = before_channels(&axes, is_session);
    let [.., a, b] = along.as_slice() else {
        return None;
    };
    let (a, b, channels) = (a.text(), b.text(), axes.last()?.text());
    let x = w.read(x);
    let (name, keys) = call(w);
    w.define(
        &format!("{name}::<[{a}, {b}], {channels}, {keys}>({x})"),
        axes,
    )
}
