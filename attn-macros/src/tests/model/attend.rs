//! Mistakes with `attend`, and what it takes over.

use super::lower;
use super::mistakes::errors_of;

fn errors(call: &str) -> Vec<(String, String)> {
    errors_of(&format!(
        "struct M<heads = 4, few = 2, odd = 3, d = 8, e = 5>;
        fn forward(q: [batch, seq, heads, d], k: [batch, seq, few, d], other: [batch, kv, odd, d], v: [batch, seq, few, e],
            plain: [batch, seq, 2, 8], wide: [batch, seq, heads, e], any: [batch, kv, seq, d], lens: lens[batch]) -> [batch, seq, heads, e] {{
            let _a = q; let _b = k; let _c = other; let _d = v; let _e = plain; let _f = wide; let _g = any; let _h = lens; {call}
        }}"
    ))
}

macro_rules! mistakes {
    ($($name:ident: $call:literal, $at:literal, $message:literal;)*) => {$(
        #[test]
        fn $name() {
            assert_eq!(errors($call), [($at.to_owned(), $message.to_owned())]);
        }
    )*};
}

mistakes! {
    two_operands: "attend(q, k)", "attend",
        "`attend` takes three operands by their position, found 2";
    lengths_as_queries: "attend(lens, k, v)", "lens", "`attend` takes floats, found lens[batch]";
    heads_without_a_name: "attend::<kv_heads = few>(plain, k, v)", "attend",
        "`attend` takes [batch, seq, heads, width], these axes but the width in any order, without `batch` or without `heads`: which axis of [batch, seq, 2, 8] are the heads?";
    no_such_heads: "attend::<kv_heads = odd>(q, k, other)", "odd", "there is no axis `odd` in [batch, seq, 2, 8]";
    heads_that_do_not_divide: "attend::<kv_heads = odd, mask = causal(upper_left)>(q, other, other)", "attend",
        "4 heads cannot share 3 key/value heads evenly";
    keys_of_another_width: "attend(wide, wide, wide) + attend::<kv_heads = few>(wide, k, v)", "attend",
        "`attend`: the widths of q and k differ: q is [batch, seq, 4, 5], k is [batch, seq, 2, 8], v is [batch, seq, 2, 5]";
    values_of_another_sequence: "attend(q, q, any) + wide", "attend",
        "`attend` takes [batch, seq, heads, width], these axes but the width in any order, without `batch` or without `heads`: which axis of [batch, kv, seq, 8] are the heads?";
    a_number_of_heads_that_is_not_constant: "attend::<heads = kv>(any, q, q)", "attend",
        "the number of heads is a constant, found the axis `kv` of [batch, kv, seq, 8]";
    a_key_of_projections: "attend::<bias = false, kv_heads = few>(q, k, v)", "bias",
        "`attend` has no key `bias`";
    another_hidden_layer: "attend::<kv_heads = few, score = additive(7)>(q, k, v)", "7",
        "`hidden` of `additive` is the width of the queries and keys, 8, found 7";
    lengths_that_are_missing: "attend::<kv_heads = few, mask = padding>(q, k, v)", "attend",
        "this `attend` reads `padding`, and is not given it";
    one_name_in_parentheses: "let (y) = attend::<kv_heads = few>(q, k, v); y", "attend",
        "`attend` has up to three results, found 1 name";
    four_names: "let (y, _a1, _b1, _c1) = attend::<kv_heads = few>(q, k, v); y", "attend",
        "`attend` has up to three results, found 4 names";
    a_sum_of_sparse_weights: "let (y, _weights, lse) = attend::<kv_heads = few, normalizer = entmax15>(q, k, v); y + sum::<seq>(lse)", "lse",
        "the weights of this `attend` are not divided by a sum of exponentials, so there is no logarithm of it";
    a_sum_of_single_weights: "let (y, _weights, lse) = attend::<kv_heads = few>(q, k, v) { fn normalize(score) { score } }; y + sum::<seq>(lse)", "lse",
        "the weights of this `attend` are not divided by a sum of exponentials, so there is no logarithm of it";
    results_by_name: "let { y, weights, .. } = attend::<kv_heads = few>(q, k, v); y + sum::<[heads, seq]>(weights)", "attend",
        "the results of `attend` have no names";
    weights_that_nobody_reads: "let (y, weights) = attend::<kv_heads = few>(q, k, v); y", "weights",
        "the value of `weights` is never used";
}

