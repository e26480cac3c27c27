//! Blocks that other declarations use: what a declaration hands on, and what arrives.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, quote};

use super::mistakes::errors_of;
use super::shapes::layers;
use super::{expand, lower, tokens};
use crate::pipeline;
use crate::tests::support::reports;

const MLP: &str =
    "pub block mlp(x: [.., n], hidden) -> [.., n] { linear::<n>(act(linear::<hidden>(x))) }
    block act(x: [..]) -> [..] { gelu(x) }";

fn model(items: &str, statements: &str) -> String {
    format!(
        "{items} struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ {statements} }}"
    )
}

/// The tokens that the macro of a block puts in front of a declaration, `@ { .. }`.
fn library(source: &str) -> String {
    fn find(tokens: TokenStream) -> Option<TokenTree> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let inner = tokens.iter().find_map(|token| match token {
            TokenTree::Group(group) => find(group.stream()),
            _ => None,
        });
        let is_at =
            |token: &TokenTree| matches!(token, TokenTree::Punct(sign) if sign.as_char() == '@');
        inner.or_else(|| tokens.get(tokens.iter().position(is_at)? + 1).cloned())
    }
    let blocks = find(pipeline::model(tokens(source))).expect("it exports a block");
    quote!(@ #blocks).to_string()
}

/// A declaration, behind which the block `name` has arrived.
fn with(library: &str, name: &str, declaration: &str) -> String {
    format!("{library} ({name}) {declaration}")
}

