//! An operation of ours on dfdx's tape.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Gradients, PutTape, SplitTape, Tape, Tensor},
    tensor_ops::Device,
};

use super::{Place, zeros};
use crate::{
    Backend, Element, Host,
    composed::reshape,
    kernel::{Buffer, Matrix, MatrixMut},
    simd::call,
};

/// Gathers what an operation reads, and their tapes.
///
/// ```
/// use attn_core::fused::Operation;
/// use dfdx::prelude::*;
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<2>, f32, _> = dev.tensor([1.0, 2.0]);
///
/// // y = 3 x, and so dx = 3 dy.
/// let mut operation = Operation::default();
/// let operand = operation.read(x.leaky_trace()).unwrap();
/// let y = operand.values().iter().map(|x| 3.0 * x).collect();
/// let y = operation
///     .finish(&dev, y, *x.shape(), move |d_y, gradients| {
///         for (d_x, d_y) in operand.gradient(gradients)?.iter_mut().zip(d_y) {
///             *d_x += 3.0 * d_y;
///         }
///         Ok(())
///     })
///     .unwrap();
/// assert_eq!(y.array(), [3.0, 6.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [3.0, 3.0]);
/// # use dfdx::shapes::HasShape;
/// ```
#[derive(Debug, Default)]
pub struct Operation<T> {
    tape: T,
}

impl<T> Operation<T> {
    /// The numbers of a tensor, row-major. They are copied: dfdx does not lend them.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    pub fn read<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: Tensor<S, E, D, T>,
    ) -> Result<Operand<E, D>, D::Err>
    where
        T: Tape<E, D>,
    {
        let width = x.shape().concrete().into_iter().last().unwrap_or(1);
        let x = self.flat(x)?;
        let mut values = Buffer::stale(x.shape().0);
        x.copy_into(&mut values);
        Ok(Operand {
            values,
            width,
            place: Place::of(&x),
        })
    }

    /// The numbers of a parameter.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parameter<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        parameter: &Tensor<S, E, D>,
    ) -> Result<Operand<E, D>, D::Err>
    where
        T: Tape<E, D>,
    {
        self.read(parameter.retaped::<T>())
    }

    /// The tensor as a row-major vector without a tape: a view, where that can be.
    pub(super) fn flat<S: Shape, E: Element, D: Device<E>>(
        &mut self,
        x: Tensor<S, E, D, T>,
    ) -> Result<Tensor<(usize,), E, D>, D::Err>
    where
        T: Tape<E, D>,
    {
        let len = x.shape().num_elements();
        let (x, tape) = reshape(x, (len,))?.split_tape();
        self.tape = std::mem::take(&mut self.tape).merge(tape);
        Ok(x)
    }

    /// The result, with the derivative: `backward` is given the gradient of the result, and adds to those of the operands.
    ///
    /// # Errors
    /// If the tensor cannot be made.
    pub fn finish<S: Shape, E: Element, D: Backend<E>>(
        mut self,
        device: &D,
        values: Vec<E>,
        shape: S,
        backward: impl FnOnce(&[E], &mut Gradients<E, D>) -> Result<(), D::Err> + 'static,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        T: Tape<E, D>,
    {
        let result = device.try_tensor_from_vec(values, shape)?;
        let ghost = result.ghost();
        self.tape.add_backward_op(move |gradients| {
            // Taken out meanwhile, so that the others can be written while it is read.
            let d_result = std::mem::take(D::host(gradients.get_or_alloc_mut(&ghost)?));
            let done = backward(&d_result, gradients);
            *D::host(gradients.get_or_alloc_mut(&ghost)?) = d_result;
            done
        });
        Ok(result.put_tape(self.tape))
    }

    /// [`finish`](Self::finish) for a result that is a matrix, and its gradient as well.
    ///
    /// # Errors
    /// If the tensor cannot be made.
    pub fn finish_matrix<S: Shape, E: Element, D: Backend<E>>(
        self,
        device: &D,
        output: Output<E>,
        shape: S,
        backward: impl FnOnce(Matrix<'_, E>, &mut Gradients<E, D>) -> Result<(), D::Err> + 'static,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        T: Tape<E, D>,
    {
        let Output {
            values,
            rows,
            width,
        } = output;
        self.finish(device, values, shape, move |d_result, gradients| {
            backward(Matrix::new(d_result, rows, width), gradients)
        })
    }
}

/// The result of an operation, while it is computed.
pub struct Output<E> {
    values: Vec<E>,
    rows: usize,
    width: usize,
}

impl<E: Element> Output<E> {
    /// Zeros.
    pub fn zeros(rows: usize, width: usize) -> Self {
        Self {
            values: zeros(rows * width),
            rows,
            width,
        }
    }

    /// The numbers, to write.
    pub fn matrix_mut(&mut self) -> MatrixMut<'_, E> {
        MatrixMut::new(&mut self.values, self.rows, self.width)
    }
}

/// What an operation reads of a tensor, and where the gradient of it goes.
pub struct Operand<E: Element, D: Host<E>> {
    values: Buffer<E>,
    /// The size of the last axis.
    width: usize,
    place: Place<E, D>,
}

impl<E: Element, D: Host<E>> Operand<E, D> {
    /// The numbers as a matrix, whose columns are the last axis.
    pub fn matrix(&self) -> Matrix<'_, E> {
        Matrix::new(&self.values, self.rows(), self.width)
    }

    /// The gradient so far as a matrix, to add to.
    ///
    /// # Errors
    /// If it cannot be allocated.
    pub fn gradient_matrix<'a>(
        &self,
        gradients: &'a mut Gradients<E, D>,
    ) -> Result<MatrixMut<'a, E>, D::Err> {
        let (rows, width) = (self.rows(), self.width);
        Ok(MatrixMut::new(self.gradient(gradients)?, rows, width))
    }

    fn rows(&self) -> usize {
        self.values.len() / self.width.max(1)
    }

    /// The numbers, row-major.
    pub fn values(&self) -> &[E] {
        &self.values
    }

    /// The gradient so far, to add to.
    ///
    /// # Errors
    /// If it cannot be allocated.
    pub fn gradient<'a>(&self, gradients: &'a mut Gradients<E, D>) -> Result<&'a mut [E], D::Err> {
        self.place.find(gradients)
    }
}

/// Adds a contribution to a gradient.
pub fn accumulate<E: Element>(gradient: &mut [E], contribution: &[E]) {
    call::axpy(E::one(), contribution, gradient);
}
