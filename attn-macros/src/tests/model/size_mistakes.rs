//! Constants of the header that are no sizes, and sizes that only rustc knows.

use quote::ToTokens;

use super::expand;
use super::mistakes::errors_of;

/// A model with this header, from `x: [batch, d]`.
fn model(header: &str, value: &str, result: &str) -> String {
    format!("struct M<{header}>; fn forward(x: [batch, d]) -> [batch, {result}] {{ {value} }}")
}

/// The emitted tokens of a model without a mistake, with no blanks.
fn expanded(source: &str) -> String {
    assert_eq!(errors_of(source), [], "{source}");
    without_blanks(source)
}

fn without_blanks(source: &str) -> String {
    let text = expand(source).into_token_stream().to_string();
    text.split_whitespace().collect()
}

/// The only error: its token, and the first line of its message.
fn error(source: &str) -> [String; 2] {
    match errors_of(source).as_slice() {
        [(at, message)] => [at.clone(), message.clone()],
        errors => panic!("{source}: {errors:?}"),
    }
}

#[test]
fn a_method_of_a_literal_size_has_a_type() {
    let header = "d = 16, h = { (8 * d / 3).next_multiple_of(256) }";
    let text = expanded(&model(header, "x + feed_forward::<h>(x)", "d"));
    assert!(text.contains("(8usize*16usize/3usize).next_multiple_of(256)"));
    let of_key = model("d = 16", "x + feed_forward::<{ d.div_ceil(2) }>(x)", "d");
    assert!(expanded(&of_key).contains("16usize.div_ceil(2)"));
    let of_default = format!(
        "{} block mlp(x: [.., n], hidden = {{ n.div_ceil(2) }}) -> [.., n] {{ linear::<n>(linear::<hidden>(x)) }}",
        model("d = 16", "mlp(x)", "d")
    );
    assert!(expanded(&of_default).contains("16usize.div_ceil(2)"));
}

#[test]
fn a_message_says_the_size_without_its_type() {
    let source = model("d = 16, h = { d.div_ceil(2) }", "linear::<h>(x)", "d");
    let text = expanded(&source);
    assert!(text.contains("[batch,16.div_ceil(2)]"), "{text}");
}

#[test]
fn a_range_that_ends_before_its_start_is_empty() {
    let text = expanded(&model("d = 16", "linear::<1>(x[d = P..Q])", "1"));
    assert!(text.contains("usize::saturating_sub("), "{text}");
    assert!(text.contains("therange`P..Q`of`d`isempty"), "{text}");
}

#[test]
fn sizes_of_sizes_have_a_limit() {
    let doubled = (1..=30).map(|n| format!(", a{n} = {{ a{0} + a{0} }}", n - 1));
    let header = format!("d = 16, a0 = WIDTH{}", doubled.collect::<String>());
    let [at, message] = error(&model(&header, "x + feed_forward::<a30>(x)", "d"));
    assert_eq!(at, "{ a10 + a10 }");
    assert!(message.starts_with("`a11` expects an expression of at most 4000 tokens, found more"));
}

#[test]
fn a_switch_of_the_header_is_a_literal() {
    let value = "let y = if a { gelu(x) } else { x }; if a { y } else { tanh(y) }";
    let of_rustc = model("d = 16, a = A", value, "d");
    assert_eq!(
        error(&of_rustc),
        [
            "A",
            "`a` is a switch, `true` or `false`, found `A`, whose value only rustc knows"
        ]
    );
    // Its type is no second mistake.
    assert!(without_blanks(&of_rustc).contains("{let_=A;1}"));
    for condition in ["{ !a }", "{ a && d > 3 }"] {
        let header = format!("d = 16, a = true, b = {condition}");
        let found = error(&model(&header, "if b { gelu(x) } else { x }", "d"));
        let message = format!("a switch of the header is `true` or `false`, found `{condition}`");
        assert_eq!(found, [condition, &message]);
    }
}

#[test]
fn arithmetic_of_literals_says_why_it_is_no_size() {
    for (size, why) in [
        ("18446744073709551616", "does not fit into 64 bits"),
        ("{ 9223372036854775807 * 4 }", "does not fit into 64 bits"),
        ("{ 1 << 64 }", "does not fit into 64 bits"),
        ("{ 4 / 0 }", "divides by zero"),
        ("{ 2 * (4 % 0) }", "divides by zero"),
    ] {
        let found = error(&model(&format!("d = {size}"), "linear::<d>(x)", "d"));
        let message = format!("`d` expects a positive whole number, found `{size}`, which {why}");
        assert_eq!(found, [size, &message]);
    }
}

#[test]
fn bits_of_literals_are_sizes() {
    for (size, value) in [
        ("d ^ 3 | 1", 7),
        ("(d << 2) >> 1", 8),
        ("d & 6", 4),
        ("1 << d", 16),
    ] {
        let header = format!("d = 4, e = {{ {size} }}");
        expanded(&model(&header, "linear::<e>(x)", &value.to_string()));
    }
}

#[test]
fn a_number_is_converted_to_a_size() {
    let header = "d = 16, e = { (d as f32 * 1.5) as usize }";
    let text = expanded(&model(header, "linear::<e>(x)", "e"));
    assert!(text.contains("(16asf32*1.5)asusize"), "{text}");
}

#[test]
fn a_size_has_a_limit() {
    for (header, value, at, message) in [
        (
            "d = 4294967296",
            "linear::<d>(gelu(linear::<d>(x)))",
            "4294967296",
            "`d` must be at most 1073741824, found 4294967296",
        ),
        (
            "d = usize::MAX",
            "linear::<d>(x)",
            "usize::MAX",
            "`d` must be at most 1073741824, found usize::MAX",
        ),
        (
            "d = 16",
            "linear::<d>(pad::<d, before = 18446744073709551615>(x))",
            "18446744073709551615",
            "`before` must be at most 1073741824, found 18446744073709551615",
        ),
        (
            "d = 16",
            "linear::<d>(pad::<d, before = { usize::MAX }>(x))",
            "{ usize::MAX }",
            "`before` must be at most 1073741824, found usize::MAX",
        ),
        (
            "d = 16",
            "param a: [99999999999, d] = zeros; x + a",
            "99999999999",
            "`axis` must be at most 1073741824, found 99999999999",
        ),
    ] {
        assert_eq!(error(&model(header, value, "d")), [at, message]);
    }
}

#[test]
fn a_large_vocabulary_and_a_flattened_volume_are_sizes() {
    let header = "d = 8, vocab = 1_048_576, flat = { 512 * 512 * 512 }";
    let value = "linear::<d>(linear::<flat>(linear::<vocab>(x)))";
    expanded(&model(header, value, "d"));
}

#[test]
fn a_merged_axis_has_a_limit() {
    let source = "struct M<a = 1_000_000_000, b = 1_000_000_000>;
        fn forward(x: [batch, a, b]) -> [batch, 1] { linear::<1>(rearrange::<[batch, (a, b)]>(x)) }";
    let [_, message] = error(source);
    assert_eq!(
        message,
        "the product of the sizes [1000000000, 1000000000] is more than 1099511627776, the longest axis"
    );
}
