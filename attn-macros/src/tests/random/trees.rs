//! Token trees as inputs of the macros: random ones, and declarations with a few mistakes.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};
use proptest::prelude::*;

use super::words;

/// A token tree with text in place of spans. Its tokens come from parsing the text, so that each has a span in it.
#[derive(Clone, Debug)]
pub(in crate::tests) enum Soup {
    Token(String),
    Group(Delimiter, Vec<Soup>),
}

/// A mark before the parentheses of an invisible group, which text cannot express.
const INVISIBLE: &str = "__invisible";

const DELIMITERS: [Delimiter; 4] = [
    Delimiter::Parenthesis,
    Delimiter::Brace,
    Delimiter::Bracket,
    Delimiter::None,
];

fn token(words: &[String]) -> impl Strategy<Value = Soup> + use<> {
    prop::sample::select(words.to_vec()).prop_map(Soup::Token)
}

fn tree(words: &[String]) -> impl Strategy<Value = Soup> + use<> {
    token(words).prop_recursive(4, 24, 6, |inner| {
        let group = (
            prop::sample::select(&DELIMITERS[..]),
            prop::collection::vec(inner.clone(), 0..6),
        );
        prop_oneof![3 => inner, 1 => group.prop_map(|(delimiter, inner)| Soup::Group(delimiter, inner))]
    })
}

/// Arbitrary trees of these words.
pub(in crate::tests) fn soups(words: &[String]) -> impl Strategy<Value = Vec<Soup>> + use<> {
    prop::collection::vec(tree(words), 0..24)
}

/// `text` as trees.
pub(in crate::tests) fn from_text(text: &str) -> Vec<Soup> {
    from_tokens(text.parse().expect("the test's text is made of tokens"))
}

/// A lifetime, or an operator of several characters, is one token: its parts with space between are other tokens.
fn from_tokens(tokens: TokenStream) -> Vec<Soup> {
    let mut trees = Vec::new();
    let mut before = String::new();
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                trees.push(Soup::Group(group.delimiter(), from_tokens(group.stream())));
            }
            TokenTree::Punct(punct) if punct.spacing() == Spacing::Joint => {
                before.push(punct.as_char());
            }
            other => trees.push(Soup::Token(
                std::mem::take(&mut before) + &other.to_string(),
            )),
        }
    }
    trees
}

/// The text for [`to_tokens`].
pub(in crate::tests) fn to_text(soup: &[Soup]) -> String {
    let trees = soup.iter().map(|tree| match tree {
        Soup::Token(token) => token.clone(),
        Soup::Group(delimiter, inner) => {
            let inner = to_text(inner);
            match delimiter {
                Delimiter::Parenthesis => format!("({inner})"),
                Delimiter::Brace => format!("{{{inner}}}"),
                Delimiter::Bracket => format!("[{inner}]"),
                Delimiter::None => format!("{INVISIBLE}({inner})"),
            }
        }
    });
    trees.collect::<Vec<_>>().join(" ")
}

/// The tokens of `text`, with their spans.
pub(in crate::tests) fn to_tokens(text: &str) -> TokenStream {
    let tokens = text.parse();
    with_invisible_groups(tokens.unwrap_or_else(|error| panic!("{error} in {text}")))
}

fn with_invisible_groups(tokens: TokenStream) -> TokenStream {
    let mut invisible = false;
    let mut output = TokenStream::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == INVISIBLE => invisible = true,
            TokenTree::Group(group) => {
                let delimiter = if invisible {
                    Delimiter::None
                } else {
                    group.delimiter()
                };
                let mut copy = Group::new(delimiter, with_invisible_groups(group.stream()));
                copy.set_span(group.span());
                output.extend([TokenTree::Group(copy)]);
                invisible = false;
            }
            other => output.extend([other]),
        }
    }
    output
}

