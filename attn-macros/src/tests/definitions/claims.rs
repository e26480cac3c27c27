//! The results of `ensure`, and the constants of the layer about its mask.

use crate::tests::support::{expand, impl_items, parse_file, reports};

/// The errors of a layer with this mask and this `ensure`.
fn errors(mask: &str, ensure: &str, cross: bool) -> Vec<String> {
    let context = if cross { "d_context = 4, " } else { "" };
    let file = parse_file(expand(&format!(
        "struct L<heads = 2, d_model = 4, {context}mask = {mask}, ensure = {ensure}>;"
    )));
    let reports = reports(&file).into_iter();
    reports.map(|report| report.message).collect()
}

fn assert_proved(cross: bool, cases: &[(&str, &str)]) {
    for (mask, ensure) in cases {
        let errors = errors(mask, ensure, cross);
        assert!(errors.is_empty(), "{mask}: {errors:?}");
    }
}

fn assert_fails(cross: bool, cases: &[(&str, &str, &str)]) {
    for (mask, ensure, error) in cases {
        let expected = format!("`ensure = {ensure}`: {error}");
        assert_eq!(errors(mask, ensure, cross), [expected], "{mask}");
    }
}

#[test]
fn promises_of_self_attention_are_proved() {
    assert_proved(
        false,
        &[
            ("causal", "causal & every_query_attends"),
            ("none", "every_query_attends"),
            ("sliding_window(4096)", "{ causal & every_query_attends }"),
            (
                "sliding_window(4096)",
                "{ sliding_window(4096) & sliding_window(5000) }",
            ),
            (
                "dilated_sliding_window(100, 7)",
                "causal & sliding_window(694)",
            ),
            (
                "dilated_sliding_window(8, 64, symmetric)",
                "every_query_attends",
            ),
            (
                "chunked(256) & causal",
                "causal & sliding_window(256) & every_query_attends",
            ),
            ("chunked(256)", "sliding_window(256, symmetric)"),
            ("prefix_lm(1)", "causal"),
            (
                "prefix_lm(1000) & sliding_window(300)",
                "causal & every_query_attends",
            ),
            ("padding & causal", "causal & padding"),
            (
                "document & causal",
                "document & causal & every_query_attends",
            ),
            ("padding | sliding_window(1)", "every_query_attends"),
            (
                "!causal | sliding_window(2147483648)",
                "every_query_attends",
            ),
            // Both alignments are the same, since there is one sequence.
            ("causal(lower_right)", "causal(upper_left) & causal"),
            (
                "chunked(640) & chunked(4096) & sliding_window(2000)",
                "sliding_window(640)",
            ),
        ],
    );
}

#[test]
fn promises_of_cross_attention_are_proved() {
    assert_proved(
        true,
        &[
            (
                "causal(upper_left)",
                "causal(upper_left) & every_query_attends",
            ),
            ("causal(lower_right)", "causal(lower_right)"),
            ("prefix_lm(3, lower_right)", "every_query_attends"),
            (
                "causal(lower_right) | causal(upper_left)",
                "every_query_attends",
            ),
            (
                "chunked(8, lower_right) | !causal(lower_right)",
                "every_query_attends",
            ),
            (
                "sliding_window(9, lower_right) & padding",
                "padding & sliding_window(9, lower_right)",
            ),
        ],
    );
}

