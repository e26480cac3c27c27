//! Shapes, traits of their last axis, and what composed forms do with them.

use dfdx::{
    shapes::{self, Const, Dim, HasAxes, HasShape, Shape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{Device, GatherTo},
};

use crate::{
    Element,
    composed::{is_empty, reshape, zeros_after},
    kernel::axis::Axis,
};

/// A shape with a last axis, which an operation can replace. Implemented for tuples of one to four axes.
///
/// ```
/// use attn::{dfdx::shapes::Const, ops::LastAxis};
///
/// let shape = (2, 5, Const::<8>);
/// assert_eq!(shape.leading(), (2, 5));
/// assert_eq!(shape.with_last(Const::<3>), (2, 5, Const::<3>));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no last axis that an operation could map",
    note = "shapes are tuples of one to four axes: `(Const<8>,)`, `(usize, Const<8>)`, `(usize, usize, Const<8>)`, .."
)]
pub trait LastAxis: Shape {
    /// The last axis.
    type Last: Dim;
    /// The axes before it.
    type Leading: Shape;
    /// The shape with another last axis.
    type With<L: Dim>: LastAxis<Last = L, Leading = Self::Leading>;

    /// The last axis.
    fn last(&self) -> Self::Last;

    /// The axes before it.
    fn leading(&self) -> Self::Leading;

    /// The shape with another last axis.
    fn with_last<L: Dim>(&self, last: L) -> Self::With<L>;
}

/// A shape whose last axis has the constant size `W`.
#[diagnostic::on_unimplemented(
    message = "the last axis of `{Self}` is not `Const<{W}>`",
    label = "expected a shape that ends in `Const<{W}>`",
    note = "such as `(Const<{W}>,)`, `(N, Const<{W}>)` or `(B, S, Const<{W}>)`"
)]
pub trait EndsIn<const W: usize>: LastAxis<Last = Const<W>> {}

/// A shape to which an axis can be appended. Implemented for tuples of up to three axes.
#[diagnostic::on_unimplemented(
    message = "a vector for each element of `{Self}` would be a tensor of too many axes",
    note = "indices come in a tensor of up to three axes: `(usize,)`, `(usize, usize)`, .."
)]
pub trait Append: Shape {
    /// The shape with an axis appended.
    type With<L: Dim>: LastAxis<Last = L, Leading = Self>;

    /// Appends an axis.
    fn append<L: Dim>(&self, last: L) -> Self::With<L>;
}

macro_rules! shapes {
    ($(($($axis:ident $place:tt),*) $last:tt;)*) => {
        $(
            impl<$($axis: Dim,)* L: Dim> LastAxis for ($($axis,)* L,) {
                type Last = L;
                type Leading = ($($axis,)*);
                type With<N: Dim> = ($($axis,)* N,);

                fn last(&self) -> L {
                    self.$last
                }

                #[allow(clippy::unused_unit, reason = "before the only axis there is none")]
                fn leading(&self) -> Self::Leading {
                    ($(self.$place,)*)
                }

                fn with_last<N: Dim>(&self, last: N) -> Self::With<N> {
                    ($(self.$place,)* last,)
                }
            }

            impl<$($axis: Dim,)* const W: usize> EndsIn<W> for ($($axis,)* Const<W>,) {}

            impl<$($axis: Dim,)*> Append for ($($axis,)*) {
                type With<N: Dim> = ($($axis,)* N,);

                fn append<N: Dim>(&self, last: N) -> Self::With<N> {
                    ($(self.$place,)* last,)
                }
            }
        )*
    };
}

shapes! {
    () 0;
    (A 0) 1;
    (A 0, B 1) 2;
    (A 0, B 1, C 2) 3;
}

/// A tensor as a matrix: the rows are along its last axis.
pub(super) type Rows<L, E, D, T> = Tensor<(usize, L), E, D, T>;

pub(super) fn rows<S: LastAxis, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Rows<S::Last, E, D, T>, D::Err> {
    let shape = *x.shape();
    reshape(x, (shape.leading().num_elements(), shape.last()))
}

/// The sizes of the axes.
pub(super) fn dims(shape: &impl Shape) -> Vec<usize> {
    shape.concrete().into_iter().collect()
}

/// The tensor of this shape whose element `i` is element `source(i)` of `x`, both row-major.
pub(super) fn gather<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    source: impl Fn(usize) -> usize,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, D::Err> {
    if is_empty(&to) {
        return zeros_after(x, to);
    }
    let count = to.num_elements();
    let sources = (0..count).map(source).collect();
    let sources = TensorFromVec::<usize>::try_tensor_from_vec(x.device(), sources, (count,))?;
    let numbers = (x.shape().num_elements(),);
    reshape(reshape(x, numbers)?.try_gather(sources)?, to)
}

/// Axis `I` of a shape, in row-major memory. One number has an axis of size 1, as in PyTorch.
pub(super) fn axis_of<const I: isize>(shape: &(impl Shape + HasAxes<shapes::Axis<I>>)) -> Axis {
    let before = I as usize;
    let sizes = || shape.concrete().into_iter();
    Axis {
        outer: sizes().take(before).product(),
        len: HasAxes::<shapes::Axis<I>>::size(shape),
        inner: sizes().skip(before + 1).product(),
    }
}

/// A tensor of the axes before one, the axis, and those after it.
pub(super) type Around<E, D, T> = Tensor<(usize, usize, usize), E, D, T>;

pub(super) fn around<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Around<E, D, T>, D::Err>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
{
    let axis = axis_of::<I>(x.shape());
    reshape(x, (axis.outer, axis.len, axis.inner))
}
