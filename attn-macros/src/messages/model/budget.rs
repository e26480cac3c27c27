//! Messages about the memory that a model may take.

use proc_macro2::{Ident, TokenStream};

use crate::messages::{listed, quoted};

const EXAMPLE: &str = "help: `memory = 64 MiB for (batch = 8, seq = 256)`";

pub(crate) const MEMORY_TWICE: &str = "`memory` is given twice";

/// `fn loss<hidden = 8>(..)`
pub(crate) fn key_of_function(name: &Ident) -> String {
    format!(
        "`{name}` has no such key: a function has `memory`, a bound on its activations, and sizes are those of the model\n{EXAMPLE}"
    )
}

/// `memory = 64 for (batch = 8)`
pub(crate) fn unit_of_memory(found: Option<&Ident>) -> String {
    let found = found.map_or_else(|| "none".to_owned(), |unit| format!("`{unit}`"));
    format!(
        "expected a unit of memory behind the number, found {found}\n\
         help: `B`, `KiB`, `MiB` or `GiB`; a `kB`, `MB` or `GB` is 1000, 1000² or 1000³ bytes"
    )
}

/// `memory = 64 MiB`
pub(crate) fn memory_of_axes(found: &TokenStream) -> String {
    format!(
        "expected the lengths of the axes for which `memory` holds, in parentheses behind `for`, found {}\n{EXAMPLE}",
        quoted(found)
    )
}

pub(crate) fn axis_of_memory(found: &TokenStream) -> String {
    format!(
        "expected an axis with its length, found {}\n{EXAMPLE}",
        quoted(found)
    )
}

pub(crate) fn axis_of_memory_twice(name: &Ident) -> String {
    format!("the length of `{name}` is given twice")
}

/// `axes` are those that the inputs of functions have.
pub(crate) fn unknown_axis_of_memory(name: &Ident, axes: &[String]) -> String {
    let axes = listed(axes.iter().map(String::as_str));
    format!(
        "no input has an axis `{name}` of any length\nhelp: `memory` takes the lengths of {axes}"
    )
}

/// Every function has an axis more.
pub(crate) fn missing_axis_of_memory(missing: &[&str]) -> String {
    let missing = listed(missing.iter().copied());
    format!("`memory` needs the length of {missing}, too\n{EXAMPLE}")
}

/// All axes are constants.
pub(crate) fn no_axis_of_memory(name: &Ident) -> String {
    format!("no input has an axis `{name}` of any length: all sizes are constants\nhelp: `for ()`")
}

/// A part of the model is not known to the macro.
pub(crate) const MEMORY_OF_MODULE: &str = "a model with a module of other code has no derivative of its own, and no memory that is known\n\
    help: leave `memory` out";
