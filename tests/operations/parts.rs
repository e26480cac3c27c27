//! Indices and ranges of an axis, and parts of one size.

use super::agree::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::parts!(agree);
support::parts_of_any_length!(agree);

model! {
    struct Ends<d = 2>;
    fn forward(x: [batch, seq, d]) -> ([batch, d], [batch, 2, d]) {
        (x[seq = -1], x[seq = 1..3])
    }
}

/// The macro refuses it as a literal.
const FAR: usize = usize::MAX;

model! {
    struct Far<d = 2>;
    fn forward(x: [batch, seq, d]) -> ([batch, d], [batch, 2, d]) {
        (x[seq = FAR], x[seq = [0, FAR]])
    }
}

#[test]
fn an_index_beyond_any_axis_is_an_error() {
    let model = Cpu::default().build_module::<Far, f64>();
    let x: Tensor<(usize, usize, Const<2>), f64, Cpu> = Cpu::default().zeros_like(&(2, 4, Const));
    let message = "Far: `seq` has size 4, the model reads 18446744073709551615 of it";
    let error = model.try_forward(x.clone()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), message);
    let error = model.composed().try_forward(x).map(drop).unwrap_err();
    assert_eq!(error.to_string(), message);
}

#[test]
fn indices_and_ranges_are_those_of_the_axis() {
    let model = Cpu::default().build_module::<Ends, f64>();
    let numbers: Vec<f64> = (0..16).map(f64::from).collect();
    let x: Tensor<(usize, usize, Const<2>), f64, Cpu> =
        Cpu::default().tensor_from_vec(numbers, (2, 4, Const));
    let check = |last: Vec<f64>, middle: Vec<f64>| {
        assert_eq!(last, [6.0, 7.0, 14.0, 15.0]);
        assert_eq!(middle, [2.0, 3.0, 4.0, 5.0, 10.0, 11.0, 12.0, 13.0]);
    };
    let (last, middle) = model.forward(x.clone());
    check(tensors::flat(&last), tensors::flat(&middle));
    let (last, middle) = model.composed().forward(x);
    check(tensors::flat(&last), tensors::flat(&middle));
}
