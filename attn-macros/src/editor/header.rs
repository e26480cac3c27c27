//! `key = value, ..>`: of a layer, and of an operation.

use proc_macro2::{Delimiter, Ident, TokenTree};

use super::items::module_of_words;
use super::names::{Names, Scope, is_constant, is_name, size};
use super::tokens::Tokens;
use crate::spec::keys::{ArgKind, Key, KeyKind, Word};

/// `key = value`, or a part of it: both may be missing.
pub(super) struct Entry {
    pub(super) key: Option<Ident>,
    pub(super) value: Tokens,
}

/// The keys of a layer, up to the closing `>`.
pub(super) fn walk(names: &mut Names<'_>, tokens: &mut Tokens) {
    for entry in entries(tokens) {
        match entry.key {
            None => names.language("layer", entry.value.ident(0)),
            Some(name) => {
                names.language("layer", Some(&name));
                if let Some(key) = Key::find(&name.to_string()) {
                    walk_value(names, key, entry.value, None);
                }
            }
        }
    }
}

/// The entries between commas, up to the closing `>`.
pub(super) fn entries(tokens: &mut Tokens) -> Vec<Entry> {
    let mut entries = vec![entry(tokens)];
    // A missing comma is an error with its own message.
    while tokens.take(',') || tokens.starts_entry() {
        entries.push(entry(tokens));
    }
    tokens.take('>');
    entries
}

fn entry(tokens: &mut Tokens) -> Entry {
    let key = tokens.starts_entry().then(|| tokens.take_ident()).flatten();
    if key.is_some() {
        tokens.next();
    }
    let mut value = Vec::new();
    // Types have brackets of their own.
    let mut depth = 0;
    let mut is_arrow = false;
    while let Some(token) = tokens.rest().first() {
        let is_outside = depth == 0;
        let is_end = match token {
            TokenTree::Punct(punct) => match punct.as_char() {
                ';' => true,
                ',' => is_outside,
                '>' => is_outside && !is_arrow,
                _ => false,
            },
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace && !value.is_empty(),
            _ => is_outside && tokens.starts_entry(),
        };
        if is_end {
            break;
        }
        if let TokenTree::Punct(punct) = token {
            match punct.as_char() {
                '<' => depth += 1,
                '>' if !is_arrow => depth -= 1,
                _ => {}
            }
        }
        is_arrow = matches!(token, TokenTree::Punct(punct) if matches!(punct.as_char(), '-' | '='));
        value.extend(tokens.next());
    }
    Entry {
        key,
        value: Tokens::new(value.into_iter().collect()),
    }
}

/// The value of a key. In a model, `sizes` may stand in it.
pub(super) fn walk_value(
    names: &mut Names<'_>,
    key: &'static Key,
    value: Tokens,
    sizes: Option<Scope>,
) {
    match key.kind {
        KeyKind::Size | KeyKind::Number | KeyKind::Index => size(names, &value, sizes),
        KeyKind::SizePerAxis(words) => match value.rest() {
            [] | [TokenTree::Ident(_)] if !words.is_empty() => {
                let sizes: Vec<Scope> = sizes.into_iter().collect();
                let scope = names.scope(&sizes, &[&words_of(key)], &[]);
                size(names, &value, Some(scope));
            }
            _ => list_of_sizes(names, value, sizes),
        },
        KeyKind::Word(_) | KeyKind::Mask(_) | KeyKind::Claims(_) => {
            walk_words(names, key, value, sizes);
        }
        KeyKind::Sizes => {
            let mut value = value;
            let list = value.take_group(Delimiter::Bracket).unwrap_or(value);
            for part in list.split() {
                size(names, &part, sizes);
            }
        }
        KeyKind::Projections => walk_projections(names, value),
        KeyKind::Type => names.ty(value.rest()),
        // Its axes are names of a model, which walks them itself.
        KeyKind::Shape | KeyKind::Axes | KeyKind::Pattern => {}
    }
}

/// `3`, `[3, 5]`
fn list_of_sizes(names: &mut Names<'_>, mut value: Tokens, sizes: Option<Scope>) {
    match value.take_group(Delimiter::Bracket) {
        Some(list) => {
            let list = list.split();
            list.iter().for_each(|value| size(names, value, sizes));
        }
        None => size(names, &value, sizes),
    }
}

/// `causal & !(sliding_window(3) | padding)`
pub(super) fn walk_words(
    names: &mut Names<'_>,
    key: &'static Key,
    mut value: Tokens,
    sizes: Option<Scope>,
) {
    let module = words_of(key);
    let mut expects_word = true;
    while let Some(token) = value.next() {
        expects_word = match token {
            TokenTree::Ident(name) => {
                names.language(&module, Some(&name));
                let word = key.words().iter().find(|word| name == word.name);
                let group = value.take_group(Delimiter::Parenthesis);
                if let (Some(word), Some(group)) = (word, group) {
                    walk_arguments(names, key, word, group, sizes);
                }
                false
            }
            TokenTree::Group(group) => {
                walk_words(names, key, Tokens::new(group.stream()), sizes);
                false
            }
            TokenTree::Punct(_) => true,
            TokenTree::Literal(_) => false,
        };
    }
    if expects_word {
        names.language(&module, None);
    }
}

/// The module of the words of a key. `bias` of an operation is `true` or `false`, which are not names, and differs from that of a
/// layer.
fn words_of(key: &Key) -> String {
    let mut words = key.words().iter();
    match words.any(|word| is_name(word.name)) {
        true => format!("words::{}", module_of_words(key)),
        false => "words::truths".to_owned(),
    }
}

/// `n, symmetric`, `theta = 500000.0`
fn walk_arguments(
    names: &mut Names<'_>,
    key: &Key,
    word: &'static Word,
    arguments: Tokens,
    sizes: Option<Scope>,
) {
    let module = format!("arguments::{}::{}", module_of_words(key), word.name);
    for mut argument in arguments.split() {
        let name = argument.starts_entry().then(|| argument.take_ident());
        if let Some(name) = name.flatten() {
            names.language(&module, Some(&name));
            argument.next();
            let arg = word.args.iter().find(|arg| name == arg.name);
            match arg.map(|arg| &arg.kind) {
                Some(ArgKind::Word(key)) => walk_words(names, key, argument, sizes),
                _ => size(names, &argument, sizes),
            }
        } else if argument.rest().len() <= 1 && is_argument(word, &argument) {
            names.language(&module, argument.ident(0));
        } else {
            size(names, &argument, sizes);
        }
    }
}

/// Whether it is the name of an argument or a flag, possibly incomplete. Constants are written in capitals.
fn is_argument(word: &Word, argument: &Tokens) -> bool {
    match argument.rest() {
        [] => !word.args.is_empty(),
        [TokenTree::Ident(name)] => !is_constant(name),
        _ => false,
    }
}

/// `true`, `q`, `[q, v]`
fn walk_projections(names: &mut Names<'_>, mut value: Tokens) {
    let list = value.take_group(Delimiter::Bracket).unwrap_or(value);
    for name in list.split() {
        names.language("words::bias", name.ident(0));
    }
}

/// The names that are possible in the parentheses of a word.
pub(super) fn arguments_of(word: &Word) -> Vec<(&'static str, String)> {
    let arguments = word.args.iter().flat_map(|argument| match &argument.kind {
        ArgKind::Flag(flags) => flags.to_vec(),
        _ => vec![argument.name],
    });
    arguments
        .map(|name| {
            (
                name,
                format!("An argument of `{}`: {}", word.usage(), word.doc),
            )
        })
        .collect()
}
