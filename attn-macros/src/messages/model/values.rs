//! Messages about values of `model!`: their axes, their parts, learned tensors.

use proc_macro2::{Ident, TokenStream};

use super::LAST_AXIS;
use crate::messages::{did_you_mean, listed, quoted};
use crate::model::types::{Axis, Same, Type, ValueKind};
use crate::ops::Operation;
use crate::spec::keys::nearest;
use crate::spec::{Real, Size, text};

pub(crate) const EXPECTED_PARAM: &str = "expected a learned tensor: `param name: [axes] = initial_values;`\n\
    help: `param token: [1, d_model] = normal(0.02);`";

pub(crate) const EXPECTED_END_OF_PARAM: &str = "expected `;` behind the initial values of a learned tensor\n\
    help: `param token: [1, d_model] = normal(0.02);`";

/// `param mut name`, or an assignment to the name.
pub(crate) fn param_changes(name: &Ident) -> String {
    format!(
        "`{name}` is a learned tensor, and only training changes it\n\
         help: begin with a variable of the same name: `let mut {name} = {name};`"
    )
}

/// `let (a, _)`, `let (mut a, b)`, `let [a, b]`
pub(crate) fn expected_names(found: &TokenStream) -> String {
    format!(
        "expected a name for each part, found {}\n\
         help: `let (a, b) = split::<axis>(x);`; the name of an unused part begins with `_`, and `let mut a = a;` declares one that changes",
        quoted(found)
    )
}

/// An axis of a learned tensor or of a buffer whose size only the call knows.
pub(crate) fn axis_of_param(axis: &str, (what, param): (&str, &Ident), model: &Ident) -> String {
    let what = what.trim_start_matches("a ");
    format!(
        "`{axis}` is an axis of any length, and the {what} `{param}` has one size at every call\n\
         help: a size of the model is declared as one: `struct {model}<{axis} = 8>;`"
    )
}

pub(crate) fn param_of_indices(what: &str, param: &Ident, found: &Type) -> String {
    format!(
        "{what} is made of floats, and `{param}` is {found}\nhelp: leave out `{}`",
        found.kind.prefix()
    )
}

/// `x[0]`, `x[:, 0]`, `x[seq]`
pub(crate) fn expected_part(found: &TokenStream) -> String {
    format!(
        "expected an axis and an index or a range of it, found {}\n\
         help: `x[seq = 0]` is the first index of `seq`, `x[seq = -1]` the last one, and `x[seq = 2..-1]` a range",
        quoted(found)
    )
}

pub(crate) fn expected_index(found: &TokenStream) -> String {
    let text = text::of(found);
    let help = match text.split_once(':') {
        Some((start, end)) => format!("a range is `{}..{}`", start.trim(), end.trim()),
        None => "it is a constant, counted from the start or from the end: `0`, `-1`, `FIRST`, `{ 2 * N }`".to_owned(),
    };
    format!("expected an index, found {}\nhelp: {help}", quoted(found))
}

/// An index that an axis does not have. The size is that of the axis, if it is a constant.
pub(crate) fn no_such_index(
    index: &TokenStream,
    axis: &TokenStream,
    size: Option<&Size>,
) -> String {
    let size = size.map_or(String::new(), |size| format!(", whose size is {size}"));
    format!(
        "there is no index `{}` of `{}`{size}\nhelp: the first index is 0, and the last one is -1",
        text::of(index),
        text::of(axis)
    )
}

pub(crate) fn range_beyond(range: &str, axis: &TokenStream, size: &Size) -> String {
    format!(
        "the range `{range}` goes beyond `{}`, whose size is {size}",
        text::of(axis)
    )
}

pub(crate) fn empty_range(range: &str, axis: &TokenStream) -> String {
    format!(
        "the range `{range}` of `{}` is empty\nhelp: its end is greater than its start",
        text::of(axis)
    )
}

/// A range of an axis of any length whose own length is no constant.
pub(crate) fn range_of_any_length(range: &str, axis: &TokenStream) -> String {
    let axis = text::of(axis);
    format!(
        "`{axis}` is of any length, so the length of its range `{range}` is no constant\n\
         help: count both ends from the start, `{axis} = 0..4`, or both from the end, `{axis} = -4..`"
    )
}

pub(crate) fn split_of_any_length(axis: &Axis, model: &Ident) -> String {
    format!(
        "`{axis}` is of any length, and `split` needs a constant size\n\
         help: a size of the model is declared as one: `struct {model}<{axis} = 8>;`"
    )
}

