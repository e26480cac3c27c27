//! A GPT in the usual dfdx style: its modules, its loss, its Adam, and a hand-written attention, since its own has no mask.

use attn::dfdx::{
    nn::modules::{Embedding, LayerNorm1D, Linear, Repeated},
    optim::Adam,
    prelude::*,
};

#[path = "../attention/hand_written.rs"]
mod hand_written;
use hand_written::{Mask, Projections, attend, mask};

type Tokens<T = NoneTape> = Tensor<(usize, usize), usize, Cpu, T>;
type Norm<const M: usize> = LayerNorm1D<M, f32, Cpu>;
type Map<const I: usize, const O: usize> = Linear<I, O, f32, Cpu>;
type Block<const M: usize, const F: usize> =
    (Norm<M>, Projections<M>, Norm<M>, (Map<M, F>, Map<F, M>));

/// A vocabulary of `V`, at most `S` tokens, `N` layers of `M`, hidden layers of `F`.
type Parameters<const V: usize, const S: usize, const M: usize, const F: usize, const N: usize> = (
    Embedding<V, M, f32, Cpu>,
    Embedding<S, M, f32, Cpu>,
    Repeated<Block<M, F>, N>,
    Norm<M>,
    Map<M, V>,
);

/// A model of `H` heads in training.
pub(crate) struct Plain<
    const V: usize,
    const S: usize,
    const M: usize,
    const H: usize,
    const F: usize,
    const N: usize,
> {
    parameters: Parameters<V, S, M, F, N>,
    mask: Mask,
    optimizer: Adam<Parameters<V, S, M, F, N>, f32, Cpu>,
    gradients: Option<Gradients<f32, Cpu>>,
}

impl<const V: usize, const S: usize, const M: usize, const H: usize, const F: usize, const N: usize>
    Plain<V, S, M, H, F, N>
{
    pub(crate) fn new(dev: &Cpu) -> Self {
        let parameters = Parameters::build(dev);
        Self {
            optimizer: Adam::new(&parameters, AdamConfig::default()),
            gradients: Some(parameters.alloc_grads()),
            mask: mask(dev, S),
            parameters,
        }
    }

    /// One step on sequences of `S` tokens.
    pub(crate) fn step(&mut self, tokens: &Tokens, targets: &Tokens) {
        let gradients = self.gradients.take().unwrap_or_else(Gradients::leaky);
        let logits = self.forward(tokens.clone().traced(gradients));
        let nats = logits.log_softmax::<Axis<2>>().select(targets.clone());
        let mut done = nats.mean().negate().backward();
        self.optimizer
            .update(&mut self.parameters, &done)
            .expect("all parameters have gradients");
        self.parameters.zero_grads(&mut done);
        self.gradients = Some(done);
    }

    fn forward<T: Tape<f32, Cpu>>(
        &self,
        tokens: Tokens<T>,
    ) -> Tensor<(usize, usize, Const<V>), f32, Cpu, T>
    where
        Embedding<V, M, f32, Cpu>:
            Module<Tokens<T>, Output = Tensor<(usize, usize, Const<M>), f32, Cpu, T>>,
    {
        let (embedding, positions, blocks, norm, head) = &self.parameters;
        let mut x = embedding.forward(tokens);
        let shape = *x.shape();
        let places = positions.weight.retaped::<T>();
        let places = places.reshape_like(&(S, Const::<M>));
        x = x + places.broadcast_like::<_, Axis<0>>(&shape);
        for (attention_norm, projections, hidden_norm, (up, down)) in &blocks.modules {
            let attended = attention_norm.forward(x.with_empty_tape());
            x = attend::<M, H, T>(projections, &self.mask, attended) + x;
            let hidden = up.forward(hidden_norm.forward(x.with_empty_tape()));
            x = down.forward(hidden.fast_gelu()) + x;
        }
        head.forward(norm.forward(x))
    }
}
