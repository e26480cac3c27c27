//! Axes that are split, put in another order and merged.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    model::Pass,
    ops::{check_shape, permute::slices, shape::dims},
    unwrap,
};

/// Splits axes, puts them in another order, and merges neighbours: `x` as a tensor of the sizes `split`, whose axis `order[i]` becomes axis
/// `i`, in the shape `to`. There may be more of these axes than a tensor of dfdx can have.
///
/// PyTorch: `x.reshape(split).permute(order).reshape(to)`; einops: `rearrange(x, ..)`. The numbers are copied in the new order. An order
/// that stays is a [`reshape`](fn@crate::ops::reshape), which copies nothing.
///
/// The patches of an image, as those of a vision transformer, `rearrange(x, 'c (h p) (w q) -> (h w) (p q c)', p=2, q=2)`:
///
/// ```
/// use attn::{dfdx::prelude::*, ops::rearrange};
///
/// let image: Tensor<Rank3<1, 2, 4>, f32, _> = Cpu::default().tensor([[[1., 2., 3., 4.], [5., 6., 7., 8.]]]);
/// let patches = rearrange(image, [1, 1, 2, 2, 2], [1, 3, 2, 4, 0], (Const::<2>, Const::<4>));
/// assert_eq!(patches.array(), [[1., 2., 5., 6.], [3., 4., 7., 8.]]);
/// ```
///
/// # Panics
/// If [`try_rearrange`] returns an error or panics.
#[track_caller]
pub fn rearrange<const N: usize, S: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    split: [usize; N],
    order: [usize; N],
    to: S2,
) -> Tensor<S2, E, D, T> {
    unwrap(try_rearrange(x, split, order, to))
}

/// The fallible version of [`rearrange`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `split` or `to` have another number of elements than `x`, or if `order` does not have every axis once.
#[track_caller]
pub fn try_rearrange<
    const N: usize,
    S: Shape,
    S2: Shape,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    x: Tensor<S, E, D, T>,
    split: [usize; N],
    order: [usize; N],
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    rearrange_with_form(D::FUSED, x, split, order, to)
}

/// [`try_rearrange`] in the fused or the composed form.
#[track_caller]
pub(crate) fn rearrange_with_form<const N: usize, S: Shape, S2: Shape, E, D, T>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    split: [usize; N],
    order: [usize; N],
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    check_shape("rearrange", x.shape())?;
    check_shape("rearrange", &to)?;
    let count = x.shape().num_elements();
    assert!(
        split.iter().product::<usize>() == count && to.num_elements() == count,
        "the numbers of elements of {:?}, {split:?} and {:?} differ",
        dims(x.shape()),
        dims(&to)
    );
    let mut sorted = order;
    sorted.sort_unstable();
    assert!(
        sorted.into_iter().eq(0..N),
        "{order:?} are not the axes of {split:?} in another order"
    );
    if !fused || order.is_sorted() {
        return Ok(composed::rearrange(x, split, order, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(count);
    slices::permute(x.values(), &split, &order, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        let d_x = &mut GradTarget::slot(d_x);
        slices::permute_backward(&split, &order, d_y, d_x, gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Splits axes, puts them in another order, and merges neighbours: [`rearrange`].
    ///
    /// # Errors
    /// The errors of [`try_rearrange`].
    ///
    /// # Panics
    /// The panics of [`try_rearrange`].
    #[track_caller]
    pub fn rearrange<const N: usize, S: Shape, S2: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        split: [usize; N],
        order: [usize; N],
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            rearrange_with_form(fused, x, split, order, to)
        })
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::Shape,
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{Element, composed::reshape, ops::shape::gather, sizes::place_in};

    /// [`rearrange`](super::rearrange)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn rearrange<const N: usize, S: Shape, S2: Shape, E, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        split: [usize; N],
        order: [usize; N],
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        E: Element,
    {
        if order.is_sorted() {
            return reshape(x, to);
        }
        let own: [usize; N] = std::array::from_fn(|axis| axis);
        gather(x, place_in(&own, &order, &split), to)
    }
}
