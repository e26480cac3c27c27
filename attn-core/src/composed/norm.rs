//! Lengths of queries and keys, taken out before they meet.

use dfdx::{
    shapes::{Axes3, Axis, Dim, HasShape, Rank1},
    tensor::{Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, MeanTo, SumTo, TryAdd, TryDiv, TryMul},
};

use super::{
    Heads,
    empty::{is_empty, zeros_after_both},
};
use crate::Element;

/// Keeps the root, and with it the gradient, finite where a vector is 0.
const EPSILON: f64 = 1e-6;

/// `x / sqrt(mean(x^2) + 1e-6) * gain`, over the width of each head.
///
/// Zhang and Sennrich, "Root mean square layer normalization" (2019), equation 4; on queries and keys as in Qwen 3 and
/// Gemma 3. PyTorch: `torch.nn.RMSNorm(width, eps=1e-6)`.
pub fn rms_norm<
    B: Dim,
    S: Dim,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
    gain: &Tensor<Rank1<W>, E, D>,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    let shape = *x.shape();
    let gain = gain.retaped::<T>();
    if is_empty(&shape) {
        return zeros_after_both(x, gain, shape);
    }
    let mean = x.retaped::<T>().try_square()?.try_mean::<_, Axis<3>>()?;
    let rms = mean.try_add(E::of(EPSILON))?.try_sqrt()?;
    x.try_div(rms.try_broadcast_like::<_, Axis<3>>(&shape)?)?
        .try_mul(gain.try_broadcast_like::<_, Axes3<0, 1, 2>>(&shape)?)
}

/// `x / sqrt(sum(x^2) + 1e-6)`, over the width of each head.
///
/// Henry et al., "Query-key normalization for transformers" (2020), where the scale of the scores is then learned or
/// set. PyTorch: `torch.nn.functional.normalize(x, dim=-1)`, which bounds the length from below instead.
pub fn l2_norm<
    B: Dim,
    S: Dim,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    let shape = *x.shape();
    if is_empty(&shape) {
        return Ok(x);
    }
    let sum = x.retaped::<T>().try_square()?.try_sum::<_, Axis<3>>()?;
    let length = sum.try_add(E::of(EPSILON))?.try_sqrt()?;
    x.try_div(length.try_broadcast_like::<_, Axis<3>>(&shape)?)
}
