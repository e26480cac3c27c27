//! The places of the largest numbers along an axis.

use dfdx::{
    shapes::{self, HasAxes, HasShape, ReduceShape, ReduceStridesTo, Shape},
    tensor::{NoneTape, Storage, Tape, Tensor, TensorFromVec},
};

use crate::{
    Backend, Element, Error,
    data::{Ids, values},
    kernel::axis::Axis,
    model::Pass,
    ops::{
        check_shape,
        gather::{Along, gather_with_form},
        shape::dims,
        slice::Without,
    },
    unwrap,
};

/// The index of the largest number along one axis, which the result lacks.
///
/// The first one of equal numbers is the larger one, and NaN is larger than any number. No gradient flows through indices. PyTorch: `x.argmax(1)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::argmax};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 3.0, 3.0], [6.0, 5.0, 4.0]]);
/// assert_eq!(argmax(&x, Axis::<1>).array(), [1, 0]);
/// ```
///
/// # Panics
/// If [`try_argmax`] returns an error or panics.
#[track_caller]
pub fn argmax<const I: isize, S, E: Element, D: Backend<E>>(
    x: &Tensor<S, E, D>,
    axis: shapes::Axis<I>,
) -> Tensor<Without<S, I>, usize, D>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    unwrap(try_argmax(x, axis))
}

/// The fallible version of [`argmax`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis is empty, and the result is not.
#[track_caller]
pub fn try_argmax<const I: isize, S, E: Element, D: Backend<E>>(
    x: &Tensor<S, E, D>,
    _: shapes::Axis<I>,
) -> Result<Tensor<Without<S, I>, usize, D>, Error<D::Err>>
where
    S: Shape + ReduceShape<shapes::Axis<I>>,
{
    let to: Without<S, I> = ReduceStridesTo::<_, shapes::Axis<I>>::reduced(x.shape());
    ids_of_largest("argmax", x, I as usize, 1, to)
}

/// The largest numbers along one axis, the largest one first, and their indices. `to` is the shape of both: it has so many indices of the
/// axis as numbers are wanted.
///
/// The first one of equal numbers is the larger one, and NaN is larger than any number. The gradient of a number is that of its place. PyTorch:
/// `x.topk(k, 1)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::top_k};
///
/// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 3.0, 2.0], [6.0, 5.0, 6.0]]);
/// let (values, ids) = top_k(x.leaky_trace(), Axis::<1>, (Const::<2>, Const::<2>));
/// assert_eq!(values.array(), [[3.0, 2.0], [6.0, 6.0]]);
/// assert_eq!(ids.array(), [[1, 2], [0, 2]]);
/// assert_eq!(values.sum().backward().get(&x).array(), [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]);
/// ```
///
/// # Panics
/// If [`try_top_k`] returns an error or panics.
#[doc(alias("topk", "argsort", "sort"))]
#[track_caller]
pub fn top_k<const I: isize, S, S2, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    axis: shapes::Axis<I>,
    to: S2,
) -> (Tensor<S2, E, D, T>, Tensor<S2, usize, D>)
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
{
    unwrap(try_top_k(x, axis, to))
}

/// The largest numbers, and their indices.
type Largest<S, E, D, T> = (Tensor<S, E, D, T>, Tensor<S, usize, D>);

/// The fallible version of [`top_k`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If the axis is shorter, or another size differs.
#[track_caller]
pub fn try_top_k<const I: isize, S, S2, E, D, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    _: shapes::Axis<I>,
    to: S2,
) -> Result<Largest<S2, E, D, T>, Error<D::Err>>
where
    S: Shape + HasAxes<shapes::Axis<I>>,
    S2: Shape<Concrete = S::Concrete>,
    E: Element,
    D: Backend<E>,
{
    let axis = I as usize;
    let [from, sizes] = [dims(x.shape()), dims(&to)];
    let fits = |i: usize| i == axis || from[i] == sizes[i];
    assert!(
        (0..from.len()).all(fits),
        "the largest numbers along axis {axis} of {from:?} are not {sizes:?}"
    );
    let without: Tensor<S, E, D> = x.retaped::<NoneTape>();
    let ids = ids_of_largest("top_k", &without, axis, sizes[axis], to)?;
    let shared = (0..from.len()).map(|i| (i != axis).then_some(i));
    let along = Along {
        operation: "top_k",
        axis,
        ids: Ids::read(&ids),
        shared: &shared.collect::<Vec<_>>(),
    };
    Ok((gather_with_form(D::FUSED, x, along, to)?, ids))
}

