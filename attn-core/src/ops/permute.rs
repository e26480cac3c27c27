//! Axes in another order.

use dfdx::{
    shapes::{Axes, HasShape, PermuteShapeTo, PermuteStridesTo, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// The axes in another order: axis `i` of the result is axis `axes[i]` of `x`.
///
/// dfdx's `permute` is a view of the same numbers; this copies them in the new order.
///
/// PyTorch: `x.permute(axes).contiguous()`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::permute};
///
/// let x: Tensor<Rank3<1, 2, 3>, f32, _> = Cpu::default().tensor([[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]);
/// let y: Tensor<Rank3<3, 1, 2>, f32, _> = permute(x, Axes3::<2, 0, 1>);
/// assert_eq!(y.array(), [[[1.0, 4.0]], [[2.0, 5.0]], [[3.0, 6.0]]]);
/// ```
///
/// # Panics
/// If [`try_permute`] returns an error.
#[doc(alias = "transpose")]
#[track_caller]
pub fn permute<S, S2, A, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axes: A,
) -> Tensor<S2, E, D, T>
where
    S: Shape + PermuteShapeTo<S2, A>,
    S2: Shape,
    A: Axes,
{
    unwrap(try_permute(x, axes))
}

/// The fallible version of [`permute`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_permute<S, S2, A, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axes: A,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + PermuteShapeTo<S2, A>,
    S2: Shape,
    A: Axes,
{
    permute_with_form(D::FUSED, x, axes)
}

/// [`try_permute`] in the fused or the composed form.
pub(crate) fn permute_with_form<S, S2, A, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axes: A,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + PermuteShapeTo<S2, A>,
    S2: Shape,
    A: Axes,
{
    check_shape("permute", x.shape())?;
    if !fused {
        return Ok(composed::permute(x, axes)?);
    }
    let device = x.device().clone();
    let sizes = dims(x.shape());
    let to: S2 = x.shape().permuted();
    let axes: Vec<usize> = A::as_array()
        .into_iter()
        .map(|axis| axis as usize)
        .collect();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(to.num_elements());
    slices::permute(x.values(), &sizes, &axes, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        let d_x = &mut GradTarget::slot(d_x);
        slices::permute_backward(&sizes, &axes, d_y, d_x, gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// The axes in another order: [`permute`].
    ///
    /// # Errors
    /// The errors of [`try_permute`].
    pub fn permute<S, S2, A, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axes: A,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape + PermuteShapeTo<S2, A>,
        S2: Shape,
        A: Axes,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| permute_with_form(fused, x, axes))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::permute,
        simd::WriteMode,
    };

    /// The axes of `x` in another order. `sizes` are those of `x`.
    pub fn permute<E: Element>(x: &[E], sizes: &[usize], axes: &[usize], y: &mut [E]) {
        permute::permute(x, sizes, axes, y, WriteMode::Overwrite);
    }

    /// The derivative of [`permute`](fn@permute): the inverse permutation.
    pub fn permute_backward<E: Element>(
        sizes: &[usize],
        axes: &[usize],
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let after: Vec<_> = axes.iter().map(|&axis| sizes[axis]).collect();
        let mut inverse = vec![0; axes.len()];
        for (i, &axis) in axes.iter().enumerate() {
            inverse[axis] = i;
        }
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        permute::permute(d_y, &after, &inverse, d_x, into);
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axes, PermuteShapeTo, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::{Device, PermuteTo},
    };

    use crate::{Element, composed::contiguous};

    /// [`permute`](super::permute)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn permute<S, S2, A, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: A,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape + PermuteShapeTo<S2, A>,
        S2: Shape,
        A: Axes,
    {
        contiguous(x.try_permute::<S2, A>()?)
    }
}
