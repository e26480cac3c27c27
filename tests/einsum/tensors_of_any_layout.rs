//! The function on tensors: of permuted and broadcast views, and of one tensor twice.

use super::*;
use attn::ops::{self, composed};
use support::close::assert_close;

type Three = (usize, usize, usize);
type Traced<S> = Tensor<S, f64, Cpu, OwnedTape<f64, Cpu>>;

const SIZES: [Three; 6] = [
    (2, 3, 4),
    (1, 1, 1),
    (1, 5, 3),
    (33, 2, 17),
    (3, 16, 1),
    (2, 70, 65),
];

/// Fails unless both functions have one result, and one gradient of every tensor.
fn assert_agree<S: Shape, A: Shape, B: Shape>(
    what: &str,
    inputs: (&Tensor<A, f64, Cpu>, &Tensor<B, f64, Cpu>),
    fused: Traced<S>,
    composed: Traced<S>,
) {
    let outcome = |y: Traced<S>| -> Outcome {
        backpropagate(y)
            .input("a", inputs.0)
            .input("b", inputs.1)
            .outcome()
    };
    // Sums of up to 70 × 65 products of at most 1.
    assert_same(what, &outcome(fused), &outcome(composed), 1e-11);
}

/// Products of two tensors: their axes, and the shape of the result.
macro_rules! products {
    ($a:ident, $b:ident: $($axes:expr => $shape:expr;)*) => {$(
        let axes: [&[usize]; 3] = $axes;
        let what = format!("{:?} of {:?} and {:?}", axes, $a.shape(), $b.shape());
        let fused = ops::einsum($a.leaky_trace(), $b.leaky_trace(), axes, $shape);
        let composed = composed::einsum($a.leaky_trace(), $b.leaky_trace(), axes, $shape).unwrap();
        assert_agree(&what, (&$a, &$b), fused, composed);
    )*};
}

#[test]
fn products_equal_those_of_dfdx() {
    for (i, j, k) in SIZES {
        let a: Tensor<Three, f64, _> = tensor("a", (i, j, k));
        let b: Tensor<Three, f64, _> = tensor("b", (i, k, j));
        products! { a, b:
            [&[0, 1, 2], &[0, 2, 3], &[0, 1, 3]] => (i, j, j);
            [&[0, 1, 2], &[3, 2, 1], &[3, 0]] => (i, i);
            [&[0, 1, 2], &[0, 2, 1], &[0]] => (i,);
            [&[0, 1, 2], &[0, 2, 1], &[1, 2]] => (j, k);
            [&[0, 1, 2], &[0, 2, 1], &[]] => ();
            [&[0, 1, 2], &[0, 3, 1], &[2, 0, 3]] => (k, i, k);
        }
    }
}

#[test]
fn views_are_read_in_their_order() {
    for (i, j, k) in SIZES {
        let a: Tensor<Three, f64, _> = tensor("a", (i, j, k));
        let b: Tensor<(usize,), f64, _> = tensor("b", (k,));
        let run = |is_fused: bool| -> Traced<(usize, usize)> {
            let x: Traced<Three> = a.leaky_trace().permute::<_, Axes3<2, 0, 1>>();
            let y: Traced<(usize, usize)> = b.leaky_trace().broadcast_like::<_, Axis<0>>(&(i, k));
            let axes: [&[usize]; 3] = [&[0, 1, 2], &[1, 0], &[2, 1]];
            match is_fused {
                true => ops::einsum(x, y, axes, (j, i)),
                false => composed::einsum(x, y, axes, (j, i)).unwrap(),
            }
        };
        assert_agree("views", (&a, &b), run(true), run(false));
    }
}

#[test]
fn a_tensor_and_itself_has_both_gradients() {
    let x: Tensor<(usize, usize), f64, _> = tensor("x", (3, 5));
    let y = ops::einsum(
        x.leaky_trace(),
        x.leaky_trace(),
        [&[0, 1], &[0, 1], &[]],
        (),
    );
    let gradient = y.backward().get(&x).as_vec();
    let twice: Vec<f64> = x.as_vec().iter().map(|x| 2.0 * x).collect();
    assert_close("the gradient of a sum of squares", &gradient, &twice, 1e-14);
}

#[test]
fn empty_tensors_have_sums_of_0() {
    for sizes in [[0, 3, 2], [2, 0, 3], [2, 3, 0]] {
        let [i, j, k] = sizes;
        let a: Tensor<(usize, usize), f64, _> = tensor("a", (i, j));
        let b: Tensor<(usize, usize), f64, _> = tensor("b", (j, k));
        let axes: [&[usize]; 3] = [&[0, 1], &[1, 2], &[0, 2]];
        let fused = ops::einsum(a.clone(), b.clone(), axes, (i, k));
        let composed = composed::einsum(a, b, axes, (i, k)).unwrap();
        for y in [fused, composed] {
            assert_eq!(*y.shape(), (i, k));
            assert!(support::tensors::flat(&y).iter().all(|y| *y == 0.0));
        }
    }
}

#[test]
#[should_panic(expected = "two sizes of axis 1")]
fn sizes_of_one_axis_must_be_equal() {
    let a: Tensor<(usize, usize), f64, _> = tensor("a", (2, 3));
    let _y = ops::einsum(a.clone(), a, [&[0, 1], &[1, 2], &[0, 2]], (2, 3));
}
