//! The steps of a layer in memory, and the order of their derivatives.

use proptest::prelude::*;

use super::{attention, names, steps, story};
use crate::graph::block::LayerBlock;
use crate::model::diff::{BackwardStep, GradTarget, diff};
use crate::ops::attention_layer::{Norm, Similarity};
use crate::pipeline::fuse_layer;
use crate::spec::GainKind;
use crate::tests::random::spec::valid_specs;
use crate::tests::support::{build, cases, expand};

#[test]
fn projections_of_one_input_are_one_product() {
    let steps = steps("struct L<heads = 2, d_model = 8>;");
    assert_eq!(
        story(&steps),
        [
            "q_k_v = q_proj+k_proj+v_proj(x)",
            "attended = attention(q, k, v)",
            "output = o_proj(attended)",
        ]
    );
}

#[test]
fn inputs_have_separate_products() {
    let steps = steps("struct L<heads = 2, d_model = 8, d_context = 6>;");
    assert_eq!(
        story(&steps),
        [
            "q = q_proj(x)",
            "k_v = k_proj+v_proj(context)",
            "attended = attention(q, k, v)",
            "output = o_proj(attended)",
        ]
    );
}

#[test]
fn a_score_of_places_alone_has_no_queries_and_keys() {
    let steps = steps(
        "struct L<heads = 2, d_model = 8, d_context = 6> { fn score(q_idx, kv_idx) { (q_idx - kv_idx) as f32 } }",
    );
    let expected = [
        "v = v_proj(context)",
        "attended = attention(v)",
        "output = o_proj(attended)",
    ];
    assert_eq!(story(&steps), expected);
}

#[test]
fn norms_and_rotations_happen_as_attention_loads() {
    let steps = steps("struct L<heads = 2, d_model = 8, qk_norm = rms, position = rope>;");
    assert_eq!(story(&steps).len(), 3);
    let attention = attention(&steps);
    let [query, key, _] = attention.transforms();
    let norms = [(&query, "q_norm"), (&key, "k_norm")];
    for (transform, expected) in norms {
        let Some(Norm::Rms { gain, field, .. }) = &transform.norm else {
            panic!("{:?}", transform.norm);
        };
        assert_eq!((*gain, *field), (GainKind::Factor, expected));
    }
    assert!(query.rope.is_some() && key.rope.is_some());
}

/// The expansion, as tokens.
fn emitted(source: &str) -> String {
    expand(source).to_string()
}

#[test]
fn a_bias_is_left_to_attention_where_nothing_else_reads_it() {
    let left = |source| {
        let steps = steps(source);
        let block = steps.block();
        let attention = attention(&steps);
        let loads = steps
            .nodes()
            .find(|node| node.op.description().attention.is_some());
        let operands = &loads.expect("an attention").operands;
        let loaded: Vec<_> = operands.iter().zip(&attention.loads).collect();
        let left = steps.nodes().map(|node| {
            let result = node.result;
            let loaded = loaded
                .iter()
                .filter(|(operand, _)| block.memory(**operand) == result);
            let left: Vec<_> = loaded
                .map(|(operand, how)| how.bias == Some(**operand))
                .collect();
            assert!(left.iter().all(|is_left| *is_left == left[0]), "{source}");
            let file = emitted(source);
            let name = &steps.value(result).name;
            let is_left = file.contains(&format!("weights . {name} . forward_without_bias"));
            assert_eq!(is_left, left.contains(&true), "{source}");
            is_left
        });
        left.collect::<Vec<_>>()
    };
    assert_eq!(
        left("struct L<heads = 2, d_model = 8>;"),
        [true, false, false]
    );
    assert_eq!(
        left("struct L<heads = 2, d_model = 8, bias = false>;"),
        [false; 3]
    );
    let crossed = left("struct L<heads = 2, d_model = 8, d_context = 6, qk_norm = l2>;");
    assert_eq!(crossed, [true, true, false, false]);
    let places = "struct L<heads = 2, d_model = 8> { fn score(kv_idx) { kv_idx as f32 } }";
    assert_eq!(left(places), [true, false, false]);
    // Its queries are first multiplied by the matrix of their head.
    let bilinear = "struct L<heads = 2, d_model = 8, score = bilinear>;";
    assert_eq!(left(bilinear), [false; 4]);
}

#[test]
fn values_with_another_reader_are_transformed_in_a_step_before() {
    let steps = steps("struct L<heads = 2, d_model = 8, score = bilinear, qk_norm = l2>;");
    assert_eq!(
        story(&steps),
        [
            "q_k_v = q_proj+k_proj+v_proj(x)",
            "q = L2(q)",
            "q_prepared = score_proj(q)",
            "attended = attention(q_prepared, k, v)",
            "output = o_proj(attended)",
        ]
    );
    let attention = attention(&steps);
    let [query, key, _] = attention.transforms();
    assert!(query.is_nothing());
    assert!(!key.is_nothing());
}

#[test]
fn the_scale_of_a_product_leaves_the_expression() {
    let scaled = steps("struct L<heads = 2, d_model = 8, scale = 0.3>;");
    let attention_of = attention(&scaled);
    assert!(attention_of.score().is_none());
    assert_eq!(attention_of.similarity, Similarity::Dot);
    let scale = attention_of.scale().and_then(|scale| scale.value);
    assert_eq!(scale, Some(0.3));
}