/// An operation with several results in the place of one value.
pub(crate) fn parts_without_names(operation: &Operation) -> String {
    let name = operation.name;
    let example = match name {
        "top_k" => "let (values, ids) = top_k::<axis, k = 2>(x);",
        _ => "let (a, b) = split::<axis>(x);",
    };
    format!("`{name}` has several results, and each needs a name\nhelp: `{example}`")
}

pub(crate) fn uneven_split(size: &Size, parts: usize) -> String {
    format!("an axis of size {size} cannot be split into {parts} equal parts")
}

pub(crate) const NO_AXIS_NAMED: &str =
    "expected the name of an axis, found none\nhelp: several stand in brackets: `[seq, d_model]`";

/// Several axes for an operation along one.
pub(crate) fn along_one_axis(operation: &Ident, found: usize) -> String {
    format!("`{operation}` is along one axis, found {found}")
}

pub(crate) fn axis_twice(found: &TokenStream) -> String {
    format!("the axis `{}` is named twice", text::of(found))
}

/// An axis that a value does not have.
pub(crate) fn no_such_axis(found: &TokenStream, value: &Type) -> String {
    let found = text::of(found);
    let axes = value.axes.iter();
    let axes: Vec<_> = axes
        .map(|axis| axis.name().map_or_else(|| axis.to_string(), str::to_owned))
        .collect();
    let names = || axes.iter().map(String::as_str);
    let help = did_you_mean(nearest(&found, names()), || match axes.as_slice() {
        [] => "it has none".to_owned(),
        _ => format!("write {}", listed(names())),
    });
    format!("there is no axis `{found}` in {value}\n{help}")
}

/// Several axes of a value that have the asked size.
pub(crate) fn ambiguous_axis(found: &TokenStream, value: &Type, model: &Ident) -> String {
    format!(
        "`{}` is more than one axis of {value}\n\
         help: axes are told apart by their names: `struct {model}<rows = 8, cols = 8>;`, and by `to` where an operation makes them",
        text::of(found)
    )
}

/// `lengths`: what is known of axes of any length that differ.
pub(crate) fn operands_differ(
    operator: &str,
    left: &Type,
    right: &Type,
    lengths: Option<String>,
) -> String {
    let is_floats = |ty: &Type| ty.kind == ValueKind::Floats;
    let help = if !is_floats(left) || !is_floats(right) {
        AS_FLOATS.to_owned()
    } else if let Some(lengths) = lengths {
        lengths
    } else if let Some(pairs) = all_pairs(left, right) {
        format!(
            "no axis is common to both. For all pairs of their numbers one of them is repeated: `expand::<{pairs}>(left)`"
        )
    } else {
        "the axes of one are among those of the other. If both have as many axes, one of size 1 is repeated".to_owned()
    };
    format!("`{operator}`: left is {left}, right is {right}\nhelp: {help}")
}

/// The type of all pairs of numbers, if two values have no axis in common.
fn all_pairs(left: &Type, right: &Type) -> Option<Type> {
    let is_common = |axis: &Axis| {
        let mut others = right.axes.iter();
        others.any(|other| !matches!(axis.same(other), Same::No))
    };
    let axes = [&left.axes[..], &right.axes].concat();
    // Two widths that differ are a mistake.
    let are_widths = [left, right].map(|ty| matches!(ty.axes.last(), None | Some(Axis::Size(_))));
    let is_apart = !left.axes.iter().any(is_common) && are_widths != [true, true];
    (is_apart && axes.len() <= 4).then(|| Type::new(ValueKind::Floats, &axes))
}

const AS_FLOATS: &str = "`float(x)` are ids, lengths or a mask as floats";

pub(crate) fn expected_floats(what: &str, found: &Type) -> String {
    format!("`{what}` takes floats, found {found}\nhelp: {AS_FLOATS}")
}

pub(crate) fn takes(operation: &Ident, expected: &str, found: &Type) -> String {
    format!("`{operation}` takes {expected}, found {found}")
}

/// An operation that needs a constant for a width.
pub(crate) fn width_is_an_axis(
    operation: &Ident,
    axis: &str,
    model: &Ident,
    found: &Type,
) -> String {
    format!(
        "{}\nhelp: a size is declared as one: `struct {model}<{axis} = 8>;`",
        takes(operation, LAST_AXIS, found)
    )
}

pub(crate) const EXPECTED_AXES_OF_AS: &str = "expected axes in brackets behind `as`\n\
    help: `x as [batch, kv = seq, d_model]` is `x`, whose axis `seq` is called `kv`";

