//! Sinusoidal position embeddings.

use dfdx::{
    shapes::{Const, Dim, Shape},
    tensor::{PutTape, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::zeros,
    model::Pass,
    ops::{Append, LastAxis, check_shape},
    unwrap,
};

/// A vector of `W` numbers for each position, for a tensor `[.., seq]`: `[.., seq, W]`.
///
/// Position `s` has `sin(s / 10000^(2 i / W))` in column `2 i` and the cosine of the same angle in column `2 i + 1`. Vaswani et al.,
/// "Attention is all you need" (2017), section 3.5. It has no parameters and no maximum length.
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
/// If [`try_sinusoidal_position`] returns an error.
#[doc(alias = "PositionalEncoding")]
#[track_caller]
pub fn sinusoidal_position<S: Append + LastAxis, const W: usize, E: Element, D: Backend<E>>(
    axes: S,
    device: &D,
) -> Tensor<<S as Append>::With<Const<W>>, E, D> {
    unwrap(try_sinusoidal_position(axes, device))
}

/// The fallible version of [`sinusoidal_position`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_sinusoidal_position<S: Append + LastAxis, const W: usize, E: Element, D: Backend<E>>(
    axes: S,
    device: &D,
) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>> {
    sinusoidal_position_with_form(D::FUSED, axes, device)
}

/// [`try_sinusoidal_position`] in the fused or the composed form.
pub(crate) fn sinusoidal_position_with_form<S, const W: usize, E: Element, D: Backend<E>>(
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
    slices::sinusoidal_position(axes.last().size(), W, &mut all);
    Ok(device.try_tensor_from_vec(all, shape)?)
}

impl<T> Pass<'_, T> {
    /// The embeddings of the positions of a tensor `[.., seq]`: `[.., seq, W]`. See [`sinusoidal_position`].
    ///
    /// # Errors
    /// The errors of [`try_sinusoidal_position`].
    pub fn sinusoidal_position<S, const W: usize, E: Element, D: Backend<E>>(
        &mut self,
        axes: S,
        device: &D,
    ) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>>
    where
        S: Append + LastAxis,
        T: Tape<E, D>,
    {
        let fused = self.fused::<E, D>();
        self.with_tape(|tape| {
            let y = sinusoidal_position_with_form(fused, axes, device)?;
            Ok(y.put_tape(tape))
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        kernel::{
            Buffer, MatrixMut,
            axis::{self, Axis},
            sinusoid,
        },
    };

    /// The embeddings of the positions of sequences of `len` tokens, one sequence after the other.
    pub fn sinusoidal_position<E: Element>(len: usize, width: usize, to: &mut [E]) {
        let mut rows = Buffer::counted(len * width);
        sinusoid::forward(MatrixMut::new(&mut rows, len, width));
        let sequences = Axis {
            outer: 1,
            len: to.len().checked_div(rows.len()).unwrap_or(0),
            inner: len * width,
        };
        axis::repeat(&rows, sequences, to);
    }

    /// The embeddings of these positions, one per row.
    ///
    /// # Panics
    /// If there are fewer positions than rows.
    pub fn sinusoids<E: Element>(positions: &[usize], to: MatrixMut<'_, E>) {
        sinusoid::forward_at(positions, to);
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{Axis, Const, Dim, Shape},
        tensor::{Tensor, TensorFromVec, ZerosTensor},
        tensor_ops::{BroadcastTo, ChooseFrom, Device, TryMul},
    };

    use crate::{
        Element,
        composed::{conditions, is_empty, reshape},
        kernel::sinusoid::frequency,
        ops::{Append, LastAxis},
    };

    /// [`sinusoidal_position`](super::sinusoidal_position)
    ///
    /// # Errors
    /// If dfdx fails.
    pub fn sinusoidal_position<S: Append + LastAxis, const W: usize, E: Element, D: Device<E>>(
        axes: S,
        device: &D,
    ) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, D::Err> {
        let shape = axes.append(Const::<W>);
        if is_empty(&shape) {
            return ZerosTensor::<E>::try_zeros_like(device, &shape);
        }
        let sizes = (axes.leading().num_elements(), axes.last().size(), W);
        let positions = (0..sizes.1).map(|s| E::of(s as f64)).collect();
        let positions: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(device, positions, (sizes.1,))?;
        let frequencies = (0..W).map(|column| E::of(frequency(column, W))).collect();
        let frequencies: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(device, frequencies, (W,))?;
        let even = (0..sizes.1 * W).map(|place| (place % W).is_multiple_of(2));
        let even = conditions::<_, E, D>(device, even, (sizes.1, W))?;
        let positions: Tensor<(usize, usize), E, D> =
            positions.try_broadcast_like::<_, Axis<1>>(&(sizes.1, W))?;
        let angles =
            positions.try_mul(frequencies.try_broadcast_like::<_, Axis<0>>(&(sizes.1, W))?)?;
        let waves = even.try_choose(angles.clone().try_sin()?, angles.try_cos()?)?;
        reshape(waves.try_broadcast_like::<_, Axis<0>>(&sizes)?, shape)
    }
}
