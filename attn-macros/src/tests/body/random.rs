//! Random bodies: whatever stands in the braces, every error is said once and at its tokens.

use proc_macro2::Delimiter;
use proptest::prelude::*;
use proptest::sample::select;

use super::layer;
use crate::tests::property::check_soup;
use crate::tests::soup::{self, Soup};
use crate::tests::support::{cases, expand, parse_file, reports};

/// What bodies are made of.
const WORDS: &[&str] = &[
    "param",
    "data",
    "ids",
    "batch",
    "doc",
    "r#type",
    "fn",
    "score",
    "mask",
    "normalize",
    "relu",
    "sink",
    "slope",
    "bias",
    "b",
    "h",
    "q_idx",
    "kv_idx",
    "q_len",
    "kv_len",
    "heads",
    "zeros",
    "normal",
    "alibi_slopes",
    "let",
    "if",
    "else",
    "as",
    "f32",
    "i64",
    "usize",
    "exp",
    "max",
    "clamp",
    "pow",
    "abs",
    "true",
    "match",
    "for",
    "return",
    "W",
    "C",
    "x",
    "0",
    "1",
    "3",
    "0.5",
    "1e999",
    "9223372036854775808",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<",
    "<=",
    "==",
    "!=",
    ">",
    "&&",
    "||",
    "!",
    "=",
    ":",
    ";",
    ",",
    ".",
    "::",
    "->",
    "|",
    "&",
    "#",
    "\"text\"",
    "'a",
];

/// A body of each item, and of every kind of expression.
const BODY: &str = "
    /// Learned.
    param slope: [heads] = alibi_slopes;
    param bias: [heads, 2 * W + 1] = normal(std = 0.02);
    data doc: ids[batch, q_len];
    data weight: [kv_len, heads];
    fn score(score, b, h, q_idx, kv_idx) {
        let d = q_idx - kv_idx;
        let far: f32 = if d > 3 && !(d == 5 || b != 0) { slope[h] } else { -C / 2.0 };
        score * far + bias[h, clamp(d + doc[b, 0], 0, 2 * W)] * weight[kv_idx, h] - pow(exp(d as f32), 2)
    }
    fn mask(q_idx, kv_idx, q_len) { kv_idx <= q_idx || q_idx % 4 >= q_len - 2 }
";

fn trees() -> impl Strategy<Value = Vec<Soup>> {
    let word = select(WORDS).prop_map(|word| Soup::Token(word.to_owned()));
    let delimiters = [
        Delimiter::Parenthesis,
        Delimiter::Brace,
        Delimiter::Bracket,
        Delimiter::None,
    ];
    let tree = word.prop_recursive(4, 24, 6, move |inner| {
        let group = (select(delimiters.to_vec()), prop::collection::vec(inner.clone(), 0..6));
        prop_oneof![3 => inner, 1 => group.prop_map(|(delimiter, inner)| Soup::Group(delimiter, inner))]
    });
    prop::collection::vec(tree, 0..24)
}

/// `trees` in the innermost of these braces.
fn within(before: &str, trees: Vec<Soup>) -> Vec<Soup> {
    let mut soup = soup::from_text(before);
    soup.push(Soup::Group(Delimiter::Brace, trees));
    soup
}

const HEADER: &str = "struct L<heads = 8, d_model = 32>";

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn token_soup_in_place_of_a_body_is_answered(trees in trees()) {
        check_soup(&within(HEADER, trees));
    }

    #[test]
    fn token_soup_in_place_of_an_expression_is_answered(trees in trees()) {
        let mut body = soup::from_text("param slope: [heads] = zeros;");
        body.append(&mut within("fn score(score, h, q_idx, kv_idx)", trees));
        check_soup(&within(HEADER, body));
    }

    #[test]
    fn mistakes_in_a_body_are_answered(mistakes in soup::mistakes()) {
        let mut soup = soup::from_text(&layer(BODY));
        for (at, mistake) in mistakes {
            soup::make(&mut soup, at, &mistake);
        }
        check_soup(&soup);
    }
}

#[test]
fn the_body_that_mistakes_are_made_in_has_none() {
    let reports = reports(&parse_file(expand(&layer(BODY))));
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn deep_expressions_do_not_exhaust_the_stack() {
    for (open, middle, close) in [
        ("(", "score", ")"),
        ("-", "score", ""),
        ("exp(", "score", ")"),
        ("if h < 2 { 1.0 } else { ", "score", "}"),
        ("score + ", "score", ""),
    ] {
        let expr = format!("{}{middle}{}", open.repeat(150), close.repeat(150));
        let source = layer(&format!("fn score(score, h) {{ {expr} }}"));
        let reports = reports(&parse_file(expand(&source)));
        assert!(reports.is_empty(), "{open}: {reports:?}");
    }
}
