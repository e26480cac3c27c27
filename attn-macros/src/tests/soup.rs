//! Token trees to throw at the macro: random ones, and specs with a few mistakes made in them.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use proptest::prelude::*;

/// A token tree with text instead of spans. Its tokens are made by parsing that text, so that each has a span in it.
#[derive(Clone, Debug)]
pub(super) enum Soup {
    Token(String),
    Group(Delimiter, Vec<Soup>),
}

/// Stands before the parentheses of what is to become an invisible group: text cannot spell one.
const INVISIBLE: &str = "__invisible";

/// What specs are made of, and what they are not.
const TOKENS: &[&str] = &[
    "struct",
    "pub",
    "crate",
    "super",
    "self",
    "fn",
    "normalize",
    "const",
    "unsafe",
    "as",
    "true",
    "false",
    "_",
    "r#struct",
    "r#heads",
    "heads",
    "d_model",
    "kv_heads",
    "head_dim",
    "value_head_dim",
    "d_context",
    "mask",
    "score",
    "scale",
    "softcap",
    "normalizer",
    "position",
    "qk_norm",
    "bias",
    "dropout",
    "init",
    "ensure",
    "every_query_attends",
    "none",
    "causal",
    "sliding_window",
    "dilated_sliding_window",
    "prefix_lm",
    "chunked",
    "padding",
    "document",
    "symmetric",
    "upper_left",
    "lower_right",
    "scaled_dot",
    "additive",
    "hidden",
    "bilinear",
    "softmax1",
    "sink",
    "relu",
    "sparsemax",
    "entmax15",
    "sigmoid",
    "rope",
    "theta",
    "alibi",
    "rel_pos_bias",
    "num_buckets",
    "max_distance",
    "rms",
    "l2",
    "normal",
    "std",
    "n",
    "dilation",
    "q",
    "k",
    "v",
    "o",
    "Layer",
    "HEADS",
    "héads",
    "<",
    ">",
    "=",
    ",",
    ";",
    "&",
    "|",
    "!",
    "+",
    "-",
    "*",
    "/",
    "%",
    ":",
    "#",
    "$",
    "?",
    "@",
    ".",
    "..",
    "..=",
    "&&",
    "||",
    "::",
    "->",
    "=>",
    "==",
    "<=",
    "<<",
    ">>",
    "'a",
    "0",
    "1",
    "2",
    "7",
    "8",
    "8usize",
    "8f32",
    "0x10",
    "512",
    "1_000",
    "0.0",
    "0.1",
    "1.0",
    "1.",
    "1e400",
    "1e-400",
    "99999999999999999999999999999999999999999",
    "18446744073709551615",
    "9223372036854775808",
    "2147483649",
    "'x'",
    "\"text\"",
    "b\"bytes\"",
    "/// documentation\n",
];

const DELIMITERS: [Delimiter; 4] = [
    Delimiter::Parenthesis,
    Delimiter::Brace,
    Delimiter::Bracket,
    Delimiter::None,
];

fn token() -> impl Strategy<Value = Soup> {
    prop::sample::select(TOKENS).prop_map(|token| Soup::Token(token.to_owned()))
}

fn tree() -> impl Strategy<Value = Soup> {
    token().prop_recursive(4, 24, 6, |inner| {
        let group = (
            prop::sample::select(&DELIMITERS[..]),
            prop::collection::vec(inner.clone(), 0..6),
        );
        prop_oneof![3 => inner, 1 => group.prop_map(|(delimiter, inner)| Soup::Group(delimiter, inner))]
    })
}

/// Anything.
pub(super) fn soups() -> impl Strategy<Value = Vec<Soup>> {
    prop::collection::vec(tree(), 0..24)
}

/// Anything after the head of a declaration: most random tokens end before the first key.
pub(super) fn bodies() -> impl Strategy<Value = Vec<Soup>> {
    soups().prop_map(|mut body| {
        let mut soup = from_text("pub struct Layer<");
        soup.append(&mut body);
        soup.append(&mut from_text(">;"));
        soup
    })
}

/// `text` as trees.
pub(super) fn from_text(text: &str) -> Vec<Soup> {
    from_tokens(text.parse().expect("the test's text is made of tokens"))
}

fn from_tokens(tokens: TokenStream) -> Vec<Soup> {
    let trees = tokens.into_iter().map(|token| match token {
        TokenTree::Group(group) => Soup::Group(group.delimiter(), from_tokens(group.stream())),
        other => Soup::Token(other.to_string()),
    });
    trees.collect()
}

/// The text that [`to_tokens`] parses.
pub(super) fn to_text(soup: &[Soup]) -> String {
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

/// The tokens of `text`, each with its place there; `None` if that is not made of tokens.
pub(super) fn to_tokens(text: &str) -> Option<TokenStream> {
    Some(with_invisible_groups(text.parse().ok()?))
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

/// A slip of the pen.
#[derive(Clone, Debug)]
pub(super) enum Mistake {
    Delete,
    Duplicate,
    SwapWithNext,
    Replace(Soup),
    Insert(Soup),
    Wrap(Delimiter),
    /// A group without its delimiters.
    Unwrap,
}

/// Mistakes, with numbers that say where.
pub(super) fn mistakes() -> impl Strategy<Value = Vec<(prop::sample::Index, Mistake)>> {
    let mistake = prop_oneof![
        Just(Mistake::Delete),
        Just(Mistake::Duplicate),
        Just(Mistake::SwapWithNext),
        tree().prop_map(Mistake::Replace),
        token().prop_map(Mistake::Insert),
        prop::sample::select(&DELIMITERS[..]).prop_map(Mistake::Wrap),
        Just(Mistake::Unwrap),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), mistake), 1..5)
}

/// Makes the mistake at one of the trees, at any depth.
pub(super) fn make(soup: &mut Vec<Soup>, at: prop::sample::Index, mistake: &Mistake) {
    let count = count(soup);
    if count > 0 {
        let _ = make_at(soup, at.index(count), mistake);
    }
}

fn count(soup: &[Soup]) -> usize {
    let counts = soup.iter().map(|tree| match tree {
        Soup::Token(_) => 1,
        Soup::Group(_, inner) => 1 + count(inner),
    });
    counts.sum()
}

/// Counts trees in the order of the text. `Err` is what is left of `index` after the last of them.
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
