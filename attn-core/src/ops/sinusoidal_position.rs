//! Positions as waves.

use dfdx::{
    shapes::{Const, Dim, Shape},
    tensor::Tensor,
};

use super::{Append, LastAxis, check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{layers, zeros},
    unwrap,
};

/// A vector of `W` numbers for each position, to be added to the tokens: `[.., seq, W]` of the axes `[.., seq]`.
///
/// Position `s` has `sin(s / 10000^(2 i / W))` in column `2 i` and the cosine of the same in column `2 i + 1`. Vaswani et
/// al., "Attention is all you need" (2017), section 3.5. Nothing is learned, and no sequence is too long.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::sinusoidal_position};
///
/// let dev = Cpu::default();
/// let rows: Tensor<(usize, Const<4>), f64, _> = sinusoidal_position((2,), &dev);
/// assert_eq!(rows.as_vec(), [0.0, 1.0, 0.0, 1.0, 1f64.sin(), 1f64.cos(), 0.01f64.sin(), 0.01f64.cos()]);
/// ```
///
/// # Panics
/// Where [`try_sinusoidal_position`] has an error.
#[doc(alias = "PositionalEncoding")]
#[track_caller]
pub fn sinusoidal_position<S: Append + LastAxis, const W: usize, E: Element, D: Backend<E>>(
    axes: S,
    device: &D,
) -> Tensor<<S as Append>::With<Const<W>>, E, D> {
    unwrap(try_sinusoidal_position(axes, device))
}

/// The fallible twin of [`sinusoidal_position`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_sinusoidal_position<S: Append + LastAxis, const W: usize, E: Element, D: Backend<E>>(
    axes: S,
    device: &D,
) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>> {
    sinusoidal_position_in(D::FUSED, axes, device)
}

/// [`try_sinusoidal_position`] in its fused or its composed form.
pub(crate) fn sinusoidal_position_in<S, const W: usize, E: Element, D: Backend<E>>(
    fused: bool,
    axes: S,
    device: &D,
) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>>
where
    S: Append + LastAxis,
{
    let shape = axes.append(Const::<W>);
    check_shape("sinusoidal_position", &shape)?;
    if !fused {
        return Ok(composed::sinusoidal_position(axes, device)?);
    }
    let mut all = zeros(shape.num_elements());
    layers::sinusoidal_position(axes.last().size(), W, &mut all);
    Ok(device.try_tensor_from_vec(all, shape)?)
}
