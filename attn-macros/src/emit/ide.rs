//! Editor completion and the tables of the language, all from [`keys`](crate::spec::keys).

use std::fmt::Write;

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};

use super::Layer;
use crate::spec::keys::{KEYS, Key, Kind, Word};

/// Under rust-analyzer only: the keys as paths into the documented names of [`key_items`], with the user's tokens, so that
/// hovering shows what a key means.
pub(super) fn emit(cx: &Layer<'_>) -> TokenStream {
    let (krate, cfgs) = (cx.krate, &cx.cfgs);
    let keys = &cx.spec.key_tokens;
    quote! {
        #(#cfgs)*
        #[cfg(rust_analyzer)]
        const _: () = {
            #(use #krate::__private::keys::#keys as _;)*
        };
    }
}

/// `pub mod keys { /// doc \n pub mod heads {} .. }`
pub(crate) fn key_items() -> TokenStream {
    KEYS.iter().map(key_item).collect()
}

fn key_item(key: &Key) -> TokenStream {
    let name = format_ident!("{}", key.name);
    let doc = format!("{} Default: {}.", key.doc, key.default);
    let words = key.words().iter().map(|word| {
        let (name, doc) = (format_ident!("{}", word.name), format!("`{}`: {}", word.usage(), word.doc));
        quote!(#[doc = #doc] pub mod #name {})
    });
    quote!(#[doc = #doc] pub mod #name { #(#words)* })
}

/// Every key with its values, as Markdown.
pub(crate) fn key_table() -> TokenStream {
    let mut text = String::from("| key | values | default | |\n| --- | --- | --- | --- |\n");
    for key in KEYS {
        let _ = writeln!(text, "| `{}` | {} | {} | {} |", key.name, values(key), key.default, key.doc);
    }
    for key in KEYS.iter().filter(|key| !key.words().is_empty()) {
        let _ = write!(text, "\n`{}`:\n\n| value | |\n| --- | --- |\n", key.name);
        for word in key.words() {
            let _ = writeln!(text, "| `{}` | {} |", escape(&word.usage()), word.doc);
        }
    }
    Literal::string(&text).to_token_stream()
}

fn values(key: &Key) -> String {
    let words = |words: &[Word]| {
        let names: Vec<_> = words.iter().map(|word| format!("`{}`", word.name)).collect();
        names.join(", ")
    };
    match key.kind {
        Kind::Size => "a size".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::Word(list) => words(list),
        Kind::Mask(list) => format!("{}, combined by `&`, `\\|`, `!`, `( )`", words(list)),
        Kind::Projections => "`true`, `false`, a list of `q`, `k`, `v`, `o`".to_owned(),
    }
}

/// A `|` would end the cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}
