//! Lengths, names, and what only the call can find to be wrong.

use super::*;
use attn::{Error, model};

model! {
    struct Short<d = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, n, d] {
        conv1d::<seq, out = d, kernel = 4, dilation = 2, padding = 1, to = n>(x)
    }
}

/// A window of 7 places does not fit 4 numbers and 2 zeros.
#[test]
fn a_sequence_that_is_shorter_than_a_window() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Short, f64>();
    let x: Tensor<(usize, usize, Const<2>), f64, _> = Cpu::default().zeros_like(&(1, 4, Const));
    for error in [
        model.try_forward(x.clone()).map(drop),
        model.composed().try_forward(x).map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(
            error,
            Error::TooShort {
                size: 4,
                least: 5,
                ..
            }
        ));
        assert_eq!(
            error.to_string(),
            "Short: `seq` has size 4, the model reads 5 of it"
        );
    }
    let enough: Tensor<(usize, usize, Const<2>), f64, _> =
        Cpu::default().zeros_like(&(1, 5, Const));
    assert_eq!(model.forward(enough).shape().concrete(), [1, 1, 2]);
}

model! {
    struct Cut<d = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, n, d] {
        conv_transpose1d::<seq, out = d, kernel = 1, stride = 2, padding = 1, to = n>(x)
    }
}

#[test]
fn a_sequence_of_which_nothing_is_left() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Cut, f64>();
    let x = |len: usize| -> Tensor<(usize, usize, Const<2>), f64, Cpu> {
        Cpu::default().zeros_like(&(1, len, Const))
    };
    let error = model.try_forward(x(1)).map(drop).unwrap_err();
    assert!(matches!(
        error,
        Error::TooShort {
            size: 1,
            least: 2,
            ..
        }
    ));
    assert_eq!(model.forward(x(3)).shape().concrete(), [1, 3, 2]);
}

model! {
    /// The first layers of the encoder of Whisper.
    struct Front<n_mels = 80, d_model = 384>;
    fn forward(mel: [batch, n_mels, seq]) -> [batch, d_model, frames] {
        let x = gelu(conv1d::<seq, d_model, 3, padding = 1, channels = n_mels>(mel));
        gelu(conv1d::<seq, d_model, 3, stride = 2, padding = 1, channels = d_model, to = frames>(x))
    }
}

#[test]
fn parameters_and_work_are_those_of_pytorch() {
    assert_eq!(Front::PARAMS, 384 * 80 * 3 + 384 + 384 * 384 * 3 + 384);
    let first = 2 * 3000 * 384 * 80 * 3;
    let second = 2 * 1500 * 384 * 384 * 3;
    assert_eq!(Front::flops(1, 3000), first + second);
}

const KERNEL: usize = 3;
const STRIDE: usize = 2;

model! {
    /// Sizes that only rustc can evaluate.
    struct Constants<d = 4>;
    fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, n, 6], [batch, seq, d]) {
        let y = conv1d::<seq, d, { KERNEL }, padding = causal>(x);
        let z = conv1d::<seq, 6, KERNEL, stride = STRIDE, padding = { KERNEL / 2 }, groups = { KERNEL - 1 }, to = n>(x);
        (y, z, conv1d::<seq, d, KERNEL, padding = same>(x))
    }
}

#[test]
fn sizes_may_be_constants_of_the_program() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Constants, f32>();
    let x: Tensor<(usize, usize, Const<4>), f32, _> = Cpu::default().zeros_like(&(2, 6, Const));
    let (y, z, same) = model.forward(x);
    assert_eq!(y.shape().concrete(), [2, 6, 4]);
    assert_eq!(z.shape().concrete(), [2, 3, 6]);
    assert_eq!(same.shape().concrete(), [2, 6, 4]);
    let weight: &Tensor<Rank3<6, 2, 3>, f32, Cpu> = &model.conv1d_2.weight;
    assert!(weight.as_vec().iter().all(|w| w.abs() <= 1.0 / 6f32.sqrt()));
}