/// The indices of the `k` largest numbers along an axis, as a tensor of the shape `to`.
#[track_caller]
fn ids_of_largest<S: Shape, S2: Shape, E: Element, D: Backend<E>>(
    operation: &'static str,
    x: &Tensor<S, E, D>,
    axis: usize,
    k: usize,
    to: S2,
) -> Result<Tensor<S2, usize, D>, Error<D::Err>> {
    check_shape(operation, x.shape())?;
    check_shape(operation, &to)?;
    let axis = Axis::of(&dims(x.shape()), axis);
    let mut ids = vec![0; to.num_elements()];
    slices::top_k(&values(x), axis, k, &mut ids);
    Ok(TensorFromVec::<usize>::try_tensor_from_vec(
        x.device(),
        ids,
        to,
    )?)
}

impl<T> Pass<'_, T> {
    /// The index of the largest number along one axis: [`argmax`].
    ///
    /// # Errors
    /// The errors of [`try_argmax`].
    ///
    /// # Panics
    /// The panics of [`try_argmax`].
    #[track_caller]
    pub fn argmax<const I: isize, S, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        axis: shapes::Axis<I>,
    ) -> Result<Tensor<<S as ReduceShape<shapes::Axis<I>>>::Reduced, usize, D>, Error<D::Err>>
    where
        S: Shape + ReduceShape<shapes::Axis<I>>,
    {
        try_argmax(x, axis)
    }

    /// The indices of the largest numbers along one axis, which has so many in the shape `to`: those of [`top_k`].
    ///
    /// # Errors
    /// The errors of [`try_top_k`].
    ///
    /// # Panics
    /// The panics of [`try_top_k`].
    #[track_caller]
    pub fn top_k<const I: isize, S, S2, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        _: shapes::Axis<I>,
        to: S2,
    ) -> Result<Tensor<S2, usize, D>, Error<D::Err>>
    where
        S: Shape + HasAxes<shapes::Axis<I>>,
        S2: Shape<Concrete = S::Concrete>,
    {
        ids_of_largest("top_k", x, I as usize, dims(&to)[I as usize], to)
    }

    /// The indices of an axis: 0, 1, 2, ..
    ///
    /// # Errors
    /// [`Error::TooLarge`] if they do not fit the memory; [`Error::Device`] if dfdx fails.
    pub fn arange<A: shapes::Dim, D>(
        &mut self,
        device: &D,
        axis: A,
    ) -> Result<Tensor<(A,), usize, D>, Error<D::Err>>
    where
        D: Storage<usize> + TensorFromVec<usize>,
    {
        check_shape("arange", &(axis,))?;
        let ids = (0..axis.size()).collect();
        Ok(device.try_tensor_from_vec(ids, (axis,))?)
    }
}

/// The operations on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        kernel::{axis::Axis, rank},
    };

    /// The indices of the `k` largest numbers along an axis. With a `k` of 1, the axis may be left out of the result.
    pub fn top_k<E: Element>(x: &[E], axis: Axis, k: usize, ids: &mut [usize]) {
        rank::top_k(x, axis, k, ids);
    }

    /// 0, 1, 2, ..
    pub fn arange(ids: &mut [usize]) {
        for (index, id) in ids.iter_mut().enumerate() {
            *id = index;
        }
    }
}