/// The axes of a value, as an `as` lists them.
fn axes_of_as(value: &Type) -> String {
    format!("x as {value}")
}

pub(crate) fn not_all_axes_of_as(found: usize, value: &Type) -> String {
    format!(
        "`as` lists all axes of {value}, found {found}\n\
         help: `{}`, with `new =` before an axis that gets another name",
        axes_of_as(value)
    )
}

/// `lengths`: what is known of the two axes, if they are of any length.
pub(crate) fn another_axis_of_as(
    found: &TokenStream,
    index: usize,
    value: &Type,
    lengths: Option<String>,
) -> String {
    let help = lengths.unwrap_or_else(|| {
        format!(
            "`as` lists the axes in their order: `{}`; `permute` changes it",
            axes_of_as(value)
        )
    });
    format!(
        "axis {} of {value} is not `{}`\nhelp: {help}",
        index + 1,
        text::of(found)
    )
}

pub(crate) fn two_axes_of_one_name(name: &str, axis: &TokenStream) -> String {
    format!(
        "two axes would have the name `{name}`\nhelp: give one of them another: `other = {}`",
        text::of(axis)
    )
}

/// A name for an axis that is that of another one.
pub(crate) fn name_of_another_size(name: &str, known: &Axis, found: &Axis) -> String {
    let known = match known {
        Axis::Symbol(symbol) => symbol.length.clone(),
        Axis::Size(size) => size.to_string(),
    };
    format!(
        "`{name}` is an axis of length `{known}`, and this one is `{found}`\n\
         help: axes of one name have one length; give it a name that no axis has"
    )
}

pub(crate) const MATRIX_PRODUCT: &str = "there is no operator `@`\n\
    help: a matrix product is `einsum::<[batch, seq, e]>(x, w)`, with the axes of the result";

pub(crate) const EINSUM_WITHOUT_AXES: &str = "`einsum` needs the axes of the result\n\
    help: `einsum::<[batch, seq, e]>(x, w)`; axes are the same by their names, and those that the result lacks are summed over";

/// `einsum("bsd,de->bse", x, w)`
pub(crate) fn einsum_of_text(found: &str) -> String {
    format!(
        "`einsum` takes the axes of the result by their names, found `{found}`\n\
         help: PyTorch's `\"bsd,de->bse\"` is `einsum::<[batch, seq, e]>(x, w)`; `x as [batch, kv = seq, d]` gives an axis another name"
    )
}

pub(crate) fn no_operand_has_axis(found: &TokenStream, operands: &[Type]) -> String {
    let found = text::of(found);
    let types: Vec<_> = operands.iter().map(Type::to_string).collect();
    let names = operands.iter().flat_map(|ty| &ty.axes);
    let names: Vec<_> = names.filter_map(Axis::name).collect();
    let help = did_you_mean(nearest(&found, names.iter().copied()), || {
        "the result has axes of the operands".to_owned()
    });
    format!(
        "no operand of `einsum` has the axis `{found}`: {}\n{help}",
        types.join(", ")
    )
}

/// An operand of `einsum` with an axis that may be two.
pub(crate) fn axis_of_einsum_twice(axis: &Axis, operand: &Type) -> String {
    format!(
        "`einsum`: `{axis}` of {operand} may be two axes\n\
         help: `as` gives each a name of its own: `x as [rows = {axis}, cols = {axis}]`"
    )
}

pub(crate) fn einsum_sizes_differ(axis: &Axis, other: &Axis) -> String {
    let name = axis.name().or(other.name()).unwrap_or_default();
    format!("`einsum`: `{name}` is {axis} in one operand, and {other} in another")
}

pub(crate) fn too_many_axes(operation: &str, found: usize, most: usize) -> String {
    format!("the result of this `{operation}` has {found} axes, and a value has at most {most}")
}

/// `x[ids]` of a single number.
pub(crate) fn no_first_axis(index: &TokenStream, value: &Type) -> String {
    format!(
        "`{}` is of the first axis, and {value} has none",
        text::of(index)
    )
}

/// A value in the place of an index that is not made of ids.
pub(crate) fn expected_ids(index: &TokenStream, found: &Type) -> String {
    format!(
        "`{}`: an axis is indexed by constants or by ids, found {found}\n\
         help: ids are an input, `last: ids[batch]`, or computed: `argmax::<seq>(x)`",
        text::of(index)
    )
}

