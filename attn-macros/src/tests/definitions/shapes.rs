//! The graphs of some specs, with the shape of every node.

use std::fmt::Write;

use crate::graph::block::dim;
use crate::graph::{Dim, Graph};
use crate::model::graph::ValueId;
use crate::model::types::Type;
use crate::ops::attention_layer::{LayerOp, Norm};
use crate::tests::support::build;

fn shape(dims: &[Dim]) -> String {
    let dims = dims.iter().map(|dim| match dim {
        Dim::Batch => "batch".to_owned(),
        Dim::Query => "query".to_owned(),
        Dim::Key => "key".to_owned(),
        Dim::Size(size) => size.to_string(),
    });
    format!("[{}]", dims.collect::<Vec<_>>().join(", "))
}

fn operation(op: &dyn LayerOp, result: &Type) -> &'static str {
    let description = op.description();
    match (description.transform, description.is_view) {
        (Some(transform), _) => match (&transform.how.norm, &transform.how.rope) {
            (Some(Norm::Rms { .. }), None) => "rms_norm",
            (Some(Norm::L2(_)), None) => "l2_norm",
            (None, Some(_)) => "rope",
            both => panic!("{both:?} is more than one operation"),
        },
        (None, true) if result.axes.len() == 4 => "split_heads",
        (None, true) => "merge_heads",
        _ if description.linear.is_some() => "linear",
        _ if description.attention.is_some() => "attend",
        _ => "per_head_linear",
    }
}

/// Parameters, then nodes, one per line.
fn outline(keys: &str) -> String {
    let (_, graph) = build(&format!("struct L<{keys}>;"));
    let mut text = String::new();
    for param in &graph.params {
        for (tensor, dims, _) in param.tensors() {
            let dims: Vec<_> = dims.into_iter().map(Dim::Size).collect();
            let _ = writeln!(text, "{}.{tensor}: {}", param.field, shape(&dims));
        }
    }
    let block = &graph.block;
    let mut line = |value: ValueId, operation: &str, operands: &[ValueId]| {
        let value = block.value(value);
        let operands = operands.iter().map(|id| &*block.value(*id).name);
        let operands: Vec<_> = operands.collect();
        let axes: Vec<_> = value.ty.axes.iter().map(dim).collect();
        let (name, operands, shape) = (&value.name, operands.join(", "), shape(&axes));
        let _ = writeln!(text, "{name} = {operation}({operands}): {shape}");
    };
    for (input, name) in block.inputs.iter().zip(["input", "context"]) {
        line(*input, name, &[]);
    }
    for node in block.nodes() {
        let operation = operation(&*node.op, &block.value(node.result).ty);
        line(node.result, operation, &node.operands);
    }
    text + &results(&graph)
}

fn results(graph: &Graph) -> String {
    let output = graph.block.value(graph.block.output());
    let axes: Vec<_> = output.ty.axes.iter().map(dim).collect();
    let (output, weights) = (
        format!("{} {}", output.name, shape(&axes)),
        shape(&graph.weights),
    );
    format!("-> {output}, weights {weights}")
}

