//! An operation of ours on dfdx's tape.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Gradients, Merge, PutTape, SplitTape, Storage, Tape, Tensor},
};

use super::{Place, Target, zeros};
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
        Operand::read(&self.input(x))
    }

    /// The result, with the derivative: `backward` is given the gradient of the result, and adds to those of the operands.
    ///
    /// # Errors
    /// If the tensor cannot be made.
    pub fn finish<S: Shape, E: Element, D: Backend<E>>(
        self,
        device: &D,
        values: Vec<E>,
        shape: S,
        backward: impl FnOnce(&[E], &mut Gradients<E, D>) -> Result<(), D::Err> + 'static,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        T: Tape<E, D>,
    {
        let result = device.try_tensor_from_vec(values, shape)?;
        let tape = self.record([Place::of(&result)], move |[d_result], gradients| {
            backward(d_result, gradients)
        });
        Ok(result.put_tape(tape))
    }

    /// The tape, with the derivative of an operation whose results have their gradients in `places`.
    pub fn record<E: Element, D: Backend<E>, const N: usize>(
        mut self,
        places: [Place<E, D>; N],
        backward: impl FnOnce([&[E]; N], &mut Gradients<E, D>) -> Result<(), D::Err> + 'static,
    ) -> T
    where
        T: Tape<E, D>,
    {
        self.tape
            .add_backward_op(move |gradients| Place::lend(places.each_ref(), gradients, backward));
        self.tape
    }

    /// An input without its tape, which is that of the operation now.
    pub fn input<S: Shape, F: Clone, D: Storage<F>>(
        &mut self,
        x: Tensor<S, F, D, T>,
    ) -> Tensor<S, F, D>
    where
        T: Default + Merge<T>,
    {
        let (x, tape) = x.split_tape();
        self.tape = std::mem::take(&mut self.tape).merge(tape);
        x
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

    /// The tensor, without a tape, and where its gradient will be.
    ///
    /// # Errors
    /// If the tensor cannot be made.
    pub fn into_tensor<S: Shape, D: Backend<E>>(
        self,
        device: &D,
        shape: S,
    ) -> Result<(Tensor<S, E, D>, Place<E, D>), D::Err> {
        let tensor = device.try_tensor_from_vec(self.values, shape)?;
        let place = Place::of(&tensor);
        Ok((tensor, place))
    }

    /// The numbers, row by row, to write.
    pub fn numbers_mut(&mut self) -> &mut [E] {
        &mut self.values
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

impl<E: Element, D: Backend<E>> Operand<E, D> {
    /// The numbers of a tensor without a tape, such as a parameter.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    pub fn read<S: Shape>(x: &Tensor<S, E, D>) -> Result<Self, D::Err> {
        let width = x.shape().concrete().into_iter().last().unwrap_or(1);
        let x = reshape(x.clone(), (x.shape().num_elements(),))?;
        let mut values = Buffer::stale(x.shape().0);
        x.copy_into(&mut values);
        Ok(Self {
            values,
            width,
            place: Place::of(&x),
        })
    }
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

    /// Its gradient, for a step.
    pub fn target(&self) -> Target<'_, E, D> {
        Target::tape(&self.place)
    }

    /// Where its gradient is, without the numbers.
    pub fn into_place(self) -> Place<E, D> {
        self.place
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
