//! Messages about operations of `model!` that change shapes.

use proc_macro2::{Ident, TokenStream};

use crate::messages::quoted;
use crate::model::lengths::Length;
use crate::model::types::{Axis, Type};
use crate::spec::{Size, text};

const PATTERN: &str = "`rearrange::<[batch, (heads, d_head)] -> [batch, heads, d_head]>(x)` splits an axis, \
    `rearrange::<[batch, (heads, d_head)]>(x)` merges two";

pub(crate) fn expected_pattern(found: &TokenStream) -> String {
    format!(
        "expected axes in brackets, found {}\nhelp: {PATTERN}",
        quoted(found)
    )
}

pub(crate) const REARRANGE_WITHOUT_AXES: &str = "`rearrange` needs the axes of the result\n\
    help: `rearrange::<[batch, (heads, d_head)] -> [batch, heads, d_head]>(x)` splits an axis, \
    `rearrange::<[batch, (heads, d_head)]>(x)` merges two";

pub(crate) fn not_expanded(value: &Type, result: &Type) -> String {
    format!(
        "`expand`: {value} cannot be repeated to {result}\n\
         help: the result has all axes of the value, and others; an axis of size 1 can have any size there"
    )
}

/// A pattern of einops: `"b (h w) c -> b h w c"`
pub(crate) fn pattern_as_text(found: &str) -> String {
    format!(
        "axes stand in brackets, not in a text\nhelp: write `{}`",
        pattern_of_text(found)
    )
}

/// `rearrange::<[b, (h, w), c] -> [b, h, w, c]>(x)`
pub(super) fn pattern_of_text(found: &str) -> String {
    let side = |side: &str| {
        let spaced = side.replace('(', " ( ").replace(')', " ) ");
        let words: Vec<_> = spaced.split_whitespace().collect();
        let list = words.join(", ").replace("(, ", "(").replace(", )", ")");
        format!("[{list}]")
    };
    let sides: Vec<_> = found.trim_matches('"').split("->").map(side).collect();
    format!("rearrange::<{}>(x)", sides.join(" -> "))
}

pub(crate) const ELLIPSIS_OF_PATTERN: &str = "every axis has a name or a size here\n\
    help: write all axes: `rearrange::<[batch, seq, (heads, d_head)] -> [batch, heads, seq, d_head]>(x)`";

/// `(h w)`
pub(crate) fn blanks_in_pattern(found: &TokenStream) -> String {
    let all: Vec<_> = found.clone().into_iter().collect();
    let all: Vec<_> = all.iter().map(ToString::to_string).collect();
    format!(
        "expected `,` between two axes\nhelp: write `{}`",
        all.join(", ")
    )
}

/// `rows = batch`
pub(crate) fn name_of_no_group(found: &TokenStream) -> String {
    format!(
        "expected axes in parentheses behind `=`, found {}\n\
         help: `rows = (batch, seq)` gives a name to axes that are merged",
        quoted(found)
    )
}

pub(crate) fn axes_of_pattern(found: usize, value: &Type) -> String {
    format!(
        "{found} axes stand before `->`, and the value is {value}\n\
         help: write its {} axes, those that are split in parentheses",
        value.axes.len()
    )
}

/// A name that is written in the place of another axis.
pub(crate) fn another_axis(found: &TokenStream, axis: &Axis, value: &Type) -> String {
    format!(
        "expected the axis `{}` of {value}, found `{}`\n\
         help: before `->` stand the axes of the value, in their order",
        axis.name().map_or_else(|| axis.to_string(), str::to_owned),
        text::of(found)
    )
}

/// A second part whose size is to be found out.
pub(crate) fn second_unknown_part(found: &Ident, axis: &Axis, model: &Ident) -> String {
    format!(
        "the size of one part of `{axis}` can be found out, and `{found}` is a second one\n\
         help: a size of the model has a value: `struct {model}<{found} = 8>;`"
    )
}

pub(crate) fn indivisible(total: &Size, product: &Size) -> String {
    format!("an axis of size {total} cannot be split into parts of {product}")
}

/// Parts with another product than the axis.
pub(crate) fn uneven_parts(total: &Size, parts: &[Axis]) -> String {
    let parts: Vec<_> = parts.iter().map(Axis::to_string).collect();
    format!(
        "an axis of size {total} cannot be split into {}",
        parts.join(" times ")
    )
}

pub(crate) fn zero_part(axis: &Axis) -> String {
    format!("`{axis}` cannot be split into parts of size 0")
}

/// Parts of an axis of any length of which none can be found out.
pub(crate) fn unknown_parts(axis: &Axis, parts: &[TokenStream]) -> String {
    let parts: Vec<_> = parts.iter().map(text::of).collect();
    match axis {
        Axis::Symbol(axis) => format!(
            "`{}` is of any length, and it is not known to be `({})`\n\
             help: a new name among constants is found out: `(groups, 4)`",
            axis.name,
            parts.join(", ")
        ),
        Axis::Size(size) => format!(
            "an axis of size {size} has no part of any length, found `({})`",
            parts.join(", ")
        ),
    }
}

