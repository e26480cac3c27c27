//! Sums up to each place of an axis, and lengths along any axis.

use super::claim::{agree, tolerance};
use super::*;
use attn::{Backend, Element, model};
use support::compare::assert_same;

support::sums_along!(agree);

#[test]
fn sums_are_those_up_to_each_place() {
    model! {
        struct Sums<d = 2>;
        fn forward(x: [batch, seq, d]) -> ([batch, seq, d], [batch, seq, d]) { (cumsum::<seq>(x), cumsum(x)) }
    }
    let model = Cpu::default().build_module::<Sums, f32>();
    let x: Tensor<Rank3<1, 3, 2>, f32, Cpu> =
        Cpu::default().tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]]);
    let want = (
        vec![1.0, 2.0, 4.0, 6.0, 9.0, 12.0],
        vec![1.0, 3.0, 3.0, 7.0, 5.0, 11.0],
    );
    let (a, b) = model.forward(x.clone());
    assert_eq!((a.as_vec(), b.as_vec()), want);
    let (a, b) = model.composed().forward(x);
    assert_eq!((a.as_vec(), b.as_vec()), want);
}

/// Small numbers are not lost beside a large sum.
#[test]
fn sums_are_added_up_in_double_precision() {
    model! {
        struct Sums;
        fn forward(x: [n]) -> [n] { cumsum(x) }
    }
    let model = Cpu::default().build_module::<Sums, f32>();
    let count = (1 << 24) + 4;
    let ones: Tensor<(usize,), f32, Cpu> = Cpu::default().ones_like(&(count,));
    assert_eq!(model.forward(ones).as_vec()[count - 1], count as f32);
}

#[test]
fn empty_axes_have_no_sums_and_no_lengths() {
    model! {
        struct Empty<d = 3>;
        fn forward(x: [batch, seq, d]) -> [batch, seq, d] { cumsum::<seq>(l2_norm::<seq>(x)) }
    }
    let model = Cpu::default().build_module::<Empty, f32>();
    for sizes in [(0, 3), (2, 0)] {
        let x = tensor::<_, f32>("x", (sizes.0, sizes.1, Const::<3>));
        assert!(tensors::flat(&model.forward(x.clone())).is_empty());
        assert!(tensors::flat(&model.composed().forward(x)).is_empty());
    }
}
