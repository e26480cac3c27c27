//! Rotary position embedding.

use dfdx::{
    shapes::{Axes2, Axis, Const, Dim, HasShape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{BroadcastTo, Device, Roll, TryAdd, TryMul},
};

use super::{Heads, tensors::is_empty};
use crate::Element;

/// Rotates the pairs `(x[i], x[i + W/2])` of each vector by the angle `position * theta^(-2i / W)`.
///
/// Su et al., "RoFormer" (2021), equation 34, with pairs of the two halves, as in GPT-NeoX and Llama:
/// `(x1, x2)` becomes `(x1 cos - x2 sin, x2 cos + x1 sin)`. The dot product of two rotated vectors depends only on the distance of
/// their positions. PyTorch: `x * cos + rotate_half(x) * sin` of the `transformers` library.
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
            W.is_multiple_of(2),
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
    // A roll by half the width swaps the halves; the sign of "rotate half" is in the table.
    let swapped = x.retaped::<T>().try_roll::<Axis<3>>(W / 2)?;
    x.try_mul(cos)?.try_add(swapped.try_mul(sin)?)
}

/// A number per position and component: `[len, width]`.
type Table<S, const W: usize, E, D> = Tensor<(S, Const<W>), E, D>;

/// The cosines, and the sines with a negative first half. Angles are computed in `f64`: at position 100,000, the error of an `f32` angle
/// is 0.004.
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

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::{composed::dot_scores, testing::*};

    type X<const W: usize, E> = Heads<usize, 2, usize, W, E, Cpu, NoneTape>;

    fn check<const W: usize, E: Element>([b, s]: [usize; 2], theta: f64, tolerance: f64)
    where
        Cpu: Device<E>,
    {
        let x: X<W, E> = tensor((b, Const, s, Const), 1);
        let rotated = rope(x.clone(), theta).unwrap();
        let x = values(&x);
        let expected = naive([b, 2, s, W], |b_, h, s_, w| {
            let pair = |i| x[at([b, 2, s, W], [b_, h, s_, i])];
            let i = w % (W / 2);
            let x1 = pair(i);
            let x2 = pair(i + W / 2);
            let angle = s_ as f64 / theta.powf(2.0 * i as f64 / W as f64);
            if w < W / 2 {
                x1 * angle.cos() - x2 * angle.sin()
            } else {
                x2 * angle.cos() + x1 * angle.sin()
            }
        });
        assert_close(&values(&rotated), &expected, tolerance);
    }

    #[test]
    fn rope_rotates_each_pair_of_the_halves() {
        for sizes in [[2, 5], [1, 1], [1, 300], [0, 3], [2, 0]] {
            check::<2, f64>(sizes, 10_000.0, F64);
            check::<6, f64>(sizes, 10_000.0, F64);
            check::<8, f32>(sizes, 500_000.0, F32);
        }
    }

    #[test]
    fn scores_of_rotated_vectors_depend_on_the_distance_alone() {
        let shape: (usize, Const<2>, usize, Const<8>) = (1, Const, 6, Const);
        let vector: Tensor<Rank1<8>, f64, Cpu> = tensor((Const,), 1);
        let other: Tensor<Rank1<8>, f64, Cpu> = tensor((Const,), 2);
        let everywhere = |x: Tensor<Rank1<8>, f64, Cpu>| -> X<8, f64> {
            rope(x.broadcast_like::<_, Axes3<0, 1, 2>>(&shape), 10_000.0).unwrap()
        };
        let scores = values(&dot_scores(everywhere(vector), everywhere(other)).unwrap());
        for q in 0..5 {
            for k in 0..5 {
                // F64: sums of 8 products of numbers below 3.
                assert_close(&[scores[q * 6 + k]], &[scores[(q + 1) * 6 + k + 1]], F64);
            }
        }
        assert!((scores[1] - scores[2]).abs() > 1e-3);
    }

    #[test]
    fn rope_has_gradients_of_views() {
        let x: Tensor<(usize, usize, Const<2>, Const<4>), f64, Cpu> =
            tensor((2, 3, Const, Const), 1);
        check_gradient(&x, |x| {
            let view: Traced<(usize, Const<2>, usize, Const<4>)> =
                x.leaky_trace().permute::<_, Axes4<0, 2, 1, 3>>();
            rope(view, 10_000.0).unwrap()
        });
    }
}
