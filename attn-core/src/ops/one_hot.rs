//! Ids as vectors with one 1.

use dfdx::{
    shapes::{Const, HasShape, Shape},
    tensor::{PutTape, Tape, Tensor, TensorFromVec},
};

use crate::{
    Backend, Element, Error,
    data::Ids,
    model::Pass,
    ops::{Append, check_shape},
    unwrap,
};

/// A vector of `N` numbers for each id, with a 1 at the id, and 0 elsewhere: `[..]` to `[.., N]`.
///
/// PyTorch: `torch.nn.functional.one_hot(ids, N)`, as floats.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{one_hot, try_one_hot}};
///
/// let ids: Tensor<Rank1<2>, usize, _> = Cpu::default().tensor([2, 0]);
/// let y: Tensor<Rank2<2, 3>, f32, _> = one_hot(&ids);
/// assert_eq!(y.array(), [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]);
///
/// let error = try_one_hot::<_, 2, f32, _>(&ids).unwrap_err();
/// assert_eq!(error.to_string(), "one_hot: the id at [0] is 2, but there are 2: 0 to 1");
/// ```
///
/// # Panics
/// If [`try_one_hot`] returns an error.
#[track_caller]
pub fn one_hot<S: Append, const N: usize, E: Element, D: Backend<E>>(
    ids: &Tensor<S, usize, D>,
) -> Tensor<S::With<Const<N>>, E, D> {
    unwrap(try_one_hot(ids))
}

/// The fallible version of [`one_hot`].
///
/// # Errors
/// [`Error::OutOfRange`] if an id is not below `N`; [`Error::TooLarge`] if the sizes of the result do not fit the memory;
/// [`Error::Device`] if dfdx fails.
pub fn try_one_hot<S: Append, const N: usize, E: Element, D: Backend<E>>(
    ids: &Tensor<S, usize, D>,
) -> Result<Tensor<S::With<Const<N>>, E, D>, Error<D::Err>> {
    let shape = ids.shape().append(Const::<N>);
    check_shape("one_hot", &shape)?;
    let ids_of = Ids::read(ids);
    ids_of.check("one_hot", "id", N, None)?;
    let mut y = vec![E::zero(); shape.num_elements()];
    slices::one_hot(&ids_of.values, N, &mut y);
    Ok(TensorFromVec::<E>::try_tensor_from_vec(
        ids.device(),
        y,
        shape,
    )?)
}

impl<T> Pass<'_, T> {
    /// A vector with a 1 at each id, `[..]` to `[.., N]`: [`one_hot`].
    ///
    /// # Errors
    /// The errors of [`try_one_hot`].
    pub fn one_hot<S: Append, const N: usize, E: Element, D: Backend<E>>(
        &mut self,
        ids: &Tensor<S, usize, D>,
    ) -> Result<Tensor<S::With<Const<N>>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.with_tape(|tape| Ok(try_one_hot(ids)?.put_tape(tape)))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::Element;

    /// A vector of `width` numbers for each id, with a 1 at the id.
    ///
    /// # Panics
    /// If an id is not below `width`. Callers check the ids before.
    pub fn one_hot<E: Element>(ids: &[usize], width: usize, y: &mut [E]) {
        y.fill(E::zero());
        for (row, &id) in ids.iter().enumerate() {
            assert!(id < width, "id {id} of {width}");
            y[row * width + id] = E::one();
        }
    }
}
