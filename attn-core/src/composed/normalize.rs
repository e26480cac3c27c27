//! Normalizers, from scores to weights: variants of softmax, and the identity.

use dfdx::{
    shapes::{Axes2, Axis, Const, Dim, HasShape, Shape},
    tensor::{NoneTape, PutTape, SplitTape, Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, MaxTo, SumTo, TryAdd, TryDiv, TrySub},
};

use super::tensors::contiguous;
use super::{
    ScoreMask, Scores,
    condition::{less, or, select},
    tensors::{is_empty, zeros_after, zeros_after_both},
};
use crate::Element;

/// `weight[k] = exp(score[k]) / sum_j exp(score[j])`, over the keys `j` that the query attends to; 0 for the others.
///
/// PyTorch: `torch.softmax(scores.masked_fill(~mask, -inf), -1)`. But a query that attends to no key, or whose scores are all minus
/// infinity, has weights 0 and gradient 0; PyTorch gives NaN.
pub fn softmax<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    if is_empty(scores.shape()) {
        return Ok(scores);
    }
    let (shifted, _) = shift(scores, bias(mask), |max| {
        max.try_clamp(lowest::<E>(), f64::INFINITY)
    })?;
    let exp = shifted.try_exp()?;
    let sum = sum_over_keys(&exp)?;
    // The maximum contributes exp(0) = 1, so the sum is below 1 only for a query that attends to no key.
    divide_rows(exp, sum.try_clamp(1.0, f64::INFINITY)?)
}

/// `weight[k] = exp(score[k]) / (1 + sum_j exp(score[j]))`, over the keys `j` that the query attends to; 0 for the
/// others.
///
/// Miller, "Attention is off by one" (2023). The sum of the weights can be small, as if there were one more key with score 0 and value
/// 0.
pub fn softmax1<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    if is_empty(scores.shape()) {
        return Ok(scores);
    }
    // The additional key has score 0, which is part of the maximum.
    let (shifted, max) = shift(scores, bias(mask), |max| max.try_clamp(0.0, f64::INFINITY))?;
    let exp = shifted.try_exp()?;
    let additional = max.try_negate()?.try_exp()?;
    let sum = sum_over_keys(&exp)?.try_add(additional)?;
    divide_rows(exp, sum)
}

/// `weight[k] = exp(score[k]) / (exp(sink) + sum_j exp(score[j]))`, over the keys `j` that the query attends to; 0 for the
/// others. Every head has its own sink.
///
/// Xiao et al., "Efficient streaming language models with attention sinks" (2023), observe that models use the first token as a sink;
/// here it is a learned number, as in gpt-oss. With sinks of 0 this is [`softmax1`]. PyTorch:
/// `torch.softmax(torch.cat([scores, sink.expand(..)], -1), -1)[..., :-1]`.
pub fn sink<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
    sink: &Tensor<(Const<H>,), E, D>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let shape = *scores.shape();
    let sink = sink.retaped::<T>();
    if is_empty(&shape) {
        return zeros_after_both(scores, sink, shape);
    }
    let rows = (shape.0, shape.1, shape.2);
    let sink: Rows<B, H, Q, E, D, T> = sink.try_broadcast_like::<_, Axes2<0, 2>>(&rows)?;
    let floor = sink.retaped::<NoneTape>();
    let (shifted, max) = shift(scores, bias(mask), |max| max.try_maximum(floor))?;
    let exp = shifted.try_exp()?;
    let additional = sink.try_sub(max)?.try_exp()?;
    let sum = sum_over_keys(&exp)?.try_add(additional)?;
    divide_rows(exp, sum)
}

