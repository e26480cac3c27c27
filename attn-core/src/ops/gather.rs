//! Numbers along an axis by index, and sums by index.

use dfdx::{
    shapes::{self, HasAxes, HasShape, Shape},
    tensor::{Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::Ids,
    fused::{GradTarget, Operation, zeros},
    kernel::gather::Indexing,
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// The numbers at indices of an axis. In the result, the new axes of `ids` stand in the place of the axis.
///
/// For each axis of `ids`, `shared` has the axis of `x` that it is, or `None` for a new one. `to` is the shape of the result.
///
/// | PyTorch | `x` | `ids` | `shared` | result |
/// | --- | --- | --- | --- | --- |
/// | `x[ids]`, `x.index_select(0, ids)` | `[V, M]` | `[N]` | `[None]` | `[N, M]` |
/// | `x[:, ids]`, `x.index_select(1, ids)` | `[B, S, M]` | `[N]` | `[None]` | `[B, N, M]` |
/// | `x[torch.arange(B), ids]` | `[B, S, M]` | `[B]` | `[Some(0)]` | `[B, M]` |
/// | `x.gather(1, ids)`, `torch.take_along_dim(x, ids, 1)` | `[B, S]` | `[B, N]` | `[Some(0), None]` | `[B, N]` |
///
/// The gradient of a number is the sum of those of its copies, the same bits for any number of threads.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{gather, try_gather}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank3<2, 3, 1>, f32, _> = dev.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]);
/// // The last real token of each sequence.
/// let last: Tensor<Rank1<2>, usize, _> = dev.tensor([2, 0]);
/// let y = gather(x.leaky_trace(), Axis::<1>, &last, &[Some(0)], (Const::<2>, Const::<1>));
/// assert_eq!(y.array(), [[3.0], [4.0]]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[[0.0], [0.0], [1.0]], [[1.0], [0.0], [0.0]]]);
///
/// let beyond: Tensor<Rank1<2>, usize, _> = dev.tensor([1, 3]);
/// let error = try_gather(x, Axis::<1>, &beyond, &[Some(0)], (Const::<2>, Const::<1>)).unwrap_err();
/// assert_eq!(error.to_string(), "gather: the id at [1] is 3, but there are 3: 0 to 2");
/// ```
///
/// # Panics
/// If [`try_gather`] returns an error or panics.
#[doc(alias("index_select", "take_along_dim", "take"))]
#[track_caller]
pub fn gather<const I: isize, S, N: Shape, S2: Shape, E: Element, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    ids: &Tensor<N, usize, D>,
    shared: &[Option<usize>],
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    D: Backend<E> + Storage<usize>,
{
    unwrap(try_gather(x, axis, ids, shared, to))
}

/// The fallible version of [`gather`](fn@gather).
///
/// # Errors
/// [`Error::OutOfRange`] if an index is not below the size of the axis; [`Error::TooLarge`] if the sizes do not fit the memory;
/// [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `ids` do not have the axes of `shared`, or `to` is another shape than that of the result.
#[track_caller]
pub fn try_gather<const I: isize, S, N: Shape, S2: Shape, E, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    ids: &Tensor<N, usize, D>,
    shared: &[Option<usize>],
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    E: Element,
    D: Backend<E>,
{
    let along = Along {
        operation: "gather",
        axis: I as usize,
        ids: Ids::read(ids),
        shared,
    };
    gather_with_form(D::FUSED, x, along, to)
}

/// Sums of numbers by their indices along an axis of the result: the derivative of [`gather`](fn@gather), whose result has the shape of `x`.
///
/// `to` is the shape of the result. For each axis of `ids`, `shared` has the axis of the result that it is, or `None` for an axis of `x`
/// that the result lacks. The sums have the same bits for any number of threads.
///
/// PyTorch: `torch.scatter_add(torch.zeros(to), I, ids, x)` if all axes are shared, `torch.zeros(to).index_add(0, ids, x)` if none is.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::scatter_add};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<3, 2>, f32, _> = dev.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
/// let ids: Tensor<Rank1<3>, usize, _> = dev.tensor([3, 0, 3]);
/// let y = scatter_add(x, Axis::<0>, &ids, &[None], (Const::<4>, Const::<2>));
/// assert_eq!(y.array(), [[3.0, 4.0], [0.0, 0.0], [0.0, 0.0], [6.0, 8.0]]);
/// ```
///
/// # Panics
/// If [`try_scatter_add`] returns an error or panics.
#[doc(alias("index_add", "segment_sum", "bincount"))]
#[track_caller]
pub fn scatter_add<const I: isize, S: Shape, N: Shape, S2, E, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    ids: &Tensor<N, usize, D>,
    shared: &[Option<usize>],
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S2: Shape + HasAxes<shapes::Axis<I>>,
    E: Element,
    D: Backend<E>,
{
    unwrap(try_scatter_add(x, axis, ids, shared, to))
}

/// The fallible version of [`scatter_add`].
///
/// # Errors
/// The errors of [`try_gather`].
///
/// # Panics
/// If `ids` do not have the axes of `shared`, or `x` another shape than that of what is summed.
#[track_caller]
pub fn try_scatter_add<const I: isize, S: Shape, N: Shape, S2, E, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    ids: &Tensor<N, usize, D>,
    shared: &[Option<usize>],
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S2: Shape + HasAxes<shapes::Axis<I>>,
    E: Element,
    D: Backend<E>,
{
    let along = Along {
        operation: "scatter_add",
        axis: I as usize,
        ids: Ids::read(ids),
        shared,
    };
    scatter_add_with_form(D::FUSED, x, along, to)
}

/// Indices along an axis, and the name of the operation in errors.
pub struct Along<'a> {
    /// The name of the operation.
    pub operation: &'static str,
    /// The axis.
    pub axis: usize,
    /// The indices.
    pub ids: Ids,
    /// For each axis of the indices, the one of the tensor that it is.
    pub shared: &'a [Option<usize>],
}

impl Along<'_> {
    /// The shapes, if every index is one of the axis of a tensor of these sizes.
    #[track_caller]
    fn indexing<Dev>(&self, sizes: &[usize]) -> Result<Indexing, Error<Dev>> {
        let of = Indexing::of(sizes, self.axis, self.ids.shape(), self.shared);
        let count = sizes[self.axis];
        self.ids.check(self.operation, "id", count, None)?;
        Ok(of)
    }

    /// The sizes of the numbers at these indices of a tensor.
    fn sizes(&self, of: &[usize]) -> Vec<usize> {
        let news = self.ids.shape().iter().zip(self.shared);
        let news = news.filter(|(_, shared)| shared.is_none());
        let news = news.map(|(size, _)| *size);
        let before = of[..self.axis].iter().copied();
        let behind = of[self.axis + 1..].iter().copied();
        before.chain(news).chain(behind).collect()
    }
}