/// An axis that the result does not have.
pub(crate) fn axis_lost(axis: &Axis, split: &Type) -> String {
    format!(
        "the axis `{}` of {split} is missing in the result\n\
         help: `sum`, `mean` or an index such as `x[{0} = 0]` remove an axis",
        axis.name().map_or_else(|| axis.to_string(), str::to_owned)
    )
}

/// Axes of any length that are one axis without a name.
pub(crate) fn merged_without_name(length: &Length, parts: &[TokenStream]) -> String {
    let parts: Vec<_> = parts.iter().map(text::of).collect();
    format!(
        "an axis of length `{length}` needs a name\nhelp: write `rows = ({})`",
        parts.join(", ")
    )
}

/// An axis that gets longer or shorter without a name for what it is then.
pub(crate) fn axis_without_name(operation: &str, axis: &Axis, length: &Length) -> String {
    let example = match operation {
        "conv2d" | "conv_transpose2d" => format!("{operation}::<.., to = [rows, columns]>(..)"),
        "conv1d" => format!("conv1d::<{axis}, .., to = frames>(..)"),
        _ => format!("{operation}::<{axis}, to = longer, ..>(..)"),
    };
    format!(
        "`{axis}` is of any length, and an axis of length `{length}` needs a name\n\
         help: name it by the key `to`: `{example}`"
    )
}

pub(crate) fn axis_of_another_length(name: &Ident, known: &Length, found: &Length) -> String {
    format!(
        "the axis `{name}` has length `{known}`, and this one has `{found}`\nhelp: give it another name"
    )
}

/// The lengths of two axes that stand in the same place, the first of which an operation made, and perhaps the other, too.
pub(crate) fn lengths_differ(
    (made, of_made): (&str, &Length),
    (other, of_other): (&str, &Length),
    other_is_made: bool,
) -> String {
    if of_made == of_other {
        return format!(
            "`{made}` is as long as `{other}`, under a name of its own: write `{other}` where `{made}` is made"
        );
    }
    let lengths = match other_is_made {
        true => format!("`{made}` is `{of_made}`, and `{other}` is `{of_other}`"),
        false => format!("`{made}` is `{of_made}`, and `{other}` is of any length"),
    };
    match of_made.rounded_down() {
        Some((of, size)) if of == of_other => format!(
            "{lengths}, perhaps no multiple of {size}. Parts of it that `rearrange::<[.., (parts, {size}), ..] -> [.., parts, {size}, ..]>(..)` makes \
             are known to be all of it"
        ),
        _ => format!("{lengths}: they are not known to be equally long"),
    }
}

pub(crate) fn axis_of_another_size(name: &Ident, declared: &Size, found: &Size) -> String {
    format!("`{name}` is {declared}, and this axis has size {found}")
}

pub(crate) fn size_for_any_length(name: &Ident, length: &Length, model: &Ident) -> String {
    format!(
        "`{name}` is a size of `{model}`, and an axis of length `{length}` is of any length\n\
         help: give it a name that is none of a size"
    )
}

pub(crate) fn more_than_four_axes(operation: &Ident, found: &Type) -> String {
    format!(
        "a value has four axes at most, and the result of `{operation}` is {found}\n\
         help: neighbours in parentheses are one axis: `rearrange::<[batch, (heads, d_head)]>(x)`"
    )
}

pub(crate) const STACK_WITHOUT_AXES: &str = "`stack` needs the axes of the result\n\
    help: `stack::<[batch, 2, d_model]>(a, b)`";

/// Axes of which not one alone is new.
pub(crate) fn stacked_axes(found: &TokenStream, operand: &Type, count: usize) -> String {
    format!(
        "`stack`: the operands are {operand}, and the result cannot be {}\n\
         help: it has their axes in their order and a new one of size {count}",
        text::of(found)
    )
}

pub(crate) fn stacked_number(count: usize, found: &Axis) -> String {
    format!("`stack`: {count} operands are an axis of size {count}, found `{found}`")
}

pub(crate) const PAD_OF_NOTHING: &str = "`pad` needs the number of indices before or behind an axis\n\
    help: `pad::<seq, before = 1>(x)`, `pad::<d_model, before = 1, after = 2>(x)`";

pub(crate) const SHIFT_BY_NOTHING: &str = "`shift` needs a number of indices\n\
    help: `shift::<seq, 1>(x)` moves towards the end, `shift::<seq, -1>(x)` towards the start";

pub(crate) fn windows_too_large(size: &Size, axis: &Axis) -> String {
    format!("a window of {size} does not fit an axis of size {axis}")
}

pub(crate) fn expected_new_name(found: &TokenStream) -> String {
    format!(
        "expected a name for the axis of the result, found {}\nhelp: `to = longer`",
        quoted(found)
    )
}
