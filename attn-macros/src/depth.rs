//! How deep an input may be nested.
//!
//! Parsers and all that follows them call themselves for what stands inside of something, as rustc does with what is emitted. Too
//! many of these calls would use up the stack, and that is no error but the end of the compiler.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};

use crate::diag::Diagnostics;
use crate::messages;

/// Groups, and operators before a value, one inside of the other. A stack of 2 MiB bears as many if `syn` is optimised, and without
/// optimisation that of rustc does, which is four times as large.
pub(crate) const DEEPEST: usize = 128;

/// `input`, cut off where it is too deep: that is reported, and nothing that follows from it.
pub(crate) fn limit(input: TokenStream, cx: &Diagnostics) -> TokenStream {
    match too_deep(&input, 0) {
        None => input,
        Some(at) => {
            cx.push(syn::Error::new(at, messages::too_deep(DEEPEST)));
            cx.mute();
            cut(input, 0)
        }
    }
}

/// The first token beyond the limit.
fn too_deep(tokens: &TokenStream, depth: usize) -> Option<Span> {
    let mut nesting = Nesting::default();
    tokens.clone().into_iter().find_map(|token| {
        let depth = depth + nesting.of(&token);
        match token {
            token if depth >= DEEPEST => Some(start(&token)),
            TokenTree::Group(group) => too_deep(&group.stream(), depth + 1),
            _ => None,
        }
    })
}

/// Without what is beyond the limit.
fn cut(tokens: TokenStream, depth: usize) -> TokenStream {
    let mut nesting = Nesting::default();
    let cut = tokens.into_iter().filter_map(|token| {
        let depth = depth + nesting.of(&token);
        match token {
            _ if depth >= DEEPEST => None,
            TokenTree::Group(group) => {
                let mut inner = Group::new(group.delimiter(), cut(group.stream(), depth + 1));
                inner.set_span(group.span());
                Some(inner.into())
            }
            token => Some(token),
        }
    });
    cut.collect()
}

fn start(token: &TokenTree) -> Span {
    match token {
        TokenTree::Group(group) if group.delimiter() != Delimiter::None => group.span_open(),
        token => token.span(),
    }
}

/// The nesting between groups: `!!!a` is `!(!(!(a)))`, and `A<B<C` opens as parentheses do.
#[derive(Default)]
struct Nesting {
    /// Operators in a row.
    operators: usize,
    /// `<` without its `>`, since the last token that stands in no type.
    angles: usize,
}

impl Nesting {
    /// How deep `token`, the next one, stands.
    fn of(&mut self, token: &TokenTree) -> usize {
        let symbol = match token {
            TokenTree::Punct(punct) => Some(punct.as_char()),
            _ => None,
        };
        self.operators = symbol.map_or(0, |_| self.operators + 1);
        self.angles = match (symbol, token) {
            (Some('<'), _) => self.angles + 1,
            (Some('>'), _) => self.angles.saturating_sub(1),
            (Some(':' | ','), _) | (None, TokenTree::Ident(_)) => self.angles,
            _ => 0,
        };
        self.operators + self.angles
    }
}
