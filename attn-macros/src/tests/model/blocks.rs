//! Blocks: their operations stand where they are called, with parameters of their own.

use super::mistakes::errors_of;
use super::shapes::{layers, shapes};
use super::{expand, lower, tokens};
use crate::model::graph::Model;
use crate::pipeline;

/// A model whose `forward` has these statements, and these blocks before it.
fn model(blocks: &str, statements: &str) -> String {
    format!(
        "struct M<d = 8>; {blocks} fn forward(x: [batch, seq, d], ids: ids[batch, seq]) -> [batch, seq, d] {{
            let _ids = ids; {statements}
        }}"
    )
}

const MLP: &str =
    "block mlp(x: [.., d], hidden) -> [.., d] { linear::<d>(gelu(linear::<hidden>(x))) }";

fn errors(blocks: &str, statements: &str) -> Vec<(String, String)> {
    errors_of(&model(blocks, statements))
}

fn lowered(blocks: &str, statements: &str) -> Model {
    lower(&model(blocks, statements))
}

#[test]
fn every_call_has_its_own_layers() {
    let model = lowered(
        MLP,
        "x + mlp::<{ 4 * d }>(x) + mlp::<hidden = 5, name = narrow>(x) + mlp::<3>(x)",
    );
    assert_eq!(
        layers(&model),
        [
            "mlp.linear",
            "mlp.linear_2",
            "narrow.linear",
            "narrow.linear_2",
            "mlp_2.linear",
            "mlp_2.linear_2",
        ]
    );
    assert_eq!(shapes(&model)[0], "linear: [batch, seq, 32]");
}

#[test]
fn a_block_stands_before_or_behind_what_calls_it_and_calls_others() {
    let blocks = "block outer(x: [.., d]) -> [.., d] { x + inner(x) }";
    let source = format!(
        "{} block inner(x: [.., n]) -> [.., n] {{ linear::<n>(x) }}",
        model(blocks, "outer(x)")
    );
    assert_eq!(layers(&lower(&source)), ["outer.inner.linear"]);
}

#[test]
fn in_a_loop_the_layers_are_those_of_a_round() {
    let model = lowered(MLP, "let mut y = x; repeat 3 { y += mlp::<2>(y); } y");
    assert_eq!(
        layers(&model),
        ["blocks.0.mlp.linear", "blocks.0.mlp.linear_2"]
    );
}

#[test]
fn a_loop_in_a_block() {
    let blocks = "block deep(x: [.., d], rounds = 2) -> [.., d] { let mut y = x; repeat rounds { y += linear::<d>(y); } y }";
    assert_eq!(
        layers(&lowered(blocks, "deep(x)")),
        ["deep.blocks.0.linear"]
    );
}

#[test]
fn a_block_without_parameters_is_no_layer() {
    let blocks = "block swish(x: [..]) -> [..] { x * sigmoid(x) }";
    assert_eq!(
        layers(&lowered(blocks, "linear::<d>(swish(swish(x)))")),
        ["linear"]
    );
}

#[test]
fn names_are_bound_by_operands_wherever_they_are_constants() {
    let blocks = "block widen(x: [.., n], times = 2, out = { times * n }) -> [.., out] { linear::<out>(x) }
        block narrow(x: [a, b, n], by, like: [a, b, m]) -> [a, b, m] { linear::<m>(x) + by * like }";
    let model = lowered(blocks, "narrow::<0.5>(widen(widen::<3>(x)), x)");
    assert_eq!(
        shapes(&model),
        [
            "linear: [batch, seq, 24]",
            "linear_2: [batch, seq, 48]",
            "linear_3: [batch, seq, 8]",
            "scale: [batch, seq, 8]",
            "add: [batch, seq, 8]",
        ]
    );
}

#[test]
fn a_key_hides_a_size_of_the_header() {
    let source = "struct M<d = 8, hidden = 3>;
        block f(x: [.., n], hidden) -> [.., n] { linear::<n>(linear::<hidden>(x)) }
        fn forward(x: [batch, d]) -> [batch, d] { f::<hidden>(f::<7>(x)) }";
    assert_eq!(shapes(&lower(source))[0], "linear: [batch, 7]");
    assert_eq!(shapes(&lower(source))[2], "linear_3: [batch, 3]");
}