/// The derivatives: of which step, and for each gradient its name and whether it is that of an input.
fn derivatives(source: &str, steps: &LayerBlock) -> Vec<(String, Vec<(String, bool)>)> {
    let backward = diff(steps.block());
    let derivatives = backward.lines.iter().filter_map(|line| match line {
        BackwardStep::Adjoint { node, to, .. } => {
            let gradients = to.iter().map(|(operand, to)| {
                let operand = node.operands[*operand];
                let is_input = match to {
                    GradTarget::Input(id) => *id == operand,
                    GradTarget::New(_) | GradTarget::Overwrite(_) => false,
                    GradTarget::Add(_) | GradTarget::InPlace(_) => {
                        panic!("more than one contribution in {source}")
                    }
                };
                (names(steps, &[operand]).concat(), is_input)
            });
            Some((names(steps, &[node.result]).concat(), gradients.collect()))
        }
        BackwardStep::Free(_) => None,
        _ => panic!("a line that is no derivative in {source}"),
    });
    derivatives.collect()
}

#[test]
fn gradients_begin_where_the_last_reader_is() {
    let source = "struct L<heads = 2, d_model = 8, d_context = 6>;";
    let found = derivatives(source, &steps(source));
    let gradients = |names: &[(&str, bool)]| {
        let names = names
            .iter()
            .map(|(name, is_input)| ((*name).to_owned(), *is_input));
        names.collect::<Vec<_>>()
    };
    let expected = [
        ("output", gradients(&[("attended", false)])),
        (
            "attended",
            gradients(&[("q", false), ("k", false), ("v", false)]),
        ),
        ("k_v", gradients(&[("context", true)])),
        ("q", gradients(&[("x", true)])),
    ];
    assert_eq!(
        found,
        expected.map(|(step, gradients)| (step.to_owned(), gradients))
    );
}

#[test]
fn gradients_of_parts_are_parts_of_one_buffer() {
    let steps = steps("struct L<heads = 2, d_model = 8, score = bilinear, qk_norm = l2>;");
    let backward = diff(steps.block());
    let of = |to: &GradTarget| match to {
        GradTarget::Input(id) => format!("input {}", names(&steps, &[*id])[0]),
        GradTarget::New(id) => format!("new {}", names(&steps, &[backward.buffers[id.0]])[0]),
        GradTarget::Overwrite(id) => {
            format!("rest of {}", names(&steps, &[backward.buffers[id.0]])[0])
        }
        GradTarget::Add(id) | GradTarget::InPlace(id) => {
            format!("add to {}", names(&steps, &[backward.buffers[id.0]])[0])
        }
    };
    let targets = backward.lines.iter().filter_map(|line| match line {
        BackwardStep::Adjoint { to, .. } => Some(
            to.iter()
                .map(|(_, to)| of(to))
                .collect::<Vec<_>>()
                .join(", "),
        ),
        _ => None,
    });
    let expected = [
        "new attended",
        "new q_prepared, new q_k_v, rest of q_k_v",
        "new q",
        "rest of q_k_v",
        "input x",
    ];
    assert_eq!(targets.collect::<Vec<_>>(), expected);
}

proptest! {
    #![proptest_config(cases(300))]

    /// Every matrix is computed before it is read, every computed one is read, and every one has exactly one gradient with one
    /// contribution.
    #[test]
    fn the_steps_of_any_layer_are_complete(source in valid_specs()) {
        let (_, graph) = build(&source);
        let steps = fuse_layer(&graph);
        prop_assert!(steps.is_some(), "the kernels know every key: {source}");
        let Some(steps) = steps else { unreachable!() };
        let block = steps.block();
        for (at, node) in steps.nodes().enumerate() {
            for operand in &node.operands {
                let memory = block.memory(*operand);
                prop_assert!(steps.block().parts(memory).contains(operand), "{source}");
                let before = steps.nodes().take(at).any(|node| node.result == memory);
                prop_assert!(block.is_input(memory) || before, "{source}");
            }
            prop_assert!(steps.reads(node.result) || node.result == steps.output(), "{source}");
        }
        let mut begun = Vec::new();
        let backward = diff(block);
        for line in &backward.lines {
            let BackwardStep::Adjoint { node, to, .. } = line else {
                prop_assert!(matches!(line, BackwardStep::Free(_)), "{source}");
                continue;
            };
            for (operand, to) in to {
                let operand = node.operands[*operand];
                match to {
                    GradTarget::Input(id) => prop_assert_eq!(*id, operand, "{}", source),
                    GradTarget::Add(_) | GradTarget::InPlace(_) => prop_assert!(false, "{source}"),
                    GradTarget::New(_) | GradTarget::Overwrite(_) => {
                        prop_assert!(!begun.contains(&operand), "{source}");
                        begun.push(operand);
                    }
                }
            }
        }
        for node in steps.nodes().filter(|node| node.result != steps.output()) {
            let parts = steps.block().parts(node.result);
            prop_assert!(parts.iter().all(|part| begun.contains(part)), "{source}");
        }
    }
}