#[test]
fn a_use_is_a_call_of_the_block_with_the_rest() {
    let source = model("use layers::{mlp, head as last};", "x");
    let call = pipeline::model(tokens(&source)).to_string();
    let rest: TokenStream = model("", "x")
        .parse()
        .expect("the test's text is made of tokens");
    let expected = quote! {
        layers::mlp! { [::attn] (mlp) [::attn] use layers::head as last; #rest }
    };
    assert_eq!(call, expected.to_string());
}

#[test]
fn a_block_arrives_with_what_it_calls() {
    let library = library(MLP);
    let source = with(
        &library,
        "other",
        &model("", "x + other::<4>(x) + other::<5>(x)"),
    );
    assert_eq!(
        layers(&lower(&source)),
        [
            "other.linear",
            "other.linear_2",
            "other_2.linear",
            "other_2.linear_2"
        ]
    );
    // The blocks that it calls are not there for others.
    let source = with(&library, "mlp", &model("", "mlp::<4>(act(x))"));
    assert_eq!(errors_of(&source)[0].1, "unknown operation `act`");
}

#[test]
fn a_block_reads_the_literals_of_its_header() {
    let source = "struct L<width = 8, unread = WIDTH, hidden = { 2 * width }>;
        pub block mlp(x: [.., width]) -> [.., width] { linear::<width>(linear::<hidden>(x)) }
        fn forward(x: [batch, unread]) -> [batch, unread] { x }";
    let library = library(source);
    assert!(
        library.contains("< width = 8 , hidden = { 2 * width } >"),
        "{library}"
    );
    let source = with(&library, "mlp", &model("", "mlp(x)"));
    assert_eq!(layers(&lower(&source)), ["mlp.linear", "mlp.linear_2"]);
}

/// The lists of numbers among the items of an expansion: their names and their values.
fn lists(file: &syn::File) -> Vec<(String, String)> {
    let text = |tokens: &dyn ToTokens| tokens.to_token_stream().to_string().replace(' ', "");
    let lists = file.items.iter().filter_map(|item| match item {
        syn::Item::Const(item) if text(&item.ty) == "&[f64]" => {
            Some((item.ident.to_string(), text(&item.expr)))
        }
        _ => None,
    });
    lists.collect()
}

#[test]
fn headers_of_a_library_and_a_model_may_have_lists_of_one_name() {
    let rope =
        "rope::<seq, scaling = longrope(factors, [2.0, 4.0], factor = 8, original_max_len = 3)>";
    let library = library(&format!(
        "struct L<factors = [1.0, 1.5]>;
        pub block turned(x: [batch, seq, n]) -> [batch, seq, n] {{ {rope}(x) }}
        fn forward(x: [batch, seq, 4]) -> [batch, seq, 4] {{ turned(x) }}"
    ));
    let declaration = format!(
        "struct M<d = 4, factors = [1.0, 1.25]>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ {rope}(turned(x)) }}"
    );
    let file = expand(&with(&library, "turned", &declaration));
    assert!(reports(&file).is_empty());
    let found = lists(&file);
    for (name, value) in [
        ("__M_factors", "&[1.0,1.25]"),
        ("__M_factors_2", "&[1.0,1.5]"),
    ] {
        let expected = (name.to_owned(), value.to_owned());
        assert!(found.contains(&expected), "{expected:?} in {found:?}");
    }
}

/// One mistake: its token and its message.
macro_rules! mistakes {
    ($($name:ident: $source:expr, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors_of($source), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    a_constant: "pub block b(x: [.., n]) -> [.., n] { linear::<n>(linear::<WIDTH>(x)) }", "WIDTH",
        "`WIDTH` has its meaning here only, and `b` can be used elsewhere";
    a_constant_of_a_called_block: "pub block b(x: [.., n]) -> [.., n] { c(x) } block c(x: [.., WIDTH]) -> [.., WIDTH] { x + x }",
        "WIDTH", "`WIDTH` has its meaning here only, and `c` can be used elsewhere";
    a_path: "pub block b(x: [.., n]) -> [.., n] { dropout::<{ config::RATE }>(x) }", "config",
        "`config` has its meaning here only, and `b` can be used elsewhere";
    a_module: "pub block b(x: [batch, n]) -> [batch, n] { module::<ReLU, out = [batch, n]>(x) }", "module",
        "a `module` has a type of this module, and `b` can be used elsewhere";
    a_size_of_a_constant: "struct L<d = WIDTH>; pub block b(x: [.., n]) -> [.., d] { linear::<d>(x) }
        fn forward(x: [batch, d]) -> [batch, d] { b(x) }", "d",
        "`d` is computed of `WIDTH`, which has its meaning here only, and `b` can be used elsewhere";
    a_size_of_a_path: "struct L<d = consts::WIDTH>; pub block b(x: [.., n]) -> [.., d] { linear::<d>(x) }
        fn forward(x: [batch, d]) -> [batch, d] { b(x) }", "d",
        "`d` is computed of `consts`, which has its meaning here only, and `b` can be used elsewhere";
    a_name_of_another_models_block: "struct L<d = 8>; pub block b(x: [..]) -> [..] { x + x } fn forward(x: [batch, d]) -> [batch, d] { b(x) }
        struct M<d = 8>; pub block b(x: [..]) -> [..] { x + x } fn forward(x: [batch, d]) -> [batch, d] { b(x) }", "b",
        "two blocks or functions are called `b`";
    two_blocks_alone: "pub block b(x: [..]) -> [..] { x + x } pub block b(x: [..]) -> [..] { x * x }", "b",
        "two blocks or functions are called `b`";
    a_private_block_alone: "pub block b(x: [..]) -> [..] { x + x } block c(x: [..]) -> [..] { x + x }", "c",
        "nothing can call this block: it is private, and here is no model";
    blocks_before_a_model: "pub block b(x: [..]) -> [..] { x + x } struct L<d = 8>; fn forward(x: [batch, d]) -> [batch, d] { x + x }",
        "b", "the blocks of a model stand behind its `struct`";
    a_visible_function: "struct L<d = 8>; pub fn forward(x: [batch, d]) -> [batch, d] { x + x }", "pub",
        "the functions of a model are as visible as its struct";
    all_of_a_module: "use layers::*; struct L<d = 8>; fn forward(x: [batch, d]) -> [batch, d] { mlp(x) }", "use layers::*;",
        "expected the paths of blocks: `use layers::mlp;`, `use layers::{mlp, head as last};`";
    a_visible_use: "pub use layers::mlp; struct L<d = 8>; fn forward(x: [batch, d]) -> [batch, d] { mlp(x) }", "pub",
        "a `use` holds in this declaration only";
    nothing_used: "use layers::{}; struct L<d = 8>; fn forward(x: [batch, d]) -> [batch, d] { x + x }", "use layers::{};",
        "expected the paths of blocks: `use layers::mlp;`, `use layers::{mlp, head as last};`";
}

#[test]
fn a_use_that_nobody_needs_is_a_mistake() {
    let source = with(&library(MLP), "mlp", &model("", "x + x"));
    assert_eq!(
        errors_of(&source),
        [("mlp".to_owned(), "nothing calls the block `mlp`".to_owned())]
    );
}

#[test]
fn a_name_is_that_of_one_block() {
    let block = "block mlp(x: [..]) -> [..] { x + x }";
    let source = model("", "mlp(x)").replace(';', &format!("; {block}"));
    let found = errors_of(&with(&library(MLP), "mlp", &source));
    assert_eq!(
        found[0],
        (
            "mlp".to_owned(),
            "two blocks or functions are called `mlp`".to_owned()
        )
    );
}

#[test]
fn a_mistake_of_a_library_is_reported_there_alone() {
    let library = library("pub block mlp(x: [.., n]) -> [.., n] { linear::<WIDTH>(x) }");
    assert_eq!(library.replace(' ', ""), "@{}");
    let source = with(&library, "mlp", &model("", "mlp::<5, 7, 9>(x)"));
    assert!(errors_of(&source).is_empty());
}
