//! The softmax of the last axis.

use dfdx::{
    shapes::{Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{Array, GradTarget, Operation},
    kernel::Matrix,
    model::Pass,
    ops::{LastAxis, check_shape, twins::twins},
};

twins! {
    /// `exp(x) / Σ exp(x)` over the last axis: positive numbers with the sum 1. The maximum of a row is subtracted first, so that no
    /// exponential overflows.
    ///
    /// -∞ becomes 0. A row of only -∞, or with +∞ or NaN, becomes NaN. PyTorch: `torch.softmax(x, -1)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::softmax};
    ///
    /// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[1e9, 1e9], [0.0, f32::NEG_INFINITY]]);
    /// assert_eq!(softmax(x).array(), [[0.5, 0.5], [1.0, 0.0]]);
    /// ```
    fn softmax, try_softmax, softmax_with_form<S: LastAxis>(x);
}

/// [`try_softmax`] in the fused or the composed form.
pub(crate) fn softmax_with_form<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("softmax", x.shape())?;
    if !fused {
        return Ok(composed::softmax(x)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let rows = shape.leading().num_elements();
    let width = shape.last().size();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = Array::uninit(rows, [width]);
    slices::softmax(Matrix::new(x.values(), rows, width), y.view_mut());
    let d_x = x.into_slot();
    let values = y.as_slice().to_vec();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let d_y = Matrix::new(d_y, rows, width);
            slices::softmax_backward(y.view(), d_y, &mut GradTarget::slot(d_x), gradients)
        })?,
    )
}

impl<T> Pass<'_, T> {
    /// The softmax of the last axis: [`softmax`].
    ///
    /// # Errors
    /// The errors of [`try_softmax`].
    pub fn softmax<S: LastAxis, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| softmax_with_form(fused, x))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            Matrix, MatrixMut,
            rows::{Sink, Source},
            softmax as shares,
        },
    };

    /// The softmax of every row.
    pub fn softmax<'a, E: Element>(x: impl Into<Source<'a, E>>, y: impl Into<Sink<'a, E>>) {
        shares::forward(x.into(), y.into());
    }

    /// The derivative of [`softmax`], given its result `y`.
    pub fn softmax_backward<E: Element>(
        y: Matrix<'_, E>,
        d_y: Matrix<'_, E>,
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let rows = y.rows();
        let width = y.cols();
        d_x.accumulate(gradients, |d_x| {
            shares::backward(y, d_y, MatrixMut::new(d_x, rows, width));
        })
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, HasShape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{
        Element,
        composed::{is_empty, reshape, zeros_after},
        ops::{LastAxis, shape::rows},
    };

    /// [`softmax`](super::softmax)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn softmax<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        reshape(rows(x)?.try_softmax::<Axis<1>>()?, shape)
    }
}
