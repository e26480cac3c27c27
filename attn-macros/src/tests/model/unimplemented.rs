//! Messages of rustc where a model lacks a trait.

use proc_macro2::{TokenStream, TokenTree};

use super::tokens;
use crate::pipeline;

/// The texts of every `on_unimplemented`.
fn texts(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_behind_name = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            found.extend(match is_behind_name {
                true => literals(group.stream()),
                false => texts(group.stream()),
            });
        }
        is_behind_name = matches!(&token, TokenTree::Ident(name) if name == "on_unimplemented");
    }
    found
}

fn literals(tokens: TokenStream) -> Vec<String> {
    let texts = tokens.into_iter().filter_map(|token| match token {
        TokenTree::Literal(literal) => match syn::Lit::new(literal) {
            syn::Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    texts.collect()
}

/// Whether all braces are doubled, but for those of type variables.
fn is_format_string(text: &str) -> bool {
    let names = ["{Self}", "{E}", "{D}", "{{", "}}"];
    let rest = names
        .iter()
        .fold(text.to_owned(), |text, name| text.replace(name, ""));
    !rest.contains(['{', '}'])
}

#[test]
fn braces_of_the_user_are_no_placeholders() {
    let source = "
        struct M<d = 8>;
        fn forward(x: [batch, d, { if WIDE { 4 } else { 2 } }]) -> [batch, 3] {
            module::<Linear<{ 4 * WIDTH }, 3>, out = [batch, 3]>(x)
        }
    ";
    let found = texts(pipeline::model(tokens(source)));
    for text in &found {
        assert!(is_format_string(text), "{text}");
    }
    let mentions = |part: &str| found.iter().filter(|text| text.contains(part)).count();
    // Of facts that there are not, and of what the module returns.
    assert_eq!(mentions("`Linear<{{ 4 * WIDTH }}, 3>`"), 2, "{found:?}");
    // Of a wrong input, and of a session.
    assert!(mentions("if WIDE {{ 4 }} else {{ 2 }}") >= 2, "{found:?}");
}
