//! Values of other functions and of axes that come back, and the places of messages about functions, masks and loops.

use super::mistakes::errors_of;
use super::{expand, lower, lower_all};
use crate::tests::support::reports;

/// A function whose attention reads an input as data.
const GIVEN: &str = "
    fn forward(x: [batch, q, d], ctx: [batch, k, dc], pair: [batch, q, k]) -> [batch, q, d] {
        attention::<2, bias = false>(x, context = ctx, pair = pair) {
            data pair: [batch, q_len, kv_len];
            param s: [heads] = ones;
            fn score(score, b, h, q_idx, kv_idx) { score + s[h] * sin(pair[b, q_idx, kv_idx]) }
        }
    }";

/// One that hands it on.
const HANDED_ON: &str = "
    fn read(x: [batch, q, d], ctx: [batch, k, dc], pair: [batch, q, k]) -> [batch, q, d] {
        forward(x, ctx, pair)
    }";

/// One that computes it.
const COMPUTED: &str = "
    fn loss(x: [batch, q, d], ctx: [batch, k, dc], pair: [batch, q, k]) -> [] {
        param pb: [] = 0.7;
        mean::<[batch, q, d]>(read(x, ctx, pair * pb))
    }";

/// The vectors and values that the attention of each function reads with a gradient.
fn inputs_of_attentions(functions: &[&str]) -> Vec<usize> {
    let source = format!("struct M<d = 8, dc = 6>; {}", functions.concat());
    assert_eq!(errors_of(&source), [], "{source}");
    let models = lower_all(&source);
    let inputs = models.iter().map(|model| {
        let nodes = model.nodes();
        let mut attentions = nodes.iter().filter_map(|node| node.attention());
        let attention = attentions.next().expect("every function has one");
        let layer = &model.attentions[attention.index];
        assert_eq!(layer.graph.is_given("pair"), attention.inputs.len() == 3);
        attention.inputs.len()
    });
    inputs.collect()
}

#[test]
fn data_that_a_later_call_computes_have_a_gradient_in_all_calls() {
    assert_eq!(inputs_of_attentions(&[GIVEN, HANDED_ON]), [2, 2]);
    for functions in [
        [GIVEN, HANDED_ON, COMPUTED],
        [COMPUTED, HANDED_ON, GIVEN],
        [HANDED_ON, GIVEN, COMPUTED],
    ] {
        assert_eq!(inputs_of_attentions(&functions), [3, 3, 3]);
    }
}

