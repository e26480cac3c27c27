//! The axes of `rearrange`, as they are written: `[batch, (heads, d_head)] -> [batch, heads, d_head]`.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

use crate::messages::model as messages;
use crate::model::syntax::first;
use crate::spec::split_at_commas;

/// The axes of a value and those of the result. Without the first ones, the value has the axes that it has.
pub(super) struct Pattern {
    pub(super) from: Option<Vec<Entry>>,
    pub(super) to: Vec<Entry>,
}

/// An axis, or several in parentheses that are one axis.
pub(super) struct Entry {
    /// `rows = (batch, seq)`
    pub(super) name: Option<Ident>,
    pub(super) parts: Vec<TokenStream>,
    pub(super) is_group: bool,
    pub(super) at: Span,
}

pub(super) fn parse(tokens: &TokenStream) -> syn::Result<Pattern> {
    let all: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let is = |token: &TokenTree, sign: char| matches!(token, TokenTree::Punct(punct) if punct.as_char() == sign);
    match all.as_slice() {
        [TokenTree::Literal(text)] => {
            let message = messages::pattern_as_text(&text.to_string());
            Err(syn::Error::new(text.span(), message))
        }
        [TokenTree::Group(to)] if is_list(to) => Ok(Pattern {
            from: None,
            to: entries(to)?,
        }),
        [TokenTree::Group(from), dash, angle, TokenTree::Group(to)]
            if is(dash, '-') && is(angle, '>') && is_list(from) && is_list(to) =>
        {
            Ok(Pattern {
                from: Some(entries(from)?),
                to: entries(to)?,
            })
        }
        _ => Err(syn::Error::new(
            first(tokens),
            messages::expected_pattern(tokens),
        )),
    }
}

fn is_list(group: &Group) -> bool {
    group.delimiter() == Delimiter::Bracket
}

fn entries(list: &Group) -> syn::Result<Vec<Entry>> {
    let entries = split_at_commas(list.stream()).into_iter();
    entries.map(|tokens| entry(&tokens)).collect()
}

/// `batch`, `(heads, d_head)`, `rows = (batch, seq)`
fn entry(tokens: &TokenStream) -> syn::Result<Entry> {
    let all: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let at = first(tokens);
    let (name, rest) = match all.as_slice() {
        [TokenTree::Ident(name), TokenTree::Punct(equals), rest @ ..]
            if equals.as_char() == '=' =>
        {
            (Some(name.clone()), rest)
        }
        rest => (None, rest),
    };
    match (name, rest) {
        (name, [TokenTree::Group(group)]) if group.delimiter() == Delimiter::Parenthesis => {
            let parts = split_at_commas(group.stream());
            parts.iter().try_for_each(is_axis)?;
            Ok(Entry {
                name,
                parts,
                is_group: true,
                at,
            })
        }
        (Some(_), _) => Err(syn::Error::new(at, messages::name_of_no_group(tokens))),
        (None, _) => {
            is_axis(tokens)?;
            Ok(Entry {
                name: None,
                parts: vec![tokens.clone()],
                is_group: false,
                at,
            })
        }
    }
}

/// Whether these may be one axis: no dots, and not several names with blanks between them.
fn is_axis(tokens: &TokenStream) -> syn::Result<()> {
    let all: Vec<TokenTree> = tokens.clone().into_iter().collect();
    match all.as_slice() {
        [TokenTree::Punct(dot), ..] if dot.as_char() == '.' => {
            Err(syn::Error::new(dot.span(), messages::ELLIPSIS_OF_PATTERN))
        }
        [
            _,
            second @ (TokenTree::Ident(_) | TokenTree::Literal(_)),
            ..,
        ] => Err(syn::Error::new(
            second.span(),
            messages::blanks_in_pattern(tokens),
        )),
        _ => Ok(()),
    }
}