#[test]
fn axes_of_a_block_are_told_apart_by_name() {
    // Three axes of one size, of which two have their names in the block only.
    let blocks = "block f(x: [batch, n, m], k) -> [batch, n, m] { let y = linear::<k>(x); linear::<m>(y + sum::<n>(y)) }";
    let source = format!(
        "struct M<>; {blocks} fn forward(x: [batch, 8, 8]) -> [batch, 8, 8] {{ f::<8>(x) }}"
    );
    assert!(shapes(&lower(&source)).contains(&"sum: [batch, 8]".to_owned()));
}

#[test]
fn several_results() {
    let blocks =
        "block twin(x: [.., d]) -> ([.., d], [.., 3]) { (linear::<d>(x), linear::<3>(x)) }";
    let model = lowered(blocks, "let (a, b) = twin(x); a + sum::<3>(b)");
    assert_eq!(layers(&model), ["twin.linear", "twin.linear_2"]);
}

#[test]
fn data_pass_through_a_block() {
    let source = "struct M<d = 8>;
        block read(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] { attention::<2, mask = padding>(x, padding = lens) }
        fn forward(x: [batch, seq, d], lens: lens[batch]) -> [batch, seq, d] { read(x, lens) }";
    assert_eq!(layers(&lower(source)), ["read.attention"]);
}

#[test]
fn a_table_of_the_model_is_seen_in_its_blocks() {
    let source = "struct M<vocab = 9, d = 8>;
        block head(x: [.., d]) -> [.., vocab] { linear::<tied = embedding>(layer_norm(x)) }
        fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] { head(embedding::<vocab, d>(ids)) }";
    assert_eq!(layers(&lower(source)), ["embedding", "head.layer_norm"]);
}

#[test]
fn the_expansion_is_made_of_items() {
    expand(&model(
        MLP,
        "let mut y = x; repeat 3 { y += mlp::<2>(y); } mlp::<hidden = d>(y)",
    ));
}

