//! Means of sequences.

use super::*;
use crate::tensors::flat;
use attn::{
    Error,
    ops::{self, composed},
};

const M: usize = 5;

type Sequences<E> = Tensor<(usize, usize, Const<M>), E, Cpu>;

fn lens(lens: &[usize]) -> Tensor<(usize,), usize, Cpu> {
    Cpu::default().tensor_from_vec(lens.to_vec(), (lens.len(),))
}

fn agrees<E: Element>()
where
    Cpu: Backend<E>,
{
    for (b, s) in SIZES {
        let x: Sequences<E> = tensor("x", (b, s, Const));
        let means: Traced<(usize, Const<M>), E> = ops::mean_pool(x.leaky_trace());
        assert_agree!(
            format!("{b} x {s}"),
            [x],
            means,
            x.leaky_trace().mean::<_, Axis<1>>()
        );
        // None, one, .. all.
        let counts: Vec<usize> = (0..b).map(|b| (b + s) % (s + 1)).collect();
        assert_agree!(
            format!("{counts:?} of {b} x {s}"),
            [x],
            ops::mean_pool_padded(x.leaky_trace(), &lens(&counts)),
            composed::mean_pool(x.leaky_trace(), &counts).unwrap()
        );
    }
}

#[test]
fn it_is_what_dfdx_computes() {
    for_both!(agrees);
}

#[test]
fn padding_is_not_read() {
    let nan = f64::NAN;
    let numbers = vec![1.0, 2.0, 3.0, 4.0, nan, nan, nan, nan, nan, nan, nan, nan];
    let x: Tensor<(usize, usize, Const<2>), f64, _> =
        Cpu::default().tensor_from_vec(numbers, (2, 3, Const));
    for y in [
        ops::mean_pool_padded(x.leaky_trace(), &lens(&[2, 0])),
        composed::mean_pool(x.leaky_trace(), &[2, 0]).unwrap(),
    ] {
        assert_eq!(flat(&y), [2.0, 3.0, 0.0, 0.0]);
        let gradient = flat(&y.sum().backward().get(&x));
        assert_eq!(gradient[..4], [0.5; 4]);
        assert_eq!(gradient[4..], [0.0; 8]);
    }
}

#[test]
fn unbatched_and_views() {
    let columns: Tensor<Rank2<3, 4>, f64, _> = tensor("columns", Default::default());
    let permuted = || -> Traced<Rank2<4, 3>, f64> { columns.leaky_trace().permute() };
    assert_agree!(
        "permuted",
        [columns],
        ops::mean_pool(permuted()),
        composed::mean_pool(permuted(), &[4]).unwrap()
    );
    let row: Tensor<Rank1<3>, f64, _> = tensor("row", Default::default());
    let rows = || -> Traced<Rank2<4, 3>, f64> { row.leaky_trace().broadcast() };
    assert_agree!(
        "broadcast",
        [row],
        ops::mean_pool(rows()),
        row.leaky_trace()
    );
}

#[test]
fn lengths_are_checked() {
    let x: Sequences<f32> = tensor("x", (2, 3, Const));
    let error = ops::try_mean_pool_padded(x.clone(), &lens(&[3, 4])).unwrap_err();
    assert!(matches!(
        &error,
        Error::LengthBeyondKeys { length: 4, keys: 3, index, .. } if index == &[1]
    ));
    let error = ops::try_mean_pool_padded(x, &lens(&[3])).unwrap_err();
    assert!(matches!(error, Error::BatchMismatch { x: 2, found: 1, .. }));
}

#[test]
fn nothing_and_one_operation() {
    for (b, s) in [(2, 0), (0, 3)] {
        let x: Sequences<f64> = tensor("x", (b, s, Const));
        for y in [
            ops::mean_pool(x.leaky_trace()),
            ops::mean_pool_padded(x.leaky_trace(), &lens(&vec![0; b])),
            composed::mean_pool(x.leaky_trace(), &vec![0; b]).unwrap(),
        ] {
            assert_eq!(flat(&y), vec![0.0; b * M]);
            backward_of_nothing(y).get(&x);
        }
    }
    let x: Sequences<f64> = tensor("x", (2, 3, Const));
    assert_eq!(operations(ops::mean_pool(x.leaky_trace())), 1);
    let y = ops::mean_pool_padded(x.leaky_trace(), &lens(&[1, 2]));
    assert_eq!(operations(y), 1);
}
