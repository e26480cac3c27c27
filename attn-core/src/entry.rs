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
/// The gradient of dfdx's matrix product is wrong for an operand that is broadcast along one of its matrix axes: the
/// rows of the gradient then overlay each other in memory, and each overwrites the last.
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
#[expect(clippy::type_complexity, reason = "the shapes are the documentation")]
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
