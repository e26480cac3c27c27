//! The algebra of masks: words combined by `&`, `|`, `!` and parentheses, with Rust's precedence.

use std::cell::Cell;
use std::iter::Peekable;

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};

use super::keys::{Key, Word};
use super::value::Size;
use super::word::{self, Call};
use crate::diag::Diagnostics;
use crate::messages;

/// The keys that a query attends to.
#[derive(Clone, Debug)]
pub(crate) enum MaskExpr {
    Atom(Atom),
    Not(Box<MaskExpr>),
    And(Box<MaskExpr>, Box<MaskExpr>),
    Or(Box<MaskExpr>, Box<MaskExpr>),
}

/// One word of the algebra.
#[derive(Clone)]
pub(crate) struct Atom {
    pub(crate) call: Call,
}

/// The alignment of query positions with key positions.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Align {
    /// The first query with the first key.
    UpperLeft,
    /// The last query with the last key.
    LowerRight,
}

impl std::fmt::Debug for Atom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Atom {
    pub(crate) fn name(&self) -> &'static str {
        self.call.word.name
    }

    pub(crate) fn size(&self, name: &str) -> Size {
        self.call.size(name)
    }

    pub(crate) fn is_symmetric(&self) -> bool {
        self.call.flag("symmetric").is_some()
    }

    /// The declared alignment.
    pub(crate) fn align(&self) -> Option<Align> {
        match self.call.flag("alignment")? {
            "lower_right" => Some(Align::LowerRight),
            _ => Some(Align::UpperLeft),
        }
    }

    fn is_one_sided(&self, cross: bool) -> bool {
        let looks_back = match self.name() {
            "causal" => true,
            "sliding_window" | "dilated_sliding_window" => !self.is_symmetric(),
            _ => false,
        };
        looks_back && !(cross && self.align() == Some(Align::LowerRight))
    }

    /// Whether it compares a query position with a key position, so that the alignment matters.
    pub(crate) fn compares_positions(&self) -> bool {
        self.call
            .word
            .args
            .iter()
            .any(|arg| arg.name == "alignment")
    }
}

impl MaskExpr {
    /// `none`
    pub(crate) fn none() -> MaskExpr {
        MaskExpr::Atom(Atom { call: Call::none() })
    }

    /// No mask at all.
    pub(crate) fn is_none(&self) -> bool {
        matches!(self, MaskExpr::Atom(atom) if atom.name() == "none")
    }

    /// Every word in the expression.
    pub(crate) fn atoms(&self) -> Vec<&Atom> {
        match self {
            MaskExpr::Atom(atom) => vec![atom],
            MaskExpr::Not(mask) => mask.atoms(),
            MaskExpr::And(a, b) | MaskExpr::Or(a, b) => [a.atoms(), b.atoms()].concat(),
        }
    }

    /// Whether its words exclude later keys: `causal` does, and `padding` does not. `None` if the words do not decide. (In
    /// cross-attention, a query that is aligned with the last key has a smaller index than keys before it.)
    pub(super) fn is_one_sided(&self, cross: bool) -> Option<bool> {
        match self {
            MaskExpr::Atom(atom) => Some(atom.is_one_sided(cross)),
            MaskExpr::Not(_) => None,
            MaskExpr::And(a, b) => match [a, b].map(|part| part.is_one_sided(cross)) {
                [Some(true), _] | [_, Some(true)] => Some(true),
                [a, b] => a.and(b),
            },
            MaskExpr::Or(a, b) => match [a, b].map(|part| part.is_one_sided(cross)) {
                [Some(false), _] | [_, Some(false)] => Some(false),
                [a, b] => a.and(b),
            },
        }
    }

    /// The sizes that the definitions of the words compare with and divide by. None of them is 0.
    pub(crate) fn lengths(&self) -> Vec<Size> {
        let lengths = self.atoms().into_iter().flat_map(|atom| {
            let [n, dilation] = ["n", "dilation"].map(|arg| atom.size(arg));
            let own = ["frames", "rows", "cols"].map(|arg| atom.call.optional_size(arg));
            let own = own.into_iter().flatten().collect::<Vec<_>>();
            [vec![n.times(&dilation), n, dilation], own].concat()
        });
        lengths.collect()
    }

    /// The words, to be changed.
    pub(crate) fn for_each_call(&mut self, f: &mut impl FnMut(&mut Call)) {
        match self {
            MaskExpr::Atom(atom) => f(&mut atom.call),
            MaskExpr::Not(mask) => mask.for_each_call(f),
            MaskExpr::And(a, b) | MaskExpr::Or(a, b) => {
                a.for_each_call(f);
                b.for_each_call(f);
            }
        }
    }
}

