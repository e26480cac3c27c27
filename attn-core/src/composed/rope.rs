//! Rotary position embedding.

use dfdx::{
    shapes::{Axes2, Axis, Const, Dim, HasShape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{BroadcastTo, Device, Roll, TryAdd, TryMul},
};

use super::{Heads, empty::is_empty};
use crate::Element;

/// Rotates the pairs `(x[i], x[i + W/2])` of each vector by the angle `position * theta^(-2i / W)`.
///
/// Su et al., "RoFormer" (2021), equation 34, with the halves paired as in GPT-NeoX and Llama:
/// `(x1, x2)` becomes `(x1 cos - x2 sin, x2 cos + x1 sin)`. The score of two rotated vectors depends on the distance of
/// their positions alone. PyTorch: `x * cos + rotate_half(x) * sin` of the `transformers` library.
pub fn rope<
    B: Dim,
    S: Dim,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
    theta: f64,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    const {
        assert!(
            W % 2 == 0,
            "rope pairs the two halves of a head: its width must be even"
        )
    };
    let shape = *x.shape();
    if is_empty(&shape) {
        return Ok(x);
    }
    let (cos, sin) = tables::<_, W, E, D>(x.device(), shape.2, theta)?;
    let cos = cos.try_broadcast_like::<_, Axes2<0, 1>>(&shape)?;
    let sin = sin.try_broadcast_like::<_, Axes2<0, 1>>(&shape)?;
    // Rolling by half the width swaps the halves; the sign of "rotate half" is in the table.
    let swapped = x.retaped::<T>().try_roll::<Axis<3>>(W / 2)?;
    x.try_mul(cos)?.try_add(swapped.try_mul(sin)?)
}

/// A number per position and component: `[len, width]`.
type Table<S, const W: usize, E, D> = Tensor<(S, Const<W>), E, D>;

/// The cosines, and the sines with a minus on the first half. Angles are computed in `f64`: at position 100,000 an
/// `f32` angle is off by 0.004.
fn tables<S: Dim, const W: usize, E: Element, D: Device<E>>(
    device: &D,
    len: S,
    theta: f64,
) -> Result<(Table<S, W, E, D>, Table<S, W, E, D>), D::Err> {
    let frequencies: Vec<f64> = (0..W / 2)
        .map(|i| theta.powf(-2.0 * i as f64 / W as f64))
        .collect();
    let mut cos = Vec::with_capacity(len.size() * W);
    let mut sin = Vec::with_capacity(len.size() * W);
    for position in 0..len.size() {
        for sign in [-1.0, 1.0] {
            for frequency in &frequencies {
                let angle = position as f64 * frequency;
                cos.push(E::of(angle.cos()));
                sin.push(E::of(sign * angle.sin()));
            }
        }
    }
    let table = |values| TensorFromVec::<E>::try_tensor_from_vec(device, values, (len, Const));
    Ok((table(cos)?, table(sin)?))
}
