//! Comments of other languages, `# eight heads`, which Rust hands on as tokens.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::diag::Diagnostics;
use crate::messages;

/// `tokens` without such comments, each of which is reported and ends with its line.
pub(crate) fn remove(tokens: TokenStream, cx: &Diagnostics) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut rest = TokenStream::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) => {
                let before = cx.count();
                let mut inner = Group::new(group.delimiter(), remove(group.stream(), cx));
                inner.set_span(group.span());
                // A group that is made anew has no places of its delimiters.
                let is_same = cx.count() == before;
                rest.extend([TokenTree::from(if is_same { group } else { inner })]);
            }
            TokenTree::Punct(hash)
                if hash.as_char() == '#' && !tokens.peek().is_some_and(is_attribute) =>
            {
                cx.error(&hash, messages::HASH_COMMENT);
                let line = hash.span().start().line;
                while tokens
                    .next_if(|token| token.span().start().line == line)
                    .is_some()
                {}
            }
            other => rest.extend([other]),
        }
    }
    rest
}

/// The token behind the `#` of an attribute: `[..]` or `!`.
fn is_attribute(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Bracket,
        TokenTree::Punct(punct) => punct.as_char() == '!',
        _ => false,
    }
}
