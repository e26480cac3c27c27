//! Learned tensors: their sizes, their initial values, their documentation.

use quote::ToTokens;

use super::spec;
use crate::spec::Distribution;
use crate::spec::Spec;

/// A layer whose score reads its only tensor `t`, with these `dims` and this `init`.
fn tensor(dims: &str, init: &str) -> Spec {
    let index = vec!["0"; dims.split(',').count()].join(", ");
    spec(&format!(
        "param t: [{dims}] = {init}; fn score(score) {{ score + t[{index}] }}"
    ))
}

#[test]
fn sizes_are_keys_of_the_header_numbers_constants_and_what_is_computed_of_them() {
    for (dims, known) in [
        ("heads", vec![Some(8)]),
        ("8", vec![Some(8)]),
        ("heads, head_dim", vec![Some(8), Some(4)]),
        ("2 * heads + 1, d_model / 4", vec![Some(17), Some(8)]),
        ("{ heads * (head_dim - 1) }", vec![Some(24)]),
        ("W, 3", vec![None, Some(3)]),
        ("kv_heads, heads * W", vec![None, None]),
    ] {
        let spec = tensor(dims, "zeros");
        let found = &spec.body.params[0].dims;
        let values: Vec<_> = found.iter().map(|dim| dim.value).collect();
        assert_eq!(values, known, "{dims}");
    }
}

#[test]
fn a_size_that_rustc_computes_is_an_item_and_is_shown_as_written() {
    let spec = tensor("kv_heads, heads * W + 1, config::N as usize", "zeros");
    let shown: Vec<_> = spec.body.params[0]
        .dims
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(shown, ["KV_HEADS", "heads * W + 1", "config::N as usize"]);
    let items: Vec<_> = spec.constants.iter().map(ToString::to_string).collect();
    assert_eq!(
        items,
        [
            "const __L_kv_heads : usize = KV_HEADS ;",
            "const __L_body_2 : usize = (8) * W + 1 ;",
            "const __L_body_3 : usize = config :: N as usize ;",
        ]
    );
    let tokens: Vec<_> = spec.body.params[0]
        .dims
        .iter()
        .map(|dim| dim.to_token_stream().to_string())
        .collect();
    assert_eq!(tokens, ["__L_kv_heads", "__L_body_2", "__L_body_3"]);
}

#[test]
fn initializers_are_parsed() {
    for (init, expected) in [
        ("zeros", "Zeros"),
        ("ones", "Ones"),
        ("normal(std = 0.02)", "Normal { std: 0.02 }"),
        ("normal(0.5)", "Normal { std: 0.5 }"),
        ("normal(STD)", "Normal { std: STD }"),
        ("uniform(bound = 0.1)", "Uniform { bound: 0.1 }"),
        ("alibi_slopes", "AlibiSlopes"),
        ("0.5", "Constant(0.5)"),
        ("-1", "Constant(-1)"),
        ("{ 1.0 / 4.0 }", "Constant(0.25)"),
        ("INITIAL", "Constant(INITIAL)"),
        ("config::INITIAL", "Constant(config::INITIAL)"),
    ] {
        let spec = tensor("heads", init);
        let found: &Distribution = &spec.body.params[0].init;
        assert_eq!(format!("{found:?}"), expected);
    }
}

#[test]
fn numbers_that_rustc_computes_are_items() {
    for (init, item) in [
        ("INITIAL", "const __L_body_2 : f64 = (INITIAL) as f64 ;"),
        ("normal(STD)", "const __L_body_2 : f64 = (STD) as f64 ;"),
    ] {
        let items = tensor("heads", init).constants;
        assert_eq!(items.last().map(ToString::to_string).as_deref(), Some(item));
    }
}

#[test]
fn slopes_fit_the_heads_however_these_are_written() {
    for (heads, dims) in [
        ("8", "heads"),
        ("8", "8"),
        ("8", "4 * 2"),
        ("HEADS", "heads"),
        ("HEADS", "HEADS"),
    ] {
        let source = format!(
            "struct L<heads = {heads}, d_model = 32> {{
                 param slope: [{dims}] = alibi_slopes;
                 fn score(score, h) {{ score * slope[h] }}
             }}"
        );
        // The spec has no mistake.
        crate::tests::support::build(&source);
    }
}

#[test]
fn attributes_and_documentation_are_kept() {
    let spec = spec(
        "/// Learned slope of each head.
         #[allow(dead_code)]
         param slope: [heads] = alibi_slopes;
         fn score(score, h) { score - slope[h] }",
    );
    let attrs: Vec<_> = spec.body.params[0]
        .attrs
        .iter()
        .map(|attr| attr.to_token_stream().to_string())
        .collect();
    assert_eq!(
        attrs,
        [
            "# [doc = \" Learned slope of each head.\"]",
            "# [allow (dead_code)]"
        ]
    );
}

/// Every read of a tensor has its own derivative: those of these two do not cancel.
#[test]
fn a_difference_of_two_elements_is_learned() {
    spec("param t: [8] = zeros; fn score(score, h) { score + t[h] - t[h / 2] }");
}