#[test]
fn broken_promises_have_the_shortest_counterexample() {
    assert_fails(
        false,
        &[
            (
                "none",
                "causal",
                "q_idx = 0 attends to kv_idx = 1 (q_len = 2, kv_len = 2)",
            ),
            (
                "causal | chunked(3) & !chunked(2)",
                "causal",
                "q_idx = 0 attends to kv_idx = 2 (q_len = 3, kv_len = 3)",
            ),
            (
                "!causal",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 1, kv_len = 1)",
            ),
            (
                "sliding_window(9)",
                "sliding_window(8)",
                "q_idx = 8 attends to kv_idx = 0 (q_len = 9, kv_len = 9)",
            ),
            // Longer than the search.
            (
                "causal | !sliding_window(100, symmetric)",
                "causal",
                "q_idx = 0 attends to kv_idx = 100 (q_len = 101, kv_len = 101)",
            ),
            (
                "chunked(1000)",
                "sliding_window(999, symmetric)",
                "q_idx = 999 attends to kv_idx = 0 (q_len = 1000, kv_len = 1000)",
            ),
        ],
    );
    assert_fails(
        true,
        &[
            (
                "causal(lower_right)",
                "causal(upper_left)",
                "q_idx = 0 attends to kv_idx = 1 (q_len = 1, kv_len = 2)",
            ),
            (
                "causal(lower_right)",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 2, kv_len = 1)",
            ),
            (
                "sliding_window(20, upper_left)",
                "every_query_attends",
                "q_idx = 20 attends to no key (q_len = 21, kv_len = 1)",
            ),
        ],
    );
}

#[test]
fn data_may_break_a_promise() {
    assert_fails(
        false,
        &[
            (
                "padding",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where every key is padding",
            ),
            (
                "!padding | !causal",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where every key is valid",
            ),
            (
                "!document",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where all tokens are of one document",
            ),
            (
                "document & !sliding_window(1)",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where all tokens are of one document",
            ),
            (
                "causal | !padding",
                "causal",
                "q_idx = 0 attends to kv_idx = 1 (q_len = 2, kv_len = 2), where the key is padding",
            ),
            (
                "causal",
                "document",
                "q_idx = 1 attends to kv_idx = 0 (q_len = 2, kv_len = 2), where they are of two documents",
            ),
        ],
    );
    assert_fails(
        true,
        &[(
            "document",
            "every_query_attends",
            "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where no key is of the query's document",
        )],
    );
}

#[test]
fn ids_of_a_body_are_documents_of_its_own() {
    let errors = |mask: &str, ensure: &str| {
        let keep = "data keep: bool[batch, kv_len];";
        let keep = if mask.contains("keep") { keep } else { "" };
        let file = parse_file(expand(&format!(
            "struct L<heads = 2, d_model = 4, ensure = {ensure}> {{
                data doc: ids[batch, q_len];
                {keep}
                fn mask(b, q_idx, kv_idx) {{ {mask} }}
            }}"
        )));
        let reports = reports(&file).into_iter();
        reports.map(|report| report.message).collect::<Vec<_>>()
    };
    let same = "doc[b, q_idx] == doc[b, kv_idx]";
    let earlier = "doc[b, q_idx] > doc[b, kv_idx]";
    for (mask, ensure) in [
        (
            format!("{same} && kv_idx <= q_idx"),
            "causal & every_query_attends",
        ),
        (format!("{same} || keep[b, kv_idx]"), "every_query_attends"),
        (format!("!({earlier})"), "every_query_attends"),
        (
            format!("{same} && {earlier} || q_idx == kv_idx"),
            "every_query_attends",
        ),
    ] {
        assert_eq!(errors(&mask, ensure), [""; 0], "{mask}");
    }
    for (mask, ensure, error) in [
        (
            same,
            "causal",
            "q_idx = 0 attends to kv_idx = 1 (q_len = 2, kv_len = 2), where `doc[b, q_idx] == doc[b, kv_idx]`",
        ),
        (
            "!(doc[b, q_idx] == doc[b, kv_idx])",
            "causal",
            "q_idx = 0 attends to kv_idx = 1 (q_len = 2, kv_len = 2), where not `doc[b, q_idx] == doc[b, kv_idx]`",
        ),
        (
            earlier,
            "every_query_attends",
            "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where `doc[b, kv_idx] < doc[b, q_idx]` for no key",
        ),
        (
            "doc[b, q_idx] == doc[b, kv_idx] && q_idx != kv_idx",
            "every_query_attends",
            "q_idx = 0 attends to no key (q_len = 1, kv_len = 1), where `doc[b, q_idx] == doc[b, kv_idx]` for every key",
        ),
    ] {
        let expected = format!("`ensure = {ensure}`: {error}");
        assert_eq!(errors(mask, ensure), [expected], "{mask}");
    }
}

