//! Rotary position embedding.

use dfdx::{
    shapes::{Axis, Const, Dim, HasShape, Shape},
    tensor::{Tape, Tensor, TensorFromVec},
    tensor_ops::{BroadcastTo, Device, TryAdd, TryMatMul, TryMul},
};

use super::{
    Heads,
    tensors::{is_empty, reshape},
};
use crate::{Element, kernel::attention::Rotary};

/// Rotates the pairs of the first [`dims`](Rotary::dims) coordinates of each vector by its position times their frequencies. The other
/// coordinates stay.
///
/// Su et al., "RoFormer" (2021), equation 34, with pairs of the two halves, as in GPT-NeoX and Llama, or of neighbours, as in GPT-J:
/// `(x1, x2)` becomes `(x1 cos - x2 sin, x2 cos + x1 sin)`. The dot product of two rotated vectors depends only on the distance of
/// their positions. PyTorch: `x * cos + rotate_half(x) * sin` of the `transformers` library.
///
/// A vector has the position of its place in the sequence, or one of `positions [batch, len]`.
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
    rotary: &Rotary,
    positions: Option<&[usize]>,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    let shape = *x.shape();
    if is_empty(&shape) {
        return Ok(x);
    }
    let device = x.device().clone();
    let (batch, _, len, _) = shape;
    let count = batch.size() * len.size();
    let position = |at: usize| positions.map_or(at % len.size(), |positions| positions[at]);
    let positions = (0..count).map(position);
    let [cos, sin] = rotation_tables(&device, positions, rotary, W, (batch, len, Const::<W>))?;
    let cos = cos.try_broadcast_like::<_, Axis<1>>(&shape)?;
    let sin = sin.try_broadcast_like::<_, Axis<1>>(&shape)?;
    rotate(x, [cos, sin], rotary, W)
}

/// Vectors of a width times the cosines, plus the other coordinates of their pairs times the sines.
pub(crate) fn rotate<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    [cos, sin]: [Tensor<S, E, D>; 2],
    rotary: &Rotary,
    width: usize,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    // A product with a permutation matrix exchanges the coordinates of every pair.
    let exchange = exchange(rotary, width);
    let exchange: Tensor<_, E, D> =
        TensorFromVec::<E>::try_tensor_from_vec(x.device(), exchange, (width, width))?;
    let rows = (shape.num_elements() / width, width);
    let other = reshape(x.retaped::<T>(), rows)?.try_matmul(exchange)?;
    let other = reshape(other, shape)?;
    x.try_mul(cos)?.try_add(other.try_mul(sin)?)
}

/// The coordinates of pair `i`.
fn pair(rotary: &Rotary, i: usize) -> [usize; 2] {
    match rotary.interleaved {
        true => [2 * i, 2 * i + 1],
        false => [i, i + rotary.pairs()],
    }
}

/// The matrix `[width, width]` that puts the second coordinate of a pair in the place of the first, and the negative first one in the place
/// of the second; it takes a row from the left.
fn exchange<E: Element>(rotary: &Rotary, width: usize) -> Vec<E> {
    let mut matrix = vec![E::zero(); width * width];
    for [first, second] in (0..rotary.pairs()).map(|i| pair(rotary, i)) {
        matrix[second * width + first] = E::of(-1.0);
        matrix[first * width + second] = E::of(1.0);
    }
    matrix
}

/// The cosines and the sines of vectors of a width at these positions, in a shape: 1 and 0 for coordinates that are not rotated. Angles are
/// computed in `f64`: at position 100,000, the error of an `f32` angle is 0.004.
pub(crate) fn rotation_tables<S: Shape, E: Element, D: Device<E>>(
    device: &D,
    positions: impl ExactSizeIterator<Item = usize>,
    rotary: &Rotary,
    width: usize,
    shape: S,
) -> Result<[Tensor<S, E, D>; 2], D::Err> {
    let (frequencies, magnitude) = rotary.frequencies();
    let mut cos = vec![E::of(1.0); positions.len() * width];
    let mut sin = vec![E::zero(); positions.len() * width];
    for (at, position) in positions.enumerate() {
        for (i, frequency) in frequencies.iter().enumerate() {
            let angle = position as f64 * frequency;
            for place in pair(rotary, i).map(|coordinate| at * width + coordinate) {
                cos[place] = E::of(magnitude * angle.cos());
                sin[place] = E::of(magnitude * angle.sin());
            }
        }
    }
    let table = |values| TensorFromVec::<E>::try_tensor_from_vec(device, values, shape);
    Ok([table(cos)?, table(sin)?])
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::{composed::dot_scores, kernel::attention::RopeScaling, testing::*};

    fn half_split(dims: usize, theta: f64) -> Rotary {
        Rotary {
            dims,
            theta,
            scaling: RopeScaling::None,
            interleaved: false,
        }
    }

    type X<const W: usize, E> = Heads<usize, 2, usize, W, E, Cpu, NoneTape>;

    fn check<const W: usize, E: Element>([b, s]: [usize; 2], theta: f64, tolerance: f64)
    where
        Cpu: Device<E>,
    {
        let x: X<W, E> = tensor((b, Const, s, Const), 1);
        let rotated = rope(x.clone(), &half_split(W, theta), None).unwrap();
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
            let x = x.broadcast_like::<_, Axes3<0, 1, 2>>(&shape);
            rope(x, &half_split(8, 10_000.0), None).unwrap()
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
            rope(view, &half_split(4, 10_000.0), None).unwrap()
        });
    }
}
