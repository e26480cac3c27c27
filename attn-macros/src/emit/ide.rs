//! Editor completion and the tables of the language, all from [`keys`](crate::spec::keys).

use std::fmt::Write;

use proc_macro2::{Literal, TokenStream};
use quote::{ToTokens, format_ident, quote};

use crate::diag::Diagnostics;
use crate::markdown::Table;
use crate::model::ops::{OPERATIONS, Operation};
use crate::score::{Expr, builtin};
use crate::spec::keys::{ArgKind, INITIALIZER, KEYS, Key, Kind, Word};
use crate::spec::parse_mask;

/// Under rust-analyzer only: what the user wrote, also half a word, as paths into the documented names of [`key_items`], so
/// that editors complete keys and words and show what they mean.
pub(crate) fn emit(krate: &TokenStream, mentions: &[TokenStream]) -> TokenStream {
    quote! {
        #[allow(unexpected_cfgs)]
        const _: () = {
            #[cfg(rust_analyzer)]
            fn mentioned() {
                #(let _ = #krate::__private::keys::#mentions::KEY;)*
            }
        };
    }
}

/// `/// doc \n pub mod mask { pub const KEY: () = (); /// doc \n pub mod causal { .. } .. } ..`, and
/// `pub mod model { /// doc \n pub mod linear { pub const KEY: () = (); /// doc \n pub mod out { .. } .. } .. }`
pub(crate) fn key_items() -> TokenStream {
    let operations = OPERATIONS.iter().map(operation_item);
    let of_operations = || OPERATIONS.iter().flat_map(|operation| operation.keys);
    let is_new = |key: &&Key| Key::find(key.name).is_none() && !key.words().is_empty();
    // Words are mentioned by the names of their keys alone.
    let keys = KEYS.iter().chain(of_operations().filter(is_new));
    let keys = keys.map(key_item);
    quote! {
        #(#keys)*
        /// The operations of `model!`.
        pub mod model {
            #(#operations)*
        }
    }
}

/// The keys of `attention` are those of `attention!`.
fn operation_item(operation: &Operation) -> TokenStream {
    let name = format_ident!("{}", operation.name);
    let doc = format!("{}: {}", operation.signature, operation.doc);
    let keys = operation.keys.iter();
    let keys = keys.filter(|key| operation.name != "attention" && is_name(key.name));
    let keys = keys.map(key_item);
    quote! {
        #[doc = #doc]
        pub mod #name {
            #[doc = #doc]
            pub const KEY: () = ();
            #(#keys)*
        }
    }
}

/// Not a keyword of Rust, as `true`.
fn is_name(name: &str) -> bool {
    syn::parse_str::<syn::Ident>(name).is_ok()
}

fn key_item(key: &Key) -> TokenStream {
    let name = format_ident!("{}", key.name);
    let doc = format!("{} Default: {}.", key.doc, key.default);
    let words = key.words().iter().filter(|word| is_name(word.name));
    let words = words.map(|word| {
        let (name, doc) = (
            format_ident!("{}", word.name),
            format!("`{}`: {}", word.usage(), word.doc),
        );
        quote! {
            #[doc = #doc]
            pub mod #name {
                #[doc = #doc]
                pub const KEY: () = ();
            }
        }
    });
    quote! {
        #[doc = #doc]
        pub mod #name {
            #[doc = #doc]
            pub const KEY: () = ();
            #(#words)*
        }
    }
}

/// Every key with its values, and the words of the body, as Markdown.
pub(crate) fn key_table() -> TokenStream {
    let mut keys = Table::new(["key", "values", "default", ""]);
    for key in KEYS {
        keys.row([
            &format!("`{}`", key.name),
            &values(key),
            key.default,
            &with_definition(key.doc, builtin::of_score(key.name)),
        ]);
    }
    let mut text = keys.to_string();
    let of_words = KEYS.iter().filter(|key| !key.words().is_empty());
    for key in of_words.chain([&INITIALIZER]) {
        let mut words = Table::new(["value", ""]);
        for word in key.words() {
            let doc = with_definition(word.doc, definition(key, word));
            words.row([&format!("`{}`", word.usage()), &doc]);
        }
        let _ = write!(text, "\n`{}`:\n\n{words}", key.name);
    }
    Literal::string(&text).to_token_stream()
}

fn with_definition(doc: &str, definition: Option<Expr>) -> String {
    match definition {
        Some(definition) => format!("{doc} `{definition}`"),
        None => doc.to_owned(),
    }
}

/// What a word stands for, in the language of a body.
fn definition(key: &'static Key, word: &'static Word) -> Option<Expr> {
    let Kind::Mask(words) = &key.kind else {
        return builtin::of_score(word.name);
    };
    let sizes = word.args.iter();
    let sizes = sizes.filter(|arg| matches!(arg.kind, ArgKind::Size { .. }));
    let sizes: Vec<_> = sizes.map(|arg| arg.name).collect();
    let written = match sizes.as_slice() {
        [] => word.name.parse(),
        sizes => format!("{}({})", word.name, sizes.join(", ")).parse(),
    };
    let mask = parse_mask(&written.ok()?, key, words, &Diagnostics::default());
    (!mask.is_none()).then(|| builtin::mask(&mask))
}

fn values(key: &Key) -> String {
    let words = |words: &[Word]| {
        let names: Vec<_> = words
            .iter()
            .map(|word| format!("`{}`", word.name))
            .collect();
        names.join(", ")
    };
    match key.kind {
        Kind::Size => "a size".to_owned(),
        Kind::Number => "a number".to_owned(),
        Kind::Word(list) => words(list),
        Kind::Mask(list) => format!("{}, combined by `&`, `|`, `!`, `( )`", words(list)),
        Kind::Claims(list) => format!("{}, combined by `&`", words(list)),
        Kind::Projections => "`true`, `false`, a list of `q`, `k`, `v`, `o`".to_owned(),
        Kind::Type => "a type".to_owned(),
        Kind::Shape => "a shape".to_owned(),
    }
}
