//! The mean over a sequence.

use dfdx::{
    shapes::{Const, Dim, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::{Padding, PaddingData},
    fused::{GradTarget, Operation, zeros},
    kernel::axis::{Axis, Counted},
    model::Pass,
    ops::{LastAxis, check_shape},
    unwrap,
};

/// The shape without its second-to-last axis: `[.., seq, M]` to `[.., M]`.
pub(super) type Pooled<S> = <<S as LastAxis>::Leading as LastAxis>::With<<S as LastAxis>::Last>;

/// The mean over a sequence: `[.., seq, M]` to `[.., M]`. The mean of an empty sequence is 0.
///
/// PyTorch: `x.mean(-2)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::mean_pool};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]);
/// let y: Tensor<Rank1<3>, f32, _, _> = mean_pool(x.leaky_trace());
/// assert_eq!(y.array(), [2.0, 3.0, 4.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[0.5; 3]; 2]);
/// ```
///
/// # Panics
/// If [`try_mean_pool`] returns an error.
#[track_caller]
pub fn mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<Pooled<S>, E, D, T> {
    unwrap(try_mean_pool(x))
}

/// The fallible version of [`mean_pool`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>> {
    mean_pool_with_form(D::FUSED, x)
}

/// [`try_mean_pool`] in the fused or the composed form.
pub(crate) fn mean_pool_with_form<S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>>
where
    S: LastAxis<Leading: LastAxis>,
{
    check_shape("mean_pool", x.shape())?;
    pool(fused, x, None)
}

/// The mean over the vectors that are not padding: `x [batch, seq, M]` to `[batch, M]`. Padding is not read. The mean of an empty
/// sequence is 0.
///
/// The [`Padding`] is a valid length for each sequence, `Tensor<(B,), usize, D>`, or a mask that is `true` for vectors that are not
/// padding, `Tensor<(B, S), bool, D>`.
///
/// PyTorch: `(x * real).sum(1) / real.sum(1)`, where `real [batch, seq, 1]` is 0 at padding and 1 elsewhere.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{mean_pool_padded, try_mean_pool_padded}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank3<2, 2, 1>, f32, _> = dev.tensor([[[1.0], [3.0]], [[5.0], [f32::NAN]]]);
/// let y: Tensor<Rank2<2, 1>, f32, _> = mean_pool_padded(x.clone(), &dev.tensor([2, 1]));
/// assert_eq!(y.array(), [[2.0], [5.0]]);
///
/// let real = dev.tensor([[false, true], [true, false]]);
/// let y: Tensor<Rank2<2, 1>, f32, _> = mean_pool_padded(x.clone(), &real);
/// assert_eq!(y.array(), [[3.0], [5.0]]);
///
/// let error = try_mean_pool_padded(x, &dev.tensor([2, 3])).unwrap_err();
/// assert_eq!(error.to_string(), "mean_pool: the valid length at [1] is 3, but there are 2 keys");
/// ```
///
/// # Panics
/// If [`try_mean_pool_padded`] returns an error.
#[track_caller]
pub fn mean_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<(B, S, L), E, D, T>,
    padding: impl Padding<(B, Const<1>, S), D>,
) -> Tensor<(B, L), E, D, T> {
    unwrap(try_mean_pool_padded(x, padding))
}

/// The fallible version of [`mean_pool_padded`].
///
/// # Errors
/// [`Error::LengthBeyondKeys`] if a length is greater than `seq`; [`Error::BatchMismatch`] or [`Error::LengthsMismatch`] if the
/// sizes of the padding are not those of `x`; [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx
/// fails.
pub fn try_mean_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<(B, S, L), E, D, T>,
    padding: impl Padding<(B, Const<1>, S), D>,
) -> Result<Tensor<(B, L), E, D, T>, Error<D::Err>> {
    mean_pool_padded_with_form(D::FUSED, x, padding)
}

/// [`try_mean_pool_padded`] in the fused or the composed form.
pub(crate) fn mean_pool_padded_with_form<B: Dim, S: Dim, L: Dim, E, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<(B, S, L), E, D, T>,
    padding: impl Padding<(B, Const<1>, S), D>,
) -> Result<Tensor<(B, L), E, D, T>, Error<D::Err>>
where
    E: Element,
{
    check_shape("mean_pool", x.shape())?;
    let axis = sequence(x.shape());
    let padding = padding.read("mean_pool", (axis.outer, 1, axis.len))?;
    pool(fused, x, Some(padding))
}

