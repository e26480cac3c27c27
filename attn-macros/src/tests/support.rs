//! Helpers that expand text and read the results.

use std::ops::Range;

use proc_macro2::{Span, TokenStream, TokenTree};
use proptest::test_runner::{Config, RngSeed};
use quote::quote;

use crate::diag::Diagnostics;
use crate::graph::{self, Graph};
use crate::pipeline;
use crate::spec::{self, Spec};

/// The configuration for this number of random cases, or more with `PROPTEST_CASES`. They are the same in every run unless
/// `PROPTEST_RNG_SEED` differs. A failing case is printed, not saved.
pub(super) fn cases(count: u32) -> Config {
    let config = Config::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(0),
        fixed => fixed,
    };
    Config {
        // proptest has its own default, which would be a lower bound.
        cases: match std::env::var_os("PROPTEST_CASES") {
            Some(_) => config.cases.max(count),
            None => count,
        },
        rng_seed,
        failure_persistence: None,
        ..config
    }
}

/// The tokens that the facade's `attention!` passes on for `spec`.
pub(super) fn tokens(spec: &str) -> TokenStream {
    let spec: TokenStream = spec.parse().expect("the test's text is made of tokens");
    quote!([::attn] #spec)
}

pub(super) fn expand(spec: &str) -> TokenStream {
    pipeline::attention(tokens(spec))
}

pub(super) fn parse_file(output: TokenStream) -> syn::File {
    syn::parse2(output).expect("the macro emits items")
}

/// The spec and the graph of the only layer in `source`, which has no mistake.
pub(super) fn build(source: &str) -> (Spec, Graph) {
    let cx = Diagnostics::default();
    let (krate, mut drafts) = spec::parse(tokens(source), &cx);
    let spec = spec::check(drafts.remove(0), &krate, &cx);
    assert_eq!(cx.into_compile_errors().to_string(), "", "in {source}");
    let graph = graph::build(&spec);
    (spec, graph)
}

/// An error of an expansion: its message, and its byte range in the input. `None` is the whole call of the macro.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) message: String,
    pub(super) at: Option<Range<usize>>,
}

/// Every `compile_error!` in the file.
pub(super) fn reports(file: &syn::File) -> Vec<Report> {
    let macros = file.items.iter().filter_map(|item| match item {
        // A block for others is a macro with a name.
        syn::Item::Macro(item) if item.ident.is_none() => Some(&item.mac),
        _ => None,
    });
    macros.map(report).collect()
}

fn report(mac: &syn::Macro) -> Report {
    let name = mac.path.segments.last().map(|segment| &segment.ident);
    assert!(name.is_some_and(|name| name == "compile_error"));
    let message: syn::LitStr = mac.parse_body().expect("an error is a string");
    let start = name.map_or_else(Span::call_site, |name| name.span());
    Report {
        message: message.value(),
        at: join(start, message.span()),
    }
}

fn join(start: Span, end: Span) -> Option<Range<usize>> {
    let start = start.byte_range();
    let end = end.byte_range();
    (!start.is_empty() && !end.is_empty()).then_some(start.start..end.end)
}

/// The items of the file with these names, and those in its `const _` blocks, without documentation. An implementation has the
/// name of its trait, a macro call that of the macro. Every name exists.
pub(super) fn parts(file: syn::File, names: &[&str]) -> syn::File {
    let hidden: Vec<_> = hidden_items(&file).into_iter().cloned().collect();
    let found = |name: &str| {
        let all = file.items.iter().chain(&hidden);
        let named: Vec<_> = all.filter(|item| name_of(item) == name).cloned().collect();
        assert!(!named.is_empty(), "there is no `{name}`");
        named.into_iter().map(without_docs)
    };
    let items = names.iter().flat_map(|name| found(name)).collect();
    syn::File { items, ..file }
}

fn name_of(item: &syn::Item) -> String {
    let last = |path: &syn::Path| path.segments.last().map(|part| part.ident.to_string());
    let name = match item {
        syn::Item::Fn(item) => Some(item.sig.ident.to_string()),
        syn::Item::Struct(item) => Some(item.ident.to_string()),
        syn::Item::Const(item) => Some(item.ident.to_string()),
        syn::Item::Impl(item) => item.trait_.as_ref().and_then(|(path, _)| last(path)),
        syn::Item::Macro(item) => last(&item.mac.path),
        _ => None,
    };
    name.unwrap_or_default()
}

fn without_docs(mut item: syn::Item) -> syn::Item {
    if let syn::Item::Struct(item) = &mut item {
        item.attrs
            .retain(|attribute| !attribute.path().is_ident("doc"));
    }
    item
}

/// The items in the `const _` blocks of the file: the implementations.
pub(super) fn hidden_items(file: &syn::File) -> Vec<&syn::Item> {
    let blocks = file.items.iter().filter_map(|item| match item {
        syn::Item::Const(item) => match &*item.expr {
            syn::Expr::Block(block) => Some(&block.block.stmts),
            _ => None,
        },
        _ => None,
    });
    blocks
        .flatten()
        .filter_map(|statement| match statement {
            syn::Stmt::Item(item) => Some(item),
            _ => None,
        })
        .collect()
}

/// The associated items of all implementations in `const _` blocks.
pub(super) fn impl_items(file: &syn::File) -> Vec<&syn::ImplItem> {
    let impls = hidden_items(file)
        .into_iter()
        .filter_map(|item| match item {
            syn::Item::Impl(item) => Some(&item.items),
            _ => None,
        });
    impls.flatten().collect()
}

/// The first group after the identifier `name` in `tokens`, at any depth.
pub(super) fn group_after(tokens: TokenStream, name: &str) -> Option<TokenStream> {
    let mut found = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) if found => return Some(group.stream()),
            TokenTree::Group(group) => {
                if let Some(inner) = group_after(group.stream(), name) {
                    return Some(inner);
                }
            }
            TokenTree::Ident(ident) => found = ident == name,
            _ => {}
        }
    }
    None
}

/// `marked` without its marks, and the bytes between each pair of them.
pub(super) fn unmarked(marked: &str) -> (String, Vec<Range<usize>>) {
    let mut text = String::new();
    let mut places = Vec::new();
    let mut start = 0;
    for char in marked.chars() {
        match char {
            '«' => start = text.len(),
            '»' => places.push(start..text.len()),
            other => text.push(other),
        }
    }
    (text, places)
}

/// Claims that these messages, in this order, are reported for a marked declaration. One that ends in `..` is the start of a
/// message.
pub(super) fn check_source(marked: &str, messages: &[&str]) {
    let (source, places) = unmarked(marked);
    let mut reports = reports(&parse_file(expand(&source)));
    reports.sort_by_key(|report| report.at.clone().map(|at| at.start));
    let found: Vec<_> = reports.iter().map(|report| report.at.clone()).collect();
    let places: Vec<_> = places.into_iter().map(Some).collect();
    assert_eq!(found, places, "{source}: {reports:?}");
    for (report, expected) in reports.iter().zip(messages) {
        match expected.strip_suffix("..") {
            Some(start) => assert!(report.message.starts_with(start), "{source}: {report:?}"),
            None => assert_eq!(report.message, *expected, "{source}"),
        }
    }
    assert_eq!(reports.len(), messages.len(), "{source}");
}
