//! Scans: what moves out of the loop, and the messages of mistakes.

use super::lower;
use super::mistakes::errors_of;
use super::shapes::shapes;
use crate::model::decode;
use crate::model::graph::{Node, Step};
use crate::ops::Fusion;

fn errors(statements: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8>; fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, d] {{
            let _a = tokens; let _b = x; {statements}
        }}"
    ))
}

/// One mistake: its token and its message.
macro_rules! mistakes {
    ($($name:ident: $statements:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors($statements), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    no_such_axis: "let y = scan time { state h: [batch, d] = 0; h = h + 1; yield h; }; y + x", "time",
        "no input has an axis `time`, and no size is called so";
    a_number_of_steps: "scan 5 { state h: [batch, d] = 0; h = h + x; yield h; }", "5",
        "expected an axis by its name, as in `scan seq { .. }`";
    an_unknown_option: "scan seq, share = true { state h: [batch, d] = 0; h = h + x; yield h; }", "share",
        "a `scan` takes `reverse = true` and `keep = sqrt`";
    a_direction_twice: "scan seq, reverse = true, reverse = false { state h: [batch, d] = 0; h = h + x; yield h; }", "reverse",
        "the key `reverse` is given twice";
    an_unknown_word_of_keep: "scan seq, keep = none { state h: [batch, d] = 0; h = h + x; yield h; }", "keep",
        "expected `keep = all` or `keep = sqrt`, found `keep = none`";
    ids_at_a_step: "scan seq { state h: [batch, d] = 0; h = h + embedding::<9, d>(tokens); yield h; }", "tokens",
        "a step of a scan along `seq` reads floats, and `tokens` is ids[batch, seq]";
    a_constant_state: "scan seq { state h: [batch, d] = 0; yield h + x; }", "h",
        "no step changes the state `h`";
    a_state_of_another_shape: "scan seq { state h: [batch, d] = 0; h = linear::<9>(h); yield x; }", "scan",
        "a step changes the shape of `h`: it begins with [batch, 8] and ends with [batch, 9]";
    an_initial_value_of_another_shape: "scan seq { state h: [batch, d] = x; h = h + x; yield h; }", "x",
        "`h` begins as [batch, seq, 8], and is declared as [batch, 8]";
    a_variable_from_outside: "let mut z = gelu(x); let y = scan seq { state h: [batch, d] = 0; h = h + x; z = x; yield h; }; y + z", "z",
        "`z` is declared outside of this `scan`, whose steps change its states only";
    a_late_state: "scan seq { let y = 2 * x; state h: [batch, d] = 0; h = h + y; yield h; }", "h",
        "the states of a `scan` are its first lines";
    a_state_outside: "state h: [batch, d] = 0; x", "h",
        "a `state` is of a `scan`: `let y = scan seq { state h: [batch, hidden] = 0.0; .. };`";
    a_yield_outside: "yield x; x", "yield",
        "`yield` is a result of a step of a `scan`, and stands among the statements of its block";
    two_yields: "scan seq { state h: [batch, d] = 0; h = h + x; yield h; yield x; }", "yield",
        "a step yields once";
    nothing_yielded: "let y = scan seq { state h: [batch, d] = 0; h = h + x; }; y + x", "scan",
        "this `scan` has no result";
    a_last_value_that_is_no_state: "let y = scan seq { state h: [batch, d] = 0; h = h + x; yield h; 2 * h }; y", "*",
        "the last line of a `scan` is a state, for its value behind the last step: this scan has `h`";
    too_many_names: "let (y, z) = scan seq { state h: [batch, d] = 0; h = h + x; yield h; }; y + z", "scan",
        "this scan has 1 result, and 2 variables for it";
    a_scan_in_a_scan: "scan seq { state h: [batch, d] = 0; let y = scan d { state g: [batch] = 0; g = g + x; yield g; }; h = h + y; yield h; }", "scan",
        "a `scan` in a `scan`: a step has no steps of its own";
    a_scan_as_an_operand: "let y = x; let mut y = y; y += scan seq { state h: [batch, d] = 0; h = h + x; yield h; }; y", "scan",
        "a `scan` is no operand: its results get names first";
    an_axis_of_the_scan: "scan seq { state h: [batch, d] = 0; h = h + mean::<seq>(x); yield h; }", "seq",
        "a step of a `scan` along `seq` sees values without this axis";
    a_header_in_parentheses: "let y = scan(seq) { state h: [batch, d] = 0; h = h + x; yield h; }; y", "scan",
        "expected `scan axis { .. }`";
    a_header_without_an_axis: "let y = scan { state h: [batch, d] = 0; h = h + x; yield h; }; y", "scan",
        "expected `scan axis { .. }`";
    a_scan_behind_an_operator: "let y = 2 * scan seq { state h: [batch, d] = 0; h = h + x; yield h; }; y", "scan",
        "a `scan` is no operand: its results get names first";
    a_state_that_is_hidden: "scan seq { state h: [batch, d] = 0; let h = h + x; yield h; }", "h",
        "another `h` is declared in this `scan`, which hides the state";
    two_states_of_one_name: "scan seq { state h: [batch, d] = 0; state h: [batch, d] = 1; h = h + x; yield h; }", "h",
        "another `h` is declared in this `scan`, which hides the state";
    an_attention_of_a_step: "scan seq { state h: [batch, d] = 0; h = h + attention::<2>(x); yield h; }", "attention",
        "`attention` takes [batch, seq, d_model] at a step of a `scan`, found [batch, 8]";
    an_attend_of_the_sequence_of_the_steps: "scan seq { state h: [batch, d] = 0; h = h + attend(h, x, x); yield h; }", "attend",
        "at a step of a `scan`, `attend` takes keys and values [batch, seq, width], found [batch, 8]";
    a_scan_that_nobody_reads: "scan seq { state h: [batch, d] = 0; h = h + x; yield h; } x", "scan",
        "nothing reads the results of this `scan`";
}

/// A GRU.
const GRU: &str = "
    struct Gru<d = 3, hidden = 4>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
        scan seq {
            state h: [batch, hidden] = 0.0;
            let (xr, xz, xn) = split(linear::<{ 3 * hidden }>(layer_norm(2 * x)));
            let (hr, hz, hn) = split(linear::<{ 3 * hidden }>(h));
            let z = sigmoid(xz + hz);
            h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
            yield h;
        }
    }
";

/// The operations before the scan of the fused form, and those of a step.
#[test]
fn products_that_read_no_state_stand_before_the_scan() {
    let model = lower(GRU);
    let mut before = Vec::new();
    let mut inside: Vec<&Node> = Vec::new();
    for step in &model.grouped.steps {
        match step {
            Step::Node(node) => before.push(model.value(node.result).ty.to_string()),
            Step::Scan(scan) => {
                let nodes = scan.body.nodes().into_iter();
                inside.extend(nodes.filter(|node| matches!(node.fusion(), Fusion::Projection(_))));
                before.push("scan".to_owned());
            }
            Step::Repeat(_) => {}
        }
    }
    // The initial state and its axes, the input, `2 * x`, the norm and the first part of the product, and the result.
    let steps = ["[seq, batch, 3]"; 3];
    let expected = ["[]", "[batch, 4]"].into_iter().chain(steps);
    let expected = expected.chain(["[seq, batch, 4]", "scan", "[batch, seq, 4]"]);
    assert_eq!(before, expected.collect::<Vec<_>>());
    assert_eq!(inside.len(), 1);
}

/// An `einsum` of a step and of what is the same at all steps is one product of all steps. An outer product of two values of a step stays.
#[test]
fn a_product_by_name_that_reads_no_state_stands_before_the_scan() {
    let model = lower(
        "
        struct M<d = 3, e = 4>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, e] {
            param w: [d, e] = normal(0.5);
            scan seq {
                state h: [batch, d, e] = 0.0;
                h = 0.5 * h + einsum::<[batch, d, e]>(x, einsum::<[batch, e]>(x, w));
                yield einsum::<[batch, e]>(x, h);
            }
        }
    ",
    );
    let products = |nodes: Vec<&Node>| {
        let nodes = nodes.into_iter();
        let products = nodes.filter(|node| matches!(node.fusion(), Fusion::Contraction(_)));
        let shapes = products.map(|node| model.value(node.result).ty.to_string());
        shapes.collect::<Vec<_>>()
    };
    let steps = model.grouped.steps.iter();
    let before = steps.filter_map(|step| match step {
        Step::Node(node) => Some(node),
        _ => None,
    });
    assert_eq!(products(before.collect()), ["[seq, batch, 4]"]);
    let scans = model.grouped.scans();
    let inside = products(scans[0].body.nodes());
    assert_eq!(inside, ["[batch, 3, 4]", "[batch, 4]"]);
}

