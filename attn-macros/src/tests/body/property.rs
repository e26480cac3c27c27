//! Random bodies: for any tokens in the braces, every error is reported once and at its tokens.

use proc_macro2::Delimiter;
use proptest::prelude::*;

use super::layer;
use crate::tests::property::check_soup;
use crate::tests::random::trees::{self, Soup};
use crate::tests::random::words;
use crate::tests::support::{cases, expand, parse_file, reports};

/// A body with each item, and every kind of expression.
const BODY: &str = "
    /// A learned tensor.
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

/// `trees` inside of the innermost of these braces.
fn within(before: &str, trees: Vec<Soup>) -> Vec<Soup> {
    let mut soup = trees::from_text(before);
    soup.push(Soup::Group(Delimiter::Brace, trees));
    soup
}

const HEADER: &str = "struct L<heads = 8, d_model = 32>";

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn token_soup_in_place_of_a_body_is_answered(trees in trees::soups(&words::body())) {
        check_soup(&within(HEADER, trees));
    }

    #[test]
    fn token_soup_in_place_of_an_expression_is_answered(trees in trees::soups(&words::body())) {
        let mut body = trees::from_text("param slope: [heads] = zeros;");
        body.append(&mut within("fn score(score, h, q_idx, kv_idx)", trees));
        check_soup(&within(HEADER, body));
    }

    #[test]
    fn mistakes_in_a_body_are_answered(mistakes in trees::mistakes(&words::body())) {
        check_soup(&trees::mistaken(&layer(BODY), &mistakes));
    }
}

#[test]
fn mistakes_are_made_in_a_valid_body() {
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
        let expr = format!("{}{middle}{}", open.repeat(120), close.repeat(120));
        let source = layer(&format!("fn score(score, h) {{ {expr} }}"));
        let reports = reports(&parse_file(expand(&source)));
        assert!(reports.is_empty(), "{open}: {reports:?}");
    }
}
