//! The braces of a layer: learned tensors, data, functions.

use proc_macro2::{Delimiter, Ident, TokenTree};

use super::header::walk_words;
use super::names::{Names, Own, Scope, is_constant};
use super::tokens::Tokens;
use crate::spec::keys::INITIALIZER;

/// What an expression may name.
#[derive(Clone, Copy)]
struct Seen<'v> {
    scope: Scope,
    /// In the body of an `attend`, whose scores may read `dot(..)`: the variables of the model around it, which are seen there.
    variables: Option<&'v [Own]>,
}

/// Walks the contents of the braces. A function may read tensors that are declared after it, and, between the parentheses of `dot`, the
/// variables of a model: those of an `attend`.
pub(super) fn walk(names: &mut Names<'_>, tokens: &mut Tokens, variables: Option<&[Own]>) {
    let scope = names.scope(&[], &["functions", "sizes"], &tensors(tokens));
    let seen = Seen { scope, variables };
    while !tokens.is_empty() {
        walk_item(names, tokens, seen);
    }
    names.language("items", None);
}

/// `param slope: [heads]`, with its hover text.
fn tensors(tokens: &Tokens) -> Vec<Own> {
    let mut tensors = Vec::new();
    let mut tokens = tokens.clone();
    while let Some(token) = tokens.next() {
        let TokenTree::Ident(word) = token else {
            continue;
        };
        if (word == "param" || word == "data")
            && tokens.starts_entry()
            && let Some(name) = tokens.take_ident()
        {
            tokens.next();
            let shape = tokens.take_until(|rest| rest.is(0, '=') || rest.is(0, ';'));
            let shape = shape.text();
            let what = if word == "param" {
                "Learned"
            } else {
                "Data of the call"
            };
            let doc = format!("{what}: `{shape}`.");
            tensors.push(Own { name, doc });
        }
    }
    tensors
}

fn walk_item(names: &mut Names<'_>, tokens: &mut Tokens, tensors: Seen<'_>) {
    while tokens.take('#') {
        tokens.take_group(Delimiter::Bracket);
    }
    if tokens.take_word("fn") {
        names.language("items", None);
        return walk_function(names, tokens, tensors);
    }
    if tokens.is_word("param") || tokens.is_word("data") {
        names.language("items", None);
        return walk_tensor(names, tokens, tensors);
    }
    let word = tokens.take_ident();
    if word.is_some() {
        names.language("items", word.as_ref());
    } else {
        tokens.next();
    }
}

/// `param slope: [heads] = alibi_slopes;`, `data kinds: ids[batch, kv_len];`
fn walk_tensor(names: &mut Names<'_>, tokens: &mut Tokens, tensors: Seen<'_>) {
    let word = tokens.take_ident();
    names.language("items", word.as_ref());
    tokens.take_ident();
    if tokens.take(':') {
        if let Some(kind) = tokens.take_ident() {
            names.language("kinds", Some(&kind));
        }
        if let Some(dims) = tokens.take_group(Delimiter::Bracket) {
            walk_dims(names, dims, word.is_some_and(|word| word == "param"));
        }
    }
    if tokens.take('=') {
        let init = tokens.take_until(|rest| rest.is(0, ';') || starts_item(rest));
        let is_word = init.is_empty() || init.ident(0).is_some_and(|name| !is_constant(name));
        match is_word {
            true => walk_words(names, &INITIALIZER, init, None),
            false => names.constant(init.rest()),
        }
    }
    // An unfinished item ends where the next item starts.
    let end = |rest: &Tokens| rest.is(0, ';') || starts_item(rest);
    walk_expression(names, tokens.take_until(end), tensors);
    tokens.take(';');
}

fn starts_item(tokens: &Tokens) -> bool {
    let starts_tensor = tokens.is_word("param") || tokens.is_word("data");
    tokens.is_word("fn") || starts_tensor && tokens.ident(1).is_some()
}

fn walk_dims(names: &mut Names<'_>, dims: Tokens, is_learned: bool) {
    let module = if is_learned { "sizes" } else { "axes" };
    for dim in dims.split() {
        match dim.rest() {
            [] => names.language(module, None),
            [TokenTree::Ident(name)] if !is_constant(name) => names.language(module, Some(name)),
            value => names.constant(value),
        }
    }
}