#[test]
fn a_step_sees_values_without_the_axis() {
    let shapes = shapes(&lower(GRU));
    for expected in [
        "hn: [batch, 4]",
        "h_2: [batch, 4]",
        "h_steps: [seq, batch, 4]",
    ] {
        assert!(
            shapes.iter().any(|shape| shape == expected),
            "{expected} in {shapes:#?}"
        );
    }
}

/// A session does not know the last token. What nothing reads it need not know.
#[test]
fn what_reads_the_last_state_looks_ahead() {
    let session = |reads: &str| {
        decode::check(&lower(&format!(
            "
            struct M<vocab = 5, d = 4>;
            fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {{
                let x = embedding::<vocab, d>(tokens);
                let (y, last) = scan seq {{
                    state h: [batch, d] = 0;
                    h = tanh(linear::<d>(x) + linear::<d>(h));
                    yield h;
                    h
                }};
                {reads}
                linear::<vocab>(y)
            }}
            "
        )))
    };
    let ahead = "it reads `last_h`, the state behind the last step of a `scan`, and a session does not know which token is the last";
    for reads in [
        "let y = y + last;",
        "let mut y = y; repeat 2 { y += linear::<d>(last); }",
        "let mut last = last; repeat 2 { last = linear::<d>(last); } let y = y * last;",
        "let y = scan seq { state g: [batch, d] = last; g = g + y; yield g; };",
        "let y = scan seq { state g: [batch, d] = 0; g = g + y * last; yield g; };",
    ] {
        assert_eq!(session(reads), Err(ahead.to_owned()), "{reads}");
    }
    assert_eq!(session("let _unread = last;"), Ok(()));
}

