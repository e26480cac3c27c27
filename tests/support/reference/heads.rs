//! Splitting a sequence into heads, joining them, and scores.

use super::{Heads, Sequence, Traced, number};
use dfdx::prelude::*;

/// `[batch, length, heads * width]` → `[batch, heads, length, width]`.
pub fn split<E: Dtype>(x: Sequence<E>, heads: usize) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (batch, length, width) = *x.shape();
    x.reshape_like(&(batch, length, heads, width / heads))
        .permute::<_, Axes4<0, 2, 1, 3>>()
}

/// `[batch, heads, length, width]` → `[batch, length, heads * width]`.
pub fn join<E: Dtype>(x: Heads<E>) -> Sequence<E>
where
    Cpu: Device<E>,
{
    let (batch, heads, length, width) = *x.shape();
    x.permute::<(usize, usize, usize, usize), Axes4<0, 2, 1, 3>>()
        .reshape_like(&(batch, length, heads * width))
}

/// Repeats every key (or value) head `times` times, so that each query head has one.
pub fn repeat<E: Dtype>(x: Heads<E>, times: usize) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (batch, heads, length, width) = *x.shape();
    x.broadcast_like::<_, Axis<2>>(&(batch, heads, times, length, width))
        .reshape_like(&(batch, heads * times, length, width))
}

/// `q · k`.
pub fn dot<E: Dtype>(q: Heads<E>, k: Heads<E>) -> Heads<E>
where
    Cpu: Device<E>,
{
    q.matmul(k.permute::<(usize, usize, usize, usize), Axes4<0, 1, 3, 2>>())
}

/// `q · k / √width`.
pub fn scaled_dot<E: Dtype>(q: Heads<E>, k: Heads<E>) -> Heads<E>
where
    Cpu: Device<E>,
{
    let width = q.shape().3;
    dot(q, k) / number::<E>((width as f64).sqrt())
}

/// `score * factor`.
pub fn scale<E: Dtype>(scores: Heads<E>, factor: f64) -> Heads<E>
where
    Cpu: Device<E>,
{
    scores * number::<E>(factor)
}

/// `q W k`, with a matrix for every head.
pub fn bilinear<E: Dtype>(
    q: Heads<E>,
    k: Heads<E>,
    w: Tensor<(usize, usize, usize), E, Cpu>,
) -> Heads<E>
where
    Cpu: Device<E>,
{
    let batch = q.shape().0;
    let (heads, rows, columns) = *w.shape();
    let w = w
        .leaky_trace()
        .broadcast_like::<_, Axis<0>>(&(batch, heads, rows, columns));
    dot(q.matmul(w), k)
}

/// `w · tanh(q + k)`, with a vector for every head: Bahdanau's score of projected queries and keys.
pub fn additive<E: Dtype>(q: Heads<E>, k: Heads<E>, w: Tensor<(usize, usize), E, Cpu>) -> Heads<E>
where
    Cpu: Device<E>,
{
    let (batch, heads, queries, hidden) = *q.shape();
    let features = (batch, heads, queries, k.shape().2, hidden);
    let q = q.broadcast_like::<_, Axis<3>>(&features);
    let k = k.broadcast_like::<_, Axis<2>>(&features);
    let w = w
        .leaky_trace()
        .broadcast_like::<_, Axes3<0, 2, 3>>(&features);
    ((q + k).tanh() * w).sum::<_, Axis<4>>()
}

/// `cap * tanh(score / cap)`.
pub fn softcap<E: Dtype>(scores: Heads<E>, cap: f64) -> Heads<E>
where
    Cpu: Device<E>,
{
    (scores / number::<E>(cap)).tanh() * number::<E>(cap)
}

/// `x / √(mean(x²) + 1e-6) * gain`, over the width of a head.
pub fn rms_norm<E: Dtype>(x: Heads<E>, gain: Tensor<(usize,), E, Cpu>) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *x.shape();
    let mean_square = x.with_empty_tape().square().mean::<_, Axis<3>>();
    let rms = (mean_square + number::<E>(1e-6)).sqrt();
    let gain: Traced<_, E> = gain
        .leaky_trace()
        .broadcast_like::<_, Axes3<0, 1, 2>>(&shape);
    x / rms.broadcast_like::<_, Axis<3>>(&shape) * gain
}

/// `x / √(sum(x²) + 1e-6)`, over the width of a head.
pub fn l2_norm<E: Dtype>(x: Heads<E>) -> Heads<E>
where
    Cpu: Device<E>,
{
    let shape = *x.shape();
    let sum_square = x.with_empty_tape().square().sum::<_, Axis<3>>();
    let norm = (sum_square + number::<E>(1e-6)).sqrt();
    x / norm.broadcast_like::<_, Axis<3>>(&shape)
}
