//! The tables of the language, from [`keys`](crate::spec::keys).

use std::fmt::Write;

use proc_macro2::{Literal, TokenStream};
use quote::ToTokens;

use crate::diag::Diagnostics;
use crate::markdown::Table;
use crate::score::{Expr, builtin};
use crate::spec::keys::{ATTEND_KEYS, ArgKind, INITIALIZER, KEYS, Key, KeyKind, Word};
use crate::spec::{Atom, parse_mask};

/// Every key with its values, and the words of the body, as Markdown.
pub(crate) fn key_table() -> TokenStream {
    let mut text = keys(KEYS).to_string();
    let of_words = KEYS.iter().filter(|key| !key.words().is_empty());
    for key in of_words.chain([&INITIALIZER]) {
        let mut words = Table::new(["value", ""]);
        for word in key.words() {
            let doc = with_definition(word.doc, definition(key, word));
            words.row([&format!("`{}`", word.usage()), &doc]);
        }
        let _ = write!(text, "\n`{}`:\n\n{words}", key.name);
        for (word, argument) in key.choices() {
            let mut words = Table::new(["value", ""]);
            for word in argument.words() {
                words.row([&format!("`{}`", word.usage()), word.doc]);
            }
            let (of, default) = (word.name, argument.default);
            let _ = write!(
                text,
                "\n`{}` of `{of}` (default {default}):\n\n{words}",
                argument.name
            );
        }
    }
    Literal::string(&text).to_token_stream()
}

/// The keys of `attend` as Markdown. Their words have their tables on the page of `attention!`.
pub(crate) fn attend_key_table() -> TokenStream {
    Literal::string(&keys(ATTEND_KEYS).to_string()).to_token_stream()
}

fn keys(keys: &[Key]) -> Table<4> {
    let mut table = Table::new(["key", "values", "default", ""]);
    for key in keys {
        table.row([
            &format!("`{}`", key.name),
            &values(key),
            key.default,
            &with_definition(key.doc, builtin::of_score(key.name)),
        ]);
    }
    table
}

fn with_definition(doc: &str, definition: Option<Expr>) -> String {
    match definition {
        Some(definition) => format!("{doc} `{definition}`"),
        None => doc.to_owned(),
    }
}

/// The definition of a word, in the language of a body.
fn definition(key: &'static Key, word: &'static Word) -> Option<Expr> {
    let KeyKind::Mask(words) = &key.kind else {
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
    let is_defined = !mask.is_none() && !mask.atoms().into_iter().any(Atom::reads_grid);
    is_defined.then(|| builtin::mask(&mask, None))
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
        KeyKind::Size => "a size".to_owned(),
        KeyKind::SizePerAxis(list) => {
            format!("a size, or one for each axis in brackets; {}", words(list))
        }
        KeyKind::Number => "a number".to_owned(),
        KeyKind::Word(list) => words(list),
        KeyKind::Mask(list) => format!("{}, combined by `&`, `|`, `!`, `( )`", words(list)),
        KeyKind::Claims(list) => format!("{}, combined by `&`", words(list)),
        KeyKind::Projections => "`true`, `false`, a list of `q`, `k`, `v`, `o`".to_owned(),
        KeyKind::Sizes => "sizes in brackets".to_owned(),
        KeyKind::Type => "a type".to_owned(),
        KeyKind::Shape => "a shape".to_owned(),
        KeyKind::Axes => "an axis, or several in brackets".to_owned(),
        KeyKind::Pattern => "axes in brackets".to_owned(),
        KeyKind::Index => "a number with a sign".to_owned(),
    }
}
