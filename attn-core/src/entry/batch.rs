//! The batch axis of an input without one, and of the output.

use dfdx::{
    shapes::{Const, Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
    tensor_ops::Device,
};

use super::Attended;
use crate::{Element, Error, composed::reshape};

/// `[len, width]` to `[1, len, width]`.
pub fn add_batch<S: Dim, const W: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<(S, Const<W>), E, D, T>,
) -> Result<Tensor<(Const<1>, S, Const<W>), E, D, T>, D::Err> {
    let (len, width) = *x.shape();
    reshape(x, (Const, len, width))
}

/// The same numbers in another shape: with a batch axis, where the axes stand in any order.
pub fn in_shape<Src: Shape, Dst: Shape, E: Element, D: Device<E>>(
    x: Tensor<Src, E, D>,
    shape: Dst,
) -> Result<Tensor<Dst, E, D>, D::Err> {
    reshape(x, shape)
}

/// The results of a layer without the batch axis: `[1, len, width]` to `[len, width]`, `[1, heads, query, key]` to
/// `[heads, query, key]`, and `[1, heads, query]` to `[heads, query]`.
#[allow(clippy::type_complexity, reason = "three tensors")]
pub fn drop_batch<
    const W: usize,
    const H: usize,
    Q: Dim,
    K: Dim,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    attended: Attended<
        Tensor<(Const<1>, Q, Const<W>), E, D, T>,
        Tensor<(Const<1>, Const<H>, Q, K), E, D, T>,
        Tensor<(Const<1>, Const<H>, Q), E, D, T>,
    >,
) -> Result<
    Attended<
        Tensor<(Q, Const<W>), E, D, T>,
        Tensor<(Const<H>, Q, K), E, D, T>,
        Tensor<(Const<H>, Q), E, D, T>,
    >,
    Error<D::Err>,
> {
    let Attended {
        output,
        weights,
        lse,
    } = attended;
    let (_, len, width) = *output.shape();
    let weights = weights.map(|weights| {
        let (_, heads, q, k) = *weights.shape();
        reshape(weights, (heads, q, k))
    });
    let lse = lse.map(|lse| {
        let (_, heads, q) = *lse.shape();
        reshape(lse, (heads, q))
    });
    Ok(Attended {
        output: reshape(output, (len, width))?,
        weights: weights.transpose()?,
        lse: lse.transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    #[test]
    fn a_batch_axis_is_added_and_removed() {
        fn check(len: usize) {
            let x: Tensor<(usize, Const<2>), f64, Cpu> = tensor((len, Const), 1);
            let batched = add_batch(x.clone()).unwrap();
            assert_eq!(*batched.shape(), (Const::<1>, len, Const::<2>));
            let weights: Tensor<(Const<1>, Const<2>, usize, usize), f64, Cpu> =
                tensor((Const, Const, len, 3), 1);
            let lse: Tensor<(Const<1>, Const<2>, usize), f64, Cpu> = tensor((Const, Const, len), 1);
            let dropped = drop_batch(Attended {
                output: batched,
                weights: Some(weights.clone()),
                lse: Some(lse.clone()),
            });
            let dropped = dropped.unwrap();
            assert_eq!(values(&dropped.output), values(&x));
            let of_weights = dropped.weights.unwrap();
            assert_eq!(*of_weights.shape(), (Const::<2>, len, 3));
            assert_eq!(values(&of_weights), values(&weights));
            let of_lse = dropped.lse.unwrap();
            assert_eq!(*of_lse.shape(), (Const::<2>, len));
            assert_eq!(values(&of_lse), values(&lse));
        }
        check(3);
        check(1);
        check(0);
    }

    #[test]
    fn a_view_without_a_batch_axis_gets_its_gradient() {
        let x: Tensor<(Const<2>, usize), f64, Cpu> = tensor((Const, 3), 1);
        check_gradient(&x, |x| {
            let view: Traced<(usize, Const<2>)> = x.leaky_trace().permute();
            type Weights = Traced<(Const<1>, Const<1>, usize, usize)>;
            type Lse = Traced<(Const<1>, Const<1>, usize)>;
            let alone: Attended<_, Weights, Lse> = Attended {
                output: add_batch(view).unwrap(),
                weights: None,
                lse: None,
            };
            drop_batch(alone).unwrap().output
        });
    }
}
