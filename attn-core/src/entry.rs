//! What happens to the inputs of a layer before its first operation.

use dfdx::{
    shapes::{Const, Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
    tensor_ops::Device,
};

use crate::{Element, Error, composed::reshape};

/// Bytes of the largest [`Element`].
const ELEMENT_BYTES: usize = size_of::<f64>();

/// Checks that a tensor of these sizes can exist: the bytes of their product fit an allocation.
///
/// dfdx multiplies the sizes of a shape unchecked; in a release build without overflow checks the product wraps
/// around, the buffer comes out too small, and its matrix product reads beyond it.
///
/// # Errors
/// [`Error::TooLarge`] with the sizes.
///
/// ```
/// use attn_core::entry::check_sizes;
///
/// assert!(check_sizes::<()>("Decoder", &[("batch", 4), ("heads", 8)]).is_ok());
/// assert!(check_sizes::<()>("Decoder", &[("batch", 1 << 40), ("query", 1 << 40)]).is_err());
/// ```
pub fn check_sizes<Dev>(
    layer: &'static str,
    sizes: &[(&'static str, usize)],
) -> Result<(), Error<Dev>> {
    let bytes = sizes
        .iter()
        // A size of 0 must not hide that two others overflow: strides are products of the trailing sizes.
        .map(|&(_, size)| size.max(1))
        .try_fold(ELEMENT_BYTES, usize::checked_mul);
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::TooLarge {
            layer,
            sizes: sizes.to_vec(),
        }),
    }
}

/// Checks that another input, `what`, has the batch size of `x`.
///
/// # Errors
/// [`Error::BatchMismatch`] with both.
pub fn check_batch<Dev>(
    layer: &'static str,
    what: &'static str,
    x: usize,
    found: usize,
) -> Result<(), Error<Dev>> {
    if x == found {
        Ok(())
    } else {
        Err(Error::BatchMismatch {
            layer,
            what,
            x,
            found,
        })
    }
}

/// The same tensor in row-major order; nothing is copied if it is that already.
///
/// The gradient of dfdx's matrix product is wrong for an operand that is broadcast along its matrix axes, once it is large
/// enough for several threads: they add to the same place in memory, and lose what the other has added.
pub fn contiguous<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    reshape(x, shape)
}

/// `[len, width]` to `[1, len, width]`.
pub fn add_batch<S: Dim, const W: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<(S, Const<W>), E, D, T>,
) -> Result<Tensor<(Const<1>, S, Const<W>), E, D, T>, D::Err> {
    let (len, width) = *x.shape();
    reshape(x, (Const, len, width))
}

/// `[1, len, width]` to `[len, width]`.
pub fn drop_batch<S: Dim, const W: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    y: Tensor<(Const<1>, S, Const<W>), E, D, T>,
) -> Result<Tensor<(S, Const<W>), E, D, T>, D::Err> {
    let (_, len, width) = *y.shape();
    reshape(y, (len, width))
}

/// `[1, heads, query, key]` to `[heads, query, key]`.
pub fn drop_weights_batch<
    const H: usize,
    Q: Dim,
    K: Dim,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    weights: Tensor<(Const<1>, Const<H>, Q, K), E, D, T>,
) -> Result<Tensor<(Const<H>, Q, K), E, D, T>, D::Err> {
    let (_, heads, q, k) = *weights.shape();
    reshape(weights, (heads, q, k))
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    fn fits(sizes: &[usize]) -> bool {
        let sizes: Vec<_> = sizes.iter().map(|&size| ("size", size)).collect();
        check_sizes::<()>("L", &sizes).is_ok()
    }

    #[test]
    fn sizes_are_too_large_from_an_allocation_on_that_no_machine_has() {
        let most = isize::MAX as usize / 8;
        assert!(fits(&[]));
        assert!(fits(&[4, 8, 1024, 1024]));
        assert!(fits(&[most]));
        assert!(!fits(&[most + 1]));
        assert!(!fits(&[usize::MAX, usize::MAX]));
        // 2^62 * 4 = 2^64 wraps around to 0.
        assert!(!fits(&[1 << 62, 4]));
        assert!(fits(&[0, 8, 1024]));
        assert!(!fits(&[0, 1 << 62, 4]));
    }

    #[test]
    fn batches_must_agree() {
        assert!(check_batch::<()>("L", "context", 3, 3).is_ok());
        let error = check_batch::<&str>("L", "context", 3, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "L: the batch of x is 3, that of context is 4"
        );
    }

    #[test]
    fn the_batch_axis_comes_and_goes() {
        fn check(len: usize) {
            let x: Tensor<(usize, Const<2>), f64, Cpu> = tensor((len, Const), 1);
            let batched = add_batch(x.clone()).unwrap();
            assert_eq!(*batched.shape(), (Const::<1>, len, Const::<2>));
            assert_eq!(values(&drop_batch(batched).unwrap()), values(&x));
            let weights: Tensor<(Const<1>, Const<2>, usize, usize), f64, Cpu> =
                tensor((Const, Const, len, 3), 1);
            let dropped = drop_weights_batch(weights.clone()).unwrap();
            assert_eq!(*dropped.shape(), (Const::<2>, len, 3));
            assert_eq!(values(&dropped), values(&weights));
        }
        check(3);
        check(1);
        check(0);
    }

    #[test]
    fn views_become_row_major_and_get_their_gradient() {
        let x: Tensor<(Const<2>, usize), f64, Cpu> = tensor((Const, 3), 1);
        check_gradient(&x, |x| {
            let view: Traced<(usize, Const<2>)> = x.leaky_trace().permute();
            drop_batch(add_batch(view).unwrap()).unwrap()
        });
        let row: Tensor<Rank1<2>, f64, Cpu> = tensor((Const,), 1);
        check_gradient(&row, |x| {
            let view: Traced<(usize, Const<2>)> = x.leaky_trace().broadcast_like(&(3, Const));
            let view = contiguous(view).unwrap();
            // The physical buffer: of the broadcast view it has two numbers.
            let mut physical = [0.0; 6];
            view.copy_into(&mut physical);
            assert_eq!(physical.as_slice(), values(&view));
            view
        });
    }
}
