//! For any tokens, the macro emits items, and errors at the user's own tokens.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use proptest::prelude::*;
use quote::quote;

use super::random::spec::{valid_entries, valid_specs};
use super::random::trees::{self, Soup};
use super::random::words;
use super::support::{Report, cases, expand, parse_file, reports};
use crate::pipeline;

/// The expansion of `tokens`, which were parsed from `text`.
fn answer(text: &str, tokens: TokenStream) -> syn::File {
    let expansion = || parse_file(pipeline::attention(quote!([::attn] #tokens)));
    catch_unwind(AssertUnwindSafe(expansion)).unwrap_or_else(|_| panic!("in {text}"))
}

/// The errors of `tokens`, which were parsed from `text`. Each is reported once, at tokens of the text.
fn check_reports(text: &str, tokens: TokenStream) -> Vec<Report> {
    let reports = reports(&answer(text, tokens.clone()));
    let mut seen = HashSet::new();
    for Report { message, at } in &reports {
        assert!(!message.is_empty());
        match at {
            Some(at) => assert!(at.end <= text.len(), "{message} at {at:?} of {text}"),
            None => assert!(is_blank(tokens.clone()), "{message} nowhere in {text}"),
        }
        assert!(
            seen.insert((message.clone(), at.clone())),
            "{message} twice in {text}"
        );
    }
    reports
}

/// No tokens, or only empty groups of a `macro_rules!` fragment.
fn is_blank(tokens: TokenStream) -> bool {
    tokens.into_iter().all(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::None && is_blank(group.stream()),
        _ => false,
    })
}

/// Every error is reported once, at its tokens.
pub(super) fn check_soup(soup: &[Soup]) {
    let text = trees::to_text(soup);
    check_reports(&text, trees::to_tokens(&text));
}

/// Random tokens after the head of a declaration. Without the head most of them end before the first key.
fn with_a_head(body: Vec<Soup>) -> Vec<Soup> {
    let [head, end] = ["pub struct Layer<", ">;"].map(trees::from_text);
    [head, body, end].concat()
}

/// Whether the expansion declares the layer.
fn declares_layer(file: &syn::File) -> bool {
    let is_layer =
        |item: &syn::Item| matches!(item, syn::Item::Struct(item) if item.ident == "Layer");
    file.items.iter().any(is_layer)
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn token_soup_is_answered(soup in trees::soups(&words::attention())) {
        check_soup(&soup);
    }

    #[test]
    fn token_soup_in_place_of_the_keys_is_answered(soup in trees::soups(&words::attention())) {
        check_soup(&with_a_head(soup));
    }

    #[test]
    fn mistakes_in_a_spec_are_answered(
        spec in valid_specs(),
        mistakes in trees::mistakes(&words::attention()),
    ) {
        check_soup(&trees::mistaken(&spec, &mistakes));
    }

    #[test]
    fn a_valid_spec_has_no_error(spec in valid_specs()) {
        let file = parse_file(expand(&spec));
        let reports = reports(&file);
        prop_assert!(reports.is_empty(), "{spec}: {reports:?}");
        prop_assert!(declares_layer(&file));
    }

    /// Only tokens after the name of a layer were wrong, so its name exists.
    #[test]
    fn layers_exist_after_a_mistake_in_their_keys(
        mut entries in valid_entries(),
        place in any::<prop::sample::Index>(),
        mistake in prop::sample::select(&[
            "", "heads", "heads = 0", "colour = red", "mask", "mask = ", "mask = caussal", "mask = causal(3)",
            "dropout = 1.5", "= 3", "8", "d_model = \"512\"", "score = additive", "<", "bias = [x]",
        ][..]),
    ) {
        entries.insert(place.index(entries.len() + 1), mistake.to_owned());
        let spec = format!("struct Layer<{}>;", entries.join(", "));
        let tokens = trees::to_tokens(&spec);
        let reports = check_reports(&spec, tokens.clone());
        prop_assert!(!reports.is_empty() || mistake.is_empty(), "{spec}");
        prop_assert!(declares_layer(&answer(&spec, tokens)), "{spec}");
    }
}

#[test]
fn errors_never_point_at_the_whole_call() {
    let reports = check_reports("", TokenStream::new());
    assert_eq!(reports.len(), 1);
    assert_eq!(reports[0].at, None);
}

#[test]
fn long_masks_do_not_exhaust_the_stack() {
    for (repeated, last) in [
        ("causal & ", "causal"),
        ("!", "causal"),
        ("causal | ", "none"),
    ] {
        let mask = repeated.repeat(100) + last;
        let spec = format!("struct Layer<heads = 1, d_model = 4, mask = {mask}>;");
        assert!(declares_layer(&parse_file(expand(&spec))));
    }
}
