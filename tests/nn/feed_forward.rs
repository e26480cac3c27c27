//! Feed-forward layers: two linear maps and a nonlinearity, in one operation.

use super::*;
use attn::{
    nn::{FeedForward, GatedFeedForward, Gelu, GeluTanh, Relu, Silu},
    ops::{self, Activation, composed},
};
use support::compare::{layer_with, state_for};
use support::tensors::flat;

const M: usize = 6;
const H: usize = 21;

type Plain<A, E> = FeedForward<M, H, A, E, Cpu>;
type Gated<A, E> = GatedFeedForward<M, H, A, E, Cpu>;
type Sequence<E> = Tensor<(usize, usize, Const<M>), E, Cpu>;

fn agrees<A: Activation, E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let state = state_for::<Plain<A, E>, _>(&[("x", &[b, s, M])]);
        let layer = layer_with::<Plain<A, E>, _>(&state);
        let x: Sequence<E> = state.tensor("x", (b, s, Const));
        let y = layer.forward(x.leaky_trace());
        let expected = composed::feed_forward::<A, _, M, H, M, _, _, _>(
            x.leaky_trace(),
            layer.up_proj.affine(),
            layer.down_proj.affine(),
        );
        let what = format!("{} of {b} x {s}", A::NAME);
        let read = |ran: Backpropagated<E>| ran.input("x", &x).parameters(&layer);
        agree(what, [y, expected.unwrap()], read, 1.0);
    }
}

fn gated_agrees<A: Activation, E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let state = state_for::<Gated<A, E>, _>(&[("x", &[b, s, M])]);
        let layer = layer_with::<Gated<A, E>, _>(&state);
        let x: Sequence<E> = state.tensor("x", (b, s, Const));
        let y = layer.forward(x.leaky_trace());
        let expected = composed::gated_feed_forward::<A, _, M, H, M, _, _, _>(
            x.leaky_trace(),
            layer.gate_proj.affine(),
            layer.up_proj.affine(),
            layer.down_proj.affine(),
        );
        let what = format!("gated {} of {b} x {s}", A::NAME);
        let read = |ran: Backpropagated<E>| ran.input("x", &x).parameters(&layer);
        agree(what, [y, expected.unwrap()], read, 1.0);
    }
}

fn all_agree<E: Element>()
where
    Cpu: Backend<E>,
{
    agrees::<Gelu, E>();
    agrees::<GeluTanh, E>();
    agrees::<Relu, E>();
    gated_agrees::<Silu, E>();
    gated_agrees::<Gelu, E>();
}

#[test]
fn feed_forward_layers_equal_those_of_dfdx() {
    for_both!(all_agree);
}

#[test]
fn gated_feed_forward_is_a_gate_after_one_product() {
    let state = state_for::<Gated<Silu, f64>, _>(&[("x", &[2, 3, M])]);
    let layer = layer_with::<Gated<Silu, f64>, _>(&state);
    let x: Sequence<f64> = state.tensor("x", (2, 3, Const));
    let both = [flat(&layer.gate_proj.weight), flat(&layer.up_proj.weight)].concat();
    let both: Tensor<Rank2<{ 2 * H }, M>, f64, _> =
        Cpu::default().tensor_from_vec(both, Default::default());
    let hidden = ops::swiglu::<H, _, _, _, _>(ops::linear(x.clone(), &both, None));
    let expected = ops::linear(hidden, &layer.down_proj.weight, None);
    let found = layer.forward(x);
    compare::assert_close(
        "output",
        &flat(&found),
        &flat(&expected),
        tolerance::<f64>(),
    );
}

#[test]
fn feed_forward_layers_are_one_operation_and_accept_empty_input() {
    let plain = Cpu::default().build_module::<Plain<Gelu, f64>, f64>();
    let gated = Cpu::default().build_module::<Gated<Silu, f64>, f64>();
    let x: Tensor<Rank1<M>, f64, _> = tensor("x", Default::default());
    assert_eq!(operations(plain.forward(x.leaky_trace())), 1);
    assert_eq!(operations(gated.forward(x.leaky_trace())), 1);
    let x: Sequence<f64> = tensor("x", (2, 0, Const));
    let gradients = backward_of_nothing(plain.forward(x.leaky_trace()));
    assert_eq!(gradients.get(&plain.up_proj.bias).array(), [0.0; H]);
    gradients.get(&x);
    let gradients = backward_of_nothing(gated.forward(x.leaky_trace()));
    gradients.get(&gated.down_proj.weight);
}

#[test]
fn views_are_read_in_their_order() {
    let layer = Cpu::default().build_module::<Plain<Gelu, f64>, f64>();
    let columns: Tensor<Rank2<M, 4>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<4, M>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        layer.forward(permuted()),
        composed::feed_forward::<Gelu, _, M, H, M, _, _, _>(
            permuted(),
            layer.up_proj.affine(),
            layer.down_proj.affine(),
        )
        .unwrap()
    );
}
