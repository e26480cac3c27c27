//! Broadcasts along axes of size 1, and along new axes.

use dfdx::{
    shapes::{Axes, BroadcastShapeTo, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// Repeats a tensor along axes of size 1, to the shape `to` with the same number of axes. The gradient is summed over them.
///
/// PyTorch: `x.expand(to)`; the numbers are copied.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::expand};
///
/// let x: Tensor<Rank2<1, 2>, f32, _> = Cpu::default().tensor([[1.0, 2.0]]);
/// let y: Tensor<(usize, Const<2>), f32, _, _> = expand(x.leaky_trace(), (3, Const));
/// assert_eq!(y.as_vec(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [[3.0, 3.0]]);
/// ```
///
/// # Panics
/// If [`try_expand`] returns an error or panics.
#[doc(alias = "broadcast")]
#[track_caller]
pub fn expand<S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape,
    S2: Shape<Concrete = S::Concrete>,
{
    unwrap(try_expand(x, to))
}

/// The fallible version of [`expand`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the size of an axis changes and is not 1.
#[track_caller]
pub fn try_expand<S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape,
    S2: Shape<Concrete = S::Concrete>,
{
    let from = dims(x.shape());
    repeat_with_form(D::FUSED, "expand", x, &from, to)
}

/// Repeats a tensor along the new axes `Ax` of the shape `to`, whose other axes are those of `x`. The gradient is summed over them.
///
/// PyTorch: `x.unsqueeze(axis).expand(to)`; the numbers are copied.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::broadcast};
///
/// let bias: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([1.0, 2.0]);
/// let y: Tensor<(usize, Const<2>), f32, _, _> = broadcast(bias.leaky_trace(), Axis::<0>, (3, Const));
/// assert_eq!(y.as_vec(), [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
/// assert_eq!(y.sum().backward().get(&bias).array(), [3.0, 3.0]);
/// ```
///
/// # Panics
/// If [`try_broadcast`] returns an error or panics.
#[doc(alias = "unsqueeze")]
#[track_caller]
pub fn broadcast<S, S2: Shape, Ax: Axes, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    new: Ax,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape + BroadcastShapeTo<S2, Ax>,
{
    unwrap(try_broadcast(x, new, to))
}

/// The fallible version of [`broadcast`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If sizes of `x` are not those of the other axes.
#[track_caller]
pub fn try_broadcast<S, S2: Shape, Ax: Axes, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    new: Ax,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + BroadcastShapeTo<S2, Ax>,
{
    let from = with_ones(x.shape(), new, S2::NUM_DIMS);
    repeat_with_form(D::FUSED, "broadcast", x, &from, to)
}

/// The sizes of a shape with so many axes in which the new ones have size 1.
fn with_ones<Ax: Axes>(shape: &impl Shape, _: Ax, axes: usize) -> Vec<usize> {
    let mut sizes = shape.concrete().into_iter();
    let is_new = |axis: usize| Ax::as_array().into_iter().any(|new| new == axis as isize);
    let size = |axis: usize| match is_new(axis) {
        true => Some(1),
        false => sizes.next(),
    };
    (0..axes).filter_map(size).collect()
}

/// Repeats a tensor of the sizes `from`, in the fused or the composed form.
#[track_caller]
fn repeat_with_form<S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    operation: &'static str,
    x: Tensor<S, E, D, T>,
    from: &[usize],
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape,
    S2: Shape,
{
    check_shape(operation, x.shape())?;
    check_shape(operation, &to)?;
    let steps = slices::expanded_axes(from, &dims(&to));
    if !fused {
        return Ok(composed::repeat(x, from, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(to.num_elements());
    slices::expand(x.values(), &steps, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        slices::expand_backward(&steps, d_y, &mut GradTarget::slot(d_x), gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Repeats `x` along axes of size 1, to a shape with the same number of axes: [`expand`].
    ///
    /// # Errors
    /// The errors of [`try_expand`].
    ///
    /// # Panics
    /// The panics of [`try_expand`].
    #[track_caller]
    pub fn expand<S, S2, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape,
        S2: Shape<Concrete = S::Concrete>,
        T: Tape<E, D>,
    {
        let from = dims(x.shape());
        self.run(x, |fused, x| {
            repeat_with_form(fused, "expand", x, &from, to)
        })
    }

    /// Repeats `x` along the new axes `Ax` of a shape: [`broadcast`].
    ///
    /// # Errors
    /// The errors of [`try_broadcast`].
    ///
    /// # Panics
    /// The panics of [`try_broadcast`].
    #[track_caller]
    pub fn broadcast<S, S2: Shape, Ax: Axes, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        new: Ax,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape + BroadcastShapeTo<S2, Ax>,
        T: Tape<E, D>,
    {
        let from = with_ones(x.shape(), new, S2::NUM_DIMS);
        self.run(x, |fused, x| {
            repeat_with_form(fused, "broadcast", x, &from, to)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{Footprint, GradTarget, Gradients, Peaks},
        kernel::{
            Buffer,
            axis::{self, Axis, Counted},
        },
    };

    /// Repeats `x` along axes of size 1, those of [`expanded_axes`].
    pub fn expand<E: Element>(x: &[E], steps: &[Axis], y: &mut [E]) {
        let Some((&last, steps)) = steps.split_last() else {
            return y.copy_from_slice(x);
        };
        let mut smaller: Option<Buffer<E>> = None;
        for &step in steps {
            let mut larger = Buffer::counted(step.elements());
            axis::repeat(smaller.as_deref().unwrap_or(x), step, &mut larger);
            smaller = Some(larger);
        }
        axis::repeat(smaller.as_deref().unwrap_or(x), last, y);
    }

    /// The derivative of [`expand`], which sums.
    pub fn expand_backward<E: Element>(
        steps: &[Axis],
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let mut sums: Option<Buffer<E>> = None;
        for &step in steps.iter().rev() {
            let mut fewer = Buffer::counted(step.outer * step.inner);
            axis::sum(
                sums.as_deref().unwrap_or(d_y),
                step,
                Counted::All,
                &mut fewer,
            );
            sums = Some(fewer);
        }
        d_x.add(1.0, sums.as_deref().unwrap_or(d_y), gradients)
    }

    /// The footprint of [`expand`] and its derivative. The result of each step is in memory while the next one is computed.
    pub const fn expand_footprint(from: &[usize], to: &[usize]) -> Footprint {
        let mut whole = Peaks::NONE;
        // The sizes before a step and before the previous one. `x` itself takes no memory in the forward pass.
        let mut now = Footprint::numbers(from);
        let mut before = 0;
        let mut now_forward = 0;
        let mut before_forward = 0;
        let mut axis = from.len();
        while axis > 0 {
            axis -= 1;
            if from[axis] != to[axis] {
                whole.forward = larger(whole.forward, now_forward, before_forward);
                whole.backward = larger(whole.backward, now, before);
                (before, before_forward) = (now, now_forward);
                let outer = from.split_at(axis).0;
                let inner = to.split_at(axis).1;
                now = Footprint::numbers(outer).saturating_mul(Footprint::numbers(inner));
                now_forward = now;
            }
        }
        Footprint::same(whole)
    }

    const fn larger(most: usize, a: usize, b: usize) -> usize {
        let sum = a.saturating_add(b);
        if sum > most { sum } else { most }
    }

    /// The axes that grow from one shape to another, the last one first.
    ///
    /// # Panics
    /// If the size of an axis changes and is not 1.
    #[track_caller]
    pub fn expanded_axes(from: &[usize], to: &[usize]) -> Vec<Axis> {
        let grows = |&axis: &usize| from[axis] != to[axis];
        let axes = (0..from.len()).rev().filter(grows);
        axes.map(|axis| {
            assert_eq!(from[axis], 1, "axis {axis} of {from:?} in {to:?}");
            Axis {
                outer: from[..axis].iter().product(),
                ..Axis::of(to, axis)
            }
        })
        .collect()
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axes, BroadcastShapeTo, HasShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{Element, ops::shape::gather};

    /// [`expand`](super::expand)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn expand<S, S2, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape,
        S2: Shape<Concrete = S::Concrete>,
    {
        let from = super::dims(x.shape());
        repeat(x, &from, to)
    }

    /// [`broadcast`](super::broadcast)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn broadcast<S, S2: Shape, Ax: Axes, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        new: Ax,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape + BroadcastShapeTo<S2, Ax>,
    {
        let from = super::with_ones(x.shape(), new, S2::NUM_DIMS);
        repeat(x, &from, to)
    }

    /// Repeats a tensor of the sizes `from` along axes of size 1.
    pub(super) fn repeat<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        from: &[usize],
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err> {
        let sizes: Vec<_> = std::iter::zip(from.iter().copied(), to.concrete()).collect();
        // The offset in `x` of an element of the result: along an axis of size 1, the index is 0.
        let source = |mut place: usize| {
            let mut source = 0;
            let mut stride = 1;
            for &(from, to) in sizes.iter().rev() {
                source += place % to % from * stride;
                stride *= from;
                place /= to;
            }
            source
        };
        gather(x, source, to)
    }
}
