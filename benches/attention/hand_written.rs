//! Causal self-attention in the usual dfdx style: all heads at once, with a precomputed mask of 0 and -inf.

use attn::dfdx::{nn::modules::Linear, prelude::*};

type Heads<T> = Tensor<(usize, usize, usize, usize), f32, Cpu, T>;
type Sequences<const M: usize, T> = Tensor<(usize, usize, Const<M>), f32, Cpu, T>;
type Square<const M: usize> = Linear<M, M, f32, Cpu>;

/// The projections of queries, keys, values, and of the output.
pub(crate) type Projections<const M: usize> = (Square<M>, Square<M>, Square<M>, Square<M>);

/// `[query, key]`, added to the scores.
pub(crate) type Mask = Tensor<(usize, usize), f32, Cpu>;

/// `M` is the width of the model, `H` the number of heads.
#[allow(dead_code, reason = "a model has the projections of all its layers")]
pub(crate) struct HandWritten<const M: usize, const H: usize> {
    projections: Projections<M>,
    mask: Mask,
}

#[allow(dead_code, reason = "a model has the projections of all its layers")]
impl<const M: usize, const H: usize> HandWritten<M, H> {
    /// A layer for sequences of `len` tokens.
    pub(crate) fn new(dev: &Cpu, len: usize) -> Self {
        HandWritten {
            projections: Projections::build(dev),
            mask: mask(dev, len),
        }
    }

    /// `[batch, len, M]` to `[batch, len, M]`.
    pub(crate) fn forward<T: Tape<f32, Cpu>>(&self, x: Sequences<M, T>) -> Sequences<M, T> {
        attend::<M, H, T>(&self.projections, &self.mask, x)
    }
}

/// The causal mask of sequences of `len` tokens.
pub(crate) fn mask(dev: &Cpu, len: usize) -> Mask {
    let ahead = |index| {
        if index % len > index / len {
            f32::NEG_INFINITY
        } else {
            0.0
        }
    };
    let mask = (0..len * len).map(ahead).collect();
    dev.tensor_from_vec(mask, (len, len))
}

/// `[batch, len, M]` to `[batch, len, M]`, with `H` heads.
pub(crate) fn attend<const M: usize, const H: usize, T: Tape<f32, Cpu>>(
    (q, k, v, o): &Projections<M>,
    mask: &Mask,
    x: Sequences<M, T>,
) -> Sequences<M, T> {
    let shape = *x.shape();
    let k = split::<M, H, T>(k.forward(x.with_empty_tape()));
    let v = split::<M, H, T>(v.forward(x.with_empty_tape()));
    let q = split::<M, H, T>(q.forward(x));
    let scale = 1.0 / ((M / H) as f32).sqrt();
    let scores = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>()) * scale;
    let mask = mask
        .retaped::<T>()
        .broadcast_like::<_, Axes2<0, 1>>(scores.shape());
    let weights = (scores + mask).softmax::<Axis<3>>();
    let merged = weights.matmul(v).permute::<_, Axes4<0, 2, 1, 3>>();
    o.forward(merged.reshape_like(&shape))
}

/// `[batch, len, M]` to `[batch, H, len, M / H]`.
fn split<const M: usize, const H: usize, T: Tape<f32, Cpu>>(x: Sequences<M, T>) -> Heads<T> {
    let (batch, len, _) = *x.shape();
    x.reshape_like(&(batch, len, H, M / H))
        .permute::<_, Axes4<0, 2, 1, 3>>()
}
