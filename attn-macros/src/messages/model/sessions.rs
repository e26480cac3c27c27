//! Why a function of a model has no session, in the user's words.

use crate::model::types::Type;
use crate::score::prove::Verdict;
use crate::spec::Spec;

/// The message for requesting a session of a model that has none.
pub(crate) fn no_session(model: &str) -> String {
    format!("`{model}` has no session: it cannot go on token by token")
}

pub(crate) fn session_inputs() -> String {
    "it takes no input, and a session tokens".to_owned()
}

/// An input beside the tokens that has no axis of sequences.
pub(crate) fn session_of_one(name: &str, found: &Type) -> String {
    format!(
        "its `{name}` is {found}, and what a session is given beside tokens `ids[batch, seq]` has the axis of the sequences in front: `[batch, ..]`"
    )
}

/// An input beside the tokens that has their axis.
pub(crate) fn session_per_token(name: &str, found: &Type) -> String {
    format!(
        "its `{name}` is {found}, with something for every token, and a session is given what is the same for all of them"
    )
}

pub(crate) fn session_defaults(name: &str) -> String {
    format!(
        "all inputs beside the tokens may be left out, `{name}` too: then the number of sequences is not known"
    )
}

/// An operation on tokens that reads what a session is given.
pub(crate) fn session_given(operation: &str) -> String {
    format!(
        "its `{operation}` reads what a session is given for every token, and only `attention` and `attend` can: as a context, and as data of these keys"
    )
}

/// What a session is given, as a value that each step reads.
pub(crate) fn session_given_to_a_scan(given: &str) -> String {
    format!(
        "its `scan` reads `{given}`, which is computed of what the session is given, and in a session only `attend` and the first value of a state read that"
    )
}

/// The value of a state behind the last step, by its name.
pub(crate) fn session_last(last: &str) -> String {
    format!(
        "it reads `{last}`, the state behind the last step of a `scan`, and a session does not know which token is the last"
    )
}

pub(crate) fn session_attention_in_a_step(attention: &str) -> String {
    format!(
        "`{attention}` attends within a step of a `scan`, and in a session a step attends with one query to what the session is given"
    )
}

pub(crate) fn session_given_in_a_loop(operation: &str) -> String {
    format!(
        "its `{operation}` is computed of what the session is given, in a loop over tokens: it would be computed again for every token\ncompute it before the loop"
    )
}

pub(crate) fn session_input(found: &Type) -> String {
    format!("it takes {found}, and a session `ids[batch, seq]`, tokens of sequences of any length")
}

pub(crate) fn session_results(found: usize) -> String {
    format!("it returns {found} values, and a session one")
}

pub(crate) fn session_result(found: &Type) -> String {
    format!("it returns {found}, and a session a vector for every token")
}

pub(crate) fn session_operation(name: &str) -> String {
    format!("its `{name}` has not one vector for every token")
}

pub(crate) fn session_along(operation: &str, axis: &str) -> String {
    format!("its `{operation}` goes along `{axis}`, and not token by token")
}

pub(crate) fn session_module(name: &str) -> String {
    format!("what `{name}` does, nobody knows but its type: perhaps it looks at later tokens")
}

pub(crate) fn session_context(attention: &str) -> String {
    format!(
        "`{attention}` attends to a context that tokens are part of, and a session has only contexts that it is given when it starts"
    )
}

pub(crate) fn session_data(attention: &str) -> String {
    format!("`{attention}` reads data of the call")
}

/// `is_cross`: the keys are those of a context.
pub(crate) fn session_value(attention: &str, value: &str, is_cross: bool) -> String {
    let help = match is_cross {
        true => {
            "a session remembers the keys and values of a context, and nothing else of it; what the layer itself learns is a `param` of the body"
        }
        false => {
            "a session has the queries of new tokens, and remembers keys: a value of self-attention with the axes [batch, q_len, ..] is read at [b, q_idx, ..], \
             and one with [batch, kv_len, ..] at [b, kv_idx, ..], with sizes behind these, as `dot(q, ..)` and `dot(k, ..)` of [batch, seq, heads, width]; others have sizes alone"
        }
    };
    format!("the body of `{attention}` reads `{value}`, a computed value\n{help}")
}

pub(crate) fn session_length(attention: &str, what: &str) -> String {
    format!(
        "the {what} of `{attention}` depends on the length of the sequence, `q_len` or `kv_len`, which is not known yet"
    )
}

pub(crate) fn session_mask(attention: &str, spec: &Spec, verdict: &Verdict) -> String {
    if *verdict == Verdict::GaveUp {
        return format!(
            "whether a query of `{attention}` attends to no later key was given up, as its mask takes too many steps\n\
             `mask = causal & (..)` is seen to look back at once, as is `fn mask` beside `mask = causal`"
        );
    }
    if spec.body.mask.is_some() {
        return format!(
            "it is not proved that a query of `{attention}` attends to no later key\n`mask = causal` among its keys holds beside `fn mask`"
        );
    }
    let mask = spec.written.iter().find(|(key, _)| *key == "mask");
    let mask = mask.map_or("none", |(_, written)| written);
    format!(
        "`mask = {mask}` of `{attention}` lets a query attend to later keys\na session needs a mask that looks back only: `mask = causal`"
    )
}
