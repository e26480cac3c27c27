//! Buffers: mistakes in tensors of constants, and what becomes of them.

use super::lower;
use super::mistakes::errors_of;

fn errors(statements: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8, bias = true>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{
            let _x = if bias {{ x }} else {{ 2 * x }}; {statements}
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
    without_a_shape: "buffer b = 1; x * b", "=",
        "expected a tensor of constants: `buffer name: [axes] = |indices| number;`";
    without_a_value: "buffer b: [d]; x * b", ";",
        "expected a tensor of constants: `buffer name: [axes] = |indices| number;`";
    with_a_type_of_an_index: "buffer b: [d] = |i: usize| i; x * b", ":", "expected names of indices, one for each axis";
    mutable: "buffer mut b: [d] = 1; x * b", "mut", "`b` is a buffer, and nothing changes it";
    assigned: "buffer b: [d] = 1; b = 2 * b; x * b", "b", "`b` is a buffer, and nothing changes it";
    of_ids: "buffer b: ids[d] = 1; x * b", "ids", "a buffer is made of floats, and `b` is ids[8]";
    of_any_length: "buffer b: [seq] = 1; x * b", "seq", "`seq` is an axis of any length, and the buffer `b` has one size at every call";
    of_an_unknown_axis: "buffer b: [sek] = 1; x * b", "sek", "no input has an axis `sek`, and no size is called so";
    unused: "buffer b: [d] = 1; x", "b", "the value of `b` is never used";
    too_early: "let y = x * b; buffer b: [d] = 1; y * b", "b", "`b` is used before it is set";
    too_few_indices: "buffer b: [2, d] = |i| i; x * b[2 = 0]", "i", "`b` has 2 axes, and there are names for 1 index";
    too_many_indices: "buffer b: [d] = |i, j| i + j; x * b", "j", "`b` has 1 axis, and there are names for 2 indices";
    indices_of_a_number: "buffer b: [] = |i| i; x * b", "i", "`b` has 0 axes, and there are names for 1 index";
    no_index_where_one_is: "buffer b: [d] = || 1; x * b", "b", "`b` has 1 axis, and there are names for 0 indices";
    two_of_one_name: "buffer b: [8, d] = |i, i| i; x * b[8 = 0]", "i", "two indices are called `i`";
    an_unused_index: "buffer b: [d] = |i| 1; x * b", "i", "the index `i` is never read";
    an_unknown_name: "buffer b: [d] = |i| j; x * b", "j", "`j` is no index of the buffer, and no constant of the model";
    a_constant_without_braces: "buffer b: [d] = |i| i * SCALE; x * b", "SCALE", "there is no variable `SCALE`";
    an_axis: "buffer b: [d] = |i| i * seq; x * b", "seq", "`seq` is an axis of the inputs, of any length, and here stands a constant";
    a_value: "buffer b: [d] = |i| i * x; x * b", "x", "a buffer is computed once for all calls, and this is a value of a call";
    a_part_of_a_value: "buffer b: [d] = |i| i * x[d = 0]; x * b", "x", "a buffer is computed once for all calls, and this is a value of a call";
    a_switch: "buffer b: [d] = |i| i * bias; x * b", "bias", "expected a value, found the switch `bias`";
    a_number_as_a_switch: "buffer b: [d] = |i| if i { 1 } else { 0 }; x * b", "i", "`M` has no switch `i`";
    an_index_in_braces: "buffer b: [d] = |i| { 2 * i }; x * b", "i", "in braces stands a constant, and `i` is the index along an axis";
    an_operation: "buffer b: [d] = |i| linear::<d>(i); x * b", "linear", "`linear` is called here as no function of numbers";
    a_function_of_another_name: "buffer b: [d] = |i| sine(i); x * b", "sine", "`sine` is called here as no function of numbers";
    a_function_along_an_axis: "buffer b: [d] = |i| max::<d>(i, 1); x * b", "max", "`max` is called here as no function of numbers";
    too_few_arguments: "buffer b: [d] = |i| pow(i); x * b", "pow", "`pow` takes 2 arguments, found 1";
    too_many_arguments: "buffer b: [d] = |i| sin(i, 2); x * b", "sin", "`sin` takes 1 argument, found 2";
    bounds_upside_down: "buffer b: [d] = |i| clamp(i, 2, 1); x * b", "clamp", "`clamp` to nothing: the lower bound 2 is above the upper bound 1";
    a_remainder_of_values: "x % 2", "%", "`%` is the remainder of numbers, and this is a value";
    a_remainder_by_values: "2 % x", "%", "`%` is the remainder of numbers, and this is a value";
}

#[test]
fn a_branch_that_is_not_taken_has_no_buffer() {
    let model = lower(
        "struct M<d = 8, more = false>; fn forward(x: [batch, d]) -> [batch, d] {
            let mut y = x;
            if more { buffer b: [d] = |i| i % 3; y = y * b; }
            y
        }",
    );
    assert!(model.buffers.is_empty());
}

#[test]
fn the_word_may_be_the_name_of_a_variable() {
    let model = lower(
        "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] {
            let mut buffer = gelu(x);
            buffer = buffer + x;
            buffer
        }",
    );
    assert!(model.buffers.is_empty());
}

#[test]
fn numbers_have_remainders() {
    let model = lower(
        "struct M<d = 10>; fn forward(x: [batch, d]) -> [batch, d] { x * (d % 4) * (7 % 4.5) }",
    );
    assert_eq!(model.nodes().len(), 2);
}
