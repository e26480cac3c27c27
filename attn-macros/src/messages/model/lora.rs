//! Messages about the adapters of a model.

use proc_macro2::{Ident, TokenStream};

use crate::messages::{listed, quoted};
use crate::model::lora::KEYS;
use crate::spec::Size;

const EXAMPLE: &str = "help: `lora(rank = 8, alpha = 16, on = [\"q_proj\", \"v_proj\"])`";

pub(crate) const LORA_TWICE: &str = "`lora` is given twice";

pub(crate) const LORA_OF_PLACES: &str = "`lora` adapts attentions with queries and keys, and the scores of this one depend on places alone\n\
     help: give its values a `linear` of their own in front of it, and name that in `on`";

pub(crate) const ALPHA_NOT_POSITIVE: &str = "alpha` of `lora";

pub(crate) fn unknown_key_of_lora(found: &Ident) -> String {
    let help = match KEYS.iter().find(|key| found == key.of_peft) {
        Some(key) => format!("help: it is `{}` here", key.name),
        None => format!("help: it has {}", listed(KEYS.iter().map(|key| key.name))),
    };
    format!("`lora` has no key `{found}`\n{help}")
}

pub(crate) fn key_of_lora_twice(key: &Ident) -> String {
    format!("`{key}` is given twice")
}

pub(crate) fn expected_key_of_lora(found: &TokenStream) -> String {
    format!(
        "expected a key of `lora` with its value, found {}\n{EXAMPLE}",
        quoted(found)
    )
}

pub(crate) fn missing_key_of_lora(key: &str) -> String {
    format!("`lora` needs `{key}`\n{EXAMPLE}")
}

pub(crate) fn rslora_is_a_switch(found: &TokenStream) -> String {
    format!("`rslora` is `true` or `false`, found {}", quoted(found))
}

pub(crate) fn expected_names_of_lora(found: &TokenStream) -> String {
    format!(
        "expected the names of layers, each in quotes, found {}\n{EXAMPLE}",
        quoted(found)
    )
}

/// `name` is that of a linear layer of this input and output.
pub(crate) fn rank_too_large(rank: &Size, name: &str, [input, output]: [&Size; 2]) -> String {
    format!(
        "the rank of adapters must be less than both widths of a layer, found {rank} for `{name}`, {input} -> {output}\n\
         help: without `lora` all numbers of the layer are trained"
    )
}

/// `names` are those of all layers.
pub(crate) fn nothing_saved(pattern: &str, names: &[String]) -> String {
    let names = listed(names.iter().map(String::as_str));
    format!(
        "no layer has a name that ends with `{pattern}`\n\
         help: there are {names}; `save` takes the last parts of the names of layers that are trained whole, and `*` stands for any part"
    )
}

pub(crate) fn adapted_and_saved(name: &str) -> String {
    format!(
        "`{name}` is trained whole, and has adapters\n\
         help: it is one or the other: leave it out of `save` or of `on`"
    )
}

/// `names` are those of all linear layers.
pub(crate) fn nothing_adapted(pattern: &str, names: &[String]) -> String {
    if names.is_empty() {
        return "`lora` has nothing to adapt: the model has no linear layer".to_owned();
    }
    let names = listed(names.iter().map(String::as_str));
    format!(
        "no linear layer has a name that ends with `{pattern}`\n\
         help: there are {names}; `on` takes the last parts of names, and `*` stands for any part"
    )
}
