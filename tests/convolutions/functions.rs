//! The functions on tensors, and the modules.

use super::*;
use attn::{
    nn::{Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Slide, UnbiasedConv1d},
    ops::{Channels, Window, conv_transpose1d, conv1d, conv2d},
};
use support::tensors::flat;

/// Numbers of two channels, and weights that are not symmetric.
#[test]
fn values_are_those_of_sums_by_hand() {
    let _alone = checked::alone();
    let dev = Cpu::default();
    let x: Tensor<Rank2<3, 2>, f64, _> = dev.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let weight: Tensor<Rank3<1, 2, 2>, f64, _> = dev.tensor([[[1.0, 10.0], [100.0, 1000.0]]]);
    let bias: Tensor<Rank1<1>, f64, _> = dev.tensor([0.5]);
    let y = conv1d(
        x.clone(),
        &weight,
        Some(&bias),
        Window::default(),
        Channels::Last,
        (Const::<2>, Const::<1>),
    );
    assert_eq!(y.array(), [[4231.5], [6453.5]]);
    let first = x.permute::<Rank2<2, 3>, _>();
    let y = conv1d(
        first,
        &weight,
        Some(&bias),
        Window::default(),
        Channels::First,
        (Const::<1>, Const::<2>),
    );
    assert_eq!(y.array(), [[4231.5, 6453.5]]);
}

/// `<conv(x), y> = <x, transposed conv(y)>`, and the gradient of a convolution is the transposed one.
#[test]
fn a_transposed_convolution_is_the_gradient_of_a_convolution() {
    let _alone = checked::alone();
    let dev = Cpu::default();
    let x: Tensor<(usize, usize, Const<4>), f64, _> = tensor("x", (2, 7, Const));
    let weight: Tensor<Rank3<6, 2, 3>, f64, _> = tensor("w", Default::default());
    let none = None::<&Tensor<Rank1<6>, f64, Cpu>>;
    let window = Window {
        stride: 2,
        before: 1,
        after: 1,
        ..Window::default()
    };
    let y = conv1d(
        x.leaky_trace(),
        &weight,
        none,
        window,
        Channels::Last,
        (2, 4, Const::<6>),
    );
    let factor: Tensor<(usize, usize, Const<6>), f64, _> = tensor("y", (2, 4, Const));
    let gradients = (y * factor.clone()).sum().backward();
    let none = None::<&Tensor<Rank1<4>, f64, Cpu>>;
    let back = conv_transpose1d(
        factor,
        &weight,
        none,
        window,
        Channels::Last,
        (2, 7, Const::<4>),
    );
    let (found, expected) = (flat(&gradients.get(&x)), flat(&back));
    assert!(
        found
            .iter()
            .zip(&expected)
            .all(|(a, b)| (a - b).abs() < 1e-14)
    );
    drop(dev);
}

#[test]
fn modules_stand_in_tuples() {
    let _alone = checked::alone();
    type Model = (
        Conv1d<4, 6, 3, Slide<2, 1, 1>>,
        UnbiasedConv1d<3, 8, 2>,
        ConvTranspose1d<8, 4, 4, Slide<2, 1, 1>>,
    );
    let dev = Cpu::default();
    let model = dev.build_module::<Model, f32>();
    let x: Tensor<(usize, usize, Const<4>), f32, _> = tensor("x", (2, 9, Const));
    let y: Tensor<(usize, usize, Const<4>), f32, _> = model.forward(x);
    assert_eq!(y.shape().concrete(), [2, 8, 4]);
    assert_eq!(
        model.num_trainable_params(),
        4 * 6 * 3 + 6 + 3 * 8 * 2 + 8 * 4 * 4 + 4
    );

    let model = dev.build_module::<(
        Conv2d<3, 4, 2, 3, Slide<2>>,
        ConvTranspose2d<4, 1, 2, 2, Slide<2>, Slide<1>, 2>,
    ), f32>();
    let x: Tensor<(usize, usize, usize, Const<3>), f32, _> = tensor("x", (2, 4, 7, Const));
    let y = model.0.forward(x);
    assert_eq!(y.shape().concrete(), [2, 2, 3, 4]);
}

/// Channels that the weight does not have.
#[test]
#[should_panic(expected = "conv2d: a weight of [4, 2] channels does not fit 3 channels")]
fn other_channels_are_refused() {
    let _alone = checked::alone();
    let x: Tensor<Rank3<3, 4, 4>, f32, _> = tensor("x", Default::default());
    let weight: Tensor<Rank4<4, 2, 2, 2>, f32, _> = tensor("w", Default::default());
    let none = None::<&Tensor<Rank1<4>, f32, Cpu>>;
    conv2d(
        x,
        &weight,
        none,
        [Window::default(); 2],
        Channels::First,
        (Const::<4>, Const::<3>, Const::<3>),
    );
}
