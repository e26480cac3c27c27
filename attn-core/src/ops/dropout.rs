//! Dropout of elements.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use super::{check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{
        Operation, Target,
        layers::{self, Dropout},
        zeros,
    },
    unwrap,
};

/// Sets each element to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`, if `x` has a tape; without
/// one `x` is returned as it is.
///
/// Srivastava et al., "Dropout" (2014). PyTorch: `torch.nn.functional.dropout(x, p)`. Which elements fall is a function
/// of their places and of one number that is drawn from the device, so that its seed fixes them; no mask is kept. Also in
/// a broadcast tensor each element falls alone.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::dropout};
///
/// let x: Tensor<Rank1<1000>, f32, _> = Cpu::default().ones();
/// let y = dropout(x.leaky_trace(), 0.5).array();
/// assert!(y.iter().all(|&y| y == 0.0 || y == 2.0));
/// assert_eq!(dropout(x, 0.5).array(), [1.0; 1000]);
/// ```
///
/// # Panics
/// Where [`try_dropout`] has an error, and if `p` is not between 0 and 1.
#[track_caller]
pub fn dropout<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    p: f64,
) -> Tensor<S, E, D, T> {
    unwrap(try_dropout(x, p))
}

/// The fallible twin of [`dropout`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `p` is not between 0 and 1.
#[track_caller]
pub fn try_dropout<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    p: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    dropout_in(D::FUSED, x, p)
}

/// [`try_dropout`] in its fused or its composed form.
#[track_caller]
pub(crate) fn dropout_in<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    p: f64,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    assert!((0.0..=1.0).contains(&p), "{p} is not a probability");
    check_shape("dropout", x.shape())?;
    if !T::OWNS_TAPE || p == 0.0 {
        return Ok(x);
    }
    let (device, shape) = (x.device().clone(), *x.shape());
    let key = device.random_u64();
    if !fused {
        return Ok(composed::dropout(x, p, key)?);
    }
    let (mut operation, dropout) = (Operation::default(), Dropout::new(p, Some(key)));
    let x = operation.read(x)?;
    let mut y = zeros(x.values().len());
    layers::dropout(dropout, x.values(), &mut y);
    let d_x = x.into_slot();
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        layers::dropout_backward(dropout, d_y, &mut Target::slot(d_x), gradients)
    })?)
}