/// `ln sum_j exp(score[j])`, over the keys `j` that the query attends to: what the weights of [`softmax`] are divided by. It is -∞ if there
/// are none.
///
/// PyTorch: `torch.logsumexp(scores.masked_fill(~mask, -inf), -1)`.
pub fn softmax_lse<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Rows<B, H, Q, E, D, T>, D::Err> {
    let rows = rows_of(&scores);
    if is_empty(scores.shape()) {
        return zeros_after(scores, rows)?.try_add(-E::INFINITY);
    }
    let mut largest = None;
    let (shifted, raised) = shift(scores, bias(mask), |max| {
        largest = Some(max.clone());
        max.try_clamp(lowest::<E>(), f64::INFINITY)
    })?;
    // The maximum contributes exp(0) = 1. Without one, the logarithm of 1 has the gradient 0, and the maximum is -∞.
    let sum = shifted.try_exp()?.try_sum::<_, Axis<3>>()?;
    let sum = sum.try_clamp(1.0, f64::INFINITY)?;
    sum.try_ln()?.try_add(largest.unwrap_or(raised))
}

/// `ln (1 + sum_j exp(score[j]))`, over the keys `j` that the query attends to: what the weights of [`softmax1`] are divided by.
pub fn softmax1_lse<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Rows<B, H, Q, E, D, T>, D::Err> {
    let rows = rows_of(&scores);
    if is_empty(scores.shape()) {
        return zeros_after(scores, rows);
    }
    let (shifted, max) = shift(scores, bias(mask), |max| max.try_clamp(0.0, f64::INFINITY))?;
    let additional = max.clone().try_negate()?.try_exp()?;
    let sum = shifted.try_exp()?.try_sum::<_, Axis<3>>()?;
    let sum = sum.try_add(additional)?;
    sum.try_ln()?.try_add(max)
}

/// `ln (exp(sink) + sum_j exp(score[j]))`, over the keys `j` that the query attends to: what the weights of [`sink`] are divided by.
pub fn sink_lse<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
    sink: &Tensor<(Const<H>,), E, D>,
) -> Result<Rows<B, H, Q, E, D, T>, D::Err> {
    let rows = rows_of(&scores);
    let sink = sink.retaped::<T>();
    if is_empty(&rows) {
        return zeros_after_both(scores, sink, rows);
    }
    let sink: Rows<B, H, Q, E, D, T> = sink.try_broadcast_like::<_, Axes2<0, 2>>(&rows)?;
    if is_empty(scores.shape()) {
        return zeros_after(scores, rows)?.try_add(sink);
    }
    let floor = sink.retaped::<NoneTape>();
    let (shifted, max) = shift(scores, bias(mask), |max| max.try_maximum(floor))?;
    let additional = sink.try_sub(max.clone())?.try_exp()?;
    let sum = shifted.try_exp()?.try_sum::<_, Axis<3>>()?;
    let sum = sum.try_add(additional)?;
    sum.try_ln()?.try_add(max)
}

/// The shape of a number for every query.
fn rows_of<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: &Scores<B, H, Q, K, E, D, T>,
) -> (B, Const<H>, Q) {
    let (batch, heads, queries, _) = *scores.shape();
    (batch, heads, queries)
}

/// `weight[k] = score[k]` where the query attends to `k`, 0 elsewhere: for scores that already are weights.
///
/// PyTorch: `scores.masked_fill(~mask, 0)`. A score of minus infinity also has weight 0.
pub fn identity<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let shape = *scores.shape();
    if is_empty(&shape) {
        return Ok(scores);
    }
    let zeros: Scores<B, H, Q, K, E, D, NoneTape> = scores.device().try_zeros_like(&shape)?;
    let least = zeros.clone().try_add(E::of(lowest::<E>()))?;
    let mut hidden = less(scores.retaped::<NoneTape>(), least)?;
    if let Some(bias) = bias(mask) {
        hidden = or::<_, E, _, _>(hidden, less(bias, zeros.clone())?)?;
    }
    select(hidden.put_tape(T::default()), zeros.retaped::<T>(), scores)
}

/// One number per batch, head and query.
pub type Rows<B, const H: usize, Q, E, D, T> = Tensor<(B, Const<H>, Q), E, D, T>;

/// The tensor that a mask adds to the scores; `None` if every query attends to every key.
pub(super) fn bias<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>>(
    mask: Option<ScoreMask<B, H, Q, K, E, D>>,
) -> Option<Scores<B, H, Q, K, E, D, NoneTape>> {
    mask?.bias
}

