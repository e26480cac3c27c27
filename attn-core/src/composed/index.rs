//! Functions of the place `(b, h, q_idx, kv_idx)`: masks, position biases, tables of learned numbers.
//!
//! They are evaluated on the host, once per call of the layer, over the axes that they depend on; over the others the
//! result is a broadcast view.

use dfdx::{
    dtypes::Dtype,
    shapes::{Axes2, Axis, Const, Dim, HasShape, Shape},
    tensor::{Storage, Tape, Tensor, TensorFromVec},
    tensor_ops::{BroadcastTo, Device, GatherTo},
};

use super::{
    Scores,
    empty::{is_empty, reshape, zeros_after},
};
use crate::Element;

/// Over which axes, besides query and key, a function of the place varies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Over {
    /// Whether it depends on `b`.
    pub batch: bool,
    /// Whether it depends on `h`.
    pub head: bool,
}

/// Which keys a query attends to; made by [`index_mask`].
///
/// It is kept as what is added to the scores: 0 where a query attends, minus infinity where it does not, small
/// (only the axes that the mask depends on) and seen through a broadcast view. Adding that view costs a fraction of
/// dfdx's `choose`, which copies the scores and walks four tensors element by element.
#[derive(Clone, Debug)]
pub struct Mask<B: Dim, const H: usize, Q: Dim, K: Dim, E: Dtype, D: Storage<E>> {
    /// Nothing, if every query attends to every key.
    pub(super) bias: Option<Tensor<(B, Const<H>, Q, K), E, D>>,
}

/// A mask from a predicate of `(b, h, q_idx, kv_idx)`; `true` means attend.
pub fn index_mask<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>>(
    device: &D,
    sizes: (B, Q, K),
    over: Over,
    attends: impl Fn(i64, i64, i64, i64) -> bool,
) -> Result<Mask<B, H, Q, K, E, D>, D::Err> {
    let attends = evaluate(concrete::<_, _, _, H>(sizes), over, attends);
    if attends.iter().all(|&attends| attends) {
        return Ok(Mask { bias: None });
    }
    let bias = attends.into_iter().map(|attends| {
        if attends {
            E::zero()
        } else {
            E::neg_infinity()
        }
    });
    let bias = spread(vector(device, bias.collect())?, sizes, over)?;
    Ok(Mask { bias: Some(bias) })
}

/// Numbers from a function of `(b, h, q_idx, kv_idx)`, on an empty tape.
#[expect(clippy::type_complexity, reason = "the shapes are the documentation")]
pub fn index_floats<
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    device: &D,
    sizes: (B, Q, K),
    over: Over,
    f: impl Fn(i64, i64, i64, i64) -> f64,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let values = evaluate(concrete::<_, _, _, H>(sizes), over, |b, h, q, k| {
        E::of(f(b, h, q, k))
    });
    spread(vector(device, values)?.retaped(), sizes, over)
}

/// Elements of a learned tensor, chosen by a function of `(b, h, q_idx, kv_idx)` that gives the index of an element in
/// row-major order. Differentiable in the tensor.
///
/// PyTorch: `param.flatten()[index]`.
///
/// # Panics
/// If an index is not below the number of elements.
#[expect(clippy::type_complexity, reason = "the shapes are the documentation")]
pub fn index_param<
    P: Shape,
    B: Dim,
    Q: Dim,
    K: Dim,
    const H: usize,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    param: &Tensor<P, E, D>,
    sizes: (B, Q, K),
    over: Over,
    index: impl Fn(i64, i64, i64, i64) -> usize,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let [b, h, q, k] = concrete::<_, _, _, H>(sizes);
    let len = param.shape().num_elements();
    let param = param.retaped::<T>();
    if is_empty(&[b, h, q, k]) || len == 0 {
        return zeros_after(param, full(sizes));
    }
    let indices = evaluate([b, h, q, k], over, |b, h, q, k| {
        let index = index(b, h, q, k);
        assert!(
            index < len,
            "index {index} into a parameter of {len} elements"
        );
        index
    });
    let count = (indices.len(),);
    let indices = TensorFromVec::<usize>::try_tensor_from_vec(param.device(), indices, count)?;
    let chosen: Tensor<(usize,), E, D, T> = reshape(param, (len,))?.try_gather(indices)?;
    spread(chosen, sizes, over)
}

/// The values of `f`, row-major over the axes that it depends on.
fn evaluate<V>(
    [b, h, q, k]: [usize; 4],
    over: Over,
    f: impl Fn(i64, i64, i64, i64) -> V,
) -> Vec<V> {
    let batches = if over.batch { b } else { b.min(1) };
    let heads = if over.head { h } else { h.min(1) };
    let mut values = Vec::with_capacity(batches * heads * q * k);
    for b in 0..batches as i64 {
        for h in 0..heads as i64 {
            for q in 0..q as i64 {
                values.extend((0..k as i64).map(|k| f(b, h, q, k)));
            }
        }
    }
    values
}

fn vector<E: Element, D: Device<E>>(
    device: &D,
    values: Vec<E>,
) -> Result<Tensor<(usize,), E, D>, D::Err> {
    let len = (values.len(),);
    TensorFromVec::<E>::try_tensor_from_vec(device, values, len)
}

/// Values from [`evaluate`], seen as `[batch, heads, query, key]`.
fn spread<B: Dim, Q: Dim, K: Dim, const H: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    values: Tensor<(usize,), E, D, T>,
    (b, q, k): (B, Q, K),
    over: Over,
) -> Result<Scores<B, H, Q, K, E, D, T>, D::Err> {
    let full = full((b, q, k));
    if is_empty(&full) {
        return zeros_after(values, full);
    }
    match (over.batch, over.head) {
        (true, true) => reshape(values, full),
        (true, false) => reshape(values, (b, q, k))?.try_broadcast_like::<_, Axis<1>>(&full),
        (false, true) => {
            reshape(values, (Const::<H>, q, k))?.try_broadcast_like::<_, Axis<0>>(&full)
        }
        (false, false) => reshape(values, (q, k))?.try_broadcast_like::<_, Axes2<0, 1>>(&full),
    }
}

fn full<B: Dim, Q: Dim, K: Dim, const H: usize>((b, q, k): (B, Q, K)) -> (B, Const<H>, Q, K) {
    (b, Const, q, k)
}

fn concrete<B: Dim, Q: Dim, K: Dim, const H: usize>(sizes: (B, Q, K)) -> [usize; 4] {
    full::<_, _, _, H>(sizes).concrete()
}