/// The second-to-last axis.
pub(super) fn sequence<S: LastAxis<Leading: LastAxis>>(shape: &S) -> Axis {
    let leading = shape.leading();
    Axis {
        outer: leading.leading().num_elements(),
        len: leading.last().size(),
        inner: shape.last().size(),
    }
}

/// The mean over all vectors of the sequences, or over those that are not padding.
fn pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    padding: Option<PaddingData>,
) -> Result<Tensor<Pooled<S>, E, D, T>, Error<D::Err>> {
    if !fused {
        let marks = counted(&padding).marks(sequence(x.shape()));
        return Ok(composed::mean_pool(x, &marks)?);
    }
    let device = x.device().clone();
    let axis = sequence(x.shape());
    let shape = x.shape().leading().with_last(x.shape().last());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(axis.outer * axis.inner);
    slices::mean_pool(x.values(), axis, counted(&padding), &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        let d_x = &mut GradTarget::slot(d_x);
        slices::mean_pool_backward(axis, counted(&padding), d_y, d_x, gradients)
    })?)
}

/// The vectors that are not padding.
pub(super) fn counted(padding: &Option<PaddingData>) -> Counted<'_> {
    let padding = padding.as_ref();
    padding.map_or(Counted::All, PaddingData::counted)
}

impl<T> Pass<'_, T> {
    /// The mean over a sequence, `[.., seq, M]` to `[.., M]`: [`mean_pool`].
    ///
    /// # Errors
    /// The errors of [`try_mean_pool`].
    pub fn mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<<S::Leading as LastAxis>::With<S::Last>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| mean_pool_with_form(fused, x))
    }

    /// The mean over the vectors that are not padding, `[batch, seq, M]` to `[batch, M]`: [`mean_pool_padded`].
    ///
    /// # Errors
    /// The errors of [`try_mean_pool_padded`].
    pub fn mean_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<(B, S, L), E, D>,
        padding: impl Padding<(B, Const<1>, S), D>,
    ) -> Result<Tensor<(B, L), E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| mean_pool_padded_with_form(fused, x, padding))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::axis::{self, Axis, Counted},
    };

    /// The means over the `counted` vectors of the sequences in `x [sequences, len, width]`.
    pub fn mean_pool<E: Element>(x: &[E], axis: Axis, counted: Counted<'_>, y: &mut [E]) {
        axis::mean(x, axis, counted, y);
    }

    /// The derivative of [`mean_pool`].
    pub fn mean_pool_backward<E: Element>(
        axis: Axis,
        counted: Counted<'_>,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        d_x.accumulate(gradients, |d_x| {
            axis::mean_backward(d_y, axis, counted, d_x);
        })
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, Dim, HasShape, Shape},
        tensor::{Tape, Tensor, TensorFromVec, ZerosTensor},
        tensor_ops::{BroadcastTo, ChooseFrom, Device, SumTo, TryMul},
    };

    use crate::{
        Element,
        composed::{conditions, is_empty, reshape, zeros_after},
        ops::{LastAxis, mean_pool::Pooled},
    };

    /// [`mean_pool`](super::mean_pool) over the vectors whose mark is `true`; `marks` are `[.., seq]`.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        marks: &[bool],
    ) -> Result<Tensor<Pooled<S>, E, D, T>, D::Err> {
        let sequence = x.shape().leading();
        let device = x.device().clone();
        let shape = sequence.with_last(x.shape().last());
        if is_empty(x.shape()) {
            return zeros_after(x, shape);
        }
        let outer = sequence.leading().num_elements();
        let len = sequence.last().size();
        let sizes = (outer, len, x.shape().last().size());
        let counts = marks
            .chunks(len)
            .map(|marks| marks.iter().filter(|mark| **mark).count());
        let shares = counts.map(|count| E::of(1.0 / count.max(1) as f64));
        let shares: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(&device, shares.collect(), (sizes.0,))?;
        let counted = (0..outer * len * sizes.2).map(|place| marks[place / sizes.2]);
        let counted = conditions::<_, E, D>(&device, counted, sizes)?;
        let zeros: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &sizes)?;
        let x = counted.try_choose(reshape(x, sizes)?, zeros)?;
        let sums = x.try_sum::<(usize, usize), Axis<1>>()?;
        let flat = *sums.shape();
        reshape(
            sums.try_mul(shares.try_broadcast_like::<_, Axis<1>>(&flat)?)?,
            shape,
        )
    }
}
