//! Conditions, the braces around them, and the rules that rustc checks.

use quote::ToTokens;

use super::expand;
use super::mistakes::errors_of;

fn model(statements: &str) -> String {
    format!(
        "struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ let mut y = x; {statements} y }}"
    )
}

fn expanded(statements: &str) -> String {
    let source = model(statements);
    assert_eq!(errors_of(&source), [], "{source}");
    expand(&source).into_token_stream().to_string()
}

#[test]
fn layers_are_alike_only_if_the_whole_side_of_the_comparison_is() {
    let loop_with = |condition: &str| {
        expanded(&format!(
            "repeat 6 as i {{ y = if {condition} {{ tanh(y) }} else {{ linear::<d>(y) }}; }}"
        ))
    };
    for condition in ["1 + i % 6 == 5", "2 * i % 6 == 4", "7 - i % 6 == 5"] {
        let text = loop_with(condition);
        assert!(text.contains("layer_3"), "{condition}");
    }
    assert!(!loop_with("i % 6 == 5").contains("layer_3"));
    assert!(!loop_with("d == 8 && i % 6 == 5").contains("layer_3"));
}

#[test]
fn two_comparisons_are_no_call_without_colons() {
    expanded("y = if d < 9 && 9 > (d + 1) { tanh(y) } else { gelu(y) };");
}

#[test]
fn the_branch_behind_a_call_is_no_body() {
    expanded("if d > max(4, 2) { y = gelu(y); }");
}

#[test]
fn a_number_in_braces_is_no_branch() {
    expanded("if d == { 2 * 4 } { y = gelu(y); }");
    expanded("if { 2 * 4 } == d { y = gelu(y); }");
}

#[test]
fn rustc_checks_that_an_offset_leaves_a_row() {
    let text = expanded("y = y + learned_position::<MAX, d, offset = 2>(y);");
    assert!(text.contains("`offset` is 2, and the table has"), "{text}");
}

#[test]
fn a_remainder_by_no_groups_is_not_taken() {
    let text = expanded("y = group_norm::<GROUPS>(y);");
    assert!(text.contains("== 0 || 8 %"), "{text}");
}
