//! `einsum` and `as`: inferred shapes, operations, and mistakes.

use super::mistakes::errors_of;
use super::{expand, lower};
use crate::model::graph::Model;
use crate::tests::support::reports;

/// A model of `x`, `w`, `square` and `tokens`, with the `value` and others of its type.
fn source(result: &str, value: &str) -> String {
    format!(
        "struct M<d = 8, e = 4>; fn forward(x: [batch, seq, d], w: [d, e], square: [8, 8], y: [batch, e], tokens: ids[batch, seq]) -> {result} {{
            let _a = x; let _b = w; let _c = square; let _d = tokens; let _e = y; {value}
        }}"
    )
}

/// The operations of a model, with the shapes of their results.
fn operations(model: &Model) -> Vec<String> {
    let nodes = model.nodes().into_iter();
    let operations = nodes.map(|node| {
        let label = match node.op.description().label {
            crate::ops::Label::Text(text) => text,
            crate::ops::Label::Layer(place) => place.field.clone(),
        };
        format!("{label}: {}", model.value(node.result).ty)
    });
    operations.collect()
}

fn assert_operations(result: &str, value: &str, expected: &[&str]) {
    let found = operations(&lower(&source(result, value)));
    assert_eq!(found, expected, "{value}");
}

#[test]
fn a_product_is_one_operation() {
    let map = "einsum [batch, seq, 4]: [batch, seq, 4]";
    assert_operations("[batch, seq, e]", "einsum::<[batch, seq, e]>(x, w)", &[map]);
    assert_operations(
        "[batch, seq, e]",
        "einsum::<axes = [batch, seq, 4]>(x, w)",
        &[map],
    );
    assert_operations(
        "[e, seq]",
        "einsum::<[e, seq]>(x, w, y)",
        &[
            "einsum [seq, 4, batch]: [seq, 4, batch]",
            "einsum [4, seq]: [4, seq]",
        ],
    );
    assert_operations(
        "[batch, d, d]",
        "einsum::<[batch, d, other]>(x, x as [batch, seq, other = d])",
        &["einsum [batch, 8, 8]: [batch, 8, 8]"],
    );
}

#[test]
fn axes_of_one_operand_are_summed_first() {
    assert_operations(
        "[e, batch]",
        "einsum::<[e, batch]>(x, y)",
        &[
            "sum 8: [batch, seq]",
            "sum seq: [batch]",
            "expand: [4, batch]",
            "permute: [4, batch]",
            "*: [4, batch]",
        ],
    );
    assert_operations(
        "[d, batch]",
        "einsum::<[d, batch]>(x)",
        &["sum seq: [batch, 8]", "permute: [8, batch]"],
    );
    assert_operations(
        "[d]",
        "einsum::<d>(x)",
        &["sum seq: [batch, 8]", "sum batch: [8]"],
    );
    assert_operations("[batch, seq, d]", "einsum::<[batch, seq, d]>(x)", &[]);
}

/// No operation, and nothing in memory: the value itself is read.
#[test]
fn other_names_are_no_operation() {
    let value = "exp(x as [batch, kv = seq, d]) + x";
    assert_operations(
        "[batch, seq, d]",
        value,
        &["exp: [batch, kv, 8]", "+: [batch, kv, 8]"],
    );
    let value = "let y = x as [batch, kv = seq, d]; mean::<kv>(y) + sum::<seq>(x)";
    assert_operations(
        "[batch, d]",
        value,
        &[
            "mean kv: [batch, 8]",
            "sum seq: [batch, 8]",
            "+: [batch, 8]",
        ],
    );
    let value = "let s = square as [rows = 8, cols = 8]; sum::<rows>(s)";
    assert_operations("[d]", value, &["sum 8: [8]"]);
}

