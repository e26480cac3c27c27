//! The definition: attention for one head, a loop over the heads, and concatenation.

use super::{Mask, Parameters, Traced, number};
use dfdx::{nn::modules::Linear, prelude::*};

/// Self-attention whose heads are separate small layers.
pub struct OneHeadAtATime<const M: usize, const W: usize, const HW: usize, E: Dtype>
where
    Cpu: Device<E>,
{
    heads: Vec<Head<M, W, E>>,
    o_proj: Linear<HW, M, E, Cpu>,
}

struct Head<const M: usize, const W: usize, E: Dtype>
where
    Cpu: Device<E>,
{
    query: Linear<M, W, E, Cpu>,
    key: Linear<M, W, E, Cpu>,
    value: Linear<M, W, E, Cpu>,
}

impl<const M: usize, const W: usize, const HW: usize, E: Dtype> OneHeadAtATime<M, W, HW, E>
where
    Cpu: Device<E>,
{
    pub fn new(parameters: &Parameters<'_, E>) -> Self {
        let head = |h: usize| Head {
            query: parameters.linear_rows("q_proj", h * W),
            key: parameters.linear_rows("k_proj", h * W),
            value: parameters.linear_rows("v_proj", h * W),
        };
        Self {
            heads: (0..HW / W).map(head).collect(),
            o_proj: parameters.linear("o_proj"),
        }
    }

    /// The output, and the weights of all heads as `[heads, batch, query, key]`.
    #[allow(clippy::type_complexity)]
    pub fn forward(
        &self,
        x: &Tensor<(usize, usize, Const<M>), E, Cpu>,
        mask: &Mask,
    ) -> (
        Traced<(usize, usize, Const<M>), E>,
        Tensor<(usize, usize, usize, usize), E, Cpu>,
    ) {
        let mut outputs = Vec::new();
        let mut weights = Vec::new();
        for head in &self.heads {
            let (output, head_weights) = head.forward(x, mask);
            outputs.push(output);
            weights.push(head_weights);
        }
        let joined = outputs
            .into_iter()
            .reduce(|left, right| (left, right).concat_along(Axis::<2>))
            .expect("a layer has heads");
        let joined = joined.realize::<(usize, usize, Const<HW>)>();
        (self.o_proj.forward(joined), weights.stack())
    }
}

impl<const M: usize, const W: usize, E: Dtype> Head<M, W, E>
where
    Cpu: Device<E>,
{
    #[allow(clippy::type_complexity)]
    fn forward(
        &self,
        x: &Tensor<(usize, usize, Const<M>), E, Cpu>,
        mask: &Mask,
    ) -> (
        Traced<(usize, usize, usize), E>,
        Tensor<(usize, usize, usize), E, Cpu>,
    ) {
        let query = self.query.forward(x.leaky_trace());
        let key = self.key.forward(x.leaky_trace());
        let value = self.value.forward(x.leaky_trace());

        let key = key.permute::<(usize, Const<W>, usize), Axes3<0, 2, 1>>();
        let scores = query.matmul(key) / number::<E>((W as f64).sqrt());
        let hidden = Cpu::default().ones_like(mask) * number::<E>(-1e9);
        let weights = mask.clone().choose(scores, hidden).softmax::<Axis<2>>();

        let without_tape = weights.retaped::<NoneTape>();
        let output = weights.matmul(value);
        (output.realize::<(usize, usize, usize)>(), without_tape)
    }
}
