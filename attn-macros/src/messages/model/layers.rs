//! Messages about the layers of a model.

use proc_macro2::Ident;

use crate::messages::choice;
use crate::model::types::{Axis, Type};
use crate::spec::Size;

pub(crate) fn positions_differ(ids: &Type, vectors: &Type) -> String {
    format!(
        "`position_ids` are a position for each token, with or without `batch`: the vectors are {vectors}, the positions {ids}"
    )
}

pub(crate) const OFFSET_OF_GIVEN_POSITIONS: &str = "`offset` is for positions that are counted, and `position_ids` are rows of the table\n\
     help: leave out `offset`, and add it to the ids";

pub(crate) fn offset_too_large(offset: &Size, max_len: &Size) -> String {
    format!(
        "`offset` is {offset}, and the table has {max_len} rows\n\
         help: `max_len` counts all rows, and the first position needs one: `max_len = {{ {offset} + 1 }}`"
    )
}

/// The last axis has the pairs, so it is not that of the positions.
pub(crate) fn rope_along_vectors(ty: &Type) -> String {
    match ty.axes.as_slice() {
        [_] => format!("`rope` takes vectors along an axis, as [.., seq, d], found {ty}"),
        _ => format!(
            "`rope` rotates pairs of the last axis, by the place along another one, found the last one of {ty}\n\
             help: name the axis of the positions: `rope::<seq>(x)`"
        ),
    }
}

/// `vectors`: the axes that positions may have. `named`: the one that they must have.
pub(crate) fn positions_of_rope(vectors: &Type, named: Option<&Axis>, found: &Type) -> String {
    let axes: Vec<_> = vectors.axes.iter().map(Axis::to_string).collect();
    let axes = axes.join(", ");
    let must = match named {
        Some(axis) => format!(", `{axis}` among them"),
        None => String::new(),
    };
    format!(
        "the second operand of `rope` are positions, ids with some of the axes [{axes}]{must}, found {found}"
    )
}

pub(crate) fn channels_of_any_number(axis: &str, ty: &Type) -> String {
    format!(
        "`group_norm` has a gain and a bias for every channel, so their number is constant, found the axis `{axis}` of {ty}\n\
        help: name the axis of the channels: `group_norm::<groups, axis = channels>(x)`"
    )
}

pub(crate) fn groups_do_not_divide(groups: &Size, channels: &Size) -> String {
    format!(
        "`groups` must divide the number of channels, found {groups} groups of {channels} channels"
    )
}

pub(crate) fn convolved_axes(operation: &Ident, expected: usize, found: usize) -> String {
    let help = match expected {
        1 => "`conv1d::<seq, out = 64, kernel = 3>(x)`",
        _ => "`conv2d::<[height, width], out = 64, kernel = 3>(x)`",
    };
    let expected = match expected {
        1 => "one axis",
        _ => "two axes",
    };
    format!("`{operation}` is along {expected}, found {found}\nhelp: {help}")
}

/// `others` are axes that may be those of the channels.
pub(crate) fn channels_along(
    operation: &Ident,
    axis: &Axis,
    others: &[&Axis],
    value: &Type,
) -> String {
    let word = |axis: &Axis| axis.name().map_or_else(|| axis.to_string(), str::to_owned);
    let others: Vec<_> = others
        .iter()
        .map(|axis| format!("`channels = {}`", word(axis)))
        .collect();
    let help = match others.as_slice() {
        [] => {
            "the channels are an axis of constant size, and the convolution goes along another one"
                .to_owned()
        }
        others => format!("write {}", choice(others)),
    };
    format!(
        "`{operation}` goes along `{}`, so this is no axis of channels: the channels of {value} are its last axis, unless \
         `channels` names another one\nhelp: {help}",
        word(axis)
    )
}

pub(crate) fn convolved_channels(operation: &Ident, axis: &str, value: &Type) -> String {
    format!(
        "`{operation}` has weights for every channel, so their number is constant, found the axis `{axis}` of {value}\n\
         help: name the axis of the channels: `channels = c`"
    )
}

