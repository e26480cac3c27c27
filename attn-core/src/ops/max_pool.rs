//! The maximum over a sequence.

use dfdx::{
    shapes::{Const, Dim, HasShape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::{Padding, PaddingData},
    fused::{Array, Operation},
    model::Pass,
    ops::{
        LastAxis, check_shape,
        mean_pool::{Pooled, counted, sequence},
    },
    unwrap,
};

/// The maximum over a sequence, elementwise: `[.., seq, M]` to `[.., M]`. The maximum of an empty sequence is 0. If a number is NaN, the
/// maximum is NaN.
///
/// The first of several equal numbers gets the gradient.
///
/// PyTorch: `x.max(-2).values`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::max_pool};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [3.0, 2.0, -5.0]]);
/// let y: Tensor<Rank1<3>, f32, _, _> = max_pool(x.leaky_trace());
/// assert_eq!(y.array(), [3.0, 2.0, 3.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]);
/// ```
///
/// # Panics
/// If [`try_max_pool`] returns an error.
#[track_caller]
pub fn max_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<Pooled<S>, E, D, T> {
    unwrap(try_max_pool(x))
}

/// The fallible version of [`max_pool`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_max_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>> {
    max_pool_with_form(D::FUSED, x)
}

/// [`try_max_pool`] in the fused or the composed form.
pub(crate) fn max_pool_with_form<S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>>
where
    S: LastAxis<Leading: LastAxis>,
{
    check_shape("max_pool", x.shape())?;
    pool(fused, x, None)
}

/// The maximum over the vectors that are not padding: `x [batch, seq, M]` to `[batch, M]`. Padding is not read. The maximum of an empty
/// sequence is 0.
///
/// The [`Padding`] is a valid length for each sequence, `Tensor<(B,), usize, D>`, or a mask that is `true` for vectors that are not
/// padding, `Tensor<(B, S), bool, D>`.
///
/// PyTorch: `x.masked_fill(~real, -torch.inf).max(1).values`, where `real [batch, seq, 1]` is `False` at padding.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{max_pool_padded, try_max_pool_padded}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank3<2, 2, 1>, f32, _> = dev.tensor([[[1.0], [3.0]], [[-5.0], [f32::NAN]]]);
/// let y: Tensor<Rank2<2, 1>, f32, _> = max_pool_padded(x.clone(), &dev.tensor([2, 1]));
/// assert_eq!(y.array(), [[3.0], [-5.0]]);
///
/// let error = try_max_pool_padded(x, &dev.tensor([2, 3])).unwrap_err();
/// assert_eq!(error.to_string(), "max_pool: the valid length at [1] is 3, but there are 2 keys");
/// ```
///
/// # Panics
/// If [`try_max_pool_padded`] returns an error.
#[track_caller]
pub fn max_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<(B, S, L), E, D, T>,
    padding: impl Padding<(B, Const<1>, S), D>,
) -> Tensor<(B, L), E, D, T> {
    unwrap(try_max_pool_padded(x, padding))
}

/// The fallible version of [`max_pool_padded`].
///
/// # Errors
/// [`Error::LengthBeyondKeys`] if a length is greater than `seq`; [`Error::BatchMismatch`] or [`Error::LengthsMismatch`] if the
/// sizes of the padding are not those of `x`; [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx
/// fails.
pub fn try_max_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<(B, S, L), E, D, T>,
    padding: impl Padding<(B, Const<1>, S), D>,
) -> Result<Tensor<(B, L), E, D, T>, Error<D::Err>> {
    max_pool_padded_with_form(D::FUSED, x, padding)
}

/// [`try_max_pool_padded`] in the fused or the composed form.
pub(crate) fn max_pool_padded_with_form<B: Dim, S: Dim, L: Dim, E, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<(B, S, L), E, D, T>,
    padding: impl Padding<(B, Const<1>, S), D>,
) -> Result<Tensor<(B, L), E, D, T>, Error<D::Err>>
where
    E: Element,
{
    check_shape("max_pool", x.shape())?;
    let axis = sequence(x.shape());
    let padding = padding.read("max_pool", (axis.outer, 1, axis.len))?;
    pool(fused, x, Some(padding))
}

/// The maximum over all vectors of the sequences, or over those that are not padding.
fn pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    padding: Option<PaddingData>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>> {
    let device = x.device().clone();
    let axis = sequence(x.shape());
    if !fused {
        let marks = counted(&padding).marks(axis);
        return Ok(composed::max_pool(x, &marks)?);
    }
    let shape = x.shape().leading().with_last(x.shape().last());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = Array::uninit(axis.outer, [axis.inner]);
    slices::max_pool(x.values(), axis, counted(&padding), y.as_mut_slice());
    let values = y.as_slice().to_vec();
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let y = y.as_slice();
            let d_x = &mut x.target();
            slices::max_pool_backward(x.values(), axis, counted(&padding), y, d_y, d_x, gradients)
        })?,
    )
}

impl<T> Pass<'_, T> {
    /// The maximum over a sequence, `[.., seq, M]` to `[.., M]`: [`max_pool`].
    ///
    /// # Errors
    /// The errors of [`try_max_pool`].
    pub fn max_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<Pooled<S>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| max_pool_with_form(fused, x))
    }

    /// The maximum over the vectors that are not padding, `[batch, seq, M]` to `[batch, M]`: [`max_pool_padded`].
    ///
    /// # Errors
    /// The errors of [`try_max_pool_padded`].
    pub fn max_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<(B, S, L), E, D>,
        padding: impl Padding<(B, Const<1>, S), D>,
    ) -> Result<Tensor<(B, L), E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| max_pool_padded_with_form(fused, x, padding))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            axis::{Axis, Counted},
            max,
        },
    };

    /// The maxima over the `counted` vectors of the sequences in `x [sequences, len, width]`.
    pub fn max_pool<E: Element>(x: &[E], axis: Axis, counted: Counted<'_>, y: &mut [E]) {
        max::forward(x, axis, counted, y);
    }

    /// The derivative of [`max_pool`], given its result `y`.
    pub fn max_pool_backward<E: Element>(
        x: &[E],
        axis: Axis,
        counted: Counted<'_>,
        y: &[E],
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        d_x.accumulate(gradients, |d_x| {
            max::backward(x, axis, counted, y, d_y, d_x);
        })
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::HasShape,
        tensor::{Tape, Tensor, ZerosTensor},
        tensor_ops::{ChooseFrom, Device},
    };

    use crate::{
        Element,
        composed::{conditions, is_empty, zeros_after},
        ops::{
            LastAxis,
            mean_pool::{Pooled, sequence},
            reduce::composed::places_of_largest,
            shape::gather,
        },
    };

    /// [`max_pool`](super::max_pool) over the vectors whose mark is `true`; `marks` are `[.., seq]`.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn max_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        marks: &[bool],
    ) -> Result<Tensor<Pooled<S>, E, D, T>, D::Err> {
        let device = x.device().clone();
        let shape = x.shape().leading().with_last(x.shape().last());
        if is_empty(x.shape()) {
            return zeros_after(x, shape);
        }
        let axis = sequence(x.shape());
        let is_counted = |o: usize, l: usize| marks[o * axis.len + l];
        let places = places_of_largest(&x.as_vec(), axis, is_counted);
        let any = places.iter().map(Option::is_some);
        let any = conditions::<_, E, D>(&device, any, shape)?;
        // For an empty column, gather the first element of the tensor, and then replace it by 0.
        let y = gather(x, |column| places[column].unwrap_or_default(), shape)?;
        let zeros: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &shape)?;
        any.try_choose(y, zeros)
    }
}
