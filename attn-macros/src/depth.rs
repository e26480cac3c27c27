//! How deep an input may be nested.
//!
//! Parsers and all that follows them call themselves for what stands inside of something, as rustc does with what is emitted. Too
//! many of these calls would use up the stack, and that is no error but the end of the compiler.

use proc_macro2::{Delimiter, Group, Spacing, Span, TokenStream, TokenTree};

use crate::diag::Diagnostics;
use crate::messages;

/// Groups, and operators before a value, one inside of the other. A stack of 2 MiB bears as many if `syn` is optimised, and without
/// optimisation that of rustc does, which is four times as large.
pub(crate) const DEEPEST: usize = 128;

/// Operators in a row make a tree as well, `(a + b) + c`. This is its height, with the groups in it and around it. A parser builds it in a
/// loop, so a level of it takes less of the stack than a group.
pub(crate) const LONGEST: usize = 512;

/// Words before a value that is a part of theirs, as operators are.
const PREFIXES: [&str; 5] = ["break", "if", "match", "return", "while"];

/// `input`, cut off where it is too deep: that is reported, and nothing that follows from it.
pub(crate) fn limit(input: TokenStream, cx: &Diagnostics) -> TokenStream {
    let mut beyond = None;
    cut(input.clone(), 0, LONGEST, &mut beyond);
    let Some((at, most)) = beyond else {
        return input;
    };
    cx.push(syn::Error::new(at, messages::too_deep(most)));
    cx.mute();
    // After the error nothing is read but names: less is enough.
    let (within, _) = cut(input, 0, LONGEST / 2, &mut beyond);
    within
}

/// `tokens`, which stand in as many groups as `depth` says, without what is beyond the limits. `beyond` gets the first such token, with its
/// limit. Also returns the height of the tree that they make.
fn cut(
    tokens: TokenStream,
    depth: usize,
    longest: usize,
    beyond: &mut Option<(Span, usize)>,
) -> (TokenStream, usize) {
    let mut tokens = tokens.into_iter().peekable();
    let mut nesting = Nesting::default();
    let mut within = TokenStream::new();
    while let Some(token) = tokens.next() {
        let here = depth + nesting.of(&token, tokens.peek());
        let limits = [(here, DEEPEST), (depth + nesting.chain, longest)];
        if let Some((_, most)) = limits.into_iter().find(|(found, most)| found >= most) {
            beyond.get_or_insert_with(|| (start(&token), most));
            continue;
        }
        within.extend([match token {
            TokenTree::Group(group) => {
                let (inner, height) = cut(group.stream(), here + 1, longest, beyond);
                nesting.close(height);
                let mut copy = Group::new(group.delimiter(), inner);
                copy.set_span(group.span());
                TokenTree::from(copy)
            }
            token => token,
        }]);
    }
    (within, nesting.highest)
}

fn start(token: &TokenTree) -> Span {
    match token {
        TokenTree::Group(group) if group.delimiter() != Delimiter::None => group.span_open(),
        token => token.span(),
    }
}

/// The nesting between groups: `!!!a` is `!(!(!(a)))`, `A<B<C` opens as parentheses do, and `a + b + c` is `(a + b) + c`.
#[derive(Default)]
struct Nesting {
    /// Operators in a row.
    operators: usize,
    /// `<` without its `>`, since the last token that stands in no type.
    angles: usize,
    /// The height of the expression so far.
    chain: usize,
    /// The largest height of an expression.
    highest: usize,
    before: Before,
}

/// The token before.
#[derive(Default, PartialEq, Eq)]
enum Before {
    /// None, or a sign.
    #[default]
    Sign,
    Word,
    Braces,
    /// Parentheses or brackets.
    Operand,
}

impl Nesting {
    /// How deep `token`, the next one, stands. `behind` is the token behind it.
    fn of(&mut self, token: &TokenTree, behind: Option<&TokenTree>) -> usize {
        let symbol = symbol(token);
        self.operators = match token {
            TokenTree::Punct(_) => self.operators + 1,
            TokenTree::Ident(word) if PREFIXES.iter().any(|prefix| word == prefix) => {
                self.operators + 1
            }
            _ => 0,
        };
        self.angles = match (symbol, token) {
            (Some('<'), _) => self.angles + 1,
            (Some('>'), _) => self.angles.saturating_sub(1),
            (Some(':' | ','), _) | (None, TokenTree::Ident(_)) => self.angles,
            _ => 0,
        };
        let is_link = self.is_link(token, behind);
        // Behind the braces of a statement or an item is the next one.
        if matches!(symbol, Some(',' | ';')) || self.before == Before::Braces && !is_link {
            self.chain = 0;
        }
        self.chain += usize::from(is_link);
        self.highest = self.highest.max(self.chain);
        self.before = match token {
            TokenTree::Punct(_) => Before::Sign,
            TokenTree::Group(group) => match group.delimiter() {
                Delimiter::Brace => Before::Braces,
                Delimiter::Parenthesis | Delimiter::Bracket => Before::Operand,
                Delimiter::None => Before::Word,
            },
            TokenTree::Ident(_) | TokenTree::Literal(_) => Before::Word,
        };
        self.operators + self.angles
    }

    /// Behind a group, in which there is a tree of this height.
    fn close(&mut self, height: usize) {
        self.chain = self.chain.max(height + 1);
        self.highest = self.highest.max(self.chain);
    }

    /// Whether `token` makes an operand of the whole expression before it, as the `+` of `a + b`, the `as` of `x as [..]`, and the second
    /// index of `x[i][j]` do.
    fn is_link(&self, token: &TokenTree, behind: Option<&TokenTree>) -> bool {
        match token {
            TokenTree::Punct(punct) => {
                let sign = punct.as_char();
                let is_operator = match sign {
                    '+' | '-' | '*' | '/' | '%' | '^' | '.' | '=' => true,
                    // A mask has its own limit for `&` and `|`, and a `<` alone may belong to a type.
                    '&' | '|' | '<' | '>' => {
                        punct.spacing() == Spacing::Joint && behind.and_then(symbol) == Some(sign)
                    }
                    _ => false,
                };
                is_operator && self.before != Before::Sign
            }
            TokenTree::Ident(word) => word == "as" || word == "else",
            TokenTree::Group(group) => {
                let is_call = matches!(
                    group.delimiter(),
                    Delimiter::Parenthesis | Delimiter::Bracket
                );
                is_call && self.before == Before::Operand
            }
            TokenTree::Literal(_) => false,
        }
    }
}

fn symbol(token: &TokenTree) -> Option<char> {
    match token {
        TokenTree::Punct(punct) => Some(punct.as_char()),
        _ => None,
    }
}
