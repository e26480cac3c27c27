//! Messages about buffers of `model!`.

use proc_macro2::Ident;

use crate::messages::{did_you_mean, listed};
use crate::spec::body::FUNCTIONS;
use crate::spec::keys::nearest;

pub(crate) const EXPECTED_BUFFER: &str = "expected a tensor of constants: `buffer name: [axes] = |indices| number;`\n\
    help: `buffer slope: [heads] = |h| pow(2, -8 * (h + 1) / heads);`";
pub(crate) const EXPECTED_INDICES: &str = "expected names of indices, one for each axis\n\
    help: `buffer mask: [rows, cols] = |row, col| if col <= row { 0 } else { -1e9 };`";
pub(crate) const VALUE_IN_BUFFER: &str = "a buffer is computed once for all calls, and this is a value of a call\n\
    help: it is made of numbers, of constants, and of the indices of its axes";
pub(crate) const REMAINDER_OF_VALUES: &str = "`%` is the remainder of numbers, and this is a value\n\
    help: of floats it is `x - y * floor(x / y)`";

/// `buffer mut name`, or an assignment to the name.
pub(crate) fn buffer_changes(name: &Ident) -> String {
    format!(
        "`{name}` is a buffer, and nothing changes it\n\
         help: begin with a variable of the same name: `let mut {name} = {name};`"
    )
}

pub(crate) fn index_twice(name: &Ident) -> String {
    format!("two indices are called `{name}`")
}

pub(crate) fn number_of_indices(buffer: &Ident, axes: usize, found: usize) -> String {
    let plural = |count: usize, one: &str, several: &str| match count {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    };
    let has = plural(axes, "axis", "axes");
    let names = plural(found, "index", "indices");
    format!(
        "`{buffer}` has {has}, and there are names for {names}\n\
         help: one for each axis, `_` where none is needed; none at all for one number everywhere"
    )
}

pub(crate) fn unused_index(name: &Ident) -> String {
    format!("the index `{name}` is never read\nhelp: use it, or write `_`")
}

pub(crate) fn unknown_in_buffer(found: &Ident, names: &[String]) -> String {
    let known = || names.iter().map(String::as_str).filter(|name| *name != "_");
    let help = did_you_mean(nearest(&found.to_string(), known()), || match names {
        [] => "an index gets its name before the number: `|i, j| ..`".to_owned(),
        _ => format!("there are {}", listed(known())),
    });
    format!("`{found}` is no index of the buffer, and no constant of the model\n{help}")
}

/// `{ 2 * h }`
pub(crate) fn index_in_braces(index: &Ident) -> String {
    format!(
        "in braces stands a constant, and `{index}` is the index along an axis\n\
         help: write the expression without braces, or in parentheses"
    )
}

/// `linear(h)`, `sum::<heads>(h)`
pub(crate) fn function_of_buffer(found: &Ident) -> String {
    let text = found.to_string();
    let names = || FUNCTIONS.iter().map(|function| function.name);
    let near = match names().any(|name| name == text) {
        true => None,
        false => nearest(&text, names()),
    };
    let help = did_you_mean(near, || format!("there are {}", listed(names())));
    format!("`{found}` is called here as no function of numbers\n{help}")
}

pub(crate) fn arguments_in_buffer(found: &Ident, expected: usize, count: usize) -> String {
    let plural = if expected == 1 { "" } else { "s" };
    format!("`{found}` takes {expected} argument{plural}, found {count}")
}
