//! Messages about `attend`.

use proc_macro2::Ident;

use crate::model::types::{Axis, Type};

pub(crate) fn operands(found: usize) -> String {
    format!(
        "`attend` takes three operands by their position, found {found}\n\
        help: `attend::<..>(q, k, v)`; what a mask reads stands by its name, `padding = lens`"
    )
}

/// The shapes that it takes.
const TAKES: &str = "[batch, seq, heads, width], these axes but the width in any order, without `batch` or without `heads`";

pub(crate) fn axes(found: &Type) -> String {
    format!("`attend` takes {TAKES}, found {found}")
}

/// Keys and values of a step would be read as one sequence without a batch.
pub(crate) fn of_a_step(keys: &Type) -> String {
    format!(
        "at a step of a `scan`, `attend` takes keys and values [batch, seq, width], found {keys}\n\
        help: a value with the axis of the scan is seen without it; with another name for that it is there as a whole: \
        `let memory = x as [batch, kv = seq, d];` before the scan"
    )
}

/// A rotation by the place of the query, at a step of a scan.
pub(crate) fn rotation_at_a_step() -> String {
    "`position = rope` rotates the query by `q_idx`, and a step of a `scan` has one query, whose `q_idx` is 0\n\
    help: attend before the scan, with the queries of all steps; or leave `position` out, and rotate what is known before the scan, with `rope::<seq>(x)`"
        .to_owned()
}

/// A function of the place of the query, at a step of a scan.
pub(crate) fn place_of_a_step(what: &str) -> String {
    format!(
        "{what} reads `q_idx`, and a step of a `scan` has one query, whose `q_idx` is 0\n\
        help: attend before the scan, with the queries of all steps; or add numbers of each step to the score: before the scan \
        `let far = expand::<[seq, kv]>(float(arange::<kv>())) - float(arange::<seq>());` and `let hidden = if far > 0 {{ -1e9 }} else {{ 0 * far }};`, \
        in it `attend(.., hidden = hidden)`, and in the body `data hidden: [kv_len];` and `score + hidden[kv_idx]`"
    )
}

pub(crate) fn heads_unknown(found: &Type, key: &str) -> String {
    let before = &found.axes[..found.axes.len() - 1];
    let heads = before.iter().rfind(|axis| axis.size().is_some());
    let heads = heads.map_or_else(|| found.axes[1].to_string(), Axis::to_string);
    format!(
        "`attend` takes {TAKES}: which axis of {found} are the heads?\n\
        help: name it, `attend::<{key} = {heads}>(..)`"
    )
}

pub(crate) fn heads_last(found: &Type) -> String {
    format!(
        "the last axis is the width of the vectors, found the heads: {found}\nhelp: `attend` takes {TAKES}"
    )
}

pub(crate) fn heads_of_any_number(axis: &Axis, found: &Type) -> String {
    format!("the number of heads is a constant, found the axis `{axis}` of {found}")
}

pub(crate) fn differ([q, k, v]: [&Type; 3], what: &str) -> String {
    format!("`attend`: {what} differ: q is {q}, k is {k}, v is {v}")
}

/// Another number of names than an attention has results.
pub(crate) fn names(operation: &Ident, found: usize) -> String {
    let names = if found == 1 { "name" } else { "names" };
    format!(
        "`{operation}` has up to three results, found {found} {names}\n\
         help: `let y = {operation}::<..>(..);`, `let (y, weights) = ..`, or `let (y, weights, lse) = ..`; the name of an unused one begins with `_`"
    )
}

/// A name for the logarithm of a sum that the weights are not divided by.
pub(crate) fn no_sum(operation: &Ident) -> String {
    format!(
        "the weights of this `{operation}` are not divided by a sum of exponentials, so there is no logarithm of it\n\
         help: `let (y, weights) = {operation}::<..>(..);`; `normalizer = softmax`, `softmax1` and `sink` have such a sum"
    )
}

pub(crate) fn session_weights(attention: &str) -> String {
    format!(
        "the weights of `{attention}` are read: those of a new token are as many as there are keys so far, and a session has values of constant size for each token\n\
         a sum over the keys, `einsum::<[.., q, e]>(weights, x)`, is attended: with `attend(q, k, concat(v, x))` it is a part of the result"
    )
}

/// Of an attention at a step of a scan.
pub(crate) fn session_results(attention: &str) -> String {
    format!(
        "the weights of `{attention}`, or the logarithms of their sums, are read at a step of a `scan`, and a session has the attended values alone there"
    )
}