/// The results of the products in front of the scan, and of those in it.
fn results_of_products(step: &str) -> [Vec<Vec<String>>; 2] {
    let model = lower(&format!(
        "struct M<d = 3>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{
            scan seq {{ state h: [batch, d] = 0.0; {step} yield h; }}
        }}"
    ));
    let products = |nodes: Vec<&Node>| -> Vec<Vec<String>> {
        let nodes = nodes.into_iter();
        let products = nodes.filter(|node| matches!(node.fusion(), Fusion::Projection(_)));
        let results = products.map(|node| {
            let shapes = node.results().map(|id| model.value(id).ty.to_string());
            shapes.collect()
        });
        results.collect()
    };
    let steps = model.grouped.steps.iter();
    let before = steps.filter_map(|step| match step {
        Step::Node(node) => Some(node),
        _ => None,
    });
    let inside = model.grouped.scans()[0].body.nodes();
    assert!(
        inside
            .iter()
            .all(|node| !matches!(node.fusion(), Fusion::Slice(..)))
            || step.contains("whole")
    );
    [products(before.collect()), products(inside)]
}

#[test]
fn a_product_that_is_split_writes_its_parts() {
    let [before, inside] = results_of_products(
        "let (xr, xz) = split(linear::<{ 2 * d }>(x));
         let (hr, hz) = split(linear::<{ 2 * d }>(h));
         h = tanh(xr + hr) * sigmoid(xz + hz);",
    );
    assert_eq!(before, [["[seq, batch, 3]"; 2]]);
    assert_eq!(inside, [["[batch, 3]"; 2]]);
}

#[test]
fn a_product_that_is_read_as_a_whole_is_one_matrix() {
    let [before, inside] = results_of_products(
        "let whole = linear::<{ 2 * d }>(h);
         let (hr, hz) = split(whole);
         h = tanh(x + hr) * sigmoid(hz) + linear::<d>(whole);",
    );
    assert!(before.is_empty());
    assert_eq!(inside, [["[batch, 6]"], ["[batch, 3]"]]);
}
