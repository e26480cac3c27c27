//! Causal self-attention as a person writes it with dfdx: all heads at once, the mask a matrix of 0 and -inf made beforehand.

use attn::dfdx::{nn::modules::Linear, prelude::*};

type Heads<T> = Tensor<(usize, usize, usize, usize), f32, Cpu, T>;

/// `M` is the width of the model, `H` the number of heads.
pub(crate) struct HandWritten<const M: usize, const H: usize> {
    q: Linear<M, M, f32, Cpu>,
    k: Linear<M, M, f32, Cpu>,
    v: Linear<M, M, f32, Cpu>,
    o: Linear<M, M, f32, Cpu>,
    /// `[query, key]`: what is added to the scores.
    mask: Tensor<(usize, usize), f32, Cpu>,
}

impl<const M: usize, const H: usize> HandWritten<M, H> {
    /// A layer for sequences of `len` tokens.
    pub(crate) fn new(dev: &Cpu, len: usize) -> Self {
        let ahead = |index| {
            if index % len > index / len {
                f32::NEG_INFINITY
            } else {
                0.0
            }
        };
        let mask = (0..len * len).map(ahead).collect();
        let linear = || Linear::build(dev);
        HandWritten {
            q: linear(),
            k: linear(),
            v: linear(),
            o: linear(),
            mask: dev.tensor_from_vec(mask, (len, len)),
        }
    }

    /// `[batch, len, M]` to `[batch, len, M]`.
    pub(crate) fn forward<T: Tape<f32, Cpu>>(
        &self,
        x: Tensor<(usize, usize, Const<M>), f32, Cpu, T>,
    ) -> Tensor<(usize, usize, Const<M>), f32, Cpu, T> {
        let shape = *x.shape();
        let k = Self::split(self.k.forward(x.with_empty_tape()));
        let v = Self::split(self.v.forward(x.with_empty_tape()));
        let q = Self::split(self.q.forward(x));
        let scale = 1.0 / ((M / H) as f32).sqrt();
        let scores = q.matmul(k.permute::<_, Axes4<0, 1, 3, 2>>()) * scale;
        let mask = self
            .mask
            .retaped::<T>()
            .broadcast_like::<_, Axes2<0, 1>>(scores.shape());
        let weights = (scores + mask).softmax::<Axis<3>>();
        let merged = weights.matmul(v).permute::<_, Axes4<0, 2, 1, 3>>();
        self.o.forward(merged.reshape_like(&shape))
    }

    /// `[batch, len, M]` to `[batch, H, len, M / H]`.
    fn split<T: Tape<f32, Cpu>>(x: Tensor<(usize, usize, Const<M>), f32, Cpu, T>) -> Heads<T> {
        let (batch, len, _) = *x.shape();
        x.reshape_like(&(batch, len, H, M / H))
            .permute::<_, Axes4<0, 2, 1, 3>>()
    }
}
