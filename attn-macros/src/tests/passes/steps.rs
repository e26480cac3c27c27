//! The steps of a layer in memory, and the order of their derivatives.

use proptest::prelude::*;

use super::{attention, names, steps};
use crate::graph::diff::{Into, diff};
use crate::graph::simplify;
use crate::graph::steps::{Norm, Role, Similarity, Step, Steps, Vectors, View};
use crate::tests::random::spec::valid_specs;
use crate::tests::support::{build, cases};

/// `linear(x) -> q_k_v`, ..
fn story(steps: &Steps) -> Vec<String> {
    let name = |id| steps.array(id).name.as_str();
    let view = |View { array, part }| steps.array(array).parts[part].name;
    let line = |step: &Step| {
        let to = name(step.result());
        match step {
            Step::Linear { x, fields, .. } => {
                format!("{to} = {}({})", fields.join("+"), name(*x))
            }
            Step::HeadTransform { x, how, .. } => {
                let rope = if how.rope.is_some() { "+rope" } else { "" };
                let norm = how.norm.map_or(String::new(), |norm| format!("{norm:?}"));
                format!("{to} = {norm}{rope}({})", view(*x))
            }
            Step::PerHeadLinear { x, field, .. } => {
                format!("{to} = {field}({})", name(x.array))
            }
            Step::Attention(a) => {
                let views: Vec<_> = a.operands().map(|of| view(of.view)).collect();
                format!("{to} = attention({})", views.join(", "))
            }
        }
    };
    steps.steps.iter().map(line).collect()
}

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
    let [query, key] = attention.prepares();
    assert_eq!(query.norm, Some(Norm::Rms("q_norm")));
    assert_eq!(key.norm, Some(Norm::Rms("k_norm")));
    assert!(query.rope.is_some() && key.rope.is_some());
}

#[test]
fn a_bias_is_left_to_attention_where_nothing_else_reads_it() {
    let left = |source| {
        let steps = steps(source);
        let left = |step: &Step| matches!(step, Step::Linear { leaves_bias, .. } if *leaves_bias);
        let left: Vec<bool> = steps.steps.iter().map(left).collect();
        for Vectors { view, prepare } in attention(&steps).operands() {
            let makes = |step: &&Step| step.result() == view.array;
            let projection = steps.steps.iter().position(|step| makes(&step));
            let is_left = projection.is_some_and(|step| left[step]);
            assert_eq!(prepare.bias, is_left.then_some(*view), "{source}");
        }
        left
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
            "attended = attention(q, k, v)",
            "output = o_proj(attended)",
        ]
    );
    let attention = attention(&steps);
    let [query, key] = attention.prepares();
    assert!(query.is_nothing());
    assert!(!key.is_nothing());
}

#[test]
fn the_scale_of_a_product_leaves_the_expression() {
    let scaled = steps("struct L<heads = 2, d_model = 8, scale = 0.3>;");
    let attention_of = attention(&scaled);
    assert!(attention_of.score.is_none());
    let Similarity::Dot { scale: Some(scale) } = &attention_of.similarity else {
        panic!("a scaled product");
    };
    assert_eq!(scale.value, Some(0.3));
}

#[test]
fn gradients_begin_where_the_last_reader_is() {
    let steps = steps("struct L<heads = 2, d_model = 8, d_context = 6>;");
    let adjoints = diff(&steps);
    let order: Vec<_> = adjoints.iter().map(|adjoint| adjoint.step).collect();
    assert_eq!(order, [3, 2, 1, 0]);
    for adjoint in &adjoints {
        for (view, into) in &adjoint.operands {
            let is_input = steps.array(view.array).role == Role::Input;
            let expected = if is_input { Into::Add } else { Into::Overwrite };
            assert_eq!(*into, expected, "{}", steps.array(view.array).name);
        }
    }
}

proptest! {
    #![proptest_config(cases(300))]

    /// Every matrix is computed before it is read, every computed one is read, and every one has exactly one gradient with one
    /// contribution.
    #[test]
    fn the_steps_of_any_layer_are_complete(source in valid_specs()) {
        let (_, graph) = build(&source);
        let steps = simplify(&graph);
        prop_assert!(steps.is_some(), "the kernels know every key: {source}");
        let Some(steps) = steps else { unreachable!() };
        let ids = || steps.steps.iter();
        for (at, step) in ids().enumerate() {
            for view in step.operands() {
                let array = steps.array(view.array);
                prop_assert!(view.part < array.parts.len());
                let before = steps.steps[..at].iter().any(|step| step.result() == view.array);
                prop_assert!(array.role == Role::Input || before, "{source}");
            }
            let result = step.result();
            let read = ids().any(|step| step.operands().iter().any(|view| view.array == result));
            prop_assert!(read || result == steps.output, "{source}");
        }
        let mut begun = Vec::new();
        for adjoint in diff(&steps) {
            for (view, into) in adjoint.operands {
                let is_input = steps.array(view.array).role == Role::Input;
                prop_assert_eq!(into == Into::Add, is_input, "{}", source);
                if !is_input {
                    prop_assert!(!begun.contains(&view), "{source}");
                    begun.push(view);
                }
            }
        }
        for (index, array) in steps.arrays.iter().enumerate() {
            let parts = begun.iter().filter(|view| view.array.0 == index).count();
            let expected = if array.role == Role::Interim { array.parts.len() } else { 0 };
            prop_assert_eq!(parts, expected, "{}: {}", source, names(&steps, &[crate::graph::steps::ArrayId(index)])[0]);
        }
    }
}