/// A mistake in a declaration.
#[derive(Clone, Debug)]
pub(in crate::tests) enum Mistake {
    Delete,
    Duplicate,
    SwapWithNext,
    Replace(Soup),
    Insert(Soup),
    Wrap(Delimiter),
    /// Removes the delimiters of a group.
    Unwrap,
}

/// A few mistakes with these words. Numbers choose the places.
pub(in crate::tests) fn mistakes(
    words: &[String],
) -> impl Strategy<Value = Vec<(prop::sample::Index, Mistake)>> + use<> {
    let mistake = prop_oneof![
        Just(Mistake::Delete),
        Just(Mistake::Duplicate),
        Just(Mistake::SwapWithNext),
        tree(words).prop_map(Mistake::Replace),
        token(words).prop_map(Mistake::Insert),
        prop::sample::select(&DELIMITERS[..]).prop_map(Mistake::Wrap),
        Just(Mistake::Unwrap),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), mistake), 1..5)
}

/// `text` with these mistakes, one after another, each at one of the trees, at any depth.
pub(in crate::tests) fn mistaken(
    text: &str,
    mistakes: &[(prop::sample::Index, Mistake)],
) -> Vec<Soup> {
    let mut soup = from_text(text);
    for (at, mistake) in mistakes {
        let count = count(&soup);
        if count > 0 {
            let _ = make_at(&mut soup, at.index(count), mistake);
        }
    }
    soup
}

fn count(soup: &[Soup]) -> usize {
    let counts = soup.iter().map(|tree| match tree {
        Soup::Token(_) => 1,
        Soup::Group(_, inner) => 1 + count(inner),
    });
    counts.sum()
}

/// Counts trees in the order of the text. `Err` is the rest of `index` after the last of them.
fn make_at(soup: &mut Vec<Soup>, mut index: usize, mistake: &Mistake) -> Result<(), usize> {
    for position in 0..soup.len() {
        if index == 0 {
            apply(soup, position, mistake);
            return Ok(());
        }
        index -= 1;
        if let Soup::Group(_, inner) = &mut soup[position] {
            match make_at(inner, index, mistake) {
                Ok(()) => return Ok(()),
                Err(left) => index = left,
            }
        }
    }
    Err(index)
}

fn apply(soup: &mut Vec<Soup>, position: usize, mistake: &Mistake) {
    match mistake {
        Mistake::Delete => {
            soup.remove(position);
        }
        Mistake::Duplicate => soup.insert(position, soup[position].clone()),
        Mistake::SwapWithNext => {
            let next = (position + 1) % soup.len();
            soup.swap(position, next);
        }
        Mistake::Replace(tree) => soup[position] = tree.clone(),
        Mistake::Insert(token) => soup.insert(position, token.clone()),
        Mistake::Wrap(delimiter) => {
            soup[position] = Soup::Group(*delimiter, vec![soup[position].clone()]);
        }
        Mistake::Unwrap => {
            if let Soup::Group(_, inner) = soup[position].clone() {
                soup.splice(position..=position, inner);
            }
        }
    }
}

/// The conversion of a text to trees and back preserves all tokens.
#[test]
fn the_tokens_of_trees_are_those_of_their_text() {
    for text in [
        "pub struct L<'a, heads = 1e3, mask = !causal & padding>;",
        "fn f() -> i64 { a <= b && !(c == d || e != f) >= -1 .. 2 ..= 'x' :: \"y\" => z }",
        "/// Documented.\n x: r#type += 1; #[cfg(test)] #![a] &'static b",
    ] {
        let tokens: TokenStream = text.parse().expect("the test's text is made of tokens");
        let found = to_tokens(&to_text(&from_text(text)));
        assert_eq!(found.to_string(), tokens.to_string());
    }
}

proptest! {
    #![proptest_config(crate::tests::support::cases(300))]

    /// All generated trees can be written in a call of a macro.
    #[test]
    fn trees_are_made_of_tokens(trees in soups(&[words::attention(), words::body(), words::model()].concat())) {
        let _ = to_tokens(&to_text(&trees));
    }
}
