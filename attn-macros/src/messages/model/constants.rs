//! Constants of the header, and choices between statements by them.

use proc_macro2::{Ident, TokenStream};

use crate::messages::quoted;
use crate::model::sizes::{ConstValue, LARGEST_PRODUCT, LARGEST_SIZE};
use crate::spec::Size;

pub(crate) const VALUE_OF_IF: &str = "an `if` before the last line has no value: it changes variables\n\
    help: `x = ..;`";
pub(crate) const STATEMENTS_BY_VALUES: &str = "a choice between statements needs a condition of constants, found a value with axes\n\
    help: a choice element by element is between two values: `x = if x < 0 { 0 } else { x };`";

/// A switch or a number that nothing reads.
pub(crate) fn unused_constant(name: &Ident) -> String {
    format!(
        "the constant `{name}` is never used\n\
         help: remove it, or give it to an operation: `attention::<.., {name} = {name}>(x)`"
    )
}

pub(crate) fn no_size(name: &Ident, value: &ConstValue) -> String {
    format!("expected a size, found `{name}`, which is {value}")
}

/// A condition in the header.
pub(crate) fn condition_as_constant(name: &Ident, found: &TokenStream) -> String {
    format!(
        "a switch of the header is `true` or `false`, found {}\n\
         help: `{name} = true`; a condition stands where it decides, as in `if !bias && d > 3 {{ .. }}`",
        quoted(found)
    )
}

/// A constant of rustc as a switch.
pub(crate) fn constant_as_switch(name: &Ident, size: &Size) -> String {
    format!(
        "`{name}` is a switch, `true` or `false`, found `{size}`, whose value only rustc knows\n\
         help: write `{name} = true` or `{name} = false`, as it decides what code there is"
    )
}

/// A size that no tensor has.
pub(crate) fn size_too_large(what: &str, found: &Size) -> String {
    format!(
        "`{what}` must be at most {LARGEST_SIZE}, found {found}\n\
         help: no axis and no loop of a model is longer"
    )
}

pub(crate) fn merged_too_large(axes: &str) -> String {
    format!(
        "the product of the sizes {axes} is more than {LARGEST_PRODUCT}, the longest axis\n\
         help: merge fewer axes, or smaller ones"
    )
}

pub(crate) fn switch_as_value(name: &Ident) -> String {
    format!(
        "expected a value, found the switch `{name}`\n\
         help: `if {name} {{ .. }} else {{ .. }}` chooses between two values"
    )
}

pub(crate) const INDEX_OF_SHARED: &str = "a loop with an index has parameters of its own for each layer, so it takes no `share` and no `tied`\n\
    help: remove `as ..`, or the option";

pub(crate) fn index_alone(name: &Ident) -> String {
    format!(
        "the index `{name}` is known up to a remainder alone, as layers that are alike are compiled once\n\
         help: `{name} % 6 == 5`, where the divisor is a literal or a constant of the header; layers that differ at an end are a loop, or a call, of their own"
    )
}

pub(crate) fn unread_index(name: &Ident) -> String {
    format!("nothing reads the index `{name}`\nhelp: remove `as {name}`")
}

pub(crate) fn long_period(name: &Ident, len: u64, most: u64) -> String {
    format!(
        "the remainders of `{name}` repeat after {len} layers, each of which would be compiled\nhelp: at most {most}"
    )
}

pub(crate) fn unknown_rest_of_rounds(count: &Size, period: u64) -> String {
    format!(
        "the layers repeat after {period}, and `{count}`, which only rustc knows, must be a multiple of that\nhelp: write the number itself"
    )
}

pub(crate) fn list_as_value(name: &Ident) -> String {
    format!(
        "expected a value, found the list `{name}`\n\
         help: a list is for arguments as `short_factor` of `longrope`; `param` and `buffer` declare tensors"
    )
}

pub(crate) fn value_as_condition(name: &Ident) -> String {
    format!(
        "expected a comparison, found the value `{name}` alone\n\
         help: `if {name} > 0 {{ .. }} else {{ .. }}`"
    )
}

pub(crate) fn number_as_condition(name: &Ident, value: &ConstValue) -> String {
    format!(
        "expected a comparison or a switch, found `{name}`, which is {value}\n\
         help: `if {name} > 0 {{ .. }}`"
    )
}

pub(crate) fn unknown_switch(name: &Ident, model: &Ident) -> String {
    format!(
        "`{model}` has no switch `{name}`\n\
         help: declare it in the header: `struct {model}<{name} = true>;`"
    )
}

/// Only rustc knows the constants of a condition.
pub(crate) fn unknown_condition(model: &Ident) -> String {
    format!(
        "the macro does not know the value of this condition, which decides what code there is\n\
         help: the header takes literals and what is computed of them: `struct {model}<layers = 4, bias = true>;`"
    )
}
