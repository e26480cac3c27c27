//! How well a query and a key go together.

use dfdx::{
    shapes::{Axes2, Axes4, Axis, Const, Dim, HasShape, Rank2, Rank3},
    tensor::{Tape, Tensor},
    tensor_ops::{BroadcastTo, Device, PermuteTo, TryAdd, TryMatMul},
};

use super::{
    Heads, Scores,
    empty::{is_empty, reshape, zeros_after_both},
    heads::fold_groups,
};
use crate::Element;

/// `score[b, h, q, k] = q[b, h, q] . k[b, h / (H / G), k]`.
///
/// The unscaled scores of Vaswani et al., "Attention is all you need" (2017), equation 1; with fewer key heads than
/// query heads, those of Ainslie et al., "GQA" (2023). PyTorch: `q @ k.transpose(-2, -1)`, with
/// `k.repeat_interleave(H // G, 1)` for grouped heads; here the keys are not repeated.
pub fn dot_scores<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const G: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    q: Heads<B, H, Q, W, E, D, T>,
    k: Heads<B, G, K, W, E, D, T>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let (batch, heads, q_len, _) = *q.shape();
    let shape = (batch, heads, q_len, k.shape().2);
    if is_empty(q.shape()) || is_empty(k.shape()) {
        return zeros_after_both(q, k, shape);
    }
    let k = k.try_permute::<_, Axes4<0, 1, 3, 2>>()?;
    reshape(fold_groups(q)?.try_matmul(k)?, shape)
}

/// `score[b, h, q, k] = sum_n w[h, n] tanh(q[b, h, q, n] + k[b, h / (H / G), k, n])`.
///
/// Bahdanau, Cho and Bengio, "Neural machine translation by jointly learning to align and translate" (2014), section
/// A.1.2, one `w` per head. In the composed form the hidden layer stands in memory for every pair of query and key:
/// `[batch, heads, query, key, n]`.
pub fn additive_scores<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const G: usize,
    const N: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    q: Heads<B, H, Q, N, E, D, T>,
    k: Heads<B, G, K, N, E, D, T>,
    w: &Tensor<Rank2<H, N>, E, D>,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    const { assert!(H % G == 0, "kv_heads does not divide heads") };
    let (batch, heads, q_len, _) = *q.shape();
    let k_len = k.shape().2;
    let shape = (batch, heads, q_len, k_len);
    let w = w.retaped::<T>();
    if is_empty(q.shape()) || is_empty(k.shape()) {
        return zeros_after_both(zeros_after_both(q, k, shape)?, w, shape);
    }
    // Query head g * (H / G) + r is member r of group g.
    let groups = (batch, Const::<G>, H / G, q_len, Const::<N>);
    let pairs = (batch, Const::<G>, H / G, q_len, k_len, Const::<N>);
    let q = reshape(q, groups)?.try_broadcast_like::<_, Axis<4>>(&pairs)?;
    let k = k.try_broadcast_like::<_, Axes2<2, 3>>(&pairs)?;
    let hidden = q.try_add(k)?.try_tanh()?;
    // Weighing and summing n is a matrix product with one column.
    let hidden = reshape(
        hidden,
        (batch, heads, q_len.size() * k_len.size(), Const::<N>),
    )?;
    let w = reshape(w, (heads, Const::<N>, Const::<1>))?
        .try_broadcast_like::<_, Axis<0>>(&(batch, heads, Const::<N>, Const::<1>))?;
    reshape(hidden.try_matmul(w)?, shape)
}

/// `out[b, h, q] = q[b, h, q] w[h]`, the left half of the bilinear score `q^T w k`.
///
/// The "general" score of Luong, Pham and Manning, "Effective approaches to attention-based neural machine
/// translation" (2015), equation 8, one matrix per head. PyTorch: `torch.einsum("bhqw,hwv->bhqv", q, w)`.
pub fn bilinear<
    B: Dim,
    Q: Dim,
    const H: usize,
    const W: usize,
    const V: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    q: Heads<B, H, Q, W, E, D, T>,
    w: &Tensor<Rank3<H, W, V>, E, D>,
) -> Result<Heads<B, H, Q, V, E, D, T>, D::Err> {
    let (batch, heads, q_len, width) = *q.shape();
    let w = w.retaped::<T>();
    if is_empty(q.shape()) {
        return zeros_after_both(q, w, (batch, heads, q_len, Const));
    }
    q.try_matmul(w.try_broadcast_like::<_, Axis<0>>(&(batch, heads, width, Const))?)
}