/// Walks a function, from the token after `fn`.
fn walk_function(names: &mut Names<'_>, tokens: &mut Tokens, tensors: Seen<'_>) {
    let name = tokens.take_ident();
    names.language("functions_of_body", name.as_ref());
    let kind = name.map(|name| name.to_string()).unwrap_or_default();
    let mut own = Vec::new();
    if let Some(arguments) = tokens.take_group(Delimiter::Parenthesis) {
        for argument in arguments.split() {
            names.language(argument_module(&kind), argument.ident(0));
            own.extend(argument.ident(0).cloned());
        }
    }
    tokens.take_until(|rest| {
        rest.is_group(0, Delimiter::Brace) || rest.is(0, ';') || starts_item(rest)
    });
    let Some(block) = tokens.take_group(Delimiter::Brace) else {
        return;
    };
    let arguments = own.into_iter().map(|name| Own {
        doc: argument_doc(&name.to_string())
            .unwrap_or_default()
            .to_owned(),
        name,
    });
    let mut own: Vec<Own> = arguments.collect();
    locals(&block, &mut own);
    let mut others = match kind.as_str() {
        "normalize" => vec!["words::normalizer"],
        _ => vec![],
    };
    // A condition has no derivative.
    if tensors.variables.is_some() && kind != "mask" {
        others.push("products");
    }
    let scope = names.scope(&[tensors.scope], &others, &own);
    walk_expression(names, block, Seen { scope, ..tensors });
}

/// Arguments are in the table of items. A function of another name has those of `score`.
fn argument_module(kind: &str) -> &'static str {
    match kind {
        "mask" => "arguments_of_mask",
        _ => "arguments_of_score",
    }
}

/// The names that a function may take.
pub(super) const ARGUMENTS: [(&str, &str); 13] = [
    ("score", "The score of a query and a key, after the scale."),
    ("b", "The index in the batch."),
    ("h", "The index of the head, among the query heads."),
    ("q_idx", "The position of the query."),
    ("kv_idx", "The position of the key."),
    ("q_len", "How many queries there are."),
    ("kv_len", "How many keys there are."),
    (
        "q_frame",
        "The frame of the query, on a `grid` of three axes.",
    ),
    ("q_row", "The row of the query, on the `grid`."),
    ("q_col", "The column of the query, on the `grid`."),
    (
        "kv_frame",
        "The frame of the key, on a `grid` of three axes.",
    ),
    ("kv_row", "The row of the key, on the `grid`."),
    ("kv_col", "The column of the key, on the `grid`."),
];

fn argument_doc(name: &str) -> Option<&'static str> {
    let argument = ARGUMENTS.iter().find(|(argument, _)| *argument == name);
    argument.map(|(_, doc)| *doc)
}

/// `let x = ..`, wherever it stands.
fn locals(block: &Tokens, own: &mut Vec<Own>) {
    let mut tokens = block.clone();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => locals(&Tokens::new(group.stream()), own),
            TokenTree::Ident(word) if word == "let" => {
                tokens.take_word("mut");
                own.extend(tokens.take_ident().map(|name| Own {
                    name,
                    doc: "A `let` of this function.".to_owned(),
                }));
            }
            _ => {}
        }
    }
}

/// Names in an expression of Rust.
fn walk_expression(names: &mut Names<'_>, mut tokens: Tokens, seen: Seen<'_>) {
    let mut expects_value = true;
    while let Some(token) = tokens.next() {
        expects_value = match token {
            TokenTree::Ident(word) if word == "let" => {
                tokens.take_word("mut");
                tokens.take_ident();
                false
            }
            TokenTree::Ident(word) if word == "as" => {
                tokens.take_ident();
                false
            }
            TokenTree::Ident(word) if word == "if" || word == "else" => true,
            TokenTree::Ident(name) => {
                walk_path(names, name, &mut tokens, seen);
                false
            }
            TokenTree::Group(group) => {
                walk_expression(names, Tokens::new(group.stream()), seen);
                false
            }
            // A method call is an error.
            TokenTree::Punct(punct) if punct.as_char() == '.' => {
                tokens.take_ident();
                false
            }
            TokenTree::Punct(_) => true,
            TokenTree::Literal(_) => false,
        };
    }
    if expects_value {
        names.own(seen.scope, None);
    }
}

fn walk_path(names: &mut Names<'_>, name: Ident, tokens: &mut Tokens, seen: Seen<'_>) {
    if name == "dot"
        && let Some(variables) = seen.variables
        && let Some(operands) = tokens.take_group(Delimiter::Parenthesis)
    {
        names.own(seen.scope, Some(&name));
        let scope = names.scope(&[seen.scope], &[], variables);
        return walk_expression(names, operands, Seen { scope, ..seen });
    }
    let is_path = |tokens: &Tokens| tokens.is(0, ':') && tokens.is(1, ':');
    if !is_constant(&name) && !is_path(tokens) {
        return names.own(seen.scope, Some(&name));
    }
    let mut path: Vec<TokenTree> = vec![name.into()];
    while is_path(tokens) {
        path.extend([tokens.next(), tokens.next()].into_iter().flatten());
        path.extend(tokens.take_ident().map(TokenTree::Ident));
    }
    names.constant(&path);
}
