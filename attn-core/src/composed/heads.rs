//! Between one row per place and one row per head and place.

use dfdx::{
    shapes::{Axes4, Const, Dim, HasShape},
    tensor::{Tape, Tensor},
    tensor_ops::{Device, PermuteTo, RealizeTo, TryMatMul},
};

use super::{
    Heads, Scores,
    empty::{is_empty, reshape, zeros_after_both},
};
use crate::Element;

/// `[batch, len, heads * width]` to `[batch, heads, len, width]`.
///
/// PyTorch: `x.view(b, s, heads, width).transpose(1, 2)`. A view: nothing is copied.
pub fn split_heads<
    B: Dim,
    S: Dim,
    const HW: usize,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<(B, S, Const<HW>), E, D, T>,
) -> Result<Heads<B, H, S, W, E, D, T>, D::Err> {
    const {
        assert!(
            H * W == HW,
            "heads * width is not the size of the last axis"
        )
    };
    let (batch, len, _) = *x.shape();
    reshape(x, (batch, len, Const::<H>, Const::<W>))?.try_permute::<_, Axes4<0, 2, 1, 3>>()
}

/// `[batch, heads, len, width]` to `[batch, len, heads * width]`.
///
/// PyTorch: `x.transpose(1, 2).reshape(b, s, heads * width)`.
pub fn merge_heads<
    B: Dim,
    S: Dim,
    const HW: usize,
    const H: usize,
    const W: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Heads<B, H, S, W, E, D, T>,
) -> Result<Tensor<(B, S, Const<HW>), E, D, T>, D::Err> {
    const {
        assert!(
            H * W == HW,
            "heads * width is not the size of the last axis"
        )
    };
    let (batch, _, len, _) = *x.shape();
    reshape(
        x.try_permute::<_, Axes4<0, 2, 1, 3>>()?,
        (batch, len, Const),
    )
}

/// `out[b, h, q] = sum_k weights[b, h, q, k] * v[b, h / (H / G), k]`.
///
/// PyTorch: `weights @ v`, with `v.repeat_interleave(H // G, 1)` for grouped heads; here the values are not repeated,
/// see [`fold_groups`].
pub fn attend<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    const G: usize,
    const V: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    weights: Scores<B, H, Q, K, E, D, T>,
    v: Heads<B, G, K, V, E, D, T>,
) -> Result<Heads<B, H, Q, V, E, D, T>, D::Err> {
    let (batch, heads, q, _) = *weights.shape();
    let shape = (batch, heads, q, Const);
    if is_empty(weights.shape()) || is_empty(v.shape()) {
        return zeros_after_both(weights, v, shape);
    }
    reshape(fold_groups(weights)?.try_matmul(v)?, shape)
}

/// `[batch, H, query, x]` to `[batch, G, H / G * query, x]`: the query heads that share a key head follow each other in
/// memory, so to that key head they are one longer sequence of queries, and keys and values need no copies.
///
/// A view if `x` is row-major, or if every query head has its own key head; otherwise a copy of `x`.
pub(super) fn fold_groups<
    B: Dim,
    Q: Dim,
    X: Dim,
    const H: usize,
    const G: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    x: Tensor<(B, Const<H>, Q, X), E, D, T>,
) -> Result<Tensor<(B, Const<G>, usize, X), E, D, T>, D::Err> {
    const { assert!(H % G == 0, "kv_heads does not divide heads") };
    let (batch, _, q, width) = *x.shape();
    let folded = (batch, Const, H / G * q.size(), width);
    match x.try_realize() {
        Ok(same) => Ok(same),
        Err(x) => reshape(x, folded),
    }
}
