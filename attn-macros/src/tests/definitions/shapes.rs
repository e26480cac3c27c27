//! The graph of a few specs, every node with its shape.

use std::fmt::Write;

use crate::graph::{Dim, Graph, Op};
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

fn operation(op: &Op) -> &'static str {
    match op {
        Op::Input => "input",
        Op::Context => "context",
        Op::Linear { .. } => "linear",
        Op::SplitHeads { .. } => "split_heads",
        Op::MergeHeads { .. } => "merge_heads",
        Op::RmsNorm { .. } => "rms_norm",
        Op::L2Norm { .. } => "l2_norm",
        Op::Rope { .. } => "rope",
        Op::DotScores { .. } => "dot_scores",
        Op::AdditiveScores { .. } => "additive_scores",
        Op::PerHeadLinear { .. } => "per_head_linear",
        Op::MapScores { .. } => "map_scores",
        Op::Normalize { .. } => "normalize",
        Op::Dropout { .. } => "dropout",
        Op::Attend { .. } => "attend",
    }
}

/// Parameters, then nodes, a line each.
fn outline(keys: &str) -> String {
    let (_, graph) = build(&format!("struct L<{keys}>;"));
    let mut text = String::new();
    for param in &graph.params {
        for (tensor, dims, _) in param.tensors() {
            let dims: Vec<_> = dims.into_iter().map(Dim::Size).collect();
            let _ = writeln!(text, "{}.{tensor}: {}", param.field, shape(&dims));
        }
    }
    for node in &graph.nodes {
        let operands: Vec<_> = node
            .op
            .operands()
            .iter()
            .map(|id| graph.node(*id).name)
            .collect();
        let _ = writeln!(
            text,
            "{} = {}({}): {}",
            node.name,
            operation(&node.op),
            operands.join(", "),
            shape(&node.shape)
        );
    }
    text + &results(&graph)
}

fn results(graph: &Graph) -> String {
    let result = |id| {
        let node = graph.node(id);
        format!("{} {}", node.name, shape(&node.shape))
    };
    format!("-> {}, {}", result(graph.output), result(graph.weights))
}

#[test]
fn self_attention() {
    insta::assert_snapshot!(outline("heads = 8, d_model = 512"), @"");
}

#[test]
fn grouped_heads_of_their_own_widths() {
    insta::assert_snapshot!(
        outline("heads = 6, kv_heads = 2, d_model = 10, head_dim = 4, value_head_dim = 5, \
                 qk_norm = rms, position = rope, bias = [q, o], dropout = 0.1"),
        @""
    );
}

#[test]
fn additive_cross_attention() {
    insta::assert_snapshot!(
        outline("heads = 2, d_model = 8, d_context = 6, score = additive(hidden = 5), bias = false, mask = padding"),
        @""
    );
}

#[test]
fn bilinear_with_buckets() {
    insta::assert_snapshot!(
        outline("heads = 2, d_model = 8, score = bilinear, qk_norm = l2, position = rel_pos_bias, bias = false"),
        @""
    );
}

#[test]
fn sizes_that_rustc_knows() {
    insta::assert_snapshot!(
        outline("heads = HEADS, kv_heads = 1, d_model = { 2 * WIDTH }, bias = false"),
        @""
    );
}
