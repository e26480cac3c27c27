//! Messages about `dot(q, table[i])`.

use std::fmt::Display;

use proc_macro2::{Ident, TokenStream};

use crate::model::types::{Axis, Type};
use crate::spec::body::{Found, text_of};

pub(crate) const DOT_IN_MASK: &str = "a mask reads no computed value: a condition has no derivative\n\
    help: add `dot(..)` to the score instead, in `fn score`";
pub(crate) const DOT_WITHOUT_VECTORS: &str = "the queries and keys of a layer with projections are inside of it\n\
    help: in `model!`, make them with `linear`, and write `attend(q, k, v) { fn score(score, q_idx, kv_idx) { score + dot(q, table[..]) } }`";
pub(crate) const DOT_USAGE: &str = "`dot` takes a query or a key, and a row of a table\n\
    help: write `dot(q, table[i])`, with names of the model";

/// A `let` of the function, or an index of another meaning.
pub(crate) fn dot_of_a_number(name: &impl Display) -> String {
    format!(
        "`{name}` in `dot` is that of the model or of the pair, and this function has a `let` of this name\nhelp: rename the `let`"
    )
}

/// A row that is out of bounds of a table of `rows` at some point.
pub(crate) fn leaves_table(table: &Ident, rows: u64, found: &Found) -> String {
    let last = rows - 1;
    format!(
        "the index is {}{}, and this axis of `{table}` goes from 0 to {last}\nhelp: keep the index inside at every place, as by `clamp(.., 0, {last})`",
        found.value,
        super::expressions::at(found),
    )
}

pub(crate) fn dot_of_other(vector: &str, [queries, keys]: [&str; 2]) -> String {
    format!(
        "`{vector}` is neither made of the queries of this `attend`, `{queries}`, nor of its keys, `{keys}`\n\
        help: products with other vectors are data: `let near = einsum::<[batch, heads, seq, rows]>(.., table);` before, `attend(.., near = near)`, \
        and in the body `data near: [batch, heads, q_len, rows];` and `near[b, h, q_idx, ..]`"
    )
}

pub(crate) fn dot_of_both(vector: &str) -> String {
    format!(
        "`{vector}` reads queries and keys of this `attend`: at which place is it read?\n\
        help: where the model has no variables `q` and `k`, these are the queries and the keys"
    )
}

pub(crate) fn vector_differs(found: &Type, expected: &Type, what: &str) -> String {
    format!("`dot` takes a vector for each of the {what}, {expected}, found {found}")
}

pub(crate) fn table_without_rows(table: &Ident, found: &Type) -> String {
    format!(
        "`{table}` is {found}, and `dot` reads a row of a table of floats, `[rows, width]`\n\
        help: a table of each head is `[heads, rows, width]`, and read as `{table}[h, i]`"
    )
}

pub(crate) fn row_of_table(table: &Ident, ty: &Type, found: usize) -> String {
    let expected = ty.axes.len() - 1;
    let indices = if expected == 1 { "index" } else { "indices" };
    format!(
        "a row of `{table}`, which is {ty}, has {expected} {indices}, found {found}\n\
        help: all axes but the last one, the width of a row, get an index"
    )
}

pub(crate) fn width_of_rows(table: &Ident, ty: &Type, vector: &str, of: &Type) -> String {
    format!("the widths of `{vector}`, {of}, and of the rows of `{table}`, {ty}, differ")
}

pub(crate) fn rows_of_any_number(table: &Ident, axis: &Axis, ty: &Type) -> String {
    format!(
        "the number of rows of `{table}` is a constant or the length of queries or keys, found the axis `{axis}` of {ty}"
    )
}

pub(crate) fn too_many_products(axes: usize, most: usize) -> String {
    format!(
        "the products of `dot` have an axis for each of the batch, the heads, the sequence and each index of a row: {axes}, and there are at most {most}"
    )
}

/// A table that the body declares.
pub(crate) fn table_of_the_body(table: &Ident) -> String {
    format!(
        "`dot` reads a value of the model, and `{table}` is declared in this body\n\
        help: declare it before the `attend`, as `param {table}: [rows, width] = normal(0.02);`, and leave it out of the body"
    )
}

/// The tokens of a vector, for people.
pub(crate) fn vector(tokens: &TokenStream) -> String {
    text_of(tokens.clone())
}
