//! The patterns that each pass over the block of a layer finds, and those that it leaves.

use super::{names, story};
use crate::graph::block::LayerBlock;
use crate::graph::passes::{
    flatten_heads, leave_biases, load_transforms, name_values, pack_projections,
};
use crate::model::graph::ValueId;
use crate::model::types::{Axis, Type};
use crate::ops::attention_layer::{
    Attend, HeadTransform, LayerOp, Linear, Norm, PerHeadLinear, Similarity, TransformHeads,
};
use crate::pipeline::fuse_layer;
use crate::spec::{Normalizer, Real, Rotary, Size, TalkingHeads};
use crate::tests::support::build;

/// Operations of which the result of the last one is that of all.
struct Builder(LayerBlock);

impl Builder {
    fn new() -> Self {
        let mut layer = LayerBlock::new();
        let x = layer.add_value("x", vector());
        layer.inputs.push(x);
        Builder(layer)
    }

    fn push(&mut self, name: &str, op: impl LayerOp + 'static, operands: &[ValueId]) -> ValueId {
        self.0.push(name, op, operands, vector())
    }

    fn linear(&mut self, name: &'static str, x: ValueId) -> ValueId {
        self.push(name, Linear::new(name), &[x])
    }

    fn transform(&mut self, name: &str, how: HeadTransform, x: ValueId) -> ValueId {
        let heads = Size::known(2);
        self.push(name, TransformHeads { heads, how }, &[x])
    }

    fn attend(&mut self, operands: [ValueId; 3]) -> ValueId {
        let attend = Attend {
            similarity: Similarity::Dot,
            functions: Vec::new(),
            mask: None,
            normalizer: Normalizer::Softmax,
            talking: TalkingHeads::default(),
            dropout: None,
            parts: None,
            loads: vec![HeadTransform::default(); 3],
            given: 0,
        };
        self.push("attended", attend, &operands)
    }
}

fn vector() -> Type {
    Type::floats(vec![Axis::Size(Size::known(4))])
}

/// The input.
const X: ValueId = ValueId(0);

fn norm() -> HeadTransform {
    HeadTransform::norm(Norm::L2(Real::known(1e-6)))
}

fn rope() -> HeadTransform {
    HeadTransform::rope(
        Rotary {
            theta: Real::known(1e4),
            scaling: None,
            dims: Size::known(4),
            interleaved: false,
            position_ids: false,
        },
        false,
    )
}

/// The transforms of queries, keys and values as they are loaded: `L2+rope`.
fn loaded(steps: &LayerBlock) -> Vec<String> {
    let loads = super::attention(steps).loads.iter();
    loads.map(super::transform).collect()
}

#[test]
fn every_operation_of_vectors_is_a_step_before_the_passes() {
    let source = "struct L<heads = 2, d_model = 8, qk_norm = rms, position = rope>;";
    let (_, graph) = build(source);
    let mut steps = graph.block.clone();
    flatten_heads(&mut steps);
    let expected = [
        "q = q_proj(x)",
        "q = Rms(Factor, \"q_norm\")(q)",
        "q = +rope(q)",
        "k = k_proj(x)",
        "k = Rms(Factor, \"k_norm\")(k)",
        "k = +rope(k)",
        "v = v_proj(x)",
        "attended = attention(q, k, v)",
        "output = o_proj(attended)",
    ];
    assert_eq!(story(&steps), expected);
}

#[test]
fn packing_takes_the_projections_of_one_value() {
    let mut builder = Builder::new();
    let a = builder.linear("a", X);
    let b = builder.linear("b", X);
    let c = builder.transform("c", norm(), b);
    let d = builder.linear("d", c);
    builder.attend([a, d, b]);
    let mut steps = builder.0;
    pack_projections(&mut steps);
    let expected = [
        "a_b = a+b(x)",
        "c = L2(b)",
        "d = d(c)",
        "attended = attention(a, d, b)",
    ];
    assert_eq!(story(&steps), expected);
    let whole = steps.block().memory(a);
    assert_eq!(names(&steps, &steps.block().parts(whole)), ["a", "b"]);
    let width = steps.value(whole).ty.width().and_then(|width| width.value);
    assert_eq!(width, Some(8));
}

#[test]
fn packing_leaves_what_another_projection_reads() {
    let mut builder = Builder::new();
    let a = builder.linear("a", X);
    let b = builder.linear("b", X);
    let c = builder.linear("c", a);
    builder.attend([b, c, b]);
    let mut steps = builder.0;
    let before = story(&steps);
    pack_projections(&mut steps);
    assert_eq!(story(&steps), before);
}

#[test]
fn a_norm_and_then_a_rotation_are_loaded_at_once() {
    let mut builder = Builder::new();
    let q = builder.transform("q", norm(), X);
    let q = builder.transform("q", rope(), q);
    let k = builder.transform("k", rope(), X);
    builder.attend([q, k, X]);
    let mut steps = builder.0;
    load_transforms(&mut steps);
    assert_eq!(story(&steps), ["attended = attention(x, x, x)"]);
    assert_eq!(loaded(&steps), ["L2+rope", "+rope", ""]);
}

#[test]
fn a_rotation_and_then_a_norm_are_two_steps() {
    let mut builder = Builder::new();
    let q = builder.transform("q", rope(), X);
    let q = builder.transform("q", norm(), q);
    builder.attend([q, X, X]);
    let mut steps = builder.0;
    load_transforms(&mut steps);
    name_values(&mut steps);
    assert_eq!(
        story(&steps),
        ["q = +rope(x)", "attended = attention(q, x, x)"]
    );
    assert_eq!(loaded(&steps), ["L2", "", ""]);
}

#[test]
fn a_transform_stays_where_another_step_reads_it() {
    let mut builder = Builder::new();
    let q = builder.transform("q", norm(), X);
    let map = PerHeadLinear {
        heads: Size::known(2),
        field: "map",
    };
    let k = builder.push("k", map, &[q]);
    builder.attend([q, k, q]);
    let mut steps = builder.0;
    load_transforms(&mut steps);
    let expected = ["q = L2(x)", "k = map(q)", "attended = attention(x, k, q)"];
    assert_eq!(story(&steps), expected);
    assert_eq!(loaded(&steps), ["L2", "", ""]);
}

#[test]
fn a_bias_is_not_left_to_attention_where_another_step_reads_the_product() {
    let (_, graph) = build("struct L<heads = 2, d_model = 8>;");
    let left = |read_beside: bool| {
        let mut builder = Builder::new();
        let q = builder.linear("q_proj", X);
        let k = match read_beside {
            true => builder.transform("k", norm(), q),
            false => q,
        };
        builder.attend([q, k, q]);
        let mut steps = builder.0;
        leave_biases(|field| graph.has_bias(field), &mut steps);
        let linear = steps.nodes().find_map(|node| node.op.description().linear);
        linear.expect("a projection").leaves_bias
    };
    assert!(left(false));
    assert!(!left(true));
}

#[test]
fn every_value_in_memory_has_a_name_of_its_own() {
    let source = "struct L<heads = 2, d_model = 8, score = bilinear, qk_norm = l2>;";
    let (_, graph) = build(source);
    let steps = fuse_layer(&graph).expect("the kernels know every key");
    let results: Vec<_> = steps.nodes().map(|node| node.result).collect();
    let expected = ["q_k_v", "q", "q_prepared", "attended", "output"];
    assert_eq!(names(&steps, &results), expected);
}