/// [`try_gather`] in the fused or the composed form.
#[track_caller]
pub(crate) fn gather_with_form<S: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    along: Along<'_>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    check_shape(along.operation, x.shape())?;
    check_shape(along.operation, &to)?;
    let sizes = dims(x.shape());
    let of = along.indexing(&sizes)?;
    let sizes = along.sizes(&sizes);
    assert_eq!(dims(&to), sizes, "the shape of the result");
    let ids = along.ids.values;
    if !fused {
        return Ok(composed::gather(x, &ids, &of, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(of.elements_of_result());
    slices::gather(x.values(), &ids, &of, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        slices::gather_backward(&ids, &of, d_y, &mut GradTarget::slot(d_x), gradients)
    })?)
}

/// [`try_scatter_add`] in the fused or the composed form.
#[track_caller]
pub(crate) fn scatter_add_with_form<S: Shape, S2: Shape, E, D, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    along: Along<'_>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    E: Element,
    D: Backend<E>,
{
    check_shape(along.operation, x.shape())?;
    check_shape(along.operation, &to)?;
    let sizes = dims(&to);
    let of = along.indexing(&sizes)?;
    assert_eq!(dims(x.shape()), along.sizes(&sizes), "the shape of x");
    let ids = along.ids.values;
    if !fused {
        return Ok(composed::scatter_add(x, &ids, &of, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(of.elements());
    slices::scatter_add(x.values(), &ids, &of, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        slices::scatter_add_backward(&ids, &of, d_y, &mut GradTarget::slot(d_x), gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// The numbers at indices of an axis: [`gather`](fn@gather).
    ///
    /// # Errors
    /// The errors of [`try_gather`].
    ///
    /// # Panics
    /// The panics of [`try_gather`].
    #[track_caller]
    pub fn gather<S: Shape, S2: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        along: Along<'_>,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| gather_with_form(fused, x, along, to))
    }

    /// Sums by their indices along an axis of the result: [`scatter_add`].
    ///
    /// # Errors
    /// The errors of [`try_scatter_add`].
    ///
    /// # Panics
    /// The panics of [`try_scatter_add`].
    #[track_caller]
    pub fn scatter_add<S: Shape, S2: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        along: Along<'_>,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| scatter_add_with_form(fused, x, along, to))
    }
}

/// The operations on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::gather as kernel,
        simd::WriteMode,
    };

    pub use crate::kernel::gather::Indexing;

    /// The numbers at indices of an axis.
    pub fn gather<E: Element>(x: &[E], ids: &[usize], of: &Indexing, y: &mut [E]) {
        kernel::gather(x, ids, of, y, WriteMode::Overwrite);
    }

    /// The derivative of [`gather`](fn@gather).
    pub fn gather_backward<E: Element>(
        ids: &[usize],
        of: &Indexing,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        d_x.accumulate(gradients, |d_x| kernel::scatter_add(d_y, ids, of, d_x))
    }

    /// Sums by their indices along an axis of the result.
    pub fn scatter_add<E: Element>(x: &[E], ids: &[usize], of: &Indexing, y: &mut [E]) {
        y.fill(E::zero());
        kernel::scatter_add(x, ids, of, y);
    }

    /// The derivative of [`scatter_add`].
    pub fn scatter_add_backward<E: Element>(
        ids: &[usize],
        of: &Indexing,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        kernel::gather(d_y, ids, of, d_x, into);
    }
}

/// The composed forms, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{HasShape, Shape},
        tensor::{PutTape, SplitTape, Tape, Tensor, TensorFromVec},
        tensor_ops::{Device, TryMatMul},
    };

    use super::Indexing;
    use crate::{
        Element,
        composed::{is_empty, reshape, zeros_after},
        ops::shape,
    };

    /// [`gather`](fn@super::gather)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn gather<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        ids: &[usize],
        of: &Indexing,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err> {
        shape::gather(x, |element| of.source(ids, element), to)
    }

    /// [`scatter_add`](super::scatter_add), as a product with a matrix that has a 1 where a number is part of a sum.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn scatter_add<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        ids: &[usize],
        of: &Indexing,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err> {
        if is_empty(x.shape()) || is_empty(&to) {
            return zeros_after(x, to);
        }
        let [numbers, sums] = [of.elements_of_result(), of.elements()];
        let mut matrix = vec![E::zero(); sums * numbers];
        for element in 0..numbers {
            matrix[of.source(ids, element) * numbers + element] = E::one();
        }
        let device = x.device().clone();
        let matrix: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(&device, matrix, (sums, numbers))?;
        let (x, tape) = reshape(x, (numbers, 1))?.split_tape();
        reshape(matrix.put_tape(tape).try_matmul(x)?, to)
    }
}
