//! Rotary position embeddings.

use dfdx::{
    shapes::{Axis, HasAxes, HasShape, Shape},
    tensor::{Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::Ids,
    fused::{GradTarget, Operation, zeros},
    kernel::attention::Rotary,
    model::Pass,
    ops::{
        check_shape,
        shape::{axis_of, dims},
    },
    unwrap,
};

use slices::Positions;

/// Rotates the pairs of the first [`dims`](Rotary::dims) numbers of every vector, `[.., W]`, by the position of the vector times their
/// frequencies. The position is the place along an axis.
///
/// Su et al., "RoFormer" (2021), equation 34: a pair `(a, b)` becomes `(a cos - b sin, b cos + a sin)`. So the product of two rotated vectors
/// depends on the distance of their positions alone. The derivative is the rotation by the opposite angle.
///
/// PyTorch: `x * cos + rotate_half(x) * sin` of `transformers`; with [`interleaved`](Rotary::interleaved) pairs, as `torchtune` has them.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Rotary, RopeScaling, rope}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<3, 2>, f64, _> = dev.tensor([[1.0, 0.0]; 3]);
/// let rotary = Rotary { dims: 2, theta: 10000.0, scaling: RopeScaling::None, interleaved: false };
/// let y = rope(x.leaky_trace(), Axis::<0>, &rotary);
/// // By 0, 1 and 2.
/// assert_eq!(y.array(), [[1.0, 0.0], [1f64.cos(), 1f64.sin()], [2f64.cos(), 2f64.sin()]]);
/// ```
///
/// # Panics
/// If [`try_rope`] returns an error or panics.
#[doc(alias("rotary", "RotaryEmbedding", "apply_rotary_pos_emb"))]
#[track_caller]
pub fn rope<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: Axis<I>,
    rotary: &Rotary,
) -> Tensor<S, E, D, T>
where
    S: Shape + HasAxes<Axis<I>>,
{
    unwrap(try_rope(x, axis, rotary))
}

/// The fallible version of [`rope`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis is the last one; if [`dims`](Rotary::dims) is odd or greater than the last axis; or if the settings do not give every pair a
/// finite frequency: [`Rotary::check`].
#[track_caller]
pub fn try_rope<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    _: Axis<I>,
    rotary: &Rotary,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<Axis<I>>,
{
    let positions = along::<I>(x.shape());
    rope_with_form(D::FUSED, x, rotary, positions)
}

/// The same with given positions. For each axis of `positions`, `shared` has the axis of `x` that it is; along the others the positions are
/// repeated. They are any numbers.
///
/// | `x` | `positions` | `shared` |
/// | --- | --- | --- |
/// | `[B, S, W]`, `[B, S, H, W]` | `[B, S]` | `[0, 1]` |
/// | `[B, H, S, W]` | `[B, S]` | `[0, 2]` |
/// | `[B, H, S, W]` | `[S]` | `[2]` |
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Rotary, RopeScaling, rope_at}};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<3, 2>, f64, _> = dev.tensor([[1.0, 0.0]; 3]);
/// let positions: Tensor<Rank1<3>, usize, _> = dev.tensor([7, 0, 7]);
/// let rotary = Rotary { dims: 2, theta: 10000.0, scaling: RopeScaling::None, interleaved: false };
/// let y = rope_at(x, &rotary, &positions, &[0]);
/// assert_eq!(y.array(), [[7f64.cos(), 7f64.sin()], [1.0, 0.0], [7f64.cos(), 7f64.sin()]]);
/// ```
///
/// # Panics
/// If [`try_rope_at`] returns an error or panics.
#[track_caller]
pub fn rope_at<S: Shape, N: Shape, E: Element, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    rotary: &Rotary,
    positions: &Tensor<N, usize, D>,
    shared: &[usize],
) -> Tensor<S, E, D, T>
where
    D: Backend<E> + Storage<usize>,
{
    unwrap(try_rope_at(x, rotary, positions, shared))
}

/// The fallible version of [`rope_at`].
///
/// # Errors
/// The errors of [`try_rope`].
///
/// # Panics
/// If `positions` do not have the axes of `shared`; if [`dims`](Rotary::dims) is odd or greater than the last axis; or if the settings do not
/// give every pair a finite frequency: [`Rotary::check`].
#[track_caller]
pub fn try_rope_at<S: Shape, N: Shape, E: Element, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    rotary: &Rotary,
    positions: &Tensor<N, usize, D>,
    shared: &[usize],
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    D: Backend<E> + Storage<usize>,
{
    let positions = given(x.shape(), &Ids::read(positions), shared);
    rope_with_form(D::FUSED, x, rotary, positions)
}

