//! The form of "Dive into Deep Learning": heads are folded into the batch, `[batch * heads, length, width]`, and the mask is
//! given by valid lengths, repeated for each head.

use super::{Traced, number};
use crate::reference::Parameters;
use dfdx::{nn::modules::Linear, prelude::*};

/// Cross-attention: queries from an input of width `M`, keys and values from a context of width `C`.
pub struct HeadsInTheBatch<
    const M: usize,
    const C: usize,
    const H: usize,
    const W: usize,
    const HW: usize,
    E: Dtype,
> where
    Cpu: Device<E>,
{
    q_proj: Linear<M, HW, E, Cpu>,
    k_proj: Linear<C, HW, E, Cpu>,
    v_proj: Linear<C, HW, E, Cpu>,
    o_proj: Linear<HW, M, E, Cpu>,
}

/// `[batch * heads, length, width of one head]`
type Folded<E, Width> = Traced<(usize, usize, Width), E>;

impl<const M: usize, const C: usize, const H: usize, const W: usize, const HW: usize, E: Dtype>
    HeadsInTheBatch<M, C, H, W, HW, E>
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

    /// The output, and the weights as `[batch * heads, query, key]`. A sequence attends to its first `valid_lens` keys,
    /// or to all keys.
    #[allow(clippy::type_complexity)]
    pub fn forward(
        &self,
        x: &Tensor<(usize, usize, Const<M>), E, Cpu>,
        context: &Tensor<(usize, usize, Const<C>), E, Cpu>,
        valid_lens: Option<&[usize]>,
    ) -> (
        Traced<(usize, usize, Const<M>), E>,
        Tensor<(usize, usize, usize), E, Cpu>,
    ) {
        let (batch, queries, _) = *x.shape();
        let keys = context.shape().1;

        let q = Self::fold(self.q_proj.forward(x.leaky_trace()));
        let k = Self::fold(self.k_proj.forward(context.leaky_trace()));
        let v = Self::fold(self.v_proj.forward(context.leaky_trace()));

        let k = k.permute::<(usize, Const<W>, usize), Axes3<0, 2, 1>>();
        let scores: Folded<E, usize> = q.matmul(k) / number::<E>((W as f64).sqrt());

        let valid_lens = valid_lens.map_or(vec![keys; batch], <[usize]>::to_vec);
        let valid = valid_lens.iter().flat_map(|&len| {
            let row = (0..keys).map(move |key| key < len);
            std::iter::repeat_n(row, H * queries).flatten()
        });
        let valid = Cpu::default()
            .tensor_from_vec(valid.collect::<Vec<bool>>(), (batch * H, queries, keys));
        let hidden = Cpu::default().ones_like(&valid) * number::<E>(-1e9);
        let weights = valid.choose(scores, hidden).softmax::<Axis<2>>();

        let without_tape = weights.retaped::<NoneTape>();
        let values: Folded<E, Const<W>> = weights.matmul(v);
        let joined = values
            .reshape_like(&(batch, Const::<H>, queries, Const::<W>))
            .permute::<_, Axes4<0, 2, 1, 3>>()
            .reshape_like(&(batch, queries, Const::<HW>));
        (self.o_proj.forward(joined), without_tape)
    }

    fn fold(x: Traced<(usize, usize, Const<HW>), E>) -> Folded<E, Const<W>> {
        let (batch, length, _) = *x.shape();
        x.reshape_like(&(batch, length, Const::<H>, Const::<W>))
            .permute::<_, Axes4<0, 2, 1, 3>>()
            .reshape_like(&(batch * H, length, Const::<W>))
    }
}
