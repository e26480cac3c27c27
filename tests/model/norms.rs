//! Norms with a declared epsilon, against the operation with the same epsilon.

use super::*;
use attn::{Backend, Element, model, ops};
use support::compare::assert_close;
use support::tensors::flat;

const SMALL: f64 = 1e-12;

model! {
    struct Norms<d = 6>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut y = layer_norm::<epsilon = 0.5>(x);
        repeat 2 { y = rms_norm::<epsilon = { SMALL + 0.25 }>(y); }
        layer_norm(y)
    }
}

fn check<E: Element>(tolerance: f64)
where
    Cpu: Backend<E>,
{
    let mut model = Cpu::default().build_module::<Norms, E>();
    scatter(&mut model);
    let x = tensor::<_, E>("x", (3, Const::<6>));
    let first = &model.layer_norm;
    let last = &model.layer_norm_2;
    let mut y = ops::layer_norm(x.clone(), &first.weight, &first.bias, 0.5);
    for block in &model.blocks.modules {
        y = ops::rms_norm(y, &block.rms_norm.weight, SMALL + 0.25);
    }
    let y = ops::layer_norm(y, &last.weight, &last.bias, 1e-5);
    assert_close(
        "fused",
        &flat(&model.forward(x.clone())),
        &flat(&y),
        tolerance,
    );
    let composed = model.composed().forward(x);
    assert_close("composed", &flat(&composed), &flat(&y), tolerance);
}

#[test]
fn a_norm_adds_the_epsilon_of_the_declaration() {
    // Sums of six terms, in a chain of four.
    check::<f32>(24.0 * f64::from(f32::EPSILON));
    check::<f64>(24.0 * f64::EPSILON);
}

#[test]
fn a_copy_of_another_type_has_the_same_epsilon() {
    let model = Cpu::default().build_module::<Norms, f32>();
    let copy: Norms<f64, Cpu> = model.to_dtype();
    assert_eq!(copy.layer_norm.epsilon, 0.5);
    assert_eq!(copy.blocks.modules[1].rms_norm.epsilon, SMALL + 0.25);
    assert_eq!(copy.layer_norm_2.epsilon, 1e-5);
}
