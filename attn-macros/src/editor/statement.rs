//! Where statements begin and end.

use proc_macro2::{Delimiter, TokenTree};

use super::tokens::Tokens;

/// The parts between the word of a loop and its braces: `layers, name = encoder`.
pub(super) fn take_header(tokens: &mut Tokens) -> Vec<Tokens> {
    let is_block = |tokens: &Tokens, ahead| tokens.is_group(ahead, Delimiter::Brace);
    // A count may be in braces, too. Alone, these are the statements.
    let is_missing = is_block(tokens, 0) && !is_block(tokens, 1) && !tokens.is(1, ',');
    let mut header = Vec::new();
    let is_end = |tokens: &Tokens, is_first: bool| {
        let is_next = tokens.is(0, ';') || tokens.is_word("let");
        tokens.is_empty() || is_next || is_block(tokens, 0) && !is_first
    };
    while !is_missing && !is_end(tokens, header.is_empty()) {
        header.extend(tokens.next());
    }
    Tokens::new(header.into_iter().collect()).split()
}

/// The tokens to the end of the statement. Between the `<` and `>` of an operation, `key =` starts no statement.
pub(super) fn take_value(tokens: &mut Tokens) -> Tokens {
    let mut value = Vec::new();
    let mut depth = 0;
    let is_end = |tokens: &Tokens, depth| {
        tokens.is_empty() || tokens.is(0, ';') || depth == 0 && ends_statement(tokens)
    };
    while !is_end(tokens, depth) {
        if tokens.starts_arguments(0) {
            value.extend((0..2).filter_map(|_| tokens.next()));
        }
        let is_inside = depth > 0 || ends_in(&value, ':');
        let is_arrow = ends_in(&value, '-');
        depth += isize::from(is_inside && tokens.is(0, '<'));
        depth -= isize::from(depth > 0 && tokens.is(0, '>') && !is_arrow);
        value.extend(tokens.next());
    }
    Tokens::new(value.into_iter().collect())
}

fn ends_in(value: &[TokenTree], sign: char) -> bool {
    matches!(value.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == sign)
}

/// `;`, or where another statement starts without one.
pub(super) fn ends_statement(tokens: &Tokens) -> bool {
    let starts_item = starts_loop(tokens) || starts_any_tensor(tokens);
    let starts_item = starts_item || tokens.is_word("yield");
    tokens.is(0, ';') || tokens.is_word("let") || starts_item || is_assignment(tokens)
}

/// Two words, of which the first requires a second one.
pub(super) fn is_keyword(tokens: &Tokens) -> bool {
    let is_rusts = tokens.is_word("let") || tokens.is_word("if");
    is_rusts || starts_loop(tokens) || starts_any_tensor(tokens)
}

fn starts_loop(tokens: &Tokens) -> bool {
    starts_repeat(tokens) || starts_scan(tokens)
}

fn starts_any_tensor(tokens: &Tokens) -> bool {
    ["param", "buffer", "state"]
        .into_iter()
        .any(|word| starts_tensor(tokens, word))
}

/// `param name`, `buffer name`, `state name`. The word may be the name of a variable, too.
pub(super) fn starts_tensor(tokens: &Tokens, word: &str) -> bool {
    tokens.is_word(word) && tokens.ident(1).is_some()
}

/// The word may be the name of a variable, too.
pub(super) fn starts_repeat(tokens: &Tokens) -> bool {
    let has_count = tokens.rest().len() > 1 && !tokens.is(1, ';');
    tokens.is_word("repeat") && has_count && !is_assignment(tokens)
}

/// `x =`, `x +=`, but not `x ==`
pub(super) fn is_assignment(tokens: &Tokens) -> bool {
    let signs = ['+', '-', '*', '/'];
    let is_compound = signs.into_iter().any(|sign| tokens.is(1, sign)) && tokens.is(2, '=');
    let is_plain = tokens.is(1, '=') && !tokens.is(2, '=');
    tokens.ident(0).is_some() && (is_plain || is_compound)
}

/// `scan seq`, `scan { 2 * steps }`. The word may be the name of a variable, too.
pub(super) fn starts_scan(tokens: &Tokens) -> bool {
    let next = tokens.rest().get(1);
    let has_axis = matches!(next, Some(TokenTree::Ident(_) | TokenTree::Literal(_)));
    tokens.is_word("scan") && (has_axis || tokens.is_group(1, Delimiter::Brace))
}
