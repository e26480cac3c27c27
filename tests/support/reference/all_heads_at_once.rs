//! The usual efficient way: one projection for all heads, then reshape and permute to `[batch, heads, length, width]`.

use super::{Mask, Parameters, Traced, number};
use dfdx::{nn::modules::Linear, prelude::*};

/// Self-attention with all `H` heads of width `W` at once. `HW` is their product.
pub struct AllHeadsAtOnce<const M: usize, const H: usize, const W: usize, const HW: usize, E: Dtype>
where
    Cpu: Device<E>,
{
    q_proj: Linear<M, HW, E, Cpu>,
    k_proj: Linear<M, HW, E, Cpu>,
    v_proj: Linear<M, HW, E, Cpu>,
    o_proj: Linear<HW, M, E, Cpu>,
}

impl<const M: usize, const H: usize, const W: usize, const HW: usize, E: Dtype>
    AllHeadsAtOnce<M, H, W, HW, E>
where
    Cpu: Device<E>,
{
    pub fn new(parameters: &Parameters<'_, E>) -> Self {
        Self {
            q_proj: parameters.linear("q_proj"),
            k_proj: parameters.linear("k_proj"),
            v_proj: parameters.linear("v_proj"),
            o_proj: parameters.linear("o_proj"),
        }
    }

    /// The output, and the weights as `[batch, heads, query, key]`.
    #[allow(clippy::type_complexity)]
    pub fn forward(
        &self,
        x: &Tensor<(usize, usize, Const<M>), E, Cpu>,
        mask: &Mask,
    ) -> (
        Traced<(usize, usize, Const<M>), E>,
        Tensor<(usize, Const<H>, usize, usize), E, Cpu>,
    ) {
        let (batch, length, _) = *x.shape();
        let by_heads = (batch, length, Const::<H>, Const::<W>);

        let q = self.q_proj.forward(x.leaky_trace()).reshape_like(&by_heads);
        let q = q.permute::<_, Axes4<0, 2, 1, 3>>();
        let k = self.k_proj.forward(x.leaky_trace()).reshape_like(&by_heads);
        let k = k.permute::<_, Axes4<0, 2, 3, 1>>();
        let v = self.v_proj.forward(x.leaky_trace()).reshape_like(&by_heads);
        let v = v.permute::<_, Axes4<0, 2, 1, 3>>();

        let scores: Traced<(usize, Const<H>, usize, usize), E> = q.matmul(k);
        let scores = scores * number::<E>(1.0 / (W as f64).sqrt());

        // 0 where the mask allows and -1e9 where it does not, added to the scores.
        let away = Cpu::default().zeros_like(mask);
        let away = mask.clone().choose(away.clone(), away - number::<E>(1e9));
        let shape = *scores.shape();
        let weights = (scores + away.broadcast_like::<_, Axis<1>>(&shape)).softmax::<Axis<3>>();

        let without_tape = weights.retaped::<NoneTape>();
        let values: Traced<(usize, Const<H>, usize, Const<W>), E> = weights.matmul(v);
        let values = values.permute::<_, Axes4<0, 2, 1, 3>>();
        let joined = values.reshape_like(&(batch, length, Const::<HW>));
        (self.o_proj.forward(joined), without_tape)
    }
}
