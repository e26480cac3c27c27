//! The lifetimes of values.

use super::{names, steps};
use crate::graph::diff::diff;
use crate::graph::plan::{Plan, plan};
use crate::graph::steps::Steps;

fn plan_of(source: &str) -> (Steps, Plan) {
    let steps = steps(source);
    let plan = plan(&steps, &diff(&steps));
    (steps, plan)
}

#[test]
fn values_that_no_product_recomputes_are_saved() {
    let (steps, plan) =
        plan_of("struct L<heads = 2, d_model = 8, qk_norm = rms, position = rope, softcap = 30>;");
    assert_eq!(names(&steps, &plan.saved), ["q_k_v", "attended"]);
}

#[test]
fn a_separate_step_saves_its_operands() {
    let (steps, plan) =
        plan_of("struct L<heads = 2, d_model = 8, score = bilinear, qk_norm = l2>;");
    assert_eq!(
        names(&steps, &plan.saved),
        ["q_k_v", "q", "q_prepared", "attended"]
    );
}

#[test]
fn memory_is_free_after_its_last_reader() {
    let (steps, plan) =
        plan_of("struct L<heads = 2, d_model = 8, score = bilinear, qk_norm = l2>;");
    // Everything is saved, so nothing is freed in the forward pass.
    assert!(plan.free.iter().all(Vec::is_empty));
    // In the order of the backward pass: o_proj, attention, score_proj, the norm, q_proj+k_proj+v_proj.
    let saved: Vec<_> = plan
        .free_backward
        .iter()
        .map(|free| names(&steps, &free.saved))
        .collect();
    let none: [&str; 0] = [];
    assert_eq!(saved[0], none);
    assert_eq!(saved[1], ["q_prepared", "attended"]);
    assert_eq!(saved[2], ["q"]);
    assert_eq!(saved[3], ["q_k_v"]);
    let gradients = plan
        .free_backward
        .iter()
        .map(|free| names(&steps, &free.gradients));
    let gradients: Vec<_> = gradients.collect();
    assert_eq!(gradients[0], none);
    assert_eq!(gradients[1], ["attended"]);
    assert_eq!(gradients[2], ["q_prepared"]);
    assert_eq!(gradients[3], ["q"]);
}