/// The functions are lowered twice, and each mistake is reported once.
#[test]
fn mistakes_beside_computed_data_are_reported_once() {
    let wrong = GIVEN.replace("sin(pair", "sinn(pair");
    let source = format!("struct M<d = 8, dc = 6>; {wrong} {HANDED_ON} {COMPUTED}");
    let found: Vec<String> = errors_of(&source).into_iter().map(|(at, _)| at).collect();
    assert_eq!(found, ["sinn"]);
    let in_mask = GIVEN.replace(
        "fn score(score, b, h, q_idx, kv_idx) {",
        "fn mask(b, q_idx, kv_idx) { pair[b, q_idx, kv_idx] > 0.0 }
            fn score(score, b, h, q_idx, kv_idx) {",
    );
    let source = format!("struct M<d = 8, dc = 6>; {in_mask} {HANDED_ON}");
    assert_eq!(errors_of(&source), []);
    let source = format!("struct M<d = 8, dc = 6>; {in_mask} {HANDED_ON} {COMPUTED}");
    assert_eq!(
        errors_of(&source),
        [(
            "pair".to_owned(),
            "a mask reads no computed value: a condition has no derivative".to_owned()
        )]
    );
}

#[test]
fn leading_axes_name_the_function_at_hand() {
    let found = errors_of(
        "struct M<d = 4>;
        fn forward(x: [batch, d]) -> [batch, d] { linear::<d>(x) }
        fn loss(x: [batch, d]) -> [] { mean::<..>(forward(x)) }",
    );
    let messages: Vec<String> = found.into_iter().map(|(_, message)| message).collect();
    assert_eq!(messages, ["every axis of `loss` has a name, found `..`"]);
}

#[test]
fn a_mask_that_was_not_understood_may_read_any_operand() {
    for (mask, operands) in [
        (
            "mask = padding & sliding_window(1)(upper_left)",
            "padding = keep",
        ),
        ("maske = padding", "padding = keep"),
    ] {
        let found = errors_of(&format!(
            "struct M<d = 8>;
            fn forward(x: [batch, q, d], c: [batch, k, d], keep: bool[batch, k]) -> [batch, q, d] {{
                attention::<2, {mask}>(x, context = c, {operands})
            }}"
        ));
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

#[test]
fn a_loop_is_no_operand() {
    let scan = "scan seq { state h: [batch, d] = 0; h = h + x; yield h; }";
    let of_scan = "a `scan` is no operand: its results get names first";
    let of_repeat = "a `repeat` is no operand: it has no result, and changes variables that are declared before it";
    for (statements, at, message) in [
        (format!("x + {scan}"), "scan", of_scan),
        (format!("let y = x + {scan}; y"), "scan", of_scan),
        (format!("gelu({scan})"), "scan", of_scan),
        (format!("x * (1 + {scan})"), "scan", of_scan),
        ("x + repeat 2 { gelu(x) }".to_owned(), "repeat", of_repeat),
        (
            "let y = repeat { 1 + 1 } { gelu(x) }; y".to_owned(),
            "repeat",
            of_repeat,
        ),
    ] {
        let found = errors_of(&format!(
            "struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ {statements} }}"
        ));
        assert_eq!(found, [(at.to_owned(), message.to_owned())], "{statements}");
    }
}

/// Down to half of the steps, and up again.
fn up_and_down(down: &str, to: &str) -> String {
    format!(
        "struct U<c = 4>; fn forward(x: [batch, seq, c]) -> [batch, seq, c] {{
            let h = {down}; x + conv_transpose1d::<half, c, 2, stride = 2{to}>(h)
        }}"
    )
}

#[test]
fn the_length_of_an_axis_that_was_split_comes_back() {
    let split = "rearrange::<[batch, (half, 2), c] -> [batch, half, (2, c)]>(x)";
    for to in ["", ", to = seq"] {
        lower(&up_and_down(split, to));
    }
    let windows = "conv1d::<seq, c, 2, stride = 2, to = half>(x)";
    let help = |source: &str| {
        let found = reports(&expand(source));
        let [report] = found.as_slice() else {
            panic!("{source}: {found:?}");
        };
        report.message.lines().nth(1).unwrap_or_default().to_owned()
    };
    assert_eq!(
        help(&up_and_down(split, ", to = full")),
        "help: `full` is as long as `seq`, under a name of its own: write `seq` where `full` is made"
    );
    assert_eq!(
        help(&up_and_down(windows, ", to = full")),
        "help: `full` is `seq / 2 * 2`, and `seq` is of any length, perhaps no multiple of 2. Parts of it that \
         `rearrange::<[.., (parts, 2), ..] -> [.., parts, 2, ..]>(..)` makes are known to be all of it"
    );
    let half =
        "struct U<c = 4>; fn forward(x: [batch, seq, c], h: [batch, half, c]) -> [batch, seq, c] {
        let y = conv_transpose1d::<half, c, 2, stride = 2, to = full>(h);";
    assert_eq!(
        help(&format!("{half} x + y }}")),
        "help: `full` is `half * 2`, and `seq` is of any length: they are not known to be equally long"
    );
    assert_eq!(
        help(&format!("{half} x + (y as [batch, seq, c]) }}")),
        "help: `full` is `half * 2`, and `seq` is of any length: they are not known to be equally long"
    );
}
