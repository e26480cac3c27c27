//! The norm of gradients, and clipping.

use super::*;
use attn::{
    nn::Linear,
    train::{UpdateError, clip_grad_norm, grad_norm},
};
use support::tensors::gradients as read;

type Model<E> = (Linear<3, 5, E, Cpu>, Linear<5, 2, E, Cpu>);

fn gradients<E: Element>(model: &Model<E>) -> Gradients<E, Cpu>
where
    Cpu: Backend<E>,
{
    let x: Tensor<Rank2<4, 3>, E, _> = tensor("x", Default::default());
    model.forward(x.leaky_trace()).square().sum().backward()
}

fn values<E: Element>(model: &Model<E>, gradients: &Gradients<E, Cpu>) -> Vec<f64>
where
    Cpu: Backend<E>,
{
    read(model, gradients)
        .into_iter()
        .flat_map(|named| named.values)
        .collect()
}

fn clips<E: Element>()
where
    Cpu: Backend<E>,
{
    let model = Model::<E>::build(&Cpu::default());
    let mut gradients = gradients(&model);
    let before = values(&model, &gradients);
    let expected = before.iter().map(|g| g * g).sum::<f64>().sqrt();
    let norm = grad_norm(&model, &mut gradients).unwrap();
    // 52 squares in another order.
    assert!((norm / expected - 1.0).abs() < 1e-14);
    for longer in [norm, 2.0 * norm, f64::INFINITY] {
        assert_eq!(
            clip_grad_norm(&model, &mut gradients, longer).unwrap(),
            norm
        );
        assert_eq!(values(&model, &gradients), before);
    }
    assert_eq!(
        clip_grad_norm(&model, &mut gradients, norm / 4.0).unwrap(),
        norm
    );
    let expected: Vec<f64> = before.iter().map(|g| g / 4.0).collect();
    let tolerance = E::epsilon().into();
    compare::assert_close("clipped", &values(&model, &gradients), &expected, tolerance);
    clip_grad_norm(&model, &mut gradients, 0.0).unwrap();
    assert!(values(&model, &gradients).iter().all(|&g| g == 0.0));
}

#[test]
fn gradients_above_the_norm_are_scaled_and_others_are_not() {
    for_both!(clips);
}

#[test]
fn a_shared_gradient_counts_once() {
    let block = Linear::<4, 4, f64, Cpu>::build(&Cpu::default());
    let tied = (block.clone(), block.clone());
    let x: Tensor<Rank2<3, 4>, f64, _> = tensor("x", Default::default());
    let mut gradients = tied.forward(x.leaky_trace()).square().sum().backward();
    let norm = grad_norm(&block, &mut gradients).unwrap();
    assert_eq!(grad_norm(&tied, &mut gradients).unwrap(), norm);
    clip_grad_norm(&tied, &mut gradients, norm / 2.0).unwrap();
    let after = grad_norm(&tied, &mut gradients).unwrap();
    assert!((after / norm - 0.5).abs() < 1e-14);
}

#[test]
fn gradients_that_are_no_numbers_are_left_alone() {
    let model: Tensor<Rank1<3>, f32, Cpu> = Cpu::default().tensor([1.0, f32::INFINITY, 2.0]);
    let mut gradients = model.leaky_trace().square().sum().backward();
    assert_eq!(
        clip_grad_norm(&model, &mut gradients, 1.0).unwrap(),
        f64::INFINITY
    );
    assert_eq!(gradients.get(&model).array(), [2.0, f32::INFINITY, 4.0]);
    // The squares of such numbers overflow in `f32`.
    let model: Tensor<Rank1<1>, f32, Cpu> = Cpu::default().tensor([1.5e30]);
    let mut gradients = model.leaky_trace().square().sum().backward();
    let norm = clip_grad_norm(&model, &mut gradients, 1.0).unwrap();
    assert!((norm / 3e30 - 1.0).abs() < 1e-6);
    assert!((gradients.get(&model).array()[0] - 1.0).abs() < 1e-6);
}

#[test]
fn a_parameter_without_a_gradient_is_named() {
    let model = Model::<f32>::build(&Cpu::default());
    let x: Tensor<Rank1<3>, f32, _> = tensor("x", Default::default());
    let mut gradients = model.0.forward(x.leaky_trace()).sum().backward();
    let error = clip_grad_norm(&model, &mut gradients, 1.0).unwrap_err();
    assert!(matches!(error, UpdateError::NoGradient { names } if names == ["1.weight", "1.bias"]));
}

#[test]
fn a_norm_is_not_negative() {
    let model = Model::<f32>::build(&Cpu::default());
    let x: Tensor<Rank1<3>, f32, _> = tensor("x", Default::default());
    let mut gradients = model.forward(x.leaky_trace()).sum().backward();
    let before = gradients.get(&model.0.weight).array();
    for (max_norm, message) in [
        (-1.0, "`max_norm` is -1, but must be 0 or more"),
        (f64::NAN, "`max_norm` is NaN, but must be 0 or more"),
    ] {
        let error = clip_grad_norm(&model, &mut gradients, max_norm).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(gradients.get(&model.0.weight).array(), before);
}

#[test]
fn leaves_are_still_known_after_clipping() {
    let model = Model::<f32>::build(&Cpu::default());
    let x: Tensor<Rank1<3>, f32, _> = tensor("x", Default::default());
    let mut gradients = model.forward(x.trace(model.alloc_grads())).sum().backward();
    clip_grad_norm(&model, &mut gradients, 1.0).unwrap();
    // Gradients that are accumulated afterwards are all kept.
    let before = gradients.get(&model.0.weight).array();
    let gradients = model.forward(x.trace(gradients)).sum().backward();
    assert_ne!(gradients.get(&model.0.weight).array(), before);
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| gradients.get(&x)));
    assert!(dropped.is_err(), "the gradient of the input was kept");
}