/// The number of operands of each operation of the fused form.
fn arities(statements: &str) -> Vec<usize> {
    let sizes = match statements.contains("heads") {
        true => "d = 8, heads = 2, width = 4",
        false => "d = 8",
    };
    let model = lower(&format!(
        "struct M<{sizes}>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ {statements} }}"
    ));
    let nodes = model.grouped.nodes().into_iter();
    nodes.map(|node| node.operands.len()).collect()
}

#[test]
fn an_attend_takes_the_projections_that_it_alone_reads() {
    let operations = arities("attend(linear::<d>(x), linear::<d>(x), linear::<d>(x))");
    assert_eq!(operations, [1], "one operation, which reads `x`");
    let shared = arities("let k = linear::<d>(x); attend(linear::<d>(x), k, k)");
    assert_eq!(shared, [1, 3], "`k` is read twice, so it is computed");
    let returned = arities("let k = linear::<d>(x); k + attend(linear::<d>(x), k, linear::<d>(x))");
    assert_eq!(returned, [1, 2, 2], "`k` is read by the sum, too");
}

/// How many results each operation has.
fn results(statements: &str) -> Vec<usize> {
    let sizes = match statements.contains("heads") {
        true => "d = 8, heads = 2",
        false => "d = 8",
    };
    let model = lower(&format!(
        "struct M<{sizes}>; fn forward(x: [batch, seq, d]) -> [batch, seq, d] {{ {statements} }}"
    ));
    let nodes = model.grouped.nodes().into_iter();
    nodes.map(|node| node.results().count()).collect()
}

#[test]
fn results_that_nobody_reads_are_not_there() {
    assert_eq!(
        results("let (y, _weights, _lse) = attend(x, x, x); y"),
        [1],
        "without an axis of heads there is no reshape, either"
    );
    assert_eq!(
        results("let (y, _weights, _lse) = attention::<heads>(x); y"),
        [1]
    );
    assert_eq!(
        results("let (y, _weights, lse) = attention::<heads>(x); y + mean::<heads>(lse)"),
        [2, 1, 1]
    );
    let in_rounds = "let mut y = x; repeat 2 { let (z, weights) = attention::<heads>(y); let _unread = weights; y = z; } y";
    assert_eq!(results(in_rounds), [1], "a name is no reader");
}

/// In self-attention the queries and the keys are one axis, by two names.
#[test]
fn the_axis_of_the_keys_has_a_name_of_its_own() {
    for (inputs, statements) in [
        (
            "x: [batch, seq, d]",
            "let (y, weights) = attention::<heads>(x); y + mean::<[heads, kv]>(weights)",
        ),
        (
            "x: [batch, kv, d]",
            "let (y, weights) = attention::<heads>(x); y + mean::<[heads, kv_2]>(weights)",
        ),
        (
            "x: [batch, seq, d], kv: [batch, kv, d]",
            "let (y, weights) = attention::<heads>(x); y + mean::<[heads, kv_2]>(weights) + mean::<kv>(kv)",
        ),
    ] {
        let seq = if inputs.starts_with("x: [batch, kv") {
            "kv"
        } else {
            "seq"
        };
        let model = lower(&format!(
            "struct M<d = 8, heads = 2>; fn forward({inputs}) -> [batch, {seq}, d] {{ {statements} }}"
        ));
        assert!(!model.poisoned, "{inputs}");
    }
}

#[test]
fn heads_that_change_places_and_back_are_not_moved() {
    let operations = arities(
        "let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d>(x));
         let k = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d>(x));
         let v = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d>(x));
         rearrange::<[batch, seq, (heads, width)]>(attend(q, k, v))",
    );
    assert_eq!(operations, [1]);
}
