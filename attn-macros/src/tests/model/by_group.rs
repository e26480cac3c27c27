//! Rows between two maps by group, in the order of their groups.

use super::lower;
use crate::model::graph::Model;
use crate::ops::{ByGroup, Fusion};

/// Of each map of the fused form: whether its input and its result have their rows in the order of the groups.
fn orders(model: &Model) -> Vec<[bool; 2]> {
    let nodes = model.grouped.nodes().into_iter();
    let maps = nodes.filter_map(|node| match node.fusion() {
        Fusion::Grouped(map) => Some(map.order()),
        _ => None,
    });
    maps.map(|ByGroup { input, result }| [input, result])
        .collect()
}

/// The model has maps `map` of 3 groups that `i` and `j` choose, and `gate`.
#[track_caller]
fn assert_orders(result: &str, body: &str, expected: &[[bool; 2]]) {
    let body = body.replace("map(", "grouped_linear::<d, 3>(");
    let inputs = [("gate", "gate: [batch, seq]"), ("j", "j: ids[batch, seq]")];
    let read = inputs.iter().filter(|(name, _)| {
        let mut words = body.split(|c: char| !c.is_alphanumeric());
        words.any(|word| word == *name)
    });
    let others: String = read.map(|(_, input)| format!(", {input}")).collect();
    let source = format!(
        "struct M<d = 4>; fn forward(x: [batch, seq, d], i: ids[batch, seq]{others}) -> {result} {{ {body} }}"
    );
    assert_eq!(orders(&lower(&source)), expected, "{body}");
}

const SAME: &str = "[batch, seq, d]";
const FIRST: [bool; 2] = [false, true];
const LAST: [bool; 2] = [true, false];
const NEITHER: [bool; 2] = [false, false];

#[test]
fn rows_between_two_maps_of_the_same_ids_stay_by_group() {
    for between in [
        "map(map(x, i), i)",
        "map(relu(map(x, i)), i)",
        "map(layer_norm(map(x, i)), i)",
        "map(softmax(map(x, i)), i)",
        "param gain: [d] = 1; map(map(x, i) * gain, i)",
        "let h = grouped_linear::<2, 3>(map(x, i)[d = ..2], i); concat(h, h)",
        "map(grouped_linear::<7, 3, capacity_factor = 1.5>(x, i), i)",
        "map(grouped_linear::<7, 5>(x, i), i)",
    ] {
        assert_orders(SAME, between, &[FIRST, LAST]);
    }
    let gated = "map(silu(map(x, i)) * map(x, i), i)";
    assert_orders(SAME, gated, &[FIRST, FIRST, LAST]);
    let three = "map(relu(map(relu(map(x, i)), i)), i)";
    assert_orders(SAME, three, &[FIRST, [true, true], LAST]);
    let rounds = "let mut x = x; repeat 2 { x += map(relu(map(x, i)), i); } x";
    assert_orders(SAME, rounds, &[FIRST, LAST]);
}

#[test]
fn rows_that_something_else_reads_stand_in_the_order_of_the_ids() {
    for read in [
        "map(dropout::<0.1>(map(x, i)), i)",
        "map(map(x, i), j)",
        "let h = map(x, i); map(h, i) + h",
        "map(map(x, i) + x, i)",
        "map(map(x, i) * gate, i)",
        "map(detach(map(x, i)), i)",
        "let h = map(x, i); map(h, i) + mean::<seq>(h)",
        "let mut h = map(x, i); repeat 2 { h = tanh(h); } map(h, i)",
        "let h = map(x, i); let mut y = x; repeat 2 { y = y + h; } map(h, i) + y",
    ] {
        assert_orders(SAME, read, &[NEITHER, NEITHER]);
    }
    let returned = "let h = map(x, i); (map(h, i), h)";
    let pair = "([batch, seq, d], [batch, seq, d])";
    assert_orders(pair, returned, &[NEITHER, NEITHER]);
    // One of three reads a value in the order of the ids: then none of the values that it is computed with is by group.
    let one = "let a = map(x, i); let b = map(x, i); map(a * b, i) + b";
    assert_orders(SAME, one, &[NEITHER, NEITHER, NEITHER]);
}
