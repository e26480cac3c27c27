//! Mistakes in the keys: each is reported once, at its token, which is marked by `«` and `»` here.

use super::support::{check_source, expand, parse_file, reports};

/// Claims these messages for tokens that are added to the keys of a layer.
fn check(keys: &str, messages: &[&str]) {
    check_source(
        &format!("struct L<heads = 2, d_model = 16, {keys}>;"),
        messages,
    );
}

#[test]
fn keys_from_elsewhere_say_what_to_write() {
    for (keys, help) in [
        ("«rope_theta» = 500000.0", "position = rope(theta ="),
        ("«rotary_pos_emb» = true", "`position = rope`"),
        ("«rope_scaling» = 2.0", "rope(scaling = linear(2.0))"),
        ("«partial_rotary_factor» = 0.5", "rope(dims = 16)"),
        ("«window_size» = 256", "`mask = sliding_window(n)`"),
        ("«multi_query» = true", "`kv_heads = 1`"),
        ("«add_zero_attn» = true", "`normalizer = softmax1`"),
        (
            "«use_talking_heads» = true",
            "did you mean `talking_heads`?",
        ),
        ("«pre_talking_heads» = true", "`talking_heads = before`"),
        ("«proj_w» = true", "`talking_heads = after`"),
        ("«kdim» = 8", "`d_context` is its width"),
        ("«vdim» = 8", "`d_values = 512`, beside `d_context`"),
        ("«cross_attend» = true", "`d_context = 512`"),
        ("«causal» = true", "did you mean `mask = causal`?"),
        ("«LayerNormEps» = 1e-5", "the keys are"),
        ("«Num_Heads» = 2", "did you mean `heads`?"),
    ] {
        let source = format!("struct L<heads = 2, d_model = 16, {keys}>;");
        check_source(&source, &["unknown key .."]);
        let source = source.replace(['«', '»'], "");
        let found = reports(&parse_file(expand(&source)));
        assert!(found[0].message.contains(help), "{found:?}");
    }
}

#[test]
fn an_epsilon_is_positive() {
    check(
        "qk_norm = rms(epsilon = «0»)",
        &["`epsilon` of `qk_norm` must be positive and finite, found 0"],
    );
    check(
        "qk_norm = l2(«gain» = one_plus)",
        &["`l2` has no argument `gain`\nhelp: .."],
    );
}

#[test]
fn a_number_is_positive_and_finite_as_an_f32() {
    for number in ["1e39", "1e-60"] {
        check(
            &format!("softcap = «{number}»"),
            &["`softcap` must be positive and finite, found .."],
        );
    }
}

#[test]
fn a_rule_about_known_sizes_stands_alone() {
    let source = "struct L<heads = 2, d_model = 16, head_dim = HD, position = rope(dims = 4)>;";
    let text = expand(source).to_string();
    assert!(
        text.contains("4usize <=") || text.contains("4 <="),
        "{text}"
    );
    assert!(!text.contains("! ()"), "{text}");
}

#[test]
fn a_root_is_a_number_and_no_size() {
    check(
        "head_dim = «sqrt»(64.0)",
        &[
            "a square root in a constant is `sqrt(x)`, and a number, no size\nhelp: write the number, `8`",
        ],
    );
}

#[test]
fn non_constants_are_errors() {
    check(
        "scale = 1.0 / «exp»(0.0)",
        &[
            "rustc does not compute `exp` in a constant\nhelp: write the number, `1`; a `const fn` of yours ..",
        ],
    );
    check(
        "scale = 64f64.«powf»(-0.5)",
        &["rustc does not compute `powf` in a constant\nhelp: write the number, `0.125`; .."],
    );
    check(
        "scale = 1.0 / (WIDTH as f64).«sqrt»()",
        &[
            "a square root in a constant is `sqrt(x)`, and a number, no size\nhelp: write the number",
        ],
    );
    check(
        "position = rope(10.0 «**» 4)",
        &[
            "expected an operator, found `**`\nhelp: write the number, `10000`; Rust has no operator for powers",
        ],
    );
    check(
        "d_context = { 2 * «heads» }",
        &[
            "`heads` is a key, and no constant that Rust can compute with\nhelp: write the number, or declare `const HEADS: usize = ..;` ..",
        ],
    );
    check(
        "dropout = «drop_rate»",
        &[
            "`drop_rate` is no constant: these are written in capitals\nhelp: write the number, or declare `const DROP_RATE: f64 = ..;` ..",
        ],
    );
    check("dropout = f64::sqrt(0.1)", &[]);
    check("head_dim = 2usize.pow(3)", &[]);
    check("head_dim = { let half = 4; 2 * half }", &[]);
    check("head_dim = r#type", &[]);
    check("head_dim = config::width", &[]);
}