/// Parses the mask in `tokens`. A part that is not understood is reported, and becomes `none`.
pub(crate) fn parse(
    tokens: &TokenStream,
    key: &'static Key,
    words: &'static [Word],
    cx: &Diagnostics,
) -> MaskExpr {
    let words_left = Cell::new(Some(MAX_WORDS));
    let mut parser = Parser {
        key,
        words,
        words_left,
        cx,
    };
    parser.parse_all(tokens, tokens)
}

/// The emitted types of the words are nested, and rustc processes them recursively.
const MAX_WORDS: usize = 250;

struct Parser<'a> {
    key: &'static Key,
    words: &'static [Word],
    /// The number of words that are still allowed, or `None` after the error that there are too many.
    words_left: Cell<Option<usize>>,
    cx: &'a Diagnostics,
}

type Tokens = Peekable<proc_macro2::token_stream::IntoIter>;

impl Parser<'_> {
    /// A whole mask, and nothing after it. `at` is what an error about a missing operand points at.
    fn parse_all(&mut self, tokens: &TokenStream, at: &TokenStream) -> MaskExpr {
        let before = self.cx.count();
        let mut rest = tokens.clone().into_iter().peekable();
        let mask = self.parse_or(&mut rest, at);
        if rest.peek().is_some() && self.cx.count() == before {
            let rest: TokenStream = rest.collect();
            self.cx
                .error(&rest, messages::expected_mask_operator(&rest));
        }
        mask
    }

    /// `a | b`
    fn parse_or(&mut self, rest: &mut Tokens, at: &TokenStream) -> MaskExpr {
        let mut mask = self.parse_and(rest, at);
        while self.next_is(rest, '|') {
            mask = MaskExpr::Or(Box::new(mask), Box::new(self.parse_and(rest, at)));
        }
        mask
    }

    /// `a & b`
    fn parse_and(&mut self, rest: &mut Tokens, at: &TokenStream) -> MaskExpr {
        let mut mask = self.parse_operand(rest, at);
        while self.next_is(rest, '&') {
            mask = MaskExpr::And(Box::new(mask), Box::new(self.parse_operand(rest, at)));
        }
        mask
    }

    /// `!a`, `(a)`, or a word.
    fn parse_operand(&mut self, rest: &mut Tokens, at: &TokenStream) -> MaskExpr {
        if self.next_is(rest, '!') {
            return MaskExpr::Not(Box::new(self.parse_operand(rest, at)));
        }
        match rest.next() {
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                let inner = group.stream();
                if inner.is_empty() {
                    self.cx.error(&group, messages::EMPTY_MASK);
                    return MaskExpr::none();
                }
                self.parse_all(&inner, &TokenTree::Group(group).into())
            }
            Some(TokenTree::Ident(name)) => {
                if !self.may_come(&name) {
                    rest.by_ref().for_each(drop);
                    return MaskExpr::none();
                }
                let args = word::next_group(rest);
                if let Some(group) = word::next_wrong_group(rest) {
                    let message = messages::arguments_in_parentheses(&name, &group, self.words);
                    self.cx.error(&group, message);
                    return MaskExpr::none();
                }
                match word::parse_call(name, args, self.key, self.words, self.cx) {
                    Some(call) => MaskExpr::Atom(Atom { call }),
                    None => MaskExpr::none(),
                }
            }
            Some(other) => {
                self.cx
                    .error(&other, messages::expected_mask(self.key, &other));
                MaskExpr::none()
            }
            None => {
                self.cx.error(at, messages::MASK_ENDS);
                MaskExpr::none()
            }
        }
    }

    /// Whether `word` is not one too many, which is reported once.
    fn may_come(&self, word: &Ident) -> bool {
        let left = self.words_left.get();
        if left == Some(0) {
            self.cx.error(word, messages::too_many_words(MAX_WORDS));
        }
        let left = left.and_then(|left| left.checked_sub(1));
        self.words_left.set(left);
        left.is_some()
    }

    /// Consumes the operator `symbol` if it is next. A doubled operator, or its word, is accepted after an error.
    fn next_is(&mut self, rest: &mut Tokens, symbol: char) -> bool {
        let word = match symbol {
            '&' => "and",
            '|' => "or",
            _ => "not",
        };
        if let Some(TokenTree::Ident(name)) = rest.peek()
            && name == word
        {
            self.cx
                .error(name, messages::operator_in_words(symbol, word));
            rest.next();
            return true;
        }
        let is = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == symbol);
        if !is(rest.peek()) {
            return false;
        }
        let first = rest.next();
        if symbol != '!' && is(rest.peek()) {
            let both: TokenStream = first.into_iter().chain(rest.next()).collect();
            self.cx.error(both, messages::doubled_operator(symbol));
        }
        true
    }
}
