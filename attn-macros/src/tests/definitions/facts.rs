//! `PARAMS` and `flops` of the generated type against sums by hand.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use crate::score::eval::Value;
use crate::tests::interpret::{self, Scope};
use crate::tests::support::{expand, impl_items, parse_file};

/// The lengths of a call, and the constants of the user and of the expansion.
struct Sizes<'a>(&'a syn::File, (i64, i64, i64));

impl Scope for Sizes<'_> {
    fn variable(&self, name: &str) -> Option<Value> {
        Some(Value::Int(match name {
            "batch" => self.1.0,
            "q_len" => self.1.1,
            "kv_len" => self.1.2,
            "HEADS" => 3,
            "WIDTH" => 12,
            _ => {
                return self.0.items.iter().find_map(|item| match item {
                    syn::Item::Const(item) if item.ident == name => {
                        Some(interpret::value(&item.expr, self))
                    }
                    _ => None,
                });
            }
        }))
    }
}

/// `PARAMS` and `flops(batch, q_len, kv_len)`, from the expansion.
fn facts(keys: &str, sizes: (i64, i64, i64)) -> (i64, i64) {
    let file = parse_file(expand(&format!("struct L<{keys}>;")));
    let scope = Sizes(&file, sizes);
    let mut params = None;
    let mut flops = None;
    for item in impl_items(&file) {
        match item {
            // Those of `Facts` follow, and refer to these.
            syn::ImplItem::Const(item) if item.ident == "PARAMS" && params.is_none() => {
                params = Some(interpret::value(&item.expr, &scope));
            }
            syn::ImplItem::Fn(item) if item.sig.ident == "flops" && flops.is_none() => {
                let [syn::Stmt::Expr(body, None)] = item.block.stmts.as_slice() else {
                    panic!("not one expression")
                };
                flops = Some(interpret::value(body, &scope));
            }
            _ => {}
        }
    }
    match (params, flops) {
        (Some(Value::Int(params)), Some(Value::Int(flops))) => (params, flops),
        other => panic!("{other:?}"),
    }
}

#[test]
fn plain_self_attention_has_its_facts() {
    let (params, flops) = facts("heads = 8, d_model = 512", (2, 10, 10));
    assert_eq!(params, 4 * (512 * 512 + 512));
    let projections = 4 * 10 * 512 * 512;
    let scores_and_values = 2 * 8 * 10 * 10 * 64;
    assert_eq!(flops, 2 * 2 * (projections + scores_and_values));
}

#[test]
fn flops_of_a_context_count_its_length() {
    let (_, flops) = facts("heads = 2, d_model = 8", (1, 1, 100));
    let query_and_output = 2 * 8 * 8;
    let key_and_value = 2 * 100 * 8 * 8;
    let scores_and_values = 2 * 2 * 100 * 4;
    assert_eq!(
        flops,
        2 * (query_and_output + key_and_value + scores_and_values)
    );
}

#[test]
fn grouped_heads_of_other_widths_have_their_facts() {
    let keys = "heads = 6, kv_heads = 2, d_model = 10, head_dim = 4, value_head_dim = 5, \
                qk_norm = rms, bias = [q, o]";
    let (params, flops) = facts(keys, (3, 7, 7));
    let projections = 10 * 24 + 10 * 8 + 10 * 10 + 30 * 10;
    assert_eq!(params, projections + 24 + 10 + 2 * 4);
    assert_eq!(flops, 2 * 3 * (7 * projections + 6 * 7 * 7 * (4 + 5)));
}

#[test]
fn additive_cross_attention_has_its_facts() {
    let keys = "heads = 2, d_model = 8, d_context = 6, score = additive(hidden = 5), bias = false";
    let (params, flops) = facts(keys, (1, 3, 9));
    let q = 8 * 10;
    let k = 6 * 10;
    let v = 6 * 8;
    let o = 8 * 8;
    assert_eq!(params, q + k + v + o + 2 * 5);
    let scores_and_values = 2 * 3 * 9 * (5 + 4);
    assert_eq!(flops, 2 * (3 * (q + o) + 9 * (k + v) + scores_and_values));
}

#[test]
fn bilinear_attention_with_buckets_has_its_facts() {
    let keys = "heads = 2, d_model = 8, score = bilinear, position = rel_pos_bias(num_buckets = 6, max_distance = 9), bias = false";
    let (params, flops) = facts(keys, (1, 5, 5));
    assert_eq!(params, 4 * 8 * 8 + 2 * 4 * 4 + 6 * 2);
    let matrix_per_head = 2 * 5 * 4 * 4;
    assert_eq!(
        flops,
        2 * (5 * 4 * 8 * 8 + matrix_per_head + 2 * 2 * 5 * 5 * 4)
    );
}

#[test]
fn facts_refer_to_sizes_that_rustc_knows() {
    let keys = "heads = HEADS, d_model = { WIDTH * 2 }, bias = false, head_dim = 5, kv_heads = 1";
    let (params, flops) = facts(keys, (1, 2, 2));
    let projections = 24 * 15 + 2 * 24 * 5 + 15 * 24;
    assert_eq!(params, projections);
    assert_eq!(flops, 2 * (2 * projections + 2 * 3 * 2 * 2 * 5));
}

/// The names before a `:` in every pair of braces after `Attends`: those of the struct, and of its values.
fn fields(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let mut is_next = false;
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                if is_next && group.delimiter() == Delimiter::Brace {
                    let list: Vec<_> = group.stream().into_iter().collect();
                    let named = list.windows(2).filter_map(|pair| match pair {
                        [TokenTree::Ident(name), TokenTree::Punct(colon)]
                            if colon.as_char() == ':' && colon.spacing() == Spacing::Alone =>
                        {
                            Some(name.to_string())
                        }
                        _ => None,
                    });
                    found.push(named.collect());
                }
                fields(group.stream(), found);
                is_next = false;
            }
            token => is_next = matches!(&token, TokenTree::Ident(name) if name == "Attends"),
        }
    }
}

/// The struct of the mask has the fields of its values, also for a length that does not affect the mask.
#[test]
fn a_length_in_a_dead_operand_is_a_field_of_every_value() {
    for (dead, length) in [
        ("(2 > 1 || q_len > 3) && kv_idx <= q_idx", "q_len"),
        ("kv_idx <= q_idx || (1 > 2 && kv_len > 3)", "kv_len"),
        (
            "if 2 > 1 || kv_len > 3 { kv_idx <= q_idx } else { false }",
            "kv_len",
        ),
    ] {
        let source = format!(
            "struct L<heads = 1, d_model = 4> {{ fn mask(q_idx, kv_idx, {length}) {{ {dead} }} }}"
        );
        let mut found = Vec::new();
        fields(expand(&source), &mut found);
        found.retain(|names| !names.is_empty());
        assert_eq!(found, vec![vec![length.to_owned()]; 3], "{dead}");
    }
}