/// `score + bias`
pub(super) fn hide<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>>(
    scores: Scores<B, H, Q, K, E, D, NoneTape>,
    bias: Option<Scores<B, H, Q, K, E, D, NoneTape>>,
) -> Result<Scores<B, H, Q, K, E, D, NoneTape>, D::Err> {
    match bias {
        Some(bias) => scores.try_add(bias),
        None => Ok(scores),
    }
}

/// `score + bias - max`, and the maximum over the keys that the query attends to. `raise` accounts for other terms of the sum. The
/// weights do not depend on the maximum, so it has no gradient.
fn shift<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    scores: Scores<B, H, Q, K, E, D, T>,
    bias: Option<Scores<B, H, Q, K, E, D, NoneTape>>,
    raise: impl FnOnce(Rows<B, H, Q, E, D, NoneTape>) -> Result<Rows<B, H, Q, E, D, NoneTape>, D::Err>,
) -> Result<(Scores<B, H, Q, K, E, D, T>, Rows<B, H, Q, E, D, NoneTape>), D::Err> {
    let shape = *scores.shape();
    off_tape(scores, |scores| {
        let scores = hide(scores, bias)?;
        let max = raise(scores.clone().try_max::<_, Axis<3>>()?)?;
        let rows = max.clone().try_broadcast_like::<_, Axis<3>>(&shape)?;
        Ok((scores.try_sub(rows)?, max))
    })
}

/// Replaces the values of `x` by those of `f(x)`, with the gradient of the identity. So the next operation on the tape adds its gradient
/// directly to that of `x`.
///
/// This is correct if `f` only shifts rows that are normalised afterwards, or sets elements to minus infinity, whose weight and gradient
/// are 0. Each step on the tape would cost one more gradient of the size of the scores, whose page faults take as long as the `exp`.
/// dfdx's softmax avoids that of its shift as well, with a private field.
///
/// Time of masked softmax relative to dfdx's softmax of `scores + matrix`, in f32, with 4 sequences, 8 heads, 512 queries and keys,
/// forward, and forward with backward: this way 1.0 and 0.92; bias and shift on the tape 1.0 and 1.20; dfdx's `choose`
/// 1.7 and 1.5.
pub(crate) fn off_tape<S: Shape, R, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    f: impl FnOnce(Tensor<S, E, D>) -> Result<(Tensor<S, E, D>, R), D::Err>,
) -> Result<(Tensor<S, E, D, T>, R), D::Err> {
    if !T::OWNS_TAPE {
        let (x, tape) = x.split_tape();
        let (new, rest) = f(x)?;
        return Ok((new.put_tape(tape), rest));
    }
    // Row-major, so that the gradients of the old and the new values have the same layout.
    let (mut x, tape) = contiguous(x)?.split_tape();
    let (new, rest) = f(x.clone())?;
    // `x = 0 x + new` would be NaN if `x` is infinite.
    x.try_fill_with_zeros()?;
    x.try_axpy(1.0, &new, 1.0)?;
    Ok((x.put_tape(tape), rest))
}

pub(super) fn sum_over_keys<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    exp: &Scores<B, H, Q, K, E, D, T>,
) -> Result<Rows<B, H, Q, E, D, T>, D::Err> {
    exp.retaped::<T>().try_sum::<_, Axis<3>>()
}

fn divide_rows<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    exp: Scores<B, H, Q, K, E, D, T>,
    sum: Rows<B, H, Q, E, D, T>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let sum = over_keys(sum, exp.shape())?;
    exp.try_div(sum)
}

/// Broadcasts a number per row over the keys.
pub(super) fn over_keys<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    rows: Rows<B, H, Q, E, D, T>,
    shape: &(B, Const<H>, Q, K),
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    rows.try_broadcast_like::<_, Axis<3>>(shape)
}

/// The lowest finite number. The maximum of a query that attends to no key is minus infinity. It is raised to this number, because the
/// difference of two infinities is NaN.
fn lowest<E: Element>() -> f64 {
    num_traits::ToPrimitive::to_f64(&E::min_value()).unwrap_or(f64::MIN)
}

#[cfg(test)]
mod tests;
