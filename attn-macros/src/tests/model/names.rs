//! Layers of a user may have any name: no other emitted name equals theirs.

use std::collections::HashSet;

use proc_macro2::Ident;

use super::{expand, lower};
use crate::emit::block::name_of;

/// Words that the emitted code uses in names, and words that could collide when they are joined.
const NAMES: &[&str] = &[
    "weights",
    "Weights",
    "saved",
    "past",
    "kept",
    "round",
    "rounds",
    "sizes",
    "inputs",
    "input",
    "input_mut",
    "InputMut",
    "session",
    "call",
    "data",
    "built",
    "output",
    "layer",
    "layer_layer",
    "attention",
    "blocks",
    "blocks_attention",
    "blocksAttention",
    "blocks__attention",
    "_weights",
    "__weights",
    "weights_",
    "___weights",
    "blocks_weights",
    "has_no_module",
    "_1",
    "head",
    "head_built",
];

/// The types and traits among these items.
fn types(items: &[syn::Item]) -> Vec<&Ident> {
    let names = items.iter().filter_map(|item| match item {
        syn::Item::Struct(item) => Some(&item.ident),
        syn::Item::Trait(item) => Some(&item.ident),
        syn::Item::Type(item) => Some(&item.ident),
        _ => None,
    });
    names.collect()
}

/// The items of every `const _: () = { .. };`.
fn blocks(items: &[syn::Item]) -> Vec<Vec<syn::Item>> {
    let blocks = items.iter().filter_map(|item| match item {
        syn::Item::Const(syn::ItemConst { expr, .. }) => match &**expr {
            syn::Expr::Block(block) => Some(&block.block.stmts),
            _ => None,
        },
        _ => None,
    });
    let items = blocks.map(|statements| {
        let items = statements.iter().filter_map(|statement| match statement {
            syn::Stmt::Item(item) => Some(item.clone()),
            _ => None,
        });
        items.collect()
    });
    items.collect()
}

/// Checks that type names are unique, and that no block shadows one of an outer block.
fn check(source: &str) {
    let file = expand(source);
    let outside = types(&file.items);
    let distinct: HashSet<_> = outside.iter().collect();
    assert_eq!(distinct.len(), outside.len(), "{outside:?} in {source}");
    for block in blocks(&file.items) {
        let inside = types(&block);
        let distinct: HashSet<_> = inside.iter().collect();
        assert_eq!(distinct.len(), inside.len(), "{inside:?} in {source}");
        let hidden: Vec<_> = inside
            .iter()
            .filter(|name| outside.contains(name))
            .collect();
        assert!(hidden.is_empty(), "{hidden:?} in {source}");
    }
}

#[test]
fn every_emitted_type_has_a_name_of_its_own() {
    for model in ["Net", "_Net", "Net_", "__"] {
        for pair in NAMES.windows(2) {
            let [first, second] = pair else { continue };
            check(&format!(
                "struct {model};
                fn forward(x: [batch, seq, 4]) -> [batch, seq, 4] {{
                    let x = attention::<heads = 1, mask = causal, name = {first}>(x);
                    let mut x = x + module::<Linear<4, 4>, out = [batch, seq, 4], name = {second}>(x);
                    repeat 2 {{
                        x = attention::<heads = 1, mask = causal, name = {first}>(x);
                        repeat 2, name = {second} {{
                            x = attention::<heads = 1, mask = causal, name = {second}>(x);
                        }}
                    }}
                    x
                }}
                struct {model}Blocks;
                fn forward(x: [batch, seq, 4]) -> [batch, seq, 4] {{
                    let mut x = x;
                    repeat 2, name = {first} {{
                        x = x + attention::<heads = 1, mask = causal, name = {second}>(x);
                    }}
                    linear::<4, name = weights>(attention::<heads = 1, name = {second}>(x))
                }}"
            ));
        }
    }
}

/// A second `x` is `x_2`, unless the user has called another value so.
#[test]
fn every_value_has_a_name_of_its_own() {
    let model = lower(
        "struct M<d = 4>;
        fn forward(x: [batch, d], x_3: [batch, d]) -> [batch, d] {
            let (y, y_2) = split(concat(x, x_3));
            let y = gelu(y);
            let y = y * x;
            let x = exp(y);
            let x = x * x_3;
            let y_2_2 = tanh(y_2);
            let y_2 = y_2 + y_2_2 + y;
            x + y_2
        }",
    );
    let names: HashSet<_> = model.values.iter().map(|value| &value.name).collect();
    assert_eq!(names.len(), model.values.len(), "{names:?}");
}

/// Emitted code names variables after values: of no two values it gives two the same name. A word of Rust gets a name that no value has.
#[test]
fn names_after_values_differ() {
    let names = [
        "x",
        "h",
        "before_h",
        "all_x",
        "d",
        "d_x",
        "d2_x",
        "d_kept",
        "kept",
        "x_kept",
        "before",
        "here",
        "x_all",
        "h_states",
        "r#in",
        "in_",
        "r#in_kept",
        "h_of_steps",
        "d_h_here",
    ];
    let names: Vec<_> = names
        .iter()
        .map(|name| name.replace("r#in_", "in_"))
        .collect();
    let lines: String = names
        .iter()
        .map(|name| format!("let {name} = tanh(input);"))
        .collect();
    let sum = names.join(" + ");
    let model = lower(&format!(
        "struct M<d = 4>; fn forward(input: [batch, d]) -> [batch, d] {{ {lines} {sum} }}"
    ));
    let values: HashSet<_> = model.values.iter().map(name_of).collect();
    assert_eq!(values.len(), model.values.len(), "{values:?}");
    let mut found = values.clone();
    for value in &values {
        let begun = ["d_", "d2_", "d_before_", "d_all_"].map(|begin| format!("{begin}{value}"));
        let here = ["d_", "d2_"].map(|begin| format!("{begin}{value}_here"));
        let ended = [
            "_all",
            "_kept",
            "_next",
            "_of_steps",
            "_seeds",
            "_starts",
            "_states",
        ];
        let ended = ended.map(|end| format!("{value}{end}"));
        for name in begun.into_iter().chain(here).chain(ended) {
            assert!(found.insert(name.clone()), "{name}");
        }
    }
}