#[test]
fn signs_in_place_of_the_equals_sign_are_errors() {
    for (entry, found) in [
        ("kv_heads «=>» 1", "=>"),
        ("kv_heads «:» 1", ":"),
        ("kv_heads «==» 1", "=="),
        ("kv_heads «:=» 1", ":="),
        ("kv_heads «: usize =» 1", ":"),
    ] {
        let message = format!("expected `=`, found `{found}`\nhelp: write `kv_heads = 1`");
        check(entry, &[&message]);
    }
    for (entry, found) in [
        ("«attn.kv_heads» = 1", "attn.kv_heads"),
        ("«attn::kv_heads» = 1", "attn::kv_heads"),
        ("«const kv_heads»: usize = 1", "const kv_heads"),
    ] {
        let message = format!("expected a key, found `{found}`\nhelp: write `kv_heads = 1`");
        check(entry, &[&message]);
    }
    check_source(
        "struct L<heads «=>» 2, d_model «=>» 16>;",
        &["expected `=`, ..", "expected `=`, .."],
    );
}

#[test]
fn values_of_another_form_are_errors() {
    check(
        "mask = «|q, k| q >= k»",
        &[
            "`mask` expects a word, found a closure\nhelp: a function stands in a body, behind `struct Name<..>` or `attention::<..>(x)`: `{ fn mask(q_idx, kv_idx) { kv_idx <= q_idx } }`",
        ],
    );
    check(
        "score = «|q, k| q * k», bias = false",
        &[
            "`score` expects a word, found a closure\nhelp: a function stands in a body, behind `struct Name<..>` or `attention::<..>(x)`: `{ fn score(score, q_idx, kv_idx) { ..",
        ],
    );
    check(
        "mask = «|q, k| q > (k)»",
        &["`mask` expects a word, found a closure\n.."],
    );
    check(
        "normalizer = «relu^2»",
        &["the power of `relu` is its argument, found `relu ^ 2`\nhelp: write `relu(2)`"],
    );
    check(
        "position = rope«{ theta: 500000.0 }»",
        &[
            "the arguments of `rope` stand in parentheses, found `{ theta:500000.0 }`\nhelp: write `rope(theta = 10000, [scaling], [dims], [interleaved], [position_ids])`",
        ],
    );
    check(
        "mask = causal & sliding_window«[256]»",
        &[
            "the arguments of `sliding_window` stand in parentheses, found `[256]`\nhelp: write `sliding_window(n, [upper_left | lower_right], [symmetric])`",
        ],
    );
    check(
        "position = rope(theta«:» 500000.0)",
        &["expected `=`, found `:`\nhelp: write `theta = 500000.0`"],
    );
}

#[test]
fn comments_of_python_end_with_their_line() {
    let message = "expected a declaration, found `#`\nhelp: a comment starts with `//`";
    check_source(
        "«#» eight heads\nstruct L<heads = 2, d_model = 16>;",
        &[message],
    );
    check_source(
        "struct L<heads = 2, «#» eight, heads = 3\n d_model = 16>; «#» the end",
        &[message; 2],
    );
    check_source("«#» struct L<heads = 2, d_model = 16>;", &[message]);
    check_source(
        "struct L<heads = 2, d_model = 16> {
            «#» a slope
            param slope: [heads] = ones;
            fn score(score, h) {
                «#» scaled
                score * slope[h]
            }
        }",
        &[message; 2],
    );
    check_source(
        "#[doc = \"a\"] #[cfg(all())] struct L<heads = 2, d_model = 16>;",
        &[],
    );
}

/// In place of an expression or a type, other emitted items would be errors themselves.
#[test]
fn input_without_a_struct_expands_to_the_error_only() {
    for source in ["heads = 2, d_model = 16", "", "enum L"] {
        let file = parse_file(expand(source));
        assert_eq!((file.items.len(), reports(&file).len()), (1, 1), "{source}");
    }
    check_source(
        "«heads» = 2, d_model = 16",
        &[
            "expected `struct`, found `heads`\nhelp: a layer is declared as an item, outside of expressions and types: `struct Name<heads = 8, d_model = 512>;`",
        ],
    );
}

#[test]
fn heads_that_talk_share_the_mask() {
    check(
        "talking_heads = «twice»",
        &["`talking_heads` has no value `twice`.."],
    );
    for (word, body, message) in [
        (
            "«after»",
            "fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < 4 * (h + 1) }",
            "`talking_heads` contradicts a mask that reads `h`..",
        ),
        (
            "«before»",
            "data keep: bool[heads, kv_len]; fn mask(h, kv_idx) { keep[h, kv_idx] }",
            "`talking_heads` contradicts a mask that reads `h`..",
        ),
        (
            "«both»",
            "fn normalize(score, kv_len) { sigmoid(score) / kv_len as f32 }",
            "the weight of a mixed score is a function of this score alone..",
        ),
        (
            "«before»",
            "param gain: [heads] = ones; fn normalize(score, h) { gain[h] * sigmoid(score) }",
            "the weight of a mixed score is a function of this score alone..",
        ),
    ] {
        let source =
            format!("struct L<heads = 2, d_model = 16, talking_heads = {word}> {{ {body} }}");
        check_source(&source, &[message]);
    }
    for allowed in [
        "talking_heads = none> { fn mask(h, q_idx, kv_idx) { q_idx - kv_idx < 4 * (h + 1) } }",
        "talking_heads = after> { fn normalize(score, kv_len) { sigmoid(score) / kv_len as f32 } }",
        "talking_heads = both> { fn normalize(score) { sigmoid(score) } }",
        "talking_heads = both, mask = causal & padding, normalizer = relu(2)>;",
    ] {
        check_source(&format!("struct L<heads = 2, d_model = 16, {allowed}"), &[]);
    }
}
