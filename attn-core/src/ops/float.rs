//! Ids, lengths and marks as numbers.

use dfdx::{
    shapes::{HasShape, Shape, Unit},
    tensor::{PutTape, Storage, Tape, Tensor, TensorFromVec},
};

use crate::{Backend, Element, Error, data::values, model::Pass, unwrap};

/// The elements of ids and lengths, `usize`, and of masks, `bool`.
pub trait Discrete: Unit + sealed::Sealed {
    /// The number as a float: that of `true` is 1. An `f32` is exact up to 2²⁴.
    fn float<E: Element>(self) -> E;
}

impl Discrete for usize {
    fn float<E: Element>(self) -> E {
        E::of(self as f64)
    }
}

impl Discrete for bool {
    fn float<E: Element>(self) -> E {
        E::of(f64::from(u8::from(self)))
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for usize {}
    impl Sealed for bool {}
}

/// Ids, lengths or marks as floats of the same shape; `true` is 1. No gradient flows through them.
///
/// PyTorch: `x.float()`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::float};
///
/// let keep: Tensor<Rank1<3>, bool, _> = Cpu::default().tensor([true, false, true]);
/// let y: Tensor<Rank1<3>, f32, _> = float(&keep);
/// assert_eq!(y.array(), [1.0, 0.0, 1.0]);
/// ```
///
/// # Panics
/// If [`try_float`] returns an error.
#[track_caller]
pub fn float<S: Shape, N: Discrete, E: Element, D>(x: &Tensor<S, N, D>) -> Tensor<S, E, D>
where
    D: Backend<E> + Storage<N>,
{
    unwrap(try_float(x))
}

/// The fallible version of [`float`].
///
/// # Errors
/// [`Error::Device`] if dfdx fails.
pub fn try_float<S: Shape, N: Discrete, E: Element, D>(
    x: &Tensor<S, N, D>,
) -> Result<Tensor<S, E, D>, Error<D::Err>>
where
    D: Backend<E> + Storage<N>,
{
    let x_of = values(x);
    let mut y = vec![E::zero(); x_of.len()];
    slices::float(&x_of, &mut y);
    Ok(TensorFromVec::<E>::try_tensor_from_vec(
        x.device(),
        y,
        *x.shape(),
    )?)
}

impl<T> Pass<'_, T> {
    /// Ids, lengths or marks as floats: [`float`].
    ///
    /// # Errors
    /// The errors of [`try_float`].
    pub fn float<S: Shape, N: Discrete, E: Element, D>(
        &mut self,
        x: &Tensor<S, N, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        D: Backend<E> + Storage<N>,
        T: Tape<E, D>,
    {
        self.with_tape(|tape| Ok(try_float(x)?.put_tape(tape)))
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use super::Discrete;
    use crate::Element;

    /// Each number as a float.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn float<N: Discrete, E: Element>(x: &[N], y: &mut [E]) {
        assert_eq!(x.len(), y.len(), "lengths");
        for (y, x) in y.iter_mut().zip(x) {
            *y = x.float();
        }
    }
}
