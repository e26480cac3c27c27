//! Hover texts and definitions of names.

use crate::{ask, body, layer, model};

/// Checks the hover text of the name at the cursor.
fn check(source: &str, expected: &str) {
    if let Some(said) = ask(|server| server.hover(source)) {
        assert!(said.contains(expected), "{said} in {source}");
    }
}

#[test]
fn a_variable_has_its_shape() {
    for (statements, shape) in [
        (
            "let h$0 = linear::<512>(x); linear::<8>(h)",
            "[batch, seq, 512]",
        ),
        (
            "let h = linear::<512>(x); linear::<8>(h$0)",
            "[batch, seq, 512]",
        ),
        (
            "let h = linear::<hidden>(x); linear::<8>(h$0)",
            "[batch, seq, 32]",
        ),
        (
            "let h = linear::<512>(x); linear::<8>(h) + x$0",
            "[batch, seq, d_model]",
        ),
        ("mean_pool(x, lens$0)", "lens[batch]"),
        (
            "let mut h = linear::<512>(x); h = linear::<4>(h$0); h",
            "[batch, seq, 512]",
        ),
        (
            "let mut h = linear::<512>(x); h = linear::<4>(h); h$0",
            "[batch, seq, 4]",
        ),
        (
            "let mut h = linear::<512>(x); h = linear::<4>(h); let y = x; linear::<8>(h$0) + y",
            "[batch, seq, 4]",
        ),
        (
            "let mut h = linear::<512>(x); repeat 2 { h$0 = gelu(h); } h",
            "[batch, seq, 512]",
        ),
    ] {
        check(&model(statements), &format!("`{shape}`"));
    }
}

#[test]
fn in_a_scan_a_variable_has_the_shape_of_a_step() {
    for (statements, shape) in [
        ("state h$0: [batch, 8] = 0; h = x; yield h;", "[batch, 8]"),
        ("state h: [batch, 8] = 0; h = x; yield h$0;", "[batch, 8]"),
        ("state h: [batch, 8] = 0; h = x$0; yield h;", "[batch, 8]"),
        (
            "state h: [batch, 8] = x$0[seq = 0]; h += x; yield h;",
            "[batch, seq, d_model]",
        ),
        (
            "let y$0 = linear::<4>(x); yield linear::<8>(y);",
            "[batch, 4]",
        ),
    ] {
        let scan = format!("let z = scan seq {{ {statements} }}; z");
        check(&model(&scan), &format!("`{shape}`"));
    }
    let scan = "state h: [batch, 4] = 0; h = linear::<4>(x); yield h; h";
    let behind = |uses: &str| format!("let (y, last) = scan seq {{ {scan} }}; {uses}");
    check(&model(&behind("last$0 + y")), "`[batch, 4]`");
    check(&model(&behind("last + y$0")), "`[batch, seq, 4]`");
    check(&model(&behind("last + x$0")), "`[batch, seq, d_model]`");
}

#[test]
fn a_shape_is_known_beside_mistakes() {
    let statements = "let h = linear::<512>(x); let y = nothing_known(h$0); lin";
    check(&model(statements), "`[batch, seq, 512]`");
}

#[test]
fn inputs_axes_and_sizes_are_explained() {
    let with = |inputs: &str, end: &str| {
        format!(
            "attn::model! {{ struct Model<width = 8>; fn forward({inputs}) -> [batch, width] {{ {end} }} }}"
        )
    };
    check(&with("x$0: [batch, width]", "x"), "`[batch, width]`");
    check(&with("x: [batch$0, width]", "x"), "An axis of any length");
    check(
        &with("x: [batch, width$0]", "x"),
        "A size of the model: `8`",
    );
    check(
        &with("x: [batch, width]", "linear::<width$0>(x)"),
        "A size of the model: `8`",
    );
    check(&with("x: ids$0[batch, width]", "x"), "A tensor of `usize`");
}

#[test]
fn keys_words_and_operations_have_their_documentation() {
    check(
        &layer("mas$0k = causal", ";"),
        "Which keys a query attends to",
    );
    check(&layer("mask = cau$0sal", ";"), "up to its own position");
    check(
        &layer("mask = sliding_window(3, symm$0etric)", ";"),
        "`n - 1` after it",
    );
    for (statements, said) in [
        ("lin$0ear::<8>(x)", "`x Wᵀ + b`"),
        ("linear::<ou$0t = 8>(x)", "Width of the result"),
        ("linear::<$08>(x)", "Width of the result"),
        (
            "attention::<2, mask = cau$0sal>(x)",
            "up to its own position",
        ),
        (
            "feed_forward::<8, activation = swi$0glu>(x)",
            "Gated by `silu`",
        ),
        ("repe$0at 2 { x = x; }", "with layers of its own"),
        ("sc$0an seq { yield x; }", "the steps along an axis"),
        (
            "let y = sca$0n seq { yield x; }; y",
            "the steps along an axis",
        ),
        (
            "scan seq, rev$0erse = true { yield x; }",
            "the last step comes first",
        ),
        (
            "scan seq { sta$0te h: [batch] = 0; yield x; }",
            "each step assigns for the next one",
        ),
        ("scan seq { yi$0eld x; }", "a result for each step"),
        ("atte$0nd(x, x, x)", "F.scaled_dot_product_attention"),
        ("attend::<so$0ftcap = 20>(x, x, x)", "tanh"),
        (
            "conv1d::<seq, 8, 3, padding = cau$0sal>(x)",
            "before the axis",
        ),
        ("conv1d::<seq, $08, 3>(x)", "channels of the result"),
    ] {
        check(&model(statements), said);
    }
    check(
        &body("fn score(score, h) { score * slo$0pe[h] }"),
        "Learned: `[heads]`",
    );
    check(
        &body("fn score(score, h) { score * fa$0r[b, h] }"),
        "`[batch, kv_len]`",
    );
    check(&body("fn score(score) { ta$0nh(score) }"), "`tanh(x)`");
    check(
        &body("fn score(sco$0re) { score }"),
        "score of a query and a key",
    );
}

#[test]
fn a_name_leads_to_where_it_is_declared() {
    let source = "attn::model! { struct Model<d_model = 8>;
        fn forward(x: [batch, d_model]) -> [batch, d_model] {
            let mut h = linear::<8>(x);
            h = gelu(h);
            h$0
        } }";
    if let Some(lines) = ask(|server| server.definition(source)) {
        assert_eq!(lines, [2]);
    }
}
