//! `lora(rank = 8, alpha = 16, dropout = 0.1, rslora = true, on = ["q_proj", "v_proj"])` in the header of a model: tokens to a draft.

use proc_macro2::{Delimiter, Group, Ident, TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::{LitBool, LitStr, Token};

use super::parse::argument;
use super::syntax::{Argument, LoraDraft};
use crate::diag::Diagnostics;
use crate::messages::model as messages;
use crate::spec::split_at_commas;

/// The keys, each with its name in PEFT's `LoraConfig`.
pub(crate) const KEYS: [(&str, &str); 5] = [
    ("rank", "r"),
    ("alpha", "lora_alpha"),
    ("dropout", "lora_dropout"),
    ("rslora", "use_rslora"),
    ("on", "target_modules"),
];

/// The word and its parentheses, if an entry of the header is this one.
pub(super) fn is_lora(key: Option<&Ident>, value: &TokenStream) -> Option<(Ident, Group)> {
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
            Some(key) if KEYS.iter().all(|(name, _)| key != name) => {
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
    let [rank, alpha, dropout, rslora, on] = KEYS.map(|(name, _)| take(name));
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
    let on = on.map_or_else(Vec::new, |tokens| parse_names(&tokens, cx));
    (cx.count() == before).then_some(LoraDraft {
        rank: rank?,
        alpha,
        dropout,
        rslora,
        on,
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
