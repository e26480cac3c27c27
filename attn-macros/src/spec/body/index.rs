//! Indices with several parts, `bias[h, q_idx]`. They are not Rust, so they are parsed as `bias[(h, q_idx)]`.

use std::iter::Peekable;

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree, token_stream};
use syn::Block;

use super::foreign;
use crate::diag::Diagnostics;
use crate::messages::body as messages;
use crate::spec::text;

/// The statements in the braces of a function.
pub(super) fn parse_block(group: &Group, cx: &Diagnostics) -> syn::Result<Block> {
    let tokens = with_tuples(group.stream(), cx);
    syn::parse2(regroup(group, tokens.clone()).into()).map_err(|error| explained(error, tokens))
}

/// The error of syn, reworded if its cause is known.
fn explained(error: syn::Error, tokens: TokenStream) -> syn::Error {
    let is_chain = error.to_string() == "comparison operators cannot be chained";
    let meant = match is_chain {
        true => foreign::operator_between_comparisons(tokens),
        false => foreign::word(tokens),
    };
    match meant {
        Some((span, message)) => syn::Error::new(span, message),
        None if is_chain => syn::Error::new(error.span(), messages::CHAINED_COMPARISONS),
        None => error,
    }
}

/// `tokens` as the user wrote them, on one line.
pub(crate) fn text_of(tokens: TokenStream) -> String {
    text::of(&without_tuples(tokens))
}

/// Puts the parts of an index into parentheses. Attributes are reported, and left out.
fn with_tuples(tokens: TokenStream, cx: &Diagnostics) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut output = TokenStream::new();
    let mut after_name = false;
    while let Some(token) = tokens.next() {
        let is_name = matches!(token, TokenTree::Ident(_));
        match token {
            TokenTree::Group(group) => {
                let mut inner = with_tuples(group.stream(), cx);
                let is_index = after_name && group.delimiter() == Delimiter::Bracket;
                if is_index && !is_single(&inner) {
                    inner = around(Delimiter::Parenthesis, inner, group.span()).into();
                }
                output.extend([regroup(&group, inner)]);
            }
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                cx.error(&punct, messages::ATTRIBUTE_IN_FUNCTION);
                skip_attribute(&mut tokens);
            }
            other => output.extend([other]),
        }
        after_name = is_name;
    }
    output
}

/// One place and no comma.
fn is_single(index: &TokenStream) -> bool {
    let is_comma = |token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
    !index.is_empty() && !index.clone().into_iter().any(is_comma)
}

/// Skips the tokens after a `#`.
fn skip_attribute(tokens: &mut Peekable<token_stream::IntoIter>) {
    tokens.next_if(|token| matches!(token, TokenTree::Punct(punct) if punct.as_char() == '!'));
    tokens.next_if(
        |token| matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket),
    );
}

/// Undoes [`with_tuples`].
pub(super) fn without_tuples(tokens: TokenStream) -> TokenStream {
    let tokens = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => {
            let tuple = match group.delimiter() {
                Delimiter::Bracket => only_group(&group),
                _ => None,
            };
            let inner = tuple.map_or_else(|| group.stream(), |tuple| tuple.stream());
            regroup(&group, without_tuples(inner))
        }
        other => other,
    });
    tokens.collect()
}

/// The parentheses that are the whole contents of `group`.
fn only_group(group: &Group) -> Option<Group> {
    let mut tokens = group.stream().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(inner)), None) if inner.delimiter() == Delimiter::Parenthesis => {
            Some(inner)
        }
        _ => None,
    }
}

/// A group like `group` around `tokens`. The end of a block, where its value may be missing, is its closing brace.
fn regroup(group: &Group, tokens: TokenStream) -> TokenTree {
    let span = match group.delimiter() {
        Delimiter::Brace => group.span_close(),
        _ => group.span(),
    };
    around(group.delimiter(), tokens, span)
}

fn around(delimiter: Delimiter, tokens: TokenStream, span: Span) -> TokenTree {
    let mut group = Group::new(delimiter, tokens);
    group.set_span(span);
    group.into()
}
