//! Spellings of other languages that Rust cannot parse. They are searched after parsing failed.

use proc_macro2::{Delimiter, Spacing, Span, TokenStream, TokenTree};

use crate::messages::body as messages;

/// A span, and the message for it.
type Found = (Span, String);

/// The first word of another language: `a and b`, `not a`, `x if c else y`, `where(c, x, y)`.
pub(super) fn word(tokens: TokenStream) -> Option<Found> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is_value = |index: usize| tokens.get(index).is_some_and(is_value);
    tokens.iter().enumerate().find_map(|(index, token)| {
        let after_value = index > 0 && is_value(index - 1);
        let before_value = is_value(index + 1);
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                slice(group.stream()).or_else(|| word(group.stream()))
            }
            TokenTree::Group(group) => word(group.stream()),
            TokenTree::Punct(sign) if sign.as_char() == '?' => {
                Some((sign.span(), messages::TERNARY.to_owned()))
            }
            TokenTree::Ident(name) => {
                let message = match name.to_string().as_str() {
                    "where" => messages::WHERE.to_owned(),
                    "fn" => messages::NESTED_FUNCTION.to_owned(),
                    "elif" | "elsif" | "elseif" => messages::ELIF.to_owned(),
                    "and" if after_value && before_value => messages::operator_word(name, "&&"),
                    "or" if after_value && before_value => messages::operator_word(name, "||"),
                    "not" if before_value => messages::operator_word(name, "!"),
                    "if" if after_value => messages::IF_BEHIND_A_VALUE.to_owned(),
                    _ => return None,
                };
                Some((name.span(), message))
            }
            _ => None,
        }
    })
}

/// The `:` of a slice, which is none of a path.
fn slice(index: TokenStream) -> Option<Found> {
    let is_colon =
        |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == ':');
    let mut tokens: Vec<TokenTree> = index.into_iter().collect();
    // The indices have been put into parentheses by now.
    if let [TokenTree::Group(places)] = tokens.as_slice() {
        tokens = places.stream().into_iter().collect();
    }
    let mut groups = tokens.chunk_by(|a, b| is_colon(a) == is_colon(b));
    let colon = groups.find(|group| group.len() == 1 && is_colon(&group[0]))?;
    Some((colon[0].span(), messages::SLICE.to_owned()))
}

/// Tokens that may be an operand, or the end or the beginning of one. Braces end a statement.
fn is_value(token: &TokenTree) -> bool {
    match token {
        TokenTree::Ident(name) => !["else", "return", "let", "in"]
            .iter()
            .any(|word| name == word),
        TokenTree::Literal(_) => true,
        TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
        TokenTree::Punct(_) => false,
    }
}

/// The first `&` or `|` with a comparison on both of its sides: it binds tighter than they do.
pub(super) fn operator_between_comparisons(tokens: TokenStream) -> Option<Found> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let inner = tokens.iter().find_map(|token| match token {
        TokenTree::Group(group) => operator_between_comparisons(group.stream()),
        _ => None,
    });
    let mut compares = false;
    let mut operator = None;
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Punct(punct) = token else {
            continue;
        };
        let is_joint = punct.spacing() == Spacing::Joint;
        let is = |index: usize, char: char| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == char);
        let is_doubled = |char| is_joint && is(index + 1, char) || index > 0 && is(index - 1, char);
        match punct.as_char() {
            ';' | ',' => (compares, operator) = (false, None),
            char @ ('&' | '|') if is_doubled(char) => (compares, operator) = (false, None),
            '&' | '|' => {
                operator = operator.or(compares.then_some(punct));
                compares = false;
            }
            '<' | '>' => compares = true,
            '=' | '!' if is_joint && is(index + 1, '=') => compares = true,
            _ => {}
        }
        if compares && let Some(punct) = operator {
            return Some((punct.span(), messages::binds_tighter(punct.as_char())));
        }
    }
    inner
}