/// One mistake: its token and its message.
macro_rules! mistakes {
    ($($name:ident: $value:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            let found = errors_of(&source("[batch, seq, d]", $value));
            assert_eq!(found, [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    no_axes: "einsum(x, w)", "einsum", "`einsum` needs the axes of the result";
    an_axis_of_no_operand: "einsum::<[batch, seq, z]>(x, w)", "z",
        "no operand of `einsum` has the axis `z`: [batch, seq, 8], [8, 4]";
    an_axis_of_another_value: "einsum::<[batch, e]>(x, square)", "einsum",
        "`einsum`: `8` of [8, 8] may be two axes";
    a_size_of_no_operand: "einsum::<[batch, 5]>(x, w)", "5",
        "no operand of `einsum` has the axis `5`: [batch, seq, 8], [8, 4]";
    a_size_of_the_header_of_no_operand: "einsum::<[batch, e]>(x, x)", "e",
        "no operand of `einsum` has the axis `e`: [batch, seq, 8], [batch, seq, 8]";
    an_axis_twice: "einsum::<[batch, seq, batch]>(x, w)", "batch", "the axis `batch` is named twice";
    indices_as_an_operand: "einsum::<[batch, d]>(x, tokens)", "einsum", "`einsum` takes floats, found ids[batch, seq]";
    letters: "einsum::<\"bsd,de->bse\">(x, w)", "\"bsd,de->bse\"",
        "`einsum` takes the axes of the result by their names, found `\"bsd,de->bse\"`";
    letters_as_an_operand: "einsum(\"bsd,de->bse\", x, w)", "\"bsd,de->bse\"",
        "`einsum` takes the axes of the result by their names, found `\"bsd,de->bse\"`";
    no_value: "einsum::<[batch]>()", "einsum", "`einsum` takes `[..]`, `[..]`, .. to `axes`, found 0 operands";
    no_brackets: "x as f32", "f32", "expected axes in brackets behind `as`";
    half_a_name: "x as [batch, kv =, d]", "kv =", "expected axes in brackets behind `as`";
    too_few_axes: "x as [batch, d]", "as", "`as` lists all axes of [batch, seq, 8], found 2";
    axes_in_another_order: "x as [seq, batch, d]", "seq", "axis 1 of [batch, seq, 8] is not `seq`";
    two_axes_of_one_name: "x as [batch, batch = seq, d]", "batch", "`batch` is an axis of length `batch`, and this one is `seq`";
    one_new_name_twice: "x as [batch, k = seq, k = d]", "k", "`k` is an axis of length `seq`, and this one is `8`";
    the_name_of_another_size: "x as [batch, seq, e = d]", "e", "`e` is an axis of length `4`, and this one is `8`";
    a_name_as_a_number: "let y = x as [batch, kv = seq, d]; y + linear::<kv>(x)", "kv",
        "`kv` is an axis of the inputs, of any length, and here stands a constant";
    other_names_of_nothing: "z as [batch, seq, d]", "z", "there is no variable `z`";
}

#[test]
fn an_axis_has_the_name_that_a_block_gives_it() {
    let found = errors_of(
        "struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [seq, batch] { products(x, x) }
        block products(a: [rows, cols, n], b: [rows, cols, n]) -> [cols, rows] { einsum::<[cols, rows]>(a, b) }",
    );
    assert!(found.is_empty(), "{found:?}");
}

/// The help says what to write.
#[test]
fn the_help_is_in_the_words_of_the_declaration() {
    let help = |value: &str| {
        let found = reports(&expand(&source("[batch, seq, d]", value)))
            .remove(0)
            .message;
        found.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        help("einsum::<[batch, sek, e]>(x, w)"),
        "help: did you mean `seq`?"
    );
    assert_eq!(
        help("einsum::<[batch, e]>(square, y)"),
        "help: `as` gives each a name of its own: `x as [rows = 8, cols = 8]`"
    );
    assert_eq!(
        help("x as [batch, d]"),
        "help: `x as [batch, seq, 8]`, with `new =` before an axis that gets another name"
    );
}