#[test]
fn sizes_that_only_rustc_knows_are_no_obstacle_where_they_do_not_matter() {
    assert_proved(
        false,
        &[
            (
                "sliding_window(W)",
                "causal & every_query_attends & sliding_window(W)",
            ),
            (
                "dilated_sliding_window(W, 3)",
                "causal & every_query_attends",
            ),
            (
                "dilated_sliding_window(W, D, symmetric)",
                "every_query_attends",
            ),
            ("chunked(W) & causal", "causal & every_query_attends"),
            ("prefix_lm({ 2 * W })", "every_query_attends"),
        ],
    );
    assert_fails(
        false,
        &[
            (
                "!sliding_window(W)",
                "every_query_attends",
                "q_idx = 0 attends to no key (q_len = 1, kv_len = 1)",
            ),
            (
                "!sliding_window(W)",
                "causal",
                "q_idx = 0 attends to kv_idx = 1 (q_len = 2, kv_len = 2)",
            ),
        ],
    );
    let help = "cannot decide whether this holds, as only rustc can evaluate";
    assert_fails(
        false,
        &[
            (
                "prefix_lm(W)",
                "causal",
                &format!("{help} `W`\nhelp: write the number itself"),
            ),
            (
                "sliding_window(4)",
                "sliding_window(W)",
                &format!("{help} `W`\nhelp: write the number itself"),
            ),
            (
                "chunked(W) & sliding_window(D, symmetric)",
                "causal",
                &format!("{help} `W` or `D`\nhelp: write the number itself"),
            ),
        ],
    );
}

#[test]
fn a_promise_says_how_positions_line_up() {
    let errors = errors("causal(lower_right)", "causal", true);
    assert!(
        errors[0].contains("ambiguous in cross-attention"),
        "{errors:?}"
    );
}

#[test]
fn masks_with_mistakes_have_no_proofs() {
    for mask in ["caussal", "sliding_window(0)", "padding & padding"] {
        assert_eq!(
            errors(mask, "causal & every_query_attends", false).len(),
            1,
            "{mask}"
        );
    }
}

/// `IS_CAUSAL` and `EVERY_QUERY_ATTENDS`.
fn facts(mask: &str, cross: bool) -> [bool; 2] {
    let context = if cross { "d_context = 4, " } else { "" };
    let file = parse_file(expand(&format!(
        "struct L<heads = 2, d_model = 4, {context}mask = {mask}>;"
    )));
    ["IS_CAUSAL", "EVERY_QUERY_ATTENDS"].map(|name| {
        let values = impl_items(&file).into_iter().filter_map(|item| match item {
            syn::ImplItem::Const(item) if item.ident == name => Some(&item.expr),
            _ => None,
        });
        let values: Vec<_> = values.collect();
        assert_eq!(values.len(), 1);
        quote::ToTokens::to_token_stream(values[0]).to_string() == "true"
    })
}

#[test]
fn constants_say_what_is_proved() {
    for (mask, cross, expected) in [
        ("none", false, [false, true]),
        ("causal", false, [true, true]),
        ("causal & padding", false, [true, false]),
        ("chunked(4)", false, [false, true]),
        ("sliding_window(W)", false, [true, true]),
        ("prefix_lm(W)", false, [false, true]),
        ("causal(upper_left)", true, [true, true]),
        ("causal(lower_right)", true, [true, false]),
        (
            "causal(lower_right) | causal(upper_left)",
            true,
            [false, true],
        ),
        ("caussal", false, [false, true]),
    ] {
        assert_eq!(facts(mask, cross), expected, "{mask}");
    }
}
