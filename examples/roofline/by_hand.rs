//! Attention in plain dfdx.

use attn::dfdx::prelude::*;

pub(crate) type Heads<T = NoneTape> = Tensor<(usize, usize, usize, usize), f32, Cpu, T>;

/// Softmax of the scaled products, plus a mask of 0 and minus infinity, times the values.
pub(crate) fn attention<T: Tape<f32, Cpu>>(
    q: Heads<T>,
    k: Heads<T>,
    v: Heads<T>,
    mask: &Tensor<(usize, usize), f32, Cpu>,
) -> Heads<T> {
    let scale = 1.0 / (q.shape().3 as f32).sqrt();
    let scores = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>()) * scale;
    let mask = mask.retaped::<T>();
    let mask = mask.broadcast_like::<_, Axes2<0, 1>>(scores.shape());
    (scores + mask).softmax::<Axis<3>>().matmul(v)
}

/// `[query, key]`: 0 where a query attends, minus infinity where not.
pub(crate) fn mask(len: usize, window: usize) -> Tensor<(usize, usize), f32, Cpu> {
    let attends = |q: usize, k: usize| k <= q && q - k < window;
    let number = |index| {
        if attends(index / len, index % len) {
            0.0
        } else {
            f32::NEG_INFINITY
        }
    };
    let numbers = (0..len * len).map(number).collect();
    Cpu::default().tensor_from_vec(numbers, (len, len))
}
