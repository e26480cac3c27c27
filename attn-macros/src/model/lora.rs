//! `lora(rank = 8, alpha = 16, dropout = 0.1, rslora = true, on = ["q_proj", "v_proj"], save = ["head"])` in the header of a model: tokens to a
//! draft.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{LitBool, LitStr, Token};

use super::parse::argument;
use super::syntax::{Argument, LoraDraft};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::split_at_commas;

/// The keys.
pub(crate) const KEYS: [Key; 6] = [
    Key {
        name: "rank",
        of_peft: "r",
        doc: "The rank of the adapters: less than both widths of every chosen layer.",
    },
    Key {
        name: "alpha",
        of_peft: "lora_alpha",
        doc: "The numerator of the scale `alpha / rank`. Default: `rank`.",
    },
    Key {
        name: "dropout",
        of_peft: "lora_dropout",
        doc: "The probability of the dropout in front of the adapters. Default: 0.",
    },
    Key {
        name: "rslora",
        of_peft: "use_rslora",
        doc: "`true`: the scale is `alpha / sqrt(rank)`. Default: `false`.",
    },
    Key {
        name: "on",
        of_peft: "target_modules",
        doc: "The last parts of the names of the layers that get adapters, `[\"q_proj\", \"v_proj\"]`. `*` is any part.",
    },
    Key {
        name: "save",
        of_peft: "modules_to_save",
        doc: "The last parts of the names of layers that are trained whole and saved beside the adapters, `[\"head\"]`. Default: none.",
    },
];

/// A key of `lora`, with its name in PEFT's `LoraConfig`.
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) of_peft: &'static str,
    pub(crate) doc: &'static str,
}

/// The word and its parentheses, if an entry of the header is this one.
pub(crate) fn is_lora(key: Option<&Ident>, value: &TokenStream) -> Option<(Ident, Group)> {
    let mut tokens = value.clone().into_iter();
    match (key, tokens.next(), tokens.next(), tokens.next()) {
        (None, Some(TokenTree::Ident(word)), Some(TokenTree::Group(group)), None)
            if word == "lora" && group.delimiter() == Delimiter::Parenthesis =>
        {
            Some((word, group))
        }
        _ => None,
    }
}

pub(super) fn parse(at: Ident, group: Group, cx: &Diagnostics) -> Option<LoraDraft> {
    let before = cx.count();
    let mut given: Vec<(Ident, TokenStream)> = Vec::new();
    for entry in split_at_commas(group.stream()) {
        let Argument { key, value } = argument(entry);
        match key {
            Some(key) if KEYS.iter().all(|known| key != known.name) => {
                cx.error(&key, messages::unknown_key_of_lora(&key));
            }
            Some(key) if given.iter().any(|(known, _)| *known == key) => {
                cx.error(&key, messages::key_of_lora_twice(&key));
            }
            Some(key) if value.is_empty() => {
                cx.error(&key, messages::size_without_value(&key));
            }
            Some(key) => given.push((key, value)),
            None => cx.error(&value, messages::expected_key_of_lora(&value)),
        }
    }
    let mut take = |name: &str| {
        let found = given.iter().position(|(key, _)| key == name)?;
        Some(given.swap_remove(found).1)
    };
    let [rank, alpha, dropout, rslora, on, save] = KEYS.map(|key| take(key.name));
    if cx.count() == before {
        let required = [("rank", rank.is_some()), ("on", on.is_some())];
        for (name, _) in required.iter().filter(|(_, is_given)| !is_given) {
            cx.error(&at, messages::missing_key_of_lora(name));
        }
    }
    let rslora = match rslora {
        None => false,
        Some(tokens) => match syn::parse2::<LitBool>(tokens.clone()) {
            Ok(value) => value.value,
            Err(_) => {
                cx.error(&tokens, messages::rslora_is_a_switch(&tokens));
                false
            }
        },
    };
    let [on, save] =
        [on, save].map(|names| names.map_or_else(Vec::new, |tokens| parse_names(&tokens, cx)));
    (cx.count() == before).then_some(LoraDraft {
        rank: rank?,
        alpha,
        dropout,
        rslora,
        on,
        save,
    })
}

/// `["q_proj", "v_proj"]`
fn parse_names(tokens: &TokenStream, cx: &Diagnostics) -> Vec<LitStr> {
    let list: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let names = match list.as_slice() {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::Bracket => {
            let names = Punctuated::<LitStr, Token![,]>::parse_terminated;
            names.parse2(group.stream()).ok()
        }
        _ => None,
    };
    let names = names.filter(|names| !names.is_empty());
    if names.is_none() {
        cx.error(tokens, messages::expected_names_of_lora(tokens));
    }
    names.into_iter().flatten().collect()
}