/// `lens - 1` as an index.
pub(crate) fn computed_index(index: &TokenStream) -> String {
    format!(
        "an index is a constant or ids, and ids have no arithmetic, found {}\n\
         help: give these ids to the model as an input: `last: ids[batch]`, and `x[seq = last]`",
        quoted(index)
    )
}

pub(crate) const NO_INDEX_LISTED: &str = "expected indices, found none\nhelp: `x[heads = [0, 2]]`";

/// Computed ids that are indices of a longer axis.
pub(crate) fn ids_beyond(what: &str, below: &Size, size: &Size) -> String {
    format!(
        "`{what}`: the ids are below {below}, and the axis has size {size}\n\
         help: index an axis of size {below} or more"
    )
}

/// Ids with an axis that is not one axis of the value.
pub(crate) fn ambiguous_ids(axis: &Axis, ids: &Type, value: &Type) -> String {
    format!(
        "`{axis}` of {ids} is not one axis of {value}\n\
         help: axes of the ids are those of the same names of the value, and every name is there once"
    )
}

pub(crate) fn too_many_axes_of_index(what: &str, found: &Type, most: usize) -> String {
    format!(
        "`{what}` has {} axes, {found}, and a value has at most {most}",
        found.axes.len()
    )
}

pub(crate) fn argmax_of_nothing(size: &Size) -> String {
    format!("there is no largest number along an axis of size {size}")
}

pub(crate) fn top_k_names(found: usize) -> String {
    let names = if found == 1 { "name" } else { "names" };
    format!(
        "`top_k` has two results, found {found} {names}\n\
         help: `let (values, ids) = top_k::<axis, k = 2>(x);`; the name of an unused one begins with `_`"
    )
}

pub(crate) fn top_k_beyond(k: &Size, size: &Size) -> String {
    format!("`top_k`: there are no {k} numbers along an axis of size {size}")
}

/// A result of `scatter_add` whose indexed axis is not the only one that the operand lacks.
pub(crate) fn scatter_axis(to: &Type, x: &Type, missing: usize) -> String {
    let found = match missing {
        0 => format!("{x} has all axes of {to}"),
        _ => format!("{x} lacks {missing} axes of {to}"),
    };
    let axis = to.axes.first().map_or("seq".to_owned(), Axis::to_string);
    format!(
        "`scatter_add`: {found}, and the ids are indices of one of them\n\
         help: name it: `scatter_add::<{to}, axis = {axis}>(x, ids)`"
    )
}

/// Numbers that are not those at the ids of a result.
pub(crate) fn targets_differ(
    logits: &Type,
    classes: &Axis,
    targets: &Type,
    expected: &Type,
) -> String {
    format!(
        "`cross_entropy` of {targets} takes logits {expected}, found {logits}\n\
         help: there is one target for each vector along `{classes}`; `axis = ..` says that the classes are another axis"
    )
}

pub(crate) fn label_smoothing(found: &Real) -> String {
    format!("`label_smoothing` must be from 0 to 1, found {found}")
}

pub(crate) fn scatter_differs(
    to: &Type,
    axis: &Axis,
    ids: &Type,
    expected: &Type,
    found: &Type,
) -> String {
    format!(
        "`scatter_add` to {to} by {ids} along `{axis}` takes {expected}, found {found}\n\
         help: axes of the ids that the result has, by name, are the same; the others stand in the place of `{axis}`"
    )
}

/// A second operand of a reduction.
pub(crate) fn selection_differs(
    operation: &Operation,
    lens: &Type,
    marks: &Type,
    found: &Type,
) -> String {
    let name = operation.name;
    let lens = match lens.axes.as_slice() {
        [] => String::new(),
        _ => format!("{lens} or "),
    };
    format!(
        "`{name}` takes {lens}{marks} as its second operand, which says what counts, found {found}\n\
         help: marks have the axis along which they count, and lengths do not; other axes may be missing"
    )
}

/// A selection along several axes.
pub(crate) fn selection_of_several(operation: &Operation, axes: usize) -> String {
    let name = operation.name;
    format!(
        "`{name}` with a second operand is along one axis, found {axes}\n\
         help: reduce the others before: `{name}::<seq>(sum::<d_model>(x), keep)`"
    )
}

/// An assignment of ids in a loop.
pub(crate) fn repeat_changes_ids(name: &Ident, ty: &Type) -> String {
    format!(
        "a `repeat` changes floats, and `{name}` is {ty}\n\
         help: a `let` in the loop declares ids of one round"
    )
}