macro_rules! mistakes {
    ($($name:ident: $blocks:expr, $statements:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors($blocks, $statements), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    a_key_that_is_missing: MLP, "mlp(x)", "mlp", "`mlp` needs the key `hidden`";
    a_key_of_another_name: MLP, "mlp::<hiden = 3>(x)", "hiden", "`mlp` has no key `hiden`";
    a_key_too_much: MLP, "mlp::<3, 4>(x)", "4", "`mlp` has 1 key by position, found `4` behind";
    a_key_twice: MLP, "mlp::<3, hidden = 4>(x)", "hidden", "the key `hidden` is given twice";
    an_operand_too_much: MLP, "mlp::<3>(x, x)", "x", "`mlp` has 1 operand, found 2";
    an_operand_by_name: MLP, "mlp::<3>(x = x)", "x", "`mlp` has no operand `x`";
    a_key_as_operand: MLP, "mlp(x, 3)", "3", "`mlp` takes values with axes, found the number 3";
    keys_in_other_brackets: MLP, "mlp(3)(x)", "(3)", "keys stand in angle brackets";
    another_width: MLP, "linear::<d>(mlp::<3>(linear::<7>(x)))", "linear", "`mlp` takes x: [.., d], found [batch, seq, 7]";
    a_near_name: MLP, "mlpp::<3>(x) + mlp::<3>(x)", "mlpp", "unknown operation `mlpp`";
    uncalled: MLP, "x", "mlp", "nothing calls the block `mlp`";
    recursive: "block a(x: [..]) -> [..] { b(x) } block b(x: [..]) -> [..] { a(x) }", "a(x)", "a",
        "`a` calls itself, without an end: a → b → a";
    an_operation_of_that_name: "block linear(x: [..]) -> [..] { x }", "x", "linear",
        "`linear` is a word of the language, and no name of a block";
    twice: "block a(x: [..]) -> [..] { x } block a(x: [..]) -> [..] { x }", "a(x)", "a", "two blocks or functions are called `a`";
    a_wrong_result: "block a(x: [.., n]) -> [.., n] { linear::<7>(x) }", "a(x) + a(a(x))", "linear",
        "`a` declares [batch, seq, 8], and returns [batch, seq, 7]";
    reported_once: "block a(x: [.., n]) -> [.., n] { y }", "a(x) + a(linear::<3>(x)) + a(x)", "y", "there is no variable `y`";
    no_result_type: "block a(x: [..]) { x }", "a(x)", "{", "expected the result of `a`: `-> [.., d_model]`, or several in parentheses";
    unused_operand: "block a(x: [..], y: [..]) -> [..] { x }", "a(x, x)", "y", "the value of `y` is never used";
    unused_size: "block a(x: [..], n) -> [..] { x }", "a::<2>(x)", "n", "`a` never uses its size `n`";
    a_misspelt_size: "block a(x: [.., n], hidden) -> [.., n] { linear::<n>(linear::<hiden>(x)) }", "a::<2>(x)", "hiden",
        "`a` has no size `hiden`, and its size `hidden` is never used";
    variables_of_the_caller: "block a(x: [..]) -> [..] { x + z }", "let z = gelu(x); a(z)", "z", "there is no variable `z`";
    axes_of_the_caller: "block a(x: [..]) -> [.., seq] { x }", "a(x)", "seq", "no operand has an axis `seq`, and no size is called so";
    two_results_without_names: "block a(x: [..]) -> ([..], [..]) { (x, x) }", "a(x)", "a", "`a` has 2 results, and each needs a name";
    too_few_names: "block a(x: [..]) -> [..] { x }", "let (y, z) = a(x); y + z", "a", "`a` has 1 result, and here are 2 names";
    a_key_with_a_type: "block a(x: [.., n], m: usize) -> [.., n] { linear::<n>(linear::<m>(x)) }", "a::<3>(x)", "usize", "expected a shape";
    a_block_among_statements: "", "block a(x: [..]) -> [..] { x } x", "block", "a block is declared beside `fn forward`, and called in it";
    a_block_as_a_value: "", "let y = block a(x); y", "block", "a block is declared beside `fn forward`, and called in it";
    another_function: "", "x } fn gelu(x: [batch, d]) -> [batch, d] { x", "gelu",
        "`gelu` is a word of the language or a method of every model, and no name of a function";
    a_function_that_calls_itself: "fn a(x: [batch, seq, d]) -> [batch, seq, d] { a(x) }", "a(x)", "a", "`a` calls itself, without an end: a → a";
    a_mistake_of_a_function: "fn a(x: [batch, seq, d]) -> [batch, seq, d] { y }", "a(a(x))", "y", "there is no variable `y`";
    a_key_of_a_function: "fn a(x: [batch, seq, d]) -> [batch, seq, d] { gelu(x) }", "a::<name = b>(x)", "name", "`a` has no key `name`";
    another_operand_of_a_function: "fn a(x: [batch, seq, d]) -> [batch, seq, d] { gelu(x) }", "a(linear::<3>(x))", "linear", "`a` takes x: [batch, seq, d], found [batch, seq, 3]";
    modules_and_functions: "fn a(x: [batch, d]) -> [batch, d] { module::<ReLU, out = [batch, d]>(x) }", "x", "ReLU", "a model with a `module` has no function beside `forward`";
    dots_behind: "block a(x: [d, ..]) -> [..] { x }", "a(x)", "..", "`..` stands for the axes before all others";
    a_size_of_a_number: "block a(x: [.., d], n) -> [.., d] { linear::<d>(linear::<n>(x)) }", "a::<0.5>(x)", "n",
        "`out` expects a positive whole number, found `0.5`";
    a_table_of_a_block: "block a(x: [.., d], ids: ids[..]) -> [.., d] { x + embedding::<9, d, name = e>(ids) }",
        "linear::<tied = e>(a(x, ids))", "e", "the embedding `e` is one of a block, and is seen there only";
}

const READ: &str = "block read(x: [batch, seq, d]) -> { y: [batch, seq, d], pooled: [batch, d] } { { pooled: mean::<seq>(x), y: gelu(x) } }";

mistakes! {
    results_in_their_order: READ, "let (y, _p) = read(x); y", "read", "the results of `read` have names";
    one_of_the_results: READ, "read(x) + x", "read", "the results of `read` have names";
    a_result_that_is_left_out: READ, "let { y } = read(x); y", "read", "the result `pooled` of `read` is not here";
    another_result: READ, "let { z, .. } = read(x); z", "z", "`read` has no result `z`";
    a_result_for_two_variables: READ, "let { y, y: z, .. } = read(x); y + z", "y", "`y` stands here twice";
    a_result_that_nothing_reads: READ, "let { y, pooled } = read(x); y", "pooled", "the value of `pooled` is never used";
    names_behind_the_dots: READ, "let { .., y } = read(x); y", ",", "expected the end behind `..`, which leaves out the other results";
    results_that_have_no_names: "block a(x: [..]) -> ([..], [..]) { (x, 2 * x) }", "let { x: y, .. } = a(x); y", "x",
        "the results of `a` have no names";
    parts_by_name: MLP, "let { a, b } = split(mlp::<3>(x)); a + b", "split", "the results of `split` have no names";
    returned_in_their_order: "block a(x: [..]) -> { y: [..], z: [..] } { (x, 2 * x) }", "let { y, .. } = a(x); y", "x",
        "the results of `a` have names";
    returned_by_name: MLP, "let y = mlp::<3>(x); { y }", "y", "the results of `forward` have no names";
    returned_under_another_name: "block a(x: [..]) -> { y: [..] } { { z: x } }", "let { y } = a(x); y", "z", "`a` has no result `z`";
    not_returned: "block a(x: [..]) -> { y: [..], z: [..] } { { y: x } }", "let { y, .. } = a(x); y", "y",
        "the result `z` of `a` is not here";
    declared_twice: "block a(x: [..]) -> { y: [..], y: [..] } { { y: x } }", "let { y, .. } = a(x); y", "y",
        "two results of `a` are called `y`";
    a_name_without_a_shape: "block a(x: [..]) -> { y } { { y: x } }", "let { y, .. } = a(x); y", "}",
        "expected a name and a shape for each result of `a`: `{ y: [.., d_model], hidden: [.., 64] }`";
    another_shape: "block a(x: [..]) -> { y: [batch] } { { y: x } }", "let { y } = a(x); y", "batch", "no operand has an axis `batch`, and no size is called so";
}

/// The errors of a model whose `forward` has these inputs beside `x: [batch, seq, d]`.
fn errors_of_inputs(inputs: &str) -> Vec<(String, String)> {
    let names = inputs.split(',').filter_map(|input| input.split_once(':'));
    let uses: String = names.map(|(name, _)| format!("let _y = {name};")).collect();
    let source = format!(
        "struct M<d = 8, p = 0.5, many = true>;
        fn forward(x: [batch, seq, d], {inputs}) -> [batch, seq, d] {{ {uses} if many {{ p * x }} else {{ x }} }}"
    );
    errors_of(&source)
}

#[test]
fn defaults_of_inputs() {
    for valid in [
        "y: [seq] = 0.5",
        "y: [d] = -1",
        "y: [d] = { 2.0 * p }",
        "y: [] = p",
        "y: [batch] = -f64::INFINITY",
        "y: ids[batch] = 3",
        "y: ids[batch] = seq",
        "y: ids[seq] = 0..",
        "y: ids[seq] = { 2 * d }..",
        "y: lens[batch] = seq",
        "y: lens[batch] = d",
        "y: bool[batch, seq] = false",
        "y: bool[batch] = many",
    ] {
        assert_eq!(errors_of_inputs(valid), [], "{valid}");
    }
    for (wrong, at, message) in [
        (
            "y: [seq] =",
            "=",
            "expected a value behind `=`, which stands where a call leaves the input out",
        ),
        (
            "y: [other] = 0.0",
            "other",
            "`other` has no length where `y` is left out",
        ),
        (
            "y: ids[batch] = 0.5",
            "0.5",
            "expected a whole number, `0`, the length of an axis, `seq`, or a count along the last axis, `0..`, found `0.5`",
        ),
        (
            "y: lens[batch] = 0..",
            "0",
            "expected the length of an axis, `seq`, or a whole number, found `0..`",
        ),
        (
            "y: lens[batch] = true",
            "true",
            "expected the length of an axis, `seq`, or a whole number, found `true`",
        ),
        (
            "y: bool[batch] = 1",
            "1",
            "expected `true` or `false`, found `1`",
        ),
    ] {
        assert_eq!(
            errors_of_inputs(wrong),
            [(at.to_owned(), message.to_owned())],
            "{wrong}"
        );
    }
    let source =
        "struct M<d = 8>; fn forward(x: [batch, d] = 0.0, y: [batch, d]) -> [batch, d] { x + y }";
    let message = "the first input has the tape and the device, and no default";
    assert_eq!(errors_of(source), [("0.0".to_owned(), message.to_owned())]);
    let found = errors(
        "block a(x: [..], y: [..] = 0.0) -> [..] { x + y }",
        "a(x, x)",
    );
    assert_eq!(
        found,
        [(
            "0.0".to_owned(),
            "a block gets all of its values, and has no defaults".to_owned()
        )]
    );
}

#[test]
fn functions_share_their_layers() {
    let source = "struct M<d = 8>;
        fn forward(x: [batch, seq, d], y: [batch, more, d]) -> [batch, d] { pooled(encode(x)) * pooled(encode(y)) }
        fn encode(x: [batch, n, d]) -> [batch, n, d] {
            let mut y = linear::<d>(x);
            repeat 2 { y += attention::<2>(wide(y)); }
            last(y)
        }
        block wide(x: [.., m]) -> [.., m] { linear::<m>(x) }
        block last(x: [..]) -> [..] { relu(x) }
        fn pooled(x: [batch, k, d]) -> [batch, d] { linear::<d>(sum::<k>(x)) }";
    let model = lower(source);
    assert_eq!(
        layers(&model),
        [
            "linear",
            "blocks.0.wide.linear",
            "blocks.0.attention",
            "linear_2"
        ]
    );
    let shapes = shapes(&model);
    assert!(
        shapes
            .iter()
            .any(|shape| shape.ends_with(": [batch, seq, 8]"))
    );
    assert!(
        shapes
            .iter()
            .any(|shape| shape.ends_with(": [batch, more, 8]"))
    );
    expand(source);
}

/// The methods of a function have its name in them.
#[test]
fn names_of_functions() {
    let function = |name: &str| format!("fn {name}(x: [batch, d]) -> [batch, d] {{ x }} ");
    let found = |names: [&str; 2]| {
        let functions = names.map(function).concat();
        let source = format!("struct M<d = 8>; {} {functions}", function("forward"));
        let messages = errors_of(&source).into_iter();
        messages.map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(found(["encode", "decode"]), [""; 0]);
    for other in [
        "encode_mut",
        "try_encode",
        "encode_flops",
        "try_encode_values",
    ] {
        assert_eq!(found(["encode", other]), [other]);
        assert_eq!(found([other, "encode"]), ["encode"]);
    }
    assert_eq!(found(["session", "PARAMS"]), ["session", "PARAMS"]);
    assert_eq!(found(["repeat", "encode"]), ["repeat"]);
}

/// Constants of statements with a mistake are not emitted, and those of signatures are.
#[test]
fn constants_after_a_mistake_in_a_function() {
    let source = "struct M<d = WIDTH>;
        fn forward(x: [batch, d]) -> [batch, { ONE + 1 }] { linear::<{ TWO * 2 }>(read(x)) }
        fn read(x: [batch, d]) -> [batch, { TWO * 2 }] { linear::<{ THREE * 2 }>(x) + y }";
    let expanded = pipeline::model(tokens(source)).to_string();
    for (constant, stays) in [
        ("WIDTH", true),
        ("ONE + 1", true),
        ("TWO * 2", true),
        ("THREE * 2", false),
    ] {
        let item = format!(": usize = {constant}");
        assert_eq!(expanded.contains(&item), stays, "{constant} {expanded}");
    }
}

#[test]
fn dots_in_forward() {
    let found = errors_of("struct M<d = 8>; fn forward(x: [.., d]) -> [d] { x[seq = 0] }");
    assert_eq!(
        found,
        [(
            "..".to_owned(),
            "every axis of `forward` has a name, found `..`".to_owned()
        )]
    );
}

#[test]
fn a_function_has_the_same_mistakes_before_and_behind_its_caller() {
    let caller = "fn forward(x: [batch, d]) -> [batch, d] { a(x) }";
    let function =
        |name: &str, body: &str| format!("fn {name}(x: [batch, d]) -> [batch, d] {{ {body} }}");
    for body in [
        "y",
        "3",
        "linear::<5>(x)",
        "linear::<d, biass = false>(x)",
        "let y = linear::<d>(x); x",
        "gelu(a(x))",
        "b(x)",
    ] {
        let functions = match body {
            "b(x)" => format!("{} {}", function("a", body), function("b", "b * x")),
            _ => function("a", body),
        };
        let mut before = errors_of(&format!("struct M<d = 4>; {functions} {caller}"));
        let mut behind = errors_of(&format!("struct M<d = 4>; {caller} {functions}"));
        before.sort();
        behind.sort();
        assert_eq!(behind, before, "{body}");
        assert!(!before.is_empty(), "{body}");
    }
}

#[test]
fn different_calls_have_different_mistakes() {
    let blocks = "block a(x: [.., n], m) -> [.., n] { linear::<m>(x) }";
    let found = errors(blocks, "a::<7>(x) + a::<6>(x) + a::<7>(x)");
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn calls_that_double_end() {
    let blocks: String = (0..40)
        .map(|n| {
            format!(
                "block b{n}(x: [..]) -> [..] {{ b{}(b{}(x)) }}",
                n + 1,
                n + 1
            )
        })
        .collect();
    let found = errors(
        &format!("{blocks} block b40(x: [..]) -> [..] {{ gelu(x) }}"),
        "b0(x)",
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .1
            .starts_with("blocks are called more than 256 times")
    );
}

/// The errors of a loop that is tied to `blocks`, three rounds with `linear` and `gain`.
fn errors_of_tied(repeat: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{
            let mut x = x;
            repeat 3 {{ param gain: [d] = ones; x += gain * linear::<d>(x); }}
            x
        }}
        fn again(x: [batch, seq, d]) -> [batch, seq, d] {{ let mut x = x; {repeat} x }}"
    ))
}

#[test]
fn a_tied_loop_has_the_layers_of_another_one() {
    let found = errors_of_tied(
        "repeat 3, tied = blocks { param gain: [d] = ones; x += linear::<d>(x) / gain; }",
    );
    assert!(found.is_empty(), "{found:?}");
    let one = |repeat: &str| errors_of_tied(repeat).remove(0);
    let at = |at: &str, message: &str| (at.to_owned(), message.to_owned());
    assert_eq!(
        one("repeat 3, tied = block { x += linear::<d>(x); }"),
        at("block", "there is no `repeat` named `block` to tie to")
    );
    assert_eq!(
        one("repeat 2, tied = blocks { x += linear::<d>(x); }"),
        at("blocks", "`blocks` has 3 rounds, found 2")
    );
    assert_eq!(
        one("repeat 3, tied = blocks { x += linear::<d, bias = false>(x); }"),
        at(
            "repeat",
            "the layers are those of `blocks`, where `linear` is `linear 8 -> 8`, found `linear 8 -> 8, without bias`"
        )
    );
    assert_eq!(
        one("repeat 3, tied = blocks { x += linear::<d, name = up>(x); }"),
        at(
            "up",
            "the layers are those of `blocks`, which has no layer `up`"
        )
    );
}

#[test]
fn a_tied_call_has_the_layers_of_another_one() {
    let errors = |call: &str| {
        errors_of(&format!(
            "struct M<d = 8>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ net::<name = first>(x) }}
            fn again(x: [batch, seq, d]) -> [batch, seq, d] {{ {call} }}
            block net(x: [batch, seq, n], has_bias = true, has_more = false) -> [batch, seq, n] {{
                let mut x = x;
                repeat 2 {{ x += linear::<n, bias = has_bias>(x); }}
                if has_more {{ linear::<n, name = more>(x) }} else {{ x }}
            }}"
        ))
    };
    let found = errors("net::<tied = first>(x)");
    assert!(found.is_empty(), "{found:?}");
    let one = |call: &str| errors(call).remove(0);
    let at = |at: &str, message: &str| (at.to_owned(), message.to_owned());
    assert_eq!(
        one("net::<tied = net>(x)"),
        at("net", "there is no call of `net` named `net` to tie to")
    );
    assert_eq!(
        one("net::<has_bias = false, tied = first>(x)"),
        at(
            "net",
            "the layers are those of `blocks`, where `linear` is `linear 8 -> 8`, found `linear 8 -> 8, without bias`"
        )
    );
    assert_eq!(
        one("net::<has_more = true, tied = first>(x)"),
        at(
            "more",
            "the layers are those of `first`, which has no layer `more`"
        )
    );
}

#[test]
fn a_key_by_constants_is_that_of_the_branch_that_is_taken() {
    let model = |mask: &str| {
        let source = format!(
            "struct M<d = 8, local = true>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{
                let x = layer::<false>(x);
                if local {{ layer::<true>(x) }} else {{ x }}
            }}
            block layer(x: [batch, seq, n], near) -> [batch, seq, n] {{ {mask} }}"
        );
        assert_eq!(errors_of(&source), []);
        pipeline::model(tokens(&source)).to_string()
    };
    let chosen = model(
        "attention::<2, mask = if near { sliding_window(3) } else if !near { causal } else { none }>(x)",
    );
    let written = model(
        "if near { attention::<2, mask = sliding_window(3)>(x) } else { attention::<2, mask = causal>(x) }",
    );
    assert_eq!(chosen, written);
}