pub(crate) fn sizes_of_axes(key: &str, expected: usize, found: usize) -> String {
    let help = match (key, expected, found) {
        ("padding", 1, 2) => {
            "\nhelp: unlike ends are padded before: `pad::<seq, before = 1, after = 2, to = longer>(x)`"
        }
        _ => "",
    };
    let expected = match expected {
        1 => "one size",
        _ => "one size for both axes, or two in brackets",
    };
    format!("`{key}` is {expected}, found {found}{help}")
}

pub(crate) fn names_of_axes(operation: &Ident, expected: usize, found: usize) -> String {
    let expected = match expected {
        1 => "one axis, `to = frames`",
        _ => "two axes, `to = [rows, columns]`",
    };
    format!("the result of `{operation}` has {expected}, found {found}")
}

pub(crate) fn same_with_stride(operation: &Ident, stride: &Size) -> String {
    format!(
        "`padding = same` makes the result of `{operation}` as long as its operand, so the stride is 1, found {stride}\n\
         help: write the padding as a number"
    )
}

pub(crate) fn window_too_large(
    operation: &Ident,
    reach: &Size,
    axis: &Axis,
    padding: &Size,
) -> String {
    let padding = match padding.value {
        Some(0) => String::new(),
        _ => format!(", with {padding} zeros around it"),
    };
    format!(
        "a window of `{operation}` has {reach} places, which do not fit an axis of size {axis}{padding}"
    )
}

pub(crate) fn nothing_left(operation: &Ident, axis: &Axis, cut: &Size) -> String {
    format!(
        "`{operation}` leaves out {cut} numbers, of more than an axis of size {axis} makes\nhelp: a smaller `padding`"
    )
}

pub(crate) fn output_padding_too_large(
    operation: &Ident,
    found: &Size,
    stride: &Size,
    dilation: &Size,
) -> String {
    format!(
        "the `output_padding` of `{operation}` must be less than the stride or the dilation, which are {stride} and {dilation}, found {found}"
    )
}

pub(crate) fn rows_and_groups_differ(x: &Type, ids: &Type) -> String {
    format!(
        "`grouped_linear`: one group for each row, or several: x is {x}, the groups are {ids}\n\
        help: of the axes of x before the last one and those of the ids, one list begins with the other, as in [batch, seq, 8] and ids[batch, seq, 2]"
    )
}

/// Why a model with this layer has no sessions.
pub(crate) fn session_capacity(name: &str) -> String {
    format!("the `capacity_factor` of its `{name}` counts all tokens, and later ones change it")
}

/// `names`: the loops that are there.
pub(crate) fn no_loop_to_tie<'a>(found: &Ident, names: impl Iterator<Item = &'a str>) -> String {
    format!(
        "there is no `repeat` named `{found}` to tie to\nhelp: {}",
        known(names, "the loops before")
    )
}

/// `names`: the calls of the block that are there.
pub(crate) fn no_call_to_tie<'a>(
    found: &Ident,
    block: &str,
    names: impl Iterator<Item = &'a str>,
) -> String {
    format!(
        "there is no call of `{block}` named `{found}` to tie to\nhelp: {}",
        known(names, "the calls before")
    )
}

pub(crate) fn other_rounds(tied: &Ident, rounds: &Size, found: &Size) -> String {
    format!("`{tied}` has {rounds} rounds, found {found}")
}

/// `names`: the layers of `within`, a loop or a call of a block.
pub(crate) fn no_layer_to_tie<'a>(
    name: &str,
    within: &str,
    names: impl Iterator<Item = &'a str>,
) -> String {
    format!(
        "the layers are those of `{within}`, which has no layer `{name}`\nhelp: {}",
        known(names, "its layers")
    )
}

pub(crate) fn another_layer_to_tie(
    name: &str,
    within: &str,
    [known, found]: &[String; 2],
) -> String {
    format!("the layers are those of `{within}`, where `{name}` is `{known}`, found `{found}`")
}

pub(crate) fn another_attention_to_tie(name: &str, [known, found]: &[String; 2]) -> String {
    format!(
        "the layers run a second time, where `{name}` has {known}, found {found}\n\
        help: a layer is the same both times; an `attend` that learns nothing may differ"
    )
}

fn known<'a>(names: impl Iterator<Item = &'a str>, what: &str) -> String {
    let names: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    match names.is_empty() {
        true => "there is none".to_owned(),
        false => format!("{what} are {}", names.join(", ")),
    }
}
