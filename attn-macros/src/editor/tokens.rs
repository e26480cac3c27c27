//! Tokens, one after the other.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use crate::spec::text;

/// A list of tokens and the place in it.
#[derive(Clone)]
pub(super) struct Tokens {
    list: Vec<TokenTree>,
    at: usize,
}

impl Tokens {
    /// Without the invisible groups in which a macro hands on the fragments it matched.
    pub(super) fn new(tokens: TokenStream) -> Self {
        let mut list = Vec::new();
        flatten(tokens, &mut list);
        Tokens { list, at: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at == self.list.len()
    }

    /// The rest of the tokens.
    pub(super) fn rest(&self) -> &[TokenTree] {
        &self.list[self.at..]
    }

    /// The rest as source text.
    pub(super) fn text(&self) -> String {
        text::of(&self.rest().iter().cloned().collect())
    }

    pub(super) fn next(&mut self) -> Option<TokenTree> {
        let token = self.rest().first().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    pub(super) fn ident(&self, ahead: usize) -> Option<&Ident> {
        match self.rest().get(ahead) {
            Some(TokenTree::Ident(name)) => Some(name),
            _ => None,
        }
    }

    pub(super) fn is(&self, ahead: usize, char: char) -> bool {
        matches!(self.rest().get(ahead), Some(TokenTree::Punct(punct)) if punct.as_char() == char)
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        self.ident(0).is_some_and(|name| name == word)
    }

    pub(super) fn is_group(&self, ahead: usize, delimiter: Delimiter) -> bool {
        matches!(self.rest().get(ahead), Some(TokenTree::Group(group)) if group.delimiter() == delimiter)
    }

    /// `name =`, or the `:` of another language, but not a comparison or a path.
    pub(super) fn starts_entry(&self) -> bool {
        let is_sign = |sign| self.is(1, sign) && !self.is(2, sign);
        self.ident(0).is_some() && (is_sign('=') || is_sign(':'))
    }

    /// `::<`
    pub(super) fn starts_arguments(&self, ahead: usize) -> bool {
        self.is(ahead, ':') && self.is(ahead + 1, ':') && self.is(ahead + 2, '<')
    }

    pub(super) fn take(&mut self, char: char) -> bool {
        let is_it = self.is(0, char);
        self.at += usize::from(is_it);
        is_it
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let is_it = self.is_word(word);
        self.at += usize::from(is_it);
        is_it
    }

    pub(super) fn take_ident(&mut self) -> Option<Ident> {
        let name = self.ident(0).cloned();
        self.at += usize::from(name.is_some());
        name
    }

    /// The tokens of the next group, if it is one of these.
    pub(super) fn take_group(&mut self, delimiter: Delimiter) -> Option<Tokens> {
        match self.rest().first() {
            Some(TokenTree::Group(group)) if group.delimiter() == delimiter => {
                let inner = Tokens::new(group.stream());
                self.at += 1;
                Some(inner)
            }
            _ => None,
        }
    }

    /// The tokens before the next that `end` accepts.
    pub(super) fn take_until(&mut self, end: impl Fn(&Tokens) -> bool) -> Tokens {
        let mut list = Vec::new();
        while !self.is_empty() && !end(self) {
            list.extend(self.next());
        }
        Tokens { list, at: 0 }
    }

    pub(super) fn extend(&mut self, tokens: impl IntoIterator<Item = TokenTree>) {
        self.list.extend(tokens);
    }

    /// The tokens between commas: also none, before the first, between two and behind the last. Keys of an operation are one part.
    pub(super) fn split(mut self) -> Vec<Tokens> {
        let mut parts = vec![self.take_part()];
        while self.take(',') {
            parts.push(self.take_part());
        }
        parts
    }

    /// The tokens before the next comma that is not between `::<` and `>`.
    fn take_part(&mut self) -> Tokens {
        let mut list = Vec::new();
        while !self.is_empty() && !self.is(0, ',') {
            for _ in 0..self.len_of_arguments().unwrap_or(1) {
                list.extend(self.next());
            }
        }
        Tokens { list, at: 0 }
    }

    /// The number of tokens from `::<` to its `>`, if there is one.
    fn len_of_arguments(&self) -> Option<usize> {
        self.starts_arguments(0).then_some(())?;
        let mut depth = 0;
        (2..self.rest().len()).find_map(|index| {
            depth += isize::from(self.is(index, '<'));
            depth -= isize::from(self.is(index, '>') && !self.is(index - 1, '-'));
            (depth == 0).then_some(index + 1)
        })
    }
}

fn flatten(tokens: TokenStream, list: &mut Vec<TokenTree>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                flatten(group.stream(), list);
            }
            token => list.push(token),
        }
    }
}