#[test]
fn keys_that_are_not_given_have_the_constants_of_their_names() {
    let blocks = "block inner(x: [.., n], hidden, n_out) -> [.., n_out] { linear::<n_out>(linear::<hidden>(x)) }
        block outer(x: [.., d], hidden, n_out = 8) -> [.., d] { inner::<7, ..>(x) + inner::<.., name = last>(x) }";
    let statements = "let y = outer::<5>(x); y + linear::<d>(linear::<hidden>(y))";
    let source = model(blocks, statements);
    // The header has `hidden` too, and the block its own.
    let source = source.replace("<d = 8>", "<d = 8, hidden = 3>");
    let shapes = shapes(&lower(&source));
    let linears = shapes.iter().filter(|shape| shape.contains("linear"));
    let widths = linears.map(|shape| shape.rsplit(", ").next().unwrap_or_default());
    let widths: Vec<&str> = widths.collect();
    assert_eq!(widths, ["7]", "8]", "5]", "8]", "3]", "8]"]);
}

/// The constants of the header are not those of a block.
#[test]
fn keys_that_are_not_given_have_no_constants_of_the_header_in_a_block() {
    let blocks = "block inner(x: [.., d], hidden) -> [.., d] { linear::<d>(linear::<hidden>(x)) }
        block outer(x: [.., d], depth) -> [.., d] { inner::<..>(linear::<d>(linear::<depth>(x))) }";
    let source = model(blocks, "linear::<d>(linear::<hidden>(outer::<2>(x)))");
    let source = source.replace("<d = 8>", "<d = 8, hidden = 3>");
    let expected = "`..` stands for keys that are not given and have the name of a constant here, and there are none";
    let messages: Vec<_> = errors_of(&source)
        .into_iter()
        .map(|(_, message)| message)
        .collect();
    assert_eq!(messages, [expected]);
}