/// The place along an axis.
#[track_caller]
fn along<const I: isize>(shape: &(impl Shape + HasAxes<Axis<I>>)) -> Positions<'static> {
    let is_last = I as usize + 1 == dims(shape).len();
    assert!(
        !is_last,
        "rope: the last axis has the pairs that are rotated"
    );
    Positions::along(axis_of::<I>(shape))
}

#[track_caller]
fn given(shape: &impl Shape, positions: &Ids, shared: &[usize]) -> Positions<'static> {
    let sizes = dims(shape);
    let found = positions.shape();
    let vectors = sizes.len().saturating_sub(1);
    let fits = |(of, size): (&usize, &usize)| *of < vectors && sizes[*of] == *size;
    let fits = found.len() == shared.len() && shared.iter().zip(found).all(fits);
    assert!(
        fits,
        "rope: positions {found:?} for the axes {shared:?} of {sizes:?}"
    );
    Positions::given(&positions.values, &sizes, shared).into_owned()
}

/// [`try_rope`] or [`try_rope_at`] in the fused or the composed form.
#[track_caller]
fn rope_with_form<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    rotary: &Rotary,
    positions: Positions<'static>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    let width = dims(x.shape()).pop().unwrap_or(1);
    let rotary = *rotary;
    let dims = rotary.dims;
    assert!(
        dims.is_multiple_of(2) && dims <= width,
        "rope: {dims} numbers of vectors of {width} cannot be rotated in pairs"
    );
    rotary.check();
    check_shape("rope", x.shape())?;
    if !fused {
        return Ok(composed::rope(x, &rotary, &positions)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(shape.num_elements());
    slices::rope(x.values(), width, &rotary, &positions, &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        let d_x = &mut GradTarget::slot(d_x);
        slices::rope_backward(width, &rotary, &positions, d_y, d_x, gradients)
    })?)
}

