//! Bahdanau's attention in the form of "Dive into Deep Learning": queries and keys meet in a broadcast sum, and a masked softmax
//! excludes the keys beyond the valid lengths.

use super::{Parameters, Traced, number};
use dfdx::{nn::modules::Linear, prelude::*};

/// One head: `w_v · tanh(W_q q + W_k k)` with `N` hidden units, over values of width `V`.
pub struct AdditiveAttention<
    const M: usize,
    const C: usize,
    const N: usize,
    const V: usize,
    E: Dtype,
> where
    Cpu: Device<E>,
{
    w_q: Linear<M, N, E, Cpu>,
    w_k: Linear<C, N, E, Cpu>,
    w_v: Tensor<(Const<N>, Const<1>), E, Cpu>,
    values: Linear<C, V, E, Cpu>,
    output: Linear<V, M, E, Cpu>,
}

impl<const M: usize, const C: usize, const N: usize, const V: usize, E: Dtype>
    AdditiveAttention<M, C, N, V, E>
where
    Cpu: Device<E>,
{
    pub fn new(parameters: &Parameters<'_, E>) -> Self {
        Self {
            w_q: parameters.linear("q_proj"),
            w_k: parameters.linear("k_proj"),
            w_v: parameters.part("score_proj.weight", 0, (Const, Const)),
            values: parameters.linear("v_proj"),
            output: parameters.linear("o_proj"),
        }
    }

    /// The output, and the weights as `[batch, query, key]`.
    #[allow(clippy::type_complexity)]
    pub fn forward(
        &self,
        queries: &Tensor<(usize, usize, Const<M>), E, Cpu>,
        keys: &Tensor<(usize, usize, Const<C>), E, Cpu>,
        valid_lens: &[usize],
    ) -> (
        Traced<(usize, usize, Const<M>), E>,
        Tensor<(usize, usize, usize), E, Cpu>,
    ) {
        let (batch, query_count, _) = *queries.shape();
        let key_count = keys.shape().1;
        let pairs = (batch, query_count, key_count, Const::<N>);

        let q = self.w_q.forward(queries.leaky_trace());
        let k = self.w_k.forward(keys.leaky_trace());
        let features =
            q.broadcast_like::<_, Axis<2>>(&pairs) + k.broadcast_like::<_, Axis<1>>(&pairs);
        let features = features
            .tanh()
            .reshape_like(&(batch * query_count * key_count, Const::<N>));
        let scores: Traced<(usize, Const<1>), E> = features.matmul(self.w_v.leaky_trace());
        let scores = scores.reshape_like(&(batch, query_count, key_count));

        let weights = masked_softmax(scores, valid_lens);
        let without_tape = weights.retaped::<NoneTape>();
        let values = self.values.forward(keys.leaky_trace());
        (self.output.forward(weights.matmul(values)), without_tape)
    }
}

/// A softmax over the first `valid_lens` keys of each sequence.
fn masked_softmax<E: Dtype>(
    scores: Traced<(usize, usize, usize), E>,
    valid_lens: &[usize],
) -> Traced<(usize, usize, usize), E>
where
    Cpu: Device<E>,
{
    let shape = *scores.shape();
    let (_, queries, keys) = shape;
    let mut valid = Vec::new();
    for &len in valid_lens {
        for _ in 0..queries {
            valid.extend((0..keys).map(|key| key < len));
        }
    }
    let valid = Cpu::default().tensor_from_vec(valid, shape);
    let hidden = Cpu::default().ones_like(&shape) * number::<E>(-1e6);
    valid.choose(scores, hidden).softmax::<Axis<2>>()
}
