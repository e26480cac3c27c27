//! The lifetimes of values.

use super::{names, steps};
use crate::graph::block::LayerBlock;
use crate::model::diff::{BackwardStep, diff, last_reads};
use crate::model::plan::{Forward, plan};

fn plan_of(source: &str) -> (LayerBlock, Forward) {
    let steps = steps(source);
    let plan = plan(steps.block(), &[]);
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
    // Everything is saved, so nothing goes on the way forward.
    assert!(plan.steps.iter().all(|step| step.free.is_empty()));
    // Backwards: o_proj, attention, score_proj, the norm, q_proj+k_proj+v_proj.
    let backward = diff(steps.block());
    let free = last_reads(steps.block(), &backward.lines, &plan.saved);
    let mut freed = Vec::new();
    for (line, free) in backward.lines.iter().zip(free) {
        match line {
            BackwardStep::Adjoint { node, .. } => {
                let of = names(&steps, &[node.result]).concat();
                freed.push((of, names(&steps, &free), Vec::new()));
            }
            BackwardStep::Free(buffer) => {
                let gradient = names(&steps, &[backward.buffers[buffer.0]]);
                freed.last_mut().expect("a derivative").2.extend(gradient);
            }
            _ => panic!("more than one contribution to a gradient"),
        }
    }
    let expected = [
        ("output", vec![], vec![]),
        ("attended", vec!["q_prepared", "attended"], vec!["attended"]),
        ("q_prepared", vec!["q"], vec!["q_prepared"]),
        ("q", vec!["q_k_v"], vec!["q"]),
        ("q_k_v", vec![], vec!["q_k_v"]),
    ];
    let own = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let expected =
        expected.map(|(of, saved, gradients)| (of.to_owned(), own(saved), own(gradients)));
    assert_eq!(freed, expected);
}