#[test]
fn self_attention_has_its_shapes() {
    insta::assert_snapshot!(outline("heads = 8, d_model = 512"), @r#"
q_proj.weight: [512, 512]
q_proj.bias: [512]
k_proj.weight: [512, 512]
k_proj.bias: [512]
v_proj.weight: [512, 512]
v_proj.bias: [512]
o_proj.weight: [512, 512]
o_proj.bias: [512]
x = input(): [batch, query, 512]
q = linear(x): [batch, query, 512]
q = split_heads(q): [batch, 8, query, 64]
k = linear(x): [batch, query, 512]
k = split_heads(k): [batch, 8, query, 64]
v = linear(x): [batch, query, 512]
v = split_heads(v): [batch, 8, query, 64]
attended = attend(q, k, v): [batch, 8, query, 64]
merged = merge_heads(attended): [batch, query, 512]
output = linear(merged): [batch, query, 512]
-> output [batch, query, 512], weights [batch, 8, query, key]
"#);
}

#[test]
fn grouped_heads_of_other_widths_have_their_shapes() {
    insta::assert_snapshot!(
        outline("heads = 6, kv_heads = 2, d_model = 10, head_dim = 4, value_head_dim = 5, \
                 qk_norm = rms, position = rope, bias = [q, o], dropout = 0.1"),
        @r#"
q_proj.weight: [24, 10]
q_proj.bias: [24]
q_norm.weight: [4]
k_proj.weight: [8, 10]
k_norm.weight: [4]
v_proj.weight: [10, 10]
o_proj.weight: [10, 30]
o_proj.bias: [10]
x = input(): [batch, query, 10]
q = linear(x): [batch, query, 24]
q = split_heads(q): [batch, 6, query, 4]
q = rms_norm(q): [batch, 6, query, 4]
q = rope(q): [batch, 6, query, 4]
k = linear(x): [batch, query, 8]
k = split_heads(k): [batch, 2, query, 4]
k = rms_norm(k): [batch, 2, query, 4]
k = rope(k): [batch, 2, query, 4]
v = linear(x): [batch, query, 10]
v = split_heads(v): [batch, 2, query, 5]
attended = attend(q, k, v): [batch, 6, query, 5]
merged = merge_heads(attended): [batch, query, 30]
output = linear(merged): [batch, query, 10]
-> output [batch, query, 10], weights [batch, 6, query, key]
"#
    );
}

#[test]
fn additive_cross_attention_has_its_shapes() {
    insta::assert_snapshot!(
        outline("heads = 2, d_model = 8, d_context = 6, score = additive(hidden = 5), bias = false, mask = padding"),
        @r#"
q_proj.weight: [10, 8]
k_proj.weight: [10, 6]
v_proj.weight: [8, 6]
score_proj.weight: [2, 5]
o_proj.weight: [8, 8]
x = input(): [batch, query, 8]
context = context(): [batch, key, 6]
q = linear(x): [batch, query, 10]
q = split_heads(q): [batch, 2, query, 5]
k = linear(context): [batch, key, 10]
k = split_heads(k): [batch, 2, key, 5]
v = linear(context): [batch, key, 8]
v = split_heads(v): [batch, 2, key, 4]
attended = attend(q, k, v): [batch, 2, query, 4]
merged = merge_heads(attended): [batch, query, 8]
output = linear(merged): [batch, query, 8]
-> output [batch, query, 8], weights [batch, 2, query, key]
"#
    );
}

#[test]
fn bilinear_attention_with_buckets_has_its_shapes() {
    insta::assert_snapshot!(
        outline("heads = 2, d_model = 8, score = bilinear, qk_norm = l2, position = rel_pos_bias, bias = false"),
        @r#"
q_proj.weight: [8, 8]
score_proj.weight: [2, 4, 4]
k_proj.weight: [8, 8]
v_proj.weight: [8, 8]
rel_pos_bias.weight: [32, 2]
o_proj.weight: [8, 8]
x = input(): [batch, query, 8]
q = linear(x): [batch, query, 8]
q = split_heads(q): [batch, 2, query, 4]
q = l2_norm(q): [batch, 2, query, 4]
q = per_head_linear(q): [batch, 2, query, 4]
k = linear(x): [batch, query, 8]
k = split_heads(k): [batch, 2, query, 4]
k = l2_norm(k): [batch, 2, query, 4]
v = linear(x): [batch, query, 8]
v = split_heads(v): [batch, 2, query, 4]
attended = attend(q, k, v): [batch, 2, query, 4]
merged = merge_heads(attended): [batch, query, 8]
output = linear(merged): [batch, query, 8]
-> output [batch, query, 8], weights [batch, 2, query, key]
"#
    );
}

#[test]
fn shapes_refer_to_sizes_that_rustc_knows() {
    insta::assert_snapshot!(
        outline("heads = HEADS, kv_heads = 1, d_model = { 2 * WIDTH }, bias = false"),
        @r#"
q_proj.weight: [HEADS * ((2 * WIDTH) / HEADS), 2 * WIDTH]
k_proj.weight: [(2 * WIDTH) / HEADS, 2 * WIDTH]
v_proj.weight: [(2 * WIDTH) / HEADS, 2 * WIDTH]
o_proj.weight: [2 * WIDTH, HEADS * ((2 * WIDTH) / HEADS)]
x = input(): [batch, query, 2 * WIDTH]
q = linear(x): [batch, query, HEADS * ((2 * WIDTH) / HEADS)]
q = split_heads(q): [batch, HEADS, query, (2 * WIDTH) / HEADS]
k = linear(x): [batch, query, (2 * WIDTH) / HEADS]
k = split_heads(k): [batch, 1, query, (2 * WIDTH) / HEADS]
v = linear(x): [batch, query, (2 * WIDTH) / HEADS]
v = split_heads(v): [batch, 1, query, (2 * WIDTH) / HEADS]
attended = attend(q, k, v): [batch, HEADS, query, (2 * WIDTH) / HEADS]
merged = merge_heads(attended): [batch, query, HEADS * ((2 * WIDTH) / HEADS)]
output = linear(merged): [batch, query, 2 * WIDTH]
-> output [batch, query, 2 * WIDTH], weights [batch, HEADS, query, key]
"#
    );
}
