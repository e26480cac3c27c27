//! Sums along an axis up to each place.

use dfdx::{
    shapes::{Axis, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    model::Pass,
    ops::{check_shape, shape::axis_of, twins::twins_along},
};

twins_along! {
    /// The sums along one axis up to each place: `y[l] = x[0] + .. + x[l]`.
    ///
    /// They are added up in `f64`. PyTorch: `torch.cumsum(x, 1)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::cumsum};
    ///
    /// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// let y = cumsum(x.leaky_trace(), Axis::<1>);
    /// assert_eq!(y.array(), [[1.0, 3.0, 6.0], [4.0, 9.0, 15.0]]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [[3.0, 2.0, 1.0]; 2]);
    /// ```
    #[doc(alias("cumulative_sum", "prefix_sum", "scan"))]
    fn cumsum, try_cumsum, cumsum_with_form(x, axis);
}

/// [`try_cumsum`] in the fused or the composed form.
pub(crate) fn cumsum_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    check_shape("cumsum", x.shape())?;
    if !fused {
        return Ok(composed::cumsum(x, axis)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let axis = axis_of::<I>(&shape);
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(axis.elements());
    slices::cumsum(x.values(), axis, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        slices::cumsum_backward(axis, d_y, &mut GradTarget::slot(d_x), gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// The sums along one axis up to each place: [`cumsum`].
    ///
    /// # Errors
    /// The errors of [`try_cumsum`].
    pub fn cumsum<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: Axis<I>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| cumsum_with_form(fused, x, axis))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{axis::Axis, cumsum as kernel},
        simd::WriteMode,
    };

    /// The sums along an axis up to each place.
    pub fn cumsum<E: Element>(x: &[E], axis: Axis, y: &mut [E]) {
        kernel::cumsum(x, axis, false, y, WriteMode::Overwrite);
    }

    /// The derivative of [`cumsum`]: the sums from each place on.
    pub fn cumsum_backward<E: Element>(
        axis: Axis,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        kernel::cumsum(d_y, axis, true, d_x, into);
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axes3, Axis, HasAxes, HasShape, Shape},
        tensor::{Tape, Tensor, TensorFromVec},
        tensor_ops::{Device, PermuteTo, TryMatMul},
    };

    use crate::{
        Element,
        composed::{contiguous, is_empty, reshape, zeros_after},
        ops::shape::around,
    };

    /// [`cumsum`](super::cumsum), as a product with a triangle of ones.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn cumsum<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: Axis<I>,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<Axis<I>>,
    {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        let x = around::<I, _, _, _, _>(x)?;
        let (outer, len, inner) = *x.shape();
        let ones = (0..len * len).map(|place| match place / len <= place % len {
            true => E::one(),
            false => E::zero(),
        });
        let ones: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(x.device(), ones.collect(), (len, len))?;
        let x = contiguous(x.try_permute::<(usize, usize, usize), Axes3<0, 2, 1>>()?)?;
        let y = reshape(x, (outer * inner, len))?.try_matmul(ones)?;
        let y = reshape(y, (outer, inner, len))?;
        let y = contiguous(y.try_permute::<(usize, usize, usize), Axes3<0, 2, 1>>()?)?;
        reshape(y, shape)
    }
}