impl<T> Pass<'_, T> {
    /// Rotates vectors by their places along an axis: [`rope`].
    ///
    /// # Errors
    /// The errors of [`try_rope`].
    ///
    /// # Panics
    /// The panics of [`try_rope`].
    #[track_caller]
    pub fn rope<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        _: Axis<I>,
        rotary: &Rotary,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<Axis<I>>,
        T: Tape<E, D>,
    {
        let positions = along::<I>(x.shape());
        self.run(x, |fused, x| rope_with_form(fused, x, rotary, positions))
    }

    /// Rotates vectors by given positions: [`rope_at`].
    ///
    /// # Errors
    /// The errors of [`try_rope`].
    ///
    /// # Panics
    /// The panics of [`try_rope_at`].
    #[track_caller]
    pub fn rope_at<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        rotary: &Rotary,
        positions: &Ids,
        shared: &[usize],
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let positions = given(x.shape(), positions, shared);
        self.run(x, |fused, x| rope_with_form(fused, x, rotary, positions))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use std::borrow::Cow;

    use crate::{
        Element,
        data::repeated,
        fused::{GradTarget, Gradients},
        kernel::{
            Matrix, MatrixMut,
            attention::{Rope, Rotary, angles, rotate_rows, with_angles_at},
            axis::Axis,
        },
        simd::WriteMode,
    };

    /// The positions of vectors. A tensor of them is a matrix, and the vectors of a row have one position.
    #[derive(Clone, Debug)]
    pub enum Positions<'a> {
        /// Row `r` has the position `r % len`.
        Along {
            /// The number of rows.
            rows: usize,
            /// The length of the axis.
            len: usize,
        },
        /// One for each row.
        Of(Cow<'a, [usize]>),
    }

    impl<'a> Positions<'a> {
        /// The places along an axis.
        pub fn along(axis: Axis) -> Self {
            Positions::Along {
                rows: axis.outer * axis.len,
                len: axis.len,
            }
        }

        /// A position for each row.
        pub fn of(positions: &'a [usize]) -> Self {
            Positions::Of(Cow::Borrowed(positions))
        }

        /// Positions with some axes of a tensor of these sizes: for each of theirs, `shared` has the one that it is.
        pub fn given(positions: &'a [usize], sizes: &[usize], shared: &[usize]) -> Self {
            let count = shared.iter().max().map_or(0, |last| last + 1);
            Positions::Of(repeated(positions, &sizes[..count], shared))
        }

        /// The same with memory of its own.
        pub fn into_owned(self) -> Positions<'static> {
            match self {
                Positions::Along { rows, len } => Positions::Along { rows, len },
                Positions::Of(positions) => Positions::Of(Cow::Owned(positions.into_owned())),
            }
        }

        /// The number of rows.
        pub(super) fn rows(&self) -> usize {
            match self {
                Positions::Along { rows, .. } => *rows,
                Positions::Of(positions) => positions.len(),
            }
        }

        /// The position of a row.
        pub(super) fn at(&self, row: usize) -> usize {
            match self {
                Positions::Along { len, .. } => row % len,
                Positions::Of(positions) => positions[row],
            }
        }

        /// The length of the shortest sequence with these positions.
        pub(super) fn longest(&self) -> usize {
            match self {
                Positions::Along { len, .. } => *len,
                Positions::Of(positions) => {
                    let last = positions.iter().max();
                    last.map_or(0, |last| last.saturating_add(1))
                }
            }
        }
    }

    /// Rotates vectors of a width by their positions.
    pub fn rope<E: Element>(
        x: &[E],
        width: usize,
        rotary: &Rotary,
        positions: &Positions<'_>,
        y: &mut [E],
    ) {
        rotate(
            x,
            width,
            rotary,
            positions,
            false,
            (y, WriteMode::Overwrite),
        );
    }

    /// The derivative of [`rope`]: the rotation by the opposite angles.
    pub fn rope_backward<E: Element>(
        width: usize,
        rotary: &Rotary,
        positions: &Positions<'_>,
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        if let Some(to) = d_x.numbers_mut(gradients) {
            rotate(d_y, width, rotary, positions, true, to);
        }
    }

    fn rotate<E: Element>(
        x: &[E],
        width: usize,
        rotary: &Rotary,
        positions: &Positions<'_>,
        backward: bool,
        (to, into): (&mut [E], WriteMode),
    ) {
        if x.is_empty() {
            return;
        }
        let rows = positions.rows();
        let cols = x.len() / rows;
        let mut rotate = |rope: Rope<'_, E>| {
            let x = Matrix::new(x, rows, cols);
            let to = MatrixMut::new(to, rows, cols);
            rotate_rows(&rope, positions.longest(), width, backward, x, to, into);
        };
        match positions {
            Positions::Along { len, .. } => rotate(angles(rotary, *len).rope()),
            Positions::Of(positions) => with_angles_at(rotary, positions, rotate),
        }
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, HasShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::{BroadcastTo, Device},
    };

    use super::slices::Positions;
    use crate::{
        Element,
        composed::{is_empty, reshape, rotate, rotation_tables, zeros_after},
        kernel::attention::Rotary,
        ops::shape::dims,
    };

    /// [`rope`](super::rope) or [`rope_at`](super::rope_at), with tables of cosines and sines.
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn rope<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        rotary: &Rotary,
        positions: &Positions<'_>,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let shape = *x.shape();
        if is_empty(&shape) {
            return zeros_after(x, shape);
        }
        let width = dims(&shape).pop().unwrap_or(1);
        let rows = positions.rows();
        let vectors = (rows, shape.num_elements() / (rows * width), width);
        let rotary = rotary.for_len(positions.longest());
        let all = (0..rows).map(|row| positions.at(row));
        let tables = rotation_tables(x.device(), all, &rotary, width, (rows, width))?;
        let [cos, sin] = tables.map(|table| table.try_broadcast_like::<_, Axis<1>>(&vectors));
        let y = rotate(reshape(x, vectors)?, [cos?, sin?], &rotary, width)?;
        reshape(y, shape)
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::{Rotary, rope};
    use crate::kernel::attention::RopeScaling;

    #[test]
    #[should_panic(expected = "`short_factor` has 1 numbers, but there are 2 pairs")]
    fn lists_without_a_number_for_every_pair_are_refused() {
        let x: Tensor<Rank2<3, 4>, f64, _> = Cpu::default().zeros();
        let scaling = RopeScaling::LongRope {
            short_factor: &[1.0],
            long_factor: &[2.0, 3.0],
            factor: 4.0,
            original_max_len: 16,
            attention_factor: None,
        };
        let rotary = Rotary {
            dims: 4,
            theta: 10_000.0,
            scaling,
            interleaved: false,
        };
        rope(x, Axis::<0>, &rotary);
    }
}
