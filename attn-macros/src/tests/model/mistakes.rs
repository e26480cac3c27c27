//! The messages of mistakes, and their tokens.

use super::expand;
use crate::messages::example;
use crate::ops::{OPERATIONS, Operation};
use crate::spec::keys::Key;
use crate::tests::support::reports;

/// The errors of a declaration: their tokens, and the first lines of their messages.
pub(super) fn errors_of(source: &str) -> Vec<(String, String)> {
    let found = reports(&expand(source));
    let errors = found.into_iter().map(|report| {
        let at = report
            .at
            .clone()
            .unwrap_or_else(|| panic!("{}", report.message));
        let first = report.message.lines().next().unwrap_or_default();
        (source[at].to_owned(), first.to_owned())
    });
    errors.collect()
}

fn errors(statements: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8>; fn forward(x: [batch, seq, d], tokens: ids[batch, seq], lens: lens[batch],
            keys: [batch, k, d], keep: bool[batch, k], alone: [alone, d]) -> [batch, seq, d] {{
            let _a = tokens; let _b = lens; let _c = x; let _d = keys; let _e = keep; let _f = alone; {statements}
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
    a_rotation_along_its_pairs: "x + rope::<d>(x)", "rope",
        "`rope` rotates pairs of the last axis, by the place along another one, found the last one of [batch, seq, 8]";
    a_rotation_of_odd_vectors: "x + rope(linear::<7>(x))", "rope",
        "`rope` rotates pairs, so the last axis must be even, found 7";
    a_rotation_of_odd_numbers: "x + rope::<dims = 3>(x)", "3", "`rope` rotates pairs, so its `dims` must be even, found 3";
    a_rotation_of_more_numbers: "x + rope::<dims = 10>(x)", "10",
        "`dims` of `rope` are coordinates of one vector, which has 8, found 10";
    a_rotation_of_a_negative_base: "x + rope::<theta = 0.0>(x)", "0.0",
        "`theta` of `rope` must be positive and finite, found 0";
    positions_of_others: "x + rope(x, keep)", "rope",
        "the second operand of `rope` are positions, ids with some of the axes [batch, seq], found bool[batch, k]";
    positions_of_sequences: "x + rope::<seq>(x, lens)", "rope",
        "the second operand of `rope` are positions, ids with some of the axes [batch, seq], `seq` among them, found lens[batch]";
    a_rotation_of_one_vector: "rope(mean::<[batch, seq]>(x)) + x", "rope",
        "`rope` takes vectors along an axis, as [.., seq, d], found [8]";
    sides_of_another_width: "x + linear::<7>(x)", "+",
        "`+`: left is [batch, seq, 8], right is [batch, seq, 7]";
    ids_are_no_floats: "x * tokens", "*",
        "`*`: left is [batch, seq, 8], right is ids[batch, seq]";
    a_result_that_differs: "linear::<9>(x)", "linear",
        "`forward` declares [batch, seq, 8], and returns [batch, seq, 9]";
    unused_value: "let y = gelu(x); x", "y", "the value of `y` is never used";
    ids_times_a_number: "x + 0.1 * tokens", "*", "`*` takes floats, found ids[batch, seq]";
    ids_divided: "x + tokens / 2", "/", "`/` takes floats, found ids[batch, seq]";
    ids_less_a_number: "x + (tokens - 1)", "-", "`-` takes floats, found ids[batch, seq]";
    a_number_less_ids: "x + (1 - tokens)", "-", "`-` takes floats, found ids[batch, seq]";
    ids_negated: "x + -tokens", "-", "`-` takes floats, found ids[batch, seq]";
    keys_without_colons: "linear<d>(x)", "<", "expected `::` before `<`";
    a_product_of_matrices: "x @ x", "@", "there is no operator `@`";
    a_product_of_matrices_in_a_call: "gelu(x @ x)", "@", "there is no operator `@`";
    a_product_of_matrices_in_parentheses: "2 * (x @ x)", "@", "there is no operator `@`";
    a_product_of_matrices_among_several: "(x @ x, x)", "@", "there is no operator `@`";
    a_key_without_comma: "linear::<out = d bias = false>(x)", "bias", "expected `,` before `bias`";
    overwritten: "let mut y = gelu(x); y = relu(x); y", "y", "the value of `y` is never used";
    used_before_set: "let z = y + x; let y = gelu(x); z + y", "y", "`y` is used before it is set";
    used_before_set_in_a_loop: "let mut y = x; repeat 2 { y = y + z; } let z = gelu(y); z", "z", "`z` is used before it is set";
    used_before_set_in_an_inner_loop: "let mut y = x; repeat 2 { repeat 2 { y = y + z; } let z = gelu(y); y = z; } y", "z",
        "`z` is used before it is set";
    assigned_before_set: "z = gelu(x); let mut z = x; z = z + x; z", "z", "`z` is used before it is set";
    unknown_name: "xx", "xx", "there is no variable `xx`";
    a_variable_in_braces: "let y = gelu(x); { y + y }", "y", "`y` is a variable, and in braces stands a constant";
    unknown_name_of_something: "let y = gelu(x); yyy + x", "yyy", "there is no variable `yyy`";
    unknown_constant: "x * FACTOR", "FACTOR", "there is no variable `FACTOR`";
    axis_as_a_number: "x / seq", "seq", "`seq` is an axis of the inputs, of any length, and here stands a constant";
    axis_as_a_size: "linear::<seq>(x)", "seq", "`seq` is an axis of the inputs, of any length, and here stands a constant";
    axis_in_a_size: "linear::<{ d + 2 * seq }>(x)", "seq", "`seq` is an axis of the inputs, of any length, and here stands a constant";
    axis_as_a_count: "let mut y = x; repeat seq { y = gelu(y); } y", "seq",
        "`seq` is an axis of the inputs, of any length, and here stands a constant";
    assigned_twice: "let y = x; y = gelu(y); x", "y", "`y` cannot be assigned to twice";
    assigned_thrice: "let y = x; y = gelu(y); y = gelu(y); y", "y", "`y` cannot be assigned to twice";
    assigned_in_a_loop: "let y = x; repeat 2 { y = gelu(y); } y", "y", "`y` cannot be assigned to twice";
    an_input_that_changes: "repeat 2 { x = gelu(x); x = relu(x); } x", "x", "`x` is an input, and inputs do not change";
    a_declared_shape: "let y: [batch, seq, d] = gelu(x); y", ":", "shapes are inferred, and not declared";
    several_variables: "let (y, z) = gelu(x); y + z", "gelu", "expected `split`, `top_k`, `attention`, `attend` or a block with several results";
    an_operand_in_what_is_not_read: "let y = gelu(x); y + y ? x", "?", "a choice begins with `if`";
    an_assignment_that_is_not_read: "let mut y = gelu(x); repeat 2 { y = y.relu(); } y", ".", "there are no methods and no fields here";
    a_statement_behind_what_is_not_read: "match x { x } let y = gelu(x); y", "match", "`match` is not part of the language";
    a_choice_without_else: "if x < 0 { x }", "if", "an `if` is a value, and has an `else`";
    a_condition_that_compares_nothing: "if x { x } else { x }", "x", "expected a comparison, found the value `x` alone";
    a_condition_that_is_a_sum: "if x + 1 { x } else { x }", "{", "expected a comparison: `<`, `<=`, `>`, `>=`, `==` or `!=`";
    a_choice_of_statements_by_values: "let mut y = x; if x < 0 { y = gelu(y); } y", "x",
        "a choice between statements needs a condition of constants, found a value with axes";
    a_choice_by_what_rustc_knows: "if { LAYERS } > 2 { x } else { gelu(x) }", "if",
        "the macro does not know the value of this condition, which decides what code there is";
    an_unknown_switch: "if pre_norm { x } else { gelu(x) }", "pre_norm", "`M` has no switch `pre_norm`";
    a_key_by_an_unknown_switch: "linear::<d, bias = if with { true } else { false }>(x)", "with", "`M` has no switch `with`";
    a_size_as_a_switch: "if d { x } else { gelu(x) }", "d", "expected a comparison or a switch, found `d`, which is the size 8";
    a_value_of_a_choice_of_statements: "if d > 2 { let y = gelu(x); y } else { x } x", "if", "an `if` before the last line has no value: it changes variables";
    a_variable_of_a_branch: "if d > 2 { let _y = gelu(x); } y", "y", "there is no variable `y`";
    a_mistake_in_a_branch: "if d > 2 { let _y = linear::<wide = 8>(x); } x", "wide", "`linear` has no key `wide`";
    a_choice_of_other_axes: "if x < 0 { x } else { linear::<5>(x) }", "if", "`if`: left is [batch, seq, 8], right is [batch, seq, 5]";
    two_values_of_a_branch: "if x < 0 { x, x } else { x }", ",", "a branch is one value: `if x < 0 { 0 } else { x }`";
    a_branch_without_braces: "if x < 0 x else x", "x", "expected a branch: `if x < 0 { 0 } else { x }`";
    two_comparisons: "if 0 < x < 1 { x } else { x }", "<", "expected a branch: `if x < 0 { 0 } else { x }`";
    an_unknown_name_of_a_condition: "if y < 0 { x } else { x }", "y", "there is no variable `y`";
    a_loop_of_another_shape: "let mut y = x; repeat 2 { y = linear::<9>(y); } linear::<8>(y)", "repeat",
        "`repeat` changes the shape of `y`: a round begins with [batch, seq, 8] and ends with [batch, seq, 9]";
    a_loop_of_nothing: "repeat 2 { let _y = linear::<9>(x); } x", "repeat", "this `repeat` changes no variable";
    no_rounds: "let mut y = x; repeat 0 { y = gelu(y); } y", "0", "expected at least one round, found 0";
    unknown_operation: "layernorm(x)", "layernorm", "unknown operation `layernorm`";
    unknown_key: "linear::<out = 8, biass = false>(x)", "biass", "`linear` has no key `biass`";
    key_missing: "linear(x)", "linear", "`linear` needs the key `out`";
    wrong_position: "attention::<d_model, heads>(x)", "d_model",
        "here stands the `heads` of `attention`, found `d_model`";
    heads_missing: "attention::<d_model = d>(x)", "attention", "`attention` needs the key `heads`";
    key_of_attention: "attention::<2, d, mask = caussal>(x)", "caussal", "`mask` has no value `caussal`";
    width_of_attention: "attention::<2, 16>(x)", "16", "`attention` of d_model 16 takes [.., 16], found [batch, seq, 8]";
    heads_that_do_not_divide: "attention::<3>(x)", "3", "8 is not divisible by 3 heads";
    padding_missing: "attention::<2, mask = padding>(x)", "attention", "this `attention` reads `padding`, and is not given it";
    padding_unread: "attention::<2>(x, padding = lens)", "padding", "the mask of this `attention` does not read `padding`";
    padding_of_ids: "attention::<2, mask = padding>(x, padding = tokens)", "padding",
        "`padding` of this `attention` is lens[batch], lens[batch, seq] or bool[batch, seq], found ids[batch, seq]";
    padding_of_the_queries: "let y = concat(x, x); attention::<2, mask = padding>(gelu(keys), context = y, padding = keep)", "padding",
        "`padding` of this `attention` is lens[batch], lens[batch, k] or bool[batch, seq], found bool[batch, k]";
    padding_of_a_pair: "attention::<2, mask = padding>(x, padding = (lens, keep))", "padding",
        "`padding` of this `attention` is lens[batch], lens[batch, seq] or bool[batch, seq], found (lens[batch], bool[batch, k])";
    padding_without_a_batch: "attention::<2, mask = padding>(alone, padding = lens)", "padding",
        "`padding` of this `attention` is lens[alone] or bool[alone], found lens[batch]";
    pool_of_other_keys: "mean_pool(x, keep)", "mean_pool",
        "`mean_pool` takes lens[batch] or bool[batch, seq] as its second operand, found bool[batch, k]";
    max_pool_of_other_keys: "max_pool(x, keep)", "max_pool",
        "`max_pool` takes lens[batch] or bool[batch, seq] as its second operand, found bool[batch, k]";
    pool_of_ids: "mean_pool(x, tokens)", "mean_pool",
        "`mean_pool` takes lens[batch] or bool[batch, seq] as its second operand, found ids[batch, seq]";
    pool_with_an_operand_by_name: "let _p = mean_pool(x, padding = lens); x", "padding", "`mean_pool` has no operand `padding`";
    pool_of_one_sequence: "mean_pool(alone, keep)", "mean_pool",
        "`mean_pool` takes [batch, seq, d_model], and lens[batch] or bool[batch, seq], found [alone, 8]";
    marks_are_no_floats: "gelu(keep)", "gelu", "`gelu` takes floats, found bool[batch, k]";
    marks_have_no_positions: "sinusoidal_position::<8>(keep)", "sinusoidal_position",
        "`sinusoidal_position` takes ids[seq], ids[batch, seq], or floats of these axes and a width, found bool[batch, k]";
    two_contexts: "attention::<2>(x, context = (x, keys))", "context", "`context` is one value, found 2";
    documents_of_two: "let y = gelu(x); attention::<2, mask = document>(x, context = y, document = tokens)", "document",
        "`document` of this `attention` is (ids[batch, seq], ids[batch, seq]), found ids[batch, seq]";
    documents_of_others: "attention::<2, mask = document>(x, context = keys, document = (tokens, tokens))", "document",
        "`document` of this `attention` is (ids[batch, seq], ids[batch, k]), found (ids[batch, seq], ids[batch, seq])";
    documents_of_one: "attention::<2, mask = document>(x, document = (tokens, tokens))", "document",
        "`document` of this `attention` is ids[batch, seq], found (ids[batch, seq], ids[batch, seq])";
    context_without_context: "attention::<2, d_context = 4>(x)", "d_context", "`d_context` is the width of a second input, and there is none";
    values_without_context: "attention::<2>(x, values = keys)", "values", "there are `values` and no `context`, whose keys they belong to";
    width_of_values_alone: "attention::<2, d_values = 4>(x, context = keys)", "d_values", "`d_values` is the width of a third input, and there is none";
    values_for_other_keys: "attention::<2>(x, context = keys, values = x)", "values",
        "`attention`: context is [batch, k, 8], values is [batch, seq, 8]";
    values_without_a_batch: "attention::<2>(x, context = keys, values = alone)", "values",
        "`attention`: context is [batch, k, 8], values is [alone, 8]";
    several_values: "attention::<2>(x, context = keys, values = (keys, keys))", "values", "`values` is one value, found 2";
    three_operands: "attention::<2>(x, keys, keys)", "attention", "`attention` takes one operand by its position, found 3";
    floats_to_embed: "embedding::<9, 8>(x)", "embedding", "`embedding` takes ids[..], found [batch, seq, 8]";
    ids_to_norm: "layer_norm(tokens) + x", "layer_norm", "`layer_norm` takes floats whose last axis is a constant, found ids[batch, seq]";
    tied_to_nothing: "linear::<tied = table>(x)", "table", "there is no embedding `table` to tie to";
    tied_with_a_bias: "let _g = embedding::<8, d, name = e>(tokens); linear::<tied = e, bias = true>(x)", "bias",
        "`tied` contradicts `bias`: the table of `e` is all that it has";
    tied_with_an_init: "let _g = embedding::<8, d, name = e>(tokens); linear::<tied = e, init = normal(0.02)>(x)", "init",
        "`tied` contradicts `init`: the table belongs to `e`";
    ids_tied_with_an_init: "let _g = embedding::<8, d, name = e>(tokens); x + embedding::<tied = e, init = xavier_uniform>(tokens)", "init",
        "`tied` contradicts `init`: the table belongs to `e`";
    a_deviation_of_nothing: "x + embedding::<8, d, init = normal(0)>(tokens)", "0",
        "`std` of `normal` must be positive and finite, found 0";
    a_deviation_below_nothing: "feed_forward::<8, init = normal(std = -0.02)>(x)", "-0.02",
        "`std` of `normal` must be positive and finite, found -0.02";
    a_name_twice: "linear::<8, name = a, name = b>(x)", "name", "the key `name` is given twice";
    a_tie_twice: "let e = embedding::<9, d, name = e>(tokens); e + linear::<d>(linear::<tied = e, tied = e>(x))", "tied",
        "the key `tied` is given twice";
    a_shared_loop_twice: "let mut y = x; repeat 2, share = true, share = false { y = y + linear::<d>(y); } y", "share",
        "the key `share` is given twice";
    a_name_of_a_tied_loop: "let mut y = x; repeat 2 { y = y + linear::<d>(y); } repeat 2, tied = blocks, name = other { y = y + linear::<d>(y); } y",
        "blocks", "`name` has no effect beside `tied`: the layers are those of the call or loop before";
    given_positions_twice: "x + learned_position::<8, d>(x, position_ids = tokens, position_ids = tokens)", "position_ids",
        "the operand `position_ids` is given twice";
    padding_twice: "attention::<2, mask = padding>(x, padding = lens, padding = lens)", "padding", "the operand `padding` is given twice";
    an_offset_of_all_rows: "x + learned_position::<2, d, offset = 2>(x)", "learned_position", "`offset` is 2, and the table has 2 rows";
    numbers_one_after_the_other: "concat::<to = 2>(mean::<[batch, seq, d]>(x), mean::<[batch, seq, d]>(x)) + x", "concat",
        "`concat` takes a value with axes, found []";
    an_index_that_divides: "let mut y = x; repeat 6 as i { y = if 60 / i % 6 == 5 { tanh(y) } else { linear::<d>(y) }; } y", "i",
        "the index `i` is known up to a remainder alone, as layers that are alike are compiled once";
    tied_with_a_table_of_a_loop: "let mut y = x; repeat 2 { y = y + embedding::<8, d, name = e>(tokens); } linear::<tied = e>(y)", "e",
        "the embedding `e` is one of a `repeat`, and is seen there only";
    tied_of_another_width: "let _g = embedding::<9, 4, name = e>(tokens); linear::<tied = e>(x)", "linear",
        "`linear` tied to `e` takes [.., 4], found [batch, seq, 8]";
    name_taken: "linear::<8, name = a>(linear::<8, name = a>(x))", "a", "the name `a` is taken";
    number_alone: "3.0", "3.0", "expected a value with axes, found a number";
    division: "x / linear::<5>(x)", "/", "`/`: left is [batch, seq, 8], right is [batch, seq, 5]";
    a_power_of_a_value: "pow(x, x)", "x", "the exponent of `pow` is a number, found a value with axes";
    a_function_of_too_many: "exp(x, x)", "exp", "`exp(x)` has 1 operand, found 2";
    a_function_of_too_few: "clamp(x, 0)", "clamp", "`clamp(x, lo, hi)` has 3 operands, found 2";
    bounds_upside_down: "clamp(x, 1, 0)", "clamp", "`clamp` to nothing: the lower bound 1 is above the upper bound 0";
    a_function_of_other_axes: "min(x, linear::<5>(x))", "min", "`min`: left is [batch, seq, 8], right is [batch, seq, 5]";
    a_function_of_numbers_alone: "sqrt(2)", "sqrt", "expected a value with axes, found a number";
    a_root_of_no_number: "x * sqrt(-1)", "sqrt", "the result of this is no finite number";
    by_zero: "x / 0", "/", "the result of this is no finite number";
    method: "x.relu()", ".", "there are no methods and no fields here";
    unused_call: "gelu(x); x", ";", "this value goes nowhere";
    for_loop: "for i in 0 { }", "for", "`for` is not part of the language";
    two_operands: "gelu(x, x)", "gelu", "`gelu` takes `[..]` to the same, found 2 operands";
    probability: "dropout::<1.5>(x)", "1.5", "`dropout` is a probability: at least 0 and less than 1, found 1.5";
    module_without_a_type: "module::<out = [batch, seq, d]>(x)", "module", "`module` needs a type";
    module_without_a_shape: "module::<Linear<8, 3>>(x)", "module", "`module` needs the key `out`: nothing is known of its type here";
    module_of_a_number: "module::<8, out = [batch, seq, d]>(x)", "8", "expected the type of a module, found `8`";
    module_to_no_shape: "module::<ReLU, out = 7>(x)", "7", "expected a shape, found `7`";
    module_to_ids: "module::<ReLU, out = ids[batch, seq]>(x)", "ids", "`module` returns floats, found ids[batch, seq]";
    module_to_an_unknown_axis: "module::<ReLU, out = [batch, sek, d]>(x)", "sek",
        "no input has an axis `sek`, and no size is called so";
    module_to_many_axes: "module::<ReLU, out = [batch, 1, 2, 3, d]>(x)", "[batch, 1, 2, 3, d]",
        "expected at most 4 axes in `[..]`, found 5";
    module_of_two_types: "module::<ReLU, Tanh, out = [batch, seq, d]>(x)", "Tanh", "expected `key = value`, found `Tanh`";
    module_with_an_unknown_key: "module::<ReLU, out = [batch, seq, d], input = 8>(x)", "input", "`module` has no key `input`";
    module_of_nothing: "module::<ReLU, out = [batch, seq, d]>()", "module",
        "`module` takes its operands, as a tuple if they are several, to `out`, found 0 operands";
    module_with_an_operand_by_name: "module::<ReLU, out = [batch, seq, d]>(x, lens = lens)", "lens",
        "`module` has no operand `lens`";
    module_with_a_body: "module::<ReLU, out = [batch, seq, d]>(x) { fn mask(q_idx) { q_idx > 0 } }", "module",
        "`module` has no body: only `attention` and `attend` have functions of their own";
    module_that_is_open: "let y = module::<Linear<8, 3, out = [batch, seq, d]>(x); y", ";", "expected `,` or `>`";
    body_of_another: "gelu(x) { fn mask(q_idx) { q_idx > 0 } }", "gelu", "`gelu` has no body: only `attention` and `attend` have functions of their own";
    a_part_of_nothing: "x[]", "[]", "expected an axis and an index or a range of it, found nothing";
    a_part_of_no_axis: "x[=]", "=", "expected an axis and an index or a range of it, found `=`";
    a_part_without_an_index: "x[seq]", "seq", "expected an axis and an index or a range of it, found `seq`";
    a_part_that_compares: "x[seq == 1]", "seq == 1", "expected an axis and an index or a range of it, found `seq == 1`";
    a_part_with_a_colon: "x[seq: 0]", "seq: 0", "expected an axis and an index or a range of it, found `seq:0`";
    an_index_without_an_axis: "gelu(x[0])", "0", "expected an axis and an index or a range of it, found `0`";
    an_index_without_an_axis_of_a_variable: "let y = x[-1]; y", "-1", "expected an axis and an index or a range of it, found `-1`";
    a_part_by_its_place: "x[:, 0]", ":", "expected an axis and an index or a range of it, found `:`";
    a_range_with_its_end: "x[seq = 1..=2]", "=", "expected the end of the range behind two dots";
    a_range_of_three_dots: "x[seq = 1...2]", ".", "expected the end of the range behind two dots";
    a_range_of_two_ranges: "x[seq = 0..1..2]", "1..2", "expected an index, found `1..2`";
    an_index_of_a_fraction: "x[seq = 1.5]", "1.5", "expected an index, found `1.5`";
    an_index_of_a_sign: "x[seq = -]", "-", "expected an index, found `-`";
    an_index_of_an_axis: "x[seq = seq - 1]", "seq", "`seq` is an axis of the inputs, of any length, and here stands a constant";
    a_part_of_a_sum: "(x + x)[seq = 0]", "[", "expected a variable or an operation before `[`";
    a_part_of_a_number: "2[seq = 0]", "[", "expected a variable or an operation before `[`";
    a_part_of_ids: "tokens[seq = 0] + x", "tokens", "`[..]` takes floats, found ids[batch, seq]";
    an_index_behind_an_axis: "x[d = 8]", "8", "there is no index `8` of `d`, whose size is 8";
    an_index_before_an_axis: "x[d = -9]", "-", "there is no index `-9` of `d`, whose size is 8";
    an_index_behind_the_last_one: "x[seq = -0]", "-", "there is no index `-0` of `seq`";
    a_range_behind_an_axis: "x[d = ..9]", "9", "the range `..9` goes beyond `d`, whose size is 8";
    a_range_before_an_axis: "x[d = -9..]", "-", "the range `-9..` goes beyond `d`, whose size is 8";
    a_range_of_nothing: "x[d = 3..3]", "3", "the range `3..3` of `d` is empty";
    a_range_that_ends_at_its_start: "x[d = ..-8]", "-", "the range `..-8` of `d` is empty";
    a_range_upside_down: "x[d = -2..-4]", "-", "the range `-2..-4` of `d` is empty";
    a_range_of_any_length_upside_down: "x[seq = 3..2]", "3", "the range `3..2` of `seq` is empty";
    all_of_any_length: "x[seq = ..]", "seq", "`seq` is of any length, so the length of its range `..` is no constant";
    all_but_the_first_of_any_length: "x[seq = 1..]", "1", "`seq` is of any length, so the length of its range `1..` is no constant";
    a_range_between_both_ends_of_any_length: "x[seq = 1..-1]", "1",
        "`seq` is of any length, so the length of its range `1..-1` is no constant";
    a_part_of_an_unknown_axis: "x[sek = 0]", "sek", "there is no axis `sek` in [batch, seq, 8]";
    a_part_of_an_axis_that_is_gone: "let y = x[seq = 0]; y[seq = 1]", "seq", "there is no axis `seq` in [batch, 8]";
    two_parts_of_an_axis: "x[seq = 0, seq = 1]", "seq", "the axis `seq` is named twice";
    names_of_nothing: "let () = split(x); x", "()", "expected a name for each part, found `()`";
    a_part_without_a_name: "let (y, _) = split(x); concat(y, y)", "(y, _)", "expected a name for each part, found `(y, _)`";
    a_part_that_changes: "let (mut y, z) = split(x); concat(y, z)", "(mut y, z)", "expected a name for each part, found `(mut y, z)`";
    parts_that_change: "let mut (y, z) = split(x); concat(y, z)", "(y, z)", "expected a name for each part, found `mut(y, z)`";
    parts_in_brackets: "let [y, z] = split(x); concat(y, z)", "[y, z]", "expected a name for each part, found `[y, z]`";
    parts_without_parentheses: "let y, z = split(x); concat(y, z)", ",", "several names stand in parentheses behind `let`";
    parts_without_let: "(y, z) = split(x); concat(y, z)", "(y, z)", "several names stand in parentheses behind `let`";
    parts_of_a_variable: "let (y, z) = x; concat(y, z)", "x", "expected `split`, `top_k`, `attention`, `attend` or a block with several results";
    parts_without_names: "split(x)", "split", "`split` has several results, and each needs a name";
    parts_of_one_name: "let y = split(x); y", "split", "`split` has several results, and each needs a name";
    parts_in_a_sum: "let (y, z) = split(x) + 1; y + z", "split", "`split` has several results, and each needs a name";
    parts_of_another_size: "let (y, z, w) = split(x); concat(y, z, w)", "split", "an axis of size 8 cannot be split into 3 equal parts";
    parts_of_any_length: "let (y, z) = split::<seq>(x); y + z", "split", "`seq` is of any length, and `split` needs a constant size";
    parts_of_several_axes: "let (y, z) = split::<[batch, d]>(x); y + z", "split", "`split` is along one axis, found 2";
    parts_of_no_axis: "let (y, z) = split::<[]>(x); concat(y, z)", "[]", "expected the name of an axis, found none";
    parts_of_an_unknown_axis: "let (y, z) = split::<width>(x); concat(y, z)", "width", "there is no axis `width` in [batch, seq, 8]";
    an_axis_twice: "sum::<[d, d]>(x)", "d", "the axis `d` is named twice";
    a_learned_tensor_without_a_name: "param: [d] = 0; x", ":", "expected a learned tensor: `param name: [axes] = initial_values;`";
    a_learned_tensor_with_a_keyword: "param type: [d] = 0; x", "type", "expected a learned tensor: `param name: [axes] = initial_values;`";
    a_learned_tensor_without_axes: "param p = 0; x + p", "=", "expected a learned tensor: `param name: [axes] = initial_values;`";
    a_learned_tensor_without_a_colon: "param p [d] = 0; x + p", "[", "expected a learned tensor: `param name: [axes] = initial_values;`";
    a_learned_tensor_without_initial_values: "param p: [d]; x + p", ";",
        "expected a learned tensor: `param name: [axes] = initial_values;`";
    a_learned_tensor_of_no_initial_values: "param p: [d] = ; x + p", ";",
        "expected a learned tensor: `param name: [axes] = initial_values;`";
    a_learned_tensor_of_no_shape: "param p: f32 = 0; x + p", "f32", "expected a shape, found `f32`";
    a_learned_tensor_that_changes: "param mut p: [d] = 0; x + p", "mut", "`p` is a learned tensor, and only training changes it";
    a_learned_tensor_that_is_assigned: "param p: [d] = 0; p = gelu(p); x + p", "p",
        "`p` is a learned tensor, and only training changes it";
    a_learned_tensor_of_ids: "param p: ids[d] = 0; x + p", "ids", "a learned tensor is made of floats, and `p` is ids[8]";
    a_learned_tensor_of_any_length: "param p: [seq, d] = 0; x + p", "seq",
        "`seq` is an axis of any length, and the learned tensor `p` has one size at every call";
    a_learned_tensor_of_an_unknown_axis: "param p: [sek, d] = 0; x + p", "sek", "no input has an axis `sek`, and no size is called so";
    a_learned_tensor_of_many_axes: "param p: [1, 2, 3, 4, d] = 0; x + p", "[1, 2, 3, 4, d]", "expected at most 4 axes in `[..]`, found 5";
    a_learned_tensor_that_is_unused: "param p: [d] = 0; x", "p", "the value of `p` is never used";
    two_learned_tensors_of_one_name: "param p: [d] = 0; let y = x + p; param p: [d] = 0; y + p", "p", "the name `p` is taken";
    a_learned_tensor_of_the_name_of_a_layer: "let y = linear::<d>(x); param linear: [d] = 0; y + linear", "linear",
        "the name `linear` is taken";
    a_learned_tensor_that_is_set_later: "let y = x + p; param p: [d] = 0; y + p", "p", "`p` is used before it is set";
    a_learned_tensor_as_an_operation: "x + param(d)", "param", "unknown operation `param`";
    initial_values_of_a_matrix: "param p: [d] = xavier_uniform; x + p", "xavier_uniform",
        "`xavier_uniform` is the distribution of a tensor with two axes or more";
    initial_values_of_a_matrix_for_a_number: "param p: [] = orthogonal; x + p", "orthogonal",
        "`orthogonal` is the distribution of a tensor with two axes or more";
    initial_values_of_an_unknown_word: "param p: [d] = xavier; x + p", "xavier", "`initializer` has no value `xavier`";
    initial_values_of_a_body: "param p: [d] = alibi_slopes; x + p", "alibi_slopes", "`initializer` has no value `alibi_slopes`";
    initial_values_of_a_variable: "param p: [d] = x; x + p", "x", "`x` is a variable, and here stands a constant";
    initial_values_of_text: "param p: [d] = \"0\"; x + p", "\"0\"", "expected an initializer, found `\"0\"`";
    initial_values_without_a_deviation: "param p: [d] = normal; x + p", "normal", "`normal` needs its argument `std`";
    initial_values_of_no_deviation: "param p: [d] = truncated_normal(0); x + p", "0",
        "`std` of `truncated_normal` must be positive and finite, found 0";
    initial_values_of_no_bound: "linear::<d, init = uniform(0)>(x)", "0", "`bound` of `uniform` must be positive and finite, found 0";
}

/// `embedding::<vocab, vocab>`: the second one is a size. A value in the right position is not an error.
#[test]
fn a_size_has_the_name_of_a_key() {
    let errors = |keys: &str| {
        errors_of(&format!(
            "struct M<vocab = 8, d_model = 8>;
            fn forward(x: ids[batch, seq]) -> [batch, seq, vocab] {{
                let x = embedding::<{keys}>(x);
                attention::<d_model, d_model, head_dim = 1>(x)
            }}"
        ))
    };
    for keys in [
        "vocab, vocab",
        "vocab, d_model = vocab",
        "vocab = vocab, d_model = vocab",
    ] {
        assert_eq!(errors(keys), []);
    }
    for keys in ["d_model, vocab", "d_model, 8", "d_model"] {
        let at = errors(keys).into_iter().next().map(|(at, _)| at);
        assert_eq!(at.as_deref(), Some("d_model"), "{keys}");
    }
}

/// A mistake in the inputs or the result is reported once, and it causes no other error.
#[test]
fn one_mistake_is_one_error() {
    let input = "`x` is an input, and inputs do not change";
    for (declared, statements, at, message) in [
        (
            "(mut x: [batch, d]) -> [batch, d]",
            "repeat 2 { x = linear::<d>(x); } x",
            "mut",
            input,
        ),
        (
            "(&self, x: [batch, d]) -> [batch, d]",
            "gelu(x)",
            "&",
            "`forward` takes no `self`",
        ),
        (
            "(&mut self, x: [batch, d]) -> [batch, d]",
            "gelu(x)",
            "&",
            "`forward` takes no `self`",
        ),
        (
            "(self: &Self, x: [batch, d]) -> [batch, d]",
            "gelu(x)",
            "self",
            "`forward` takes no `self`",
        ),
        (
            "(t: ids, y: [seq, d]) -> [batch, d]",
            "embedding::<9, d>(t) + y",
            "ids",
            "expected a shape, found `ids`",
        ),
        (
            "(t: Tensor<Rank2<2, 3>, f32>, y: [seq, d]) -> [batch, d]",
            "t + y",
            "Tensor",
            "expected a shape, found `Tensor`",
        ),
        (
            "(&x: [batch, d]) -> [batch, d]",
            "gelu(x)",
            "&",
            "expected an input: `tokens: ids[batch, seq]`, `x: [batch, seq, d_model]`, `lens: lens[batch]`, or `keep: bool[batch, seq]`",
        ),
        (
            "(_: [batch, d], y: [seq, d]) -> [batch, d]",
            "x + y + linear::<d>(y)",
            "_",
            "expected an input: `tokens: ids[batch, seq]`, `x: [batch, seq, d_model]`, `lens: lens[batch]`, or `keep: bool[batch, seq]`",
        ),
        (
            "(x: [batch, d])",
            "gelu(x)",
            "{",
            "expected the result of `forward`: `-> [batch, seq, d_model]`, or several in parentheses",
        ),
        (
            "(x: [batch, d]) -> Tensor<[batch, d]>",
            "gelu(x)",
            "Tensor",
            "expected a shape, found `Tensor`",
        ),
        (
            "(x: [8, d]) -> [batch, d]",
            "gelu(x)",
            "batch",
            "no input has an axis `batch`, and no size is called so",
        ),
        (
            "(x: [B, T]) -> [B, d]",
            "linear::<d>(x)",
            "linear",
            "`linear` takes floats whose last axis is a constant, found [B, T]",
        ),
        (
            "(x: [B, d]) -> [B, T, d]",
            "gelu(x)",
            "T",
            "no input has an axis `T`, and no size is called so",
        ),
    ] {
        let source = format!("struct M<d = 8>; fn forward{declared} {{ {statements} }}");
        assert_eq!(
            errors_of(&source),
            [(at.to_owned(), message.to_owned())],
            "{source}"
        );
    }
    let source = "struct M<d = 8> fn forward(x: [n, d]) -> [n, d] { gelu(x) }";
    let message = "expected `;` after the name and its sizes".to_owned();
    assert_eq!(errors_of(source), [("fn".to_owned(), message)]);
}

#[test]
fn several_mistakes_are_reported_at_once() {
    let errors = errors("let y = geluu(x); let z = linear::<0>(x); x + linear::<7>(x) + w");
    let at: Vec<_> = errors.iter().map(|(at, _)| at.as_str()).collect();
    assert_eq!(at, ["geluu", "0", "+", "w"]);
}

#[test]
fn mistakes_of_the_declaration_are_errors() {
    for (source, at, message) in [
        ("", "", "expected a declaration, found nothing"),
        (
            "struct M<d = 8, d = 9>; fn forward(x: [d]) -> [d] { x }",
            "d",
            "the size `d` is declared twice",
        ),
        (
            "struct M<d = 8, e = 9>; fn forward(x: [d]) -> [d] { x }",
            "e",
            "the size `e` is never used",
        ),
        (
            "struct M; fn forward(x: [s], x: [s]) -> [s] { x }",
            "x",
            "two inputs are called `x`",
        ),
        (
            "struct M; fn forward(x: [s]) -> [t] { x }",
            "t",
            "no input has an axis `t`, and no size is called so",
        ),
        (
            "struct M; fn forward(x: floats[s]) -> [s] { x }",
            "floats",
            "unknown kind of input `floats`",
        ),
        (
            "struct M; fn forward(x: ids[s]) -> ids[s] { x }",
            "ids",
            "`forward` returns floats, found ids[s]",
        ),
        (
            "struct M; fn forward(x: [s], keep: bool[s]) -> ([s], bool[s]) { (x, keep) }",
            "bool",
            "`forward` returns floats, found bool[s]",
        ),
        (
            "struct M; fn forward(x: [s]) -> ([s], [s]) { x }",
            "x",
            "`forward` declares 2 results, and returns 1",
        ),
        (
            "struct M; fn forward(x: [s]) -> [s] { let y = x; }",
            "M",
            "`forward` returns nothing",
        ),
    ] {
        let found = if source.is_empty() {
            let reports = reports(&expand(source));
            let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
            vec![(String::new(), first(&reports[0].message))]
        } else {
            errors_of(source)
        };
        let expected = (at.to_owned(), message.to_owned());
        assert!(found.contains(&expected), "{source}: {found:?}");
    }
}

#[test]
fn a_size_under_another_name_is_reported_at_that_name() {
    let report = |source: &str| {
        let mut found = reports(&expand(source));
        assert_eq!(found.len(), 1, "{source}: {found:?}");
        let report = found.remove(0);
        let at = source[report
            .at
            .clone()
            .unwrap_or_else(|| panic!("{}", report.message))]
        .to_owned();
        (at, report.message)
    };
    let model = |body: &str| {
        format!(
            "struct M<vocab = 5, d = 8>;
             fn forward(t: ids[batch, seq]) -> [batch, seq, vocab] {{ {body} }}"
        )
    };
    let help = |found: &str| {
        format!(
            "`M` has no size `{found}`, and its size `d` is never used\n\
             help: did you mean `d`? If `{found}` is a constant, remove `d`"
        )
    };
    for (body, found) in [
        ("linear::<vocab>(embedding::<vocab, d_model>(t))", "d_model"),
        ("linear::<vocab>(embedding::<vocab, { 2 * dd }>(t))", "dd"),
        (
            "let mut x = embedding::<vocab, vocab>(t); repeat dd { x = gelu(x); } x",
            "dd",
        ),
    ] {
        assert_eq!(report(&model(body)), (found.to_owned(), help(found)));
    }
    // A constant of the user is not a misspelt size, and neither is a function.
    for body in [
        "linear::<vocab>(embedding::<vocab, WIDTH>(t))",
        "linear::<vocab>(embedding::<vocab, { width(3) }>(t))",
    ] {
        let unused = "the size `d` is never used\nhelp: remove it";
        assert_eq!(report(&model(body)), ("d".to_owned(), unused.to_owned()));
    }
    // The name of a distribution is no size, either.
    let param = "struct M<d = 8, e = 8>; fn forward(x: [batch, d]) -> [batch, d] { param p: [d] = ones; x + p }";
    let unused = "the size `e` is never used\nhelp: remove it";
    assert_eq!(report(param), ("e".to_owned(), unused.to_owned()));
    // No value is unused: it may be a constant.
    let both = "linear::<vocab>(linear::<d>(embedding::<vocab, d_model>(t)))";
    assert!(reports(&expand(&model(both))).is_empty());
    let axis = "struct M<width = 8>; fn forward(x: [batch, width]) -> [batch, widht] { x }";
    let message =
        "no input has an axis `widht`, and no size is called so\nhelp: did you mean `width`?";
    assert_eq!(report(axis), ("widht".to_owned(), message.to_owned()));
}

/// The examples for values of a key are valid. Whether a promise holds is another question, and `type` has no key. An axis by itself is
/// not enough for operations that need several axes, operands or results, or one of a constant size.
#[test]
fn examples_of_keys_are_valid() {
    const NEED_MORE: [&str; 18] = [
        "attend",
        "arange",
        "concat",
        "conv1d",
        "conv2d",
        "conv_transpose1d",
        "conv_transpose2d",
        "cross_entropy",
        "expand",
        "group_norm",
        "pad",
        "permute",
        "rearrange",
        "scatter_add",
        "split",
        "stack",
        "top_k",
        "windows",
    ];
    let needs_more = |operation: &&&Operation| NEED_MORE.contains(&operation.name);
    for operation in OPERATIONS.iter().filter(|operation| !needs_more(operation)) {
        for key in operation
            .keys
            .iter()
            .filter(|key| !["type", "ensure"].contains(&key.name))
        {
            let needs = |other: &&Key| other.default == "required" && other.name != "type";
            let needed = operation.keys.iter().filter(needs);
            let keys = needed.filter(|other| other.name != key.name).chain([key]);
            let mut keys: Vec<_> = keys.map(example).collect();
            if key.name == "bidirectional" {
                keys.push("position = rel_pos_bias".to_owned());
            }
            if ["grid", "kv_grid", "prefix_tokens"].contains(&key.name) {
                keys.push("mask = same_row".to_owned());
            }
            if ["kv_grid", "prefix_tokens"].contains(&key.name) {
                keys.push("grid = [3, 4]".to_owned());
            }
            let operand = match (operation.name, key.name) {
                ("embedding" | "learned_position" | "sinusoidal_position" | "one_hot", _) => {
                    "tokens"
                }
                (_, "d_context" | "kv_grid") => "x, context = x",
                (_, "d_values") => "x, context = x, values = x",
                ("grouped_linear", _) => "x, tokens",
                _ => "x",
            };
            if operation.name == "module" {
                keys.insert(0, "Linear<8, 3>".to_owned());
            }
            let source = format!(
                "struct M<d_model = 512>;
                 fn forward(x: [batch, seq, d_model], tokens: ids[batch, seq]) -> [batch, seq, 3] {{
                     let y = {}::<{}>({operand});
                     y + tokens + x
                 }}",
                operation.name,
                keys.join(", ")
            );
            let errors = errors_of(&source);
            let of_sum = |error: &(String, String)| error.0 == "+";
            assert!(
                !errors.is_empty() && errors.iter().all(of_sum),
                "{source}: {errors:?}"
            );
        }
    }
}

#[test]
fn the_help_for_a_missing_probability_is_one() {
    let source = "struct M; fn forward(x: [batch, 8]) -> [batch, 8] { dropout(x) }";
    let found = reports(&expand(source)).remove(0);
    let message = "`dropout` needs the key `p`\nhelp: `dropout::<p = 0.1>(..)`";
    assert_eq!(found.message, message);
}

#[test]
fn two_models_have_two_names() {
    let model = "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] { x + x }";
    let message = "the model `M` is declared twice".to_owned();
    assert_eq!(
        errors_of(&format!("{model} {model}")),
        [("M".to_owned(), message)]
    );
    let cfgs = format!("#[cfg(a)] {model} #[cfg(not(a))] {model}");
    assert_eq!(errors_of(&cfgs), []);
}

#[test]
fn a_tied_call_of_a_block_has_no_name_and_no_call_has_two() {
    let errors = |calls: &str| {
        errors_of(&format!(
            "struct M<d = 8>; fn forward(x: [batch, d]) -> [batch, d] {{ {calls} }}
            block net(x: [batch, d]) -> [batch, d] {{ linear::<d>(x) }}"
        ))
    };
    let twice = errors("net::<name = a, name = b>(x)");
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert_eq!(twice[0].1, "the key `name` is given twice");
    let tied = errors("net::<tied = first, name = second>(net::<name = first>(x))");
    assert_eq!(tied.len(), 1, "{tied:?}");
    assert!(tied[0].1.starts_with("`name` has no effect beside `tied`"));
}
