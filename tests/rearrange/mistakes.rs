//! What only the call can find to be wrong.

use super::*;
use attn::{Error, model};

model! {
    struct Groups<d = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, groups, 8] {
        rearrange::<[batch, (groups, 4), d] -> [batch, groups, (4, d)]>(x)
    }
}

#[test]
fn a_sequence_that_parts_do_not_fill() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Groups, f64>();
    let x = numbers((1, 6, Const::<2>));
    let message = "Groups: `seq` has size 6, which is no multiple of 4";
    for error in [
        model.try_forward(x.clone()).map(drop),
        model.composed().try_forward(x).map(drop),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Indivisible { size: 6, of: 4, .. }));
        assert_eq!(error.to_string(), message);
    }
    assert!(model.try_forward(numbers((1, 8, Const::<2>))).is_ok());
    assert!(model.try_forward(numbers((1, 0, Const::<2>))).is_ok());
}

model! {
    struct Windows<d = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, n, 3, d] {
        windows::<seq, 3, to = n>(x)
    }
}

#[test]
fn a_sequence_that_is_shorter_than_a_window() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Windows, f64>();
    let x = numbers((1, 2, Const::<2>));
    for error in [
        model.try_forward(x.clone()).map(drop),
        model.composed().try_forward(x).map(drop),
    ] {
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "Windows: `seq` has size 2, the model reads 3 of it");
    }
    assert!(model.try_forward(numbers((1, 3, Const::<2>))).is_ok());
}

model! {
    struct Rows<d = 2>;
    fn forward(x: [batch, seq, d]) -> [rows, d] {
        rearrange::<[rows = (batch, seq), d]>(x)
    }
}

/// The number of rows fits no `usize`: that is an error, and no number that went round.
#[test]
fn lengths_that_do_not_fit() {
    let _alone = checked::alone();
    assert_eq!(Rows::activation_bytes(usize::MAX, 3), usize::MAX);
    assert_eq!(Rows::flops(usize::MAX, 3), 0);
    let model = Cpu::default().build_module::<Rows, f32>();
    let one: Tensor<Rank0, f32, Cpu> = Cpu::default().ones();
    let x: Tensor<(usize, usize, Const<2>), f32, _> =
        one.broadcast_like(&(1 << 40, 1 << 40, Const));
    let error = model.try_forward(x).map(drop).unwrap_err();
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}
