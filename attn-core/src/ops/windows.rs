//! Sliding windows along an axis.

use dfdx::{
    shapes::{self, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{GradTarget, Operation, zeros},
    kernel::{axis::Axis, windows::Windows},
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// Sliding windows of an axis: `[.., len, ..]` becomes `[.., n, size, ..]`, where window `i` begins at index `i * step`. All
/// `n = (len - size) / step + 1` windows lie in the axis as a whole; a shorter axis has none. `to` is the shape of the result.
///
/// PyTorch: `x.unfold(I, size, step)`, with the axis of a window directly behind that of the windows instead of at the end.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::windows};
///
/// let x: Tensor<Rank1<5>, f32, _> = Cpu::default().tensor([1.0, 2.0, 3.0, 4.0, 5.0]);
/// let y = windows(x.leaky_trace(), Axis::<0>, 3, 2, (Const::<2>, Const::<3>));
/// assert_eq!(y.array(), [[1.0, 2.0, 3.0], [3.0, 4.0, 5.0]]);
/// assert_eq!(y.sum().backward().get(&x).array(), [1.0, 1.0, 2.0, 1.0, 1.0]);
/// ```
///
/// # Panics
/// If [`try_windows`] returns an error or panics.
#[doc(alias = "unfold")]
#[track_caller]
pub fn windows<const I: isize, S, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    size: usize,
    step: usize,
    to: S2,
) -> Tensor<S2, E, D, T>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
{
    unwrap(try_windows(x, axis, size, step, to))
}

/// The fallible version of [`windows`](fn@windows).
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `step` is 0, or if `to` is not the shape of the windows.
#[track_caller]
pub fn try_windows<const I: isize, S, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    size: usize,
    step: usize,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
{
    windows_with_form(D::FUSED, x, axis, size, step, to)
}

/// [`try_windows`] in the fused or the composed form.
#[track_caller]
pub(crate) fn windows_with_form<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    size: usize,
    step: usize,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape,
{
    let from = dims(x.shape());
    let of = Windows {
        axis: Axis::of(&from, I as usize),
        size,
        step,
    };
    let mut sizes = from.clone();
    sizes.splice(I as usize..=I as usize, [of.count(), size]);
    assert!(
        step > 0 && sizes == dims(&to),
        "windows of {size} with a step of {step} along axis {I} of {from:?} are {sizes:?}, not {:?}",
        dims(&to)
    );
    check_shape("windows", x.shape())?;
    check_shape("windows", &to)?;
    if !fused {
        return Ok(composed::windows(x, axis, size, step, to)?);
    }
    let device = x.device().clone();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(to.num_elements());
    slices::windows(x.values(), of.axis, size, step, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, to, move |d_y, gradients| {
        let d_x = &mut GradTarget::slot(d_x);
        slices::windows_backward(of.axis, size, step, d_y, d_x, gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Sliding windows of an axis: [`windows`](fn@windows).
    ///
    /// # Errors
    /// The errors of [`try_windows`].
    ///
    /// # Panics
    /// The panics of [`try_windows`].
    #[track_caller]
    pub fn windows<const I: isize, S, S2: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: shapes::Axis<I>,
        size: usize,
        step: usize,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            windows_with_form(fused, x, axis, size, step, to)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            axis::Axis,
            windows::{self, Windows},
        },
    };

    /// The windows of an axis of `x`.
    pub fn windows<E: Element>(x: &[E], axis: Axis, size: usize, step: usize, y: &mut [E]) {
        windows::windows(x, Windows { axis, size, step }, y);
    }

    /// The derivative of [`windows`](fn@windows).
    pub fn windows_backward<E: Element>(
        axis: Axis,
        size: usize,
        step: usize,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let of = Windows { axis, size, step };
        d_x.accumulate(gradients, |d_x| windows::windows_backward(d_y, of, d_x))
    }

    /// The number of windows of an axis of this length.
    pub const fn count_windows(len: usize, size: usize, step: usize) -> usize {
        Windows::count_in(len, size, step)
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{self, HasAxes, HasShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{
        Element,
        kernel::{axis::Axis, windows::Windows},
        ops::shape::{dims, gather},
    };

    /// [`windows`](fn@super::windows)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn windows<const I: isize, S, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        _: shapes::Axis<I>,
        size: usize,
        step: usize,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
    {
        let axis = Axis::of(&dims(x.shape()), I as usize);
        let of = Windows { axis, size, step };
        let width = size * axis.inner;
        let count = of.count();
        let source = |i: usize| {
            let (window, place) = (i / width, i % width);
            let (o, window) = (window / count, window % count);
            (o * axis.len + window * step) * axis.inner + place
        };
        gather(x, source, to)
    }
}
