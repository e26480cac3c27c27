//! The same numbers in another shape.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// The same numbers, row-major, in another shape: neighbouring axes become one, or one becomes several.
///
/// Nothing is copied, unless `x` is a permuted or broadcast view. The result then shares its gradient with `x`.
///
/// PyTorch: `x.reshape(to)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::reshape};
///
/// let x: Tensor<Rank2<2, 6>, f32, _> = Cpu::default().tensor([[1.0; 6], [2.0; 6]]);
/// let y = reshape(x, (2, Const::<3>, Const::<2>));
/// assert_eq!(y.as_vec(), [[1.0; 6], [2.0; 6]].concat());
/// ```
///
/// # Panics
/// If [`try_reshape`] returns an error or panics.
#[doc(alias = "view")]
#[track_caller]
pub fn reshape<S: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Tensor<S2, E, D, T> {
    unwrap(try_reshape(x, to))
}

/// The fallible version of [`reshape`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `to` has another number of elements.
#[track_caller]
pub fn try_reshape<S: Shape, S2: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    to: S2,
) -> Result<Tensor<S2, E, D, T>, Error<D::Err>> {
    check_shape("reshape", x.shape())?;
    check_shape("reshape", &to)?;
    let [from, sizes] = [dims(x.shape()), dims(&to)];
    assert_eq!(
        x.shape().num_elements(),
        to.num_elements(),
        "the numbers of elements of {from:?} and {sizes:?}"
    );
    Ok(composed::reshape(x, to)?)
}

impl<T> Pass<'_, T> {
    /// The same numbers in another shape: [`reshape`].
    ///
    /// # Errors
    /// The errors of [`try_reshape`].
    ///
    /// # Panics
    /// The panics of [`try_reshape`].
    #[track_caller]
    pub fn reshape<S: Shape, S2: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |_, x| try_reshape(x, to))
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::Shape,
        tensor::{Tape, Tensor},
        tensor_ops::Device,
    };

    use crate::{Element, composed};

    /// [`reshape`](super::reshape)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn reshape<S: Shape, S2: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
        to: S2,
    ) -> Result<Tensor<S2, E, D, T>, D::Err> {
        composed::reshape(x, to)
    }
}
