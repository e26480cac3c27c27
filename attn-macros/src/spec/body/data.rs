//! The data of a body: names and shapes.

use proc_macro2::Ident;

use super::names::variable;
use super::parse::{DataDraft, DimsDraft};
use super::{DataDecl, Sizes, dims, params};
use crate::messages::body as messages;
use crate::spec::Dim;
use crate::spec::check::Checker;

/// The maximum number, which fits into the tuples that a layer with a mistake accepts.
const MAX_DATA: usize = 8;

/// The axes whose sizes the call determines.
const AXES: [(&str, Dim); 3] = [
    ("batch", Dim::Batch),
    ("q_len", Dim::Query),
    ("kv_len", Dim::Key),
];

/// Whether `name` is an axis whose size the call determines.
pub(super) fn is_axis(name: &Ident) -> bool {
    AXES.iter().any(|(axis, _)| name == axis)
}

/// Other arguments of the call, and the names of header masks for them.
const INPUTS: [&str; 6] = [
    "x",
    "context",
    "values",
    "padding",
    "document",
    "position_ids",
];

/// Checks every declaration, also those with mistakes: the functions may read them.
pub(super) fn check(
    drafts: &[DataDraft],
    sizes: Sizes<'_>,
    checker: &mut Checker<'_>,
) -> Vec<DataDecl> {
    if let Some(more) = drafts.get(MAX_DATA) {
        checker
            .cx
            .error(&more.name, messages::too_many_data(MAX_DATA));
    }
    let data = drafts.iter().map(|draft| {
        check_name(&draft.name, sizes, checker);
        if draft.given {
            params::check_name(&draft.name, checker);
        }
        DataDecl {
            attrs: draft.attrs.clone(),
            name: draft.name.clone(),
            ty: draft.ty,
            dims: check_dims(draft, sizes, checker),
            rows: match &draft.dims {
                DimsDraft::Written(_) => None,
                DimsDraft::Products(_, rows) => Some(rows.clone()),
            },
            given: draft.given,
        }
    });
    data.collect()
}

/// Whether it is a single letter, which is an axis in `model!` and not the name of a constant.
fn is_letter(name: &Ident) -> bool {
    let name = name.to_string();
    name.len() == 1 && name.chars().all(char::is_uppercase)
}

/// Whether data that nobody named may have this name.
pub(super) fn may_be_named(name: &Ident) -> bool {
    let is_input = INPUTS.iter().any(|input| name == input);
    !is_input && name != "score" && variable(name).is_none() && !is_axis(name)
}

fn check_name(name: &Ident, sizes: Sizes<'_>, checker: &Checker<'_>) {
    let is_input = INPUTS.iter().any(|input| name == input);
    if name == "score" || variable(name).is_some() {
        checker.cx.error(name, messages::tensor_is_argument(name));
    } else if is_input {
        checker.cx.error(name, messages::data_is_input(name));
    } else if is_axis(name) || sizes.iter().any(|(size, _)| name == size) {
        checker.cx.error(name, messages::data_is_size(name));
    }
}

/// The axes in the brackets, or none if one of them is not understood.
fn check_dims(draft: &DataDraft, sizes: Sizes<'_>, checker: &mut Checker<'_>) -> Vec<Dim> {
    let dims = match &draft.dims {
        DimsDraft::Written(dims) => dims,
        DimsDraft::Products(dims, _) => return dims.clone(),
    };
    let before = checker.cx.count();
    let usage = "write `[batch, q_len, kv_len]`, or some of these and of sizes";
    let what = format!("axis` of `{}", draft.name);
    let names = AXES.map(|(name, _)| name);
    let list = dims::list(dims, usage, checker);
    let mut letters: Vec<&Ident> = list.iter().filter_map(dims::name).collect();
    letters.retain(|name| is_letter(name));
    letters.dedup();
    for letter in letters {
        checker.cx.error(letter, messages::letter_axis(letter));
    }
    if checker.cx.count() > before {
        return Vec::new();
    }
    let dims = list.iter().filter_map(|dim| {
        let axis = dims::name(dim).and_then(|name| AXES.into_iter().find(|(axis, _)| name == axis));
        match axis {
            Some((_, axis)) => Some(axis),
            None => dims::check(dim, &what, sizes, &names, checker).map(Dim::Size),
        }
    });
    let dims: Vec<_> = dims.collect();
    if checker.cx.count() > before {
        return Vec::new();
    }
    dims
}
