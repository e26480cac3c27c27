//! Scans: loops over the steps along an axis.

use proc_macro2::Ident;

use crate::model::types::{Axis, Type};

pub(crate) const EXPECTED_SCAN: &str = "expected `scan axis { .. }`\n\
    help: the axis is that of the steps, as in `let y = scan seq { state h: [batch, d] = 0; h = ..; yield h; };`";
pub(crate) const EXPECTED_STATE: &str =
    "expected a state with its axes and its initial value: `state h: [batch, hidden] = 0.0;`";
pub(crate) const SCAN_AXIS: &str = "expected an axis by its name, as in `scan seq { .. }`";
pub(crate) const SCAN_OPTIONS: &str = "a `scan` takes `reverse = true` and `keep = sqrt`\n\
    help: with the first the last step comes first; with the second the states are kept before every √n-th step, and the steps between are \
    computed again";
pub(crate) const SCAN_IS_NOT_READ: &str = "nothing reads the results of this `scan`\n\
    help: `let y = scan ..`";
pub(crate) const SCAN_ALONE: &str = "a `scan` is no operand: its results get names first\n\
    help: it stands behind `let .. =`, or at the end: `let y = scan axis { .. };`, and then `x + y`";
pub(crate) const SCAN_IN_SCAN: &str = "a `scan` in a `scan`: a step has no steps of its own\n\
    help: scan along one axis, then along the other, or compute the inner one with `cumsum`, `einsum` or `attention`";
pub(crate) const SCAN_YIELDS_NOTHING: &str = "this `scan` has no result\n\
    help: `yield y;` is a result for each step; a state as the last line is its value behind the last step";
pub(crate) const STATE_OUTSIDE: &str = "a `state` is of a `scan`: `let y = scan seq { state h: [batch, hidden] = 0.0; .. };`\n\
    help: a variable that changes is `let mut`, a learned tensor `param`";
pub(crate) const STATE_LATE: &str = "the states of a `scan` are its first lines\n\
    help: their initial values are computed before the first step, of what stands before the scan";
pub(crate) const YIELD_OUTSIDE: &str = "`yield` is a result of a step of a `scan`, and stands among the statements of its block\n\
    help: in a `repeat`, assign to a variable of the step, and yield that behind it";
pub(crate) const YIELD_TWICE: &str = "a step yields once\n\
    help: several results are `yield (a, b);`";

/// The axes of a step would be read as those of a sequence.
pub(crate) fn attention_of_a_step(ty: &Type) -> String {
    format!(
        "`attention` takes [batch, seq, d_model] at a step of a `scan`, found {ty}\n\
         help: the query of a step attends to a sequence of outside by `attend(linear::<16>(h), linear::<16>(memory), memory)`, \
         whose keys and values are computed before the loop; a sequence attends to itself before the `scan`"
    )
}

pub(crate) fn scan_of_indices(name: &Ident, ty: &Type, axis: &Axis) -> String {
    format!(
        "a step of a scan along `{axis}` reads floats, and `{name}` is {ty}\n\
         help: before the scan, look ids up with `embedding`, or make floats of them: `let {name} = float({name});`"
    )
}

pub(crate) fn yield_of(ty: &Type, most: usize) -> String {
    format!("expected floats of at most {most} axes, found {ty}")
}

pub(crate) fn scan_keeps(found: &str) -> String {
    format!(
        "expected `keep = all` or `keep = sqrt`, found `keep = {found}`\n\
         help: `all` keeps what the derivative of each step reads; `sqrt` keeps the states before every √n-th step, and computes the steps \
         between again"
    )
}

pub(crate) fn initial_state(name: &Ident, ty: &Type, found: &Type) -> String {
    format!(
        "`{name}` begins as {found}, and is declared as {ty}\n\
         help: an initial value is repeated along axes that it lacks, and has no others"
    )
}

pub(crate) fn state_of_indices(name: &Ident, ty: &Type) -> String {
    format!("expected floats, found {ty}\nhelp: `state {name}: [..]`")
}

pub(crate) fn state_is_constant(name: &Ident) -> String {
    format!(
        "no step changes the state `{name}`\n\
         help: assign its next value, `{name} = ..;`, or read the initial value itself"
    )
}

/// Behind it the name is that of another variable.
pub(crate) fn state_is_hidden(name: &Ident) -> String {
    format!(
        "another `{name}` is declared in this `scan`, which hides the state\n\
         help: the next value of a state is assigned, `{name} = ..;` without `let`; another variable has another name"
    )
}

/// An axis that a value has only outside.
pub(crate) fn axis_of_the_scan(axis: &Axis) -> String {
    format!(
        "a step of a `scan` along `{axis}` sees values without this axis\n\
         help: compute along `{axis}` before the scan; what a step needs of earlier ones is a state"
    )
}

pub(crate) fn scan_changes_shape(name: &Ident, start: &Type, end: &Type) -> String {
    format!("a step changes the shape of `{name}`: it begins with {start} and ends with {end}")
}

pub(crate) fn scan_changes(name: &Ident) -> String {
    format!(
        "`{name}` is declared outside of this `scan`, whose steps change its states only\n\
         help: `state {name}: [..] = {name};`"
    )
}

pub(crate) fn last_value(states: &[String]) -> String {
    let names: Vec<_> = states.iter().map(|name| format!("`{name}`")).collect();
    let states = match names.as_slice() {
        [] => "this scan has none".to_owned(),
        names => format!("this scan has {}", names.join(", ")),
    };
    format!(
        "the last line of a `scan` is a state, for its value behind the last step: {states}\n\
         help: a result for each step is `yield y;`"
    )
}

pub(crate) fn results_of_scan(names: usize, results: usize) -> String {
    let s = |count| if count == 1 { "" } else { "s" };
    format!(
        "this scan has {results} result{}, and {names} variable{} for {}\n\
         help: first what each step yields, then states of the last line: `let (y, h) = scan ..`",
        s(results),
        s(names),
        if results == 1 { "it" } else { "them" }
    )
}

/// The cause, and behind it a note.
pub(crate) fn session_scan(axis: &Axis, reverse: bool) -> String {
    match reverse {
        true => format!(
            "a scan along `{axis}` begins with the last token, which a session does not know"
        ),
        false => format!("a session scans along the tokens, not along `{axis}`"),
    }
}
