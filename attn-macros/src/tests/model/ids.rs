//! Mistakes with ids, and what is known of computed ones.

use super::lower;
use super::mistakes::errors_of;

fn errors(statements: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<d = 8, n = 3>; fn forward(x: [batch, seq, d], tokens: ids[batch, seq], last: ids[batch], lens: lens[batch],
            keep: bool[batch, seq], four: [batch, seq, n, d]) -> [batch, d] {{
            let _a = tokens; let _b = lens; let _c = x; let _d = keep; let _e = last; let _f = four; let _g = 0 * x[seq = 0, d = 0..n]; {statements}
        }}"
    ))
}

macro_rules! mistakes {
    ($($name:ident: $statements:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors($statements), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    an_index_of_floats: "x[seq = x]", "seq", "`seq = x`: an axis is indexed by constants or by ids, found [batch, seq, 8]";
    an_index_of_lengths: "x[seq = lens]", "seq", "`seq = lens`: an axis is indexed by constants or by ids, found lens[batch]";
    an_axis_in_place_of_ids: "x[seq]", "seq", "expected an axis and an index or a range of it, found `seq`";
    a_number_in_place_of_ids: "x[0]", "0", "expected an axis and an index or a range of it, found `0`";
    an_empty_list: "x[seq = []]", "seq", "expected indices, found none";
    a_listed_index_beyond: "x[d = [0, 8]][seq = 0]", "8", "there is no index `8` of `d`, whose size is 8";
    ids_of_a_larger_axis: "x[seq = 0] + sum::<batch>(one_hot::<n>(argmax::<d>(x)))[seq = 0, n = 0]", "one_hot",
        "`one_hot`: the ids are below 8, and the axis has size 3";
    the_largest_of_nothing: "x[seq = argmax(x)]", "argmax", "`argmax` needs the key `axis`";
    more_than_there_are: "let (a, _b) = top_k::<k = 9>(x); a[seq = 0]", "top_k", "`top_k`: there are no 9 numbers along an axis of size 8";
    one_name: "let (a,) = top_k::<k = 2>(x); a[seq = 0, d = 0] + x[seq = 0]", "top_k", "`top_k` has two results, found 1 name";
    no_names: "top_k::<k = 2>(x)", "top_k", "`top_k` has several results, and each needs a name";
    no_floats_are_detached: "detach(tokens)", "detach", "`detach` takes floats, found ids[batch, seq]";
    ids_in_a_loop: "let mut t = last; let mut y = x; repeat 2 { t = argmax::<seq>(y[d = 0]); y = gelu(y); } y[seq = t]", "t",
        "a `repeat` changes floats, and `t` is ids[batch]";
    sums_without_an_axis: "scatter_add::<[batch, d]>(x, tokens)", "scatter_add",
        "`scatter_add`: [batch, seq, 8] has all axes of [batch, 8], and the ids are indices of one of them";
    sums_of_other_numbers: "scatter_add::<[batch, n, d]>(x[seq = 0], tokens)[n = 0]", "scatter_add",
        "`scatter_add` to [batch, 3, 8] by ids[batch, seq] along `3` takes [batch, seq, 8], found [batch, 8]";
    lengths_of_another_axis: "sum::<d>(x, keep) + x[seq = 0]", "sum",
        "`sum` takes lens[batch, seq] or bool[batch, seq, 8] as its second operand, which says what counts, found bool[batch, seq]";
    losses_of_floats: "x[seq = 0] * cross_entropy(x, x)", "cross_entropy", "`cross_entropy` takes floats and ids, found [batch, seq, 8]";
    losses_of_other_targets: "x[seq = 0] * cross_entropy(x, last)", "cross_entropy",
        "`cross_entropy` of ids[batch] takes logits [batch, 8], found [batch, seq, 8]";
    targets_below_more_than_the_classes: "x[seq = 0] * cross_entropy(x[seq = 0, d = ..3], argmax::<d>(x[seq = 0]))", "cross_entropy",
        "`cross_entropy`: the ids are below 8, and the axis has size 3";
    too_much_smoothing: "x[seq = 0] * cross_entropy::<label_smoothing = 1.5>(x, tokens)", "1.5",
        "`label_smoothing` must be from 0 to 1, found 1.5";
    an_unknown_reduction: "x[seq = 0] * cross_entropy::<reduction = sum>(x, tokens)", "sum", "`reduction` has no value `sum`";
    floats_as_floats: "float(x)[seq = 0]", "float", "`float` takes ids, lengths or a mask, found [batch, seq, 8]";
    ids_as_a_condition: "if last { x[seq = 0] } else { x[seq = 1] }", "last", "expected a comparison, found the value `last` alone";
    marks_between_statements: "if keep { let _y = x; } x[seq = 0]", "keep",
        "a choice between statements needs a condition of constants, found a value with axes";
    expanded_to_fewer_axes: "expand::<[batch, d]>(x)", "expand", "`expand`: [batch, seq, 8] cannot be repeated to [batch, 8]";
    expanded_along_no_axis: "x[seq = 0] * expand::<[n, d]>(x[seq = 0])", "expand", "`expand`: [batch, 8] cannot be repeated to [3, 8]";
    expanded_to_an_axis_of_size_1: "x[seq = 0] * expand::<[batch, 1]>(x[seq = 0])", "expand",
        "`expand`: [batch, 8] cannot be repeated to [batch, 1]";
    expanded_without_axes: "expand(x[seq = 0])", "expand", "`expand` needs the key `out`";
    groups_of_floats: "grouped_linear::<d, groups = 3>(x, x)[seq = 0]", "grouped_linear", "`grouped_linear` takes floats and ids, found [batch, seq, 8]";
    groups_alone: "x[seq = 0] * grouped_linear::<d, groups = 3>(last)", "grouped_linear",
        "`grouped_linear` takes `[.., in]` and `ids[..]` to `[.., out]`, and `ids[.., k]` to `[.., k, out]`, found 1 operands";
    groups_of_ids: "x[seq = 0] * grouped_linear::<d, groups = 3>(last, last)", "grouped_linear", "`grouped_linear` takes floats, found ids[batch]";
    no_number_of_groups: "grouped_linear::<d>(x, tokens)[seq = 0]", "grouped_linear", "`grouped_linear` needs the key `groups`";
    groups_of_other_rows: "grouped_linear::<d, groups = 3>(x[seq = 0], argmax::<batch>(x))", "grouped_linear",
        "`grouped_linear`: one group for each row, or several: x is [batch, 8], the groups are ids[seq, 8]";
    more_ids_than_groups: "grouped_linear::<d, groups = 3>(x, argmax::<d>(x))[seq = 0]", "grouped_linear",
        "`grouped_linear`: the ids are below 8, and the axis has size 3";
    a_capacity_of_nothing: "grouped_linear::<d, groups = 3, capacity_factor = 0>(x, tokens)[seq = 0]", "0", "`capacity_factor` must be positive and finite, found 0";
    too_many_axes_of_groups: "let (_v, i) = top_k::<n, k = 2>(four); grouped_linear::<d, groups = 3>(x, i)[seq = 0]", "grouped_linear",
        "the result of this `grouped_linear` has 5 axes, and a value has at most 4";
    what_counts_of_two_axes: "x[seq = 0] * sum::<[seq, d]>(x, keep)", "sum", "`sum` with a second operand is along one axis, found 2";
}

/// Nothing is checked at the call where the ids are indices of the axis itself.
#[test]
fn computed_ids_of_an_axis_are_indices_of_it() {
    let model = lower(
        "struct M<d = 8>; fn forward(x: [batch, seq, d]) -> [batch, d] { x[seq = argmax::<seq>(sum::<d>(x))] }",
    );
    let ids = model
        .values
        .iter()
        .find(|value| value.ty.to_string() == "ids[batch]");
    assert!(ids.is_some());
}

/// The type of each value of a model that has no mistakes.
fn types(items: &str) -> Vec<String> {
    let model = lower(&format!("struct M<d = 8, n = 3, vocab = 5>; {items}"));
    let values = model.values.iter();
    values.map(|value| value.ty.to_string()).collect()
}

#[test]
fn ids_have_other_names_of_axes_and_stand_in_blocks() {
    let found = types(
        "block rows(table: [vocab, d], of: ids[..]) -> [.., d] { table[of] }
         block best(x: [.., n]) -> [.., d] { param gains: [n, d] = ones; gains[argmax::<n>(x)] }
         fn forward(tokens: ids[batch, seq]) -> [batch, seq, d] {
            param table: [vocab, d] = ones;
            let x = rows(table, tokens);
            let scores = einsum::<[batch, seq, kv]>(x, rows(table, tokens as [batch, kv = seq]));
            let (_values, near) = top_k::<kv, k = 1>(scores);
            let y = x as [batch, kv = seq, d];
            x + sum::<1>(y[kv = near]) + best(linear::<n>(x))
        }",
    );
    for expected in [
        "ids[batch, seq, 1]",
        "[batch, seq, 1, 8]",
        "ids[batch, seq]",
    ] {
        assert!(found.contains(&expected.to_owned()), "{found:?}");
    }
}
