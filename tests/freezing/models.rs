//! What the tests train.

use attn::{
    dfdx::prelude::*,
    model,
    train::{AdamWConfig, TrainBatch, Trainable, Trainer},
};
use support::cases::{scatter, tensor};

pub(crate) type Dense<S> = Tensor<S, f64, Cpu>;
pub(crate) type Ids<S> = Tensor<S, usize, Cpu>;
pub(crate) type Grads = Gradients<f64, Cpu>;

/// A model that the tests train.
pub(crate) trait Model: Trainable<Element = f64, Device = Cpu> {
    type Batch: TrainBatch<Self>;

    fn unset() -> Self;

    fn batch(number: usize) -> Self::Batch;

    /// The loss of a batch, and its gradients, on dfdx's tape.
    fn differentiate(&self, number: usize, gradients: Grads) -> (f64, Grads);

    /// With numbers that are not those of an initialisation.
    fn trained_by(algorithm: AdamWConfig) -> Trainer<Self, AdamWConfig> {
        let mut model = Self::unset();
        scatter(&mut model);
        Trainer::new(model, algorithm)
    }
}

macro_rules! model_of_test {
    ($Model:ident, |$number:ident| ($first:expr $(, $rest:expr)*), ($First:ty $(, $Rest:ty)*)) => {
        impl Model for $Model<f64, Cpu> {
            type Batch = ($First $(, $Rest)*);

            fn unset() -> Self {
                Cpu::default().build_module::<$Model, f64>()
            }

            fn batch($number: usize) -> Self::Batch {
                ($first $(, $rest)*)
            }

            fn differentiate(&self, $number: usize, gradients: Grads) -> (f64, Grads) {
                let first: $First = $first;
                let loss = self.loss((first.traced(gradients) $(, $rest)*));
                (loss.array(), loss.backward())
            }
        }
    };
}

pub(crate) use model_of_test;

pub(crate) fn numbers<S: ConstShape>(name: &str, number: usize) -> Dense<S> {
    tensor(&format!("{name}{number}"), S::default())
}

pub(crate) fn tokens<const B: usize, const S: usize>(
    number: usize,
    vocab: usize,
) -> Ids<Rank2<B, S>> {
    let ids = (0..B * S).map(|i| (i * i + (3 + number) * i + number) % vocab);
    Cpu::default().tensor_from_vec(ids.collect(), Default::default())
}

model! {
    /// A table at both ends, rounds, and a loss that computes the logits itself.
    pub(crate) struct Gpt<vocab = 11, d_model = 8, layers = 4>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<6, d_model>(tokens);
        repeat layers {
            x += attention::<2, mask = causal, bias = [q, k, v]>(layer_norm(x));
            x += feed_forward::<12>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model_of_test!(
    Gpt,
    |number| (tokens(number, 11), tokens(number + 5, 11)),
    (Ids<Rank2<2, 5>>, Ids<Rank2<2, 5>>)
);

model! {
    /// Parameters whose gradients an attention adds up.
    pub(crate) struct Sums<d = 8>;

    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let x = x + attention::<2, mask = causal, normalizer = sink, qk_norm = rms, name = attention>(x);
        x + attention::<4, mask = causal, normalizer = sink, qk_norm = rms, talking_heads = both, name = talking>(x)
    }

    fn loss(x: [batch, seq, d], target: [batch, seq, d]) -> [] {
        mean::<[batch, seq, d]>(pow(forward(x) - target, 2))
    }
}

model_of_test!(
    Sums,
    |number| (numbers("x", number), numbers("target", number)),
    (Dense<Rank3<2, 5, 8>>, Dense<Rank3<2, 5, 8>>)
);

pub(crate) fn adamw() -> AdamWConfig {
    AdamWConfig {
        lr: 0.01,
        weight_decay: 0.1,
        ..Default::default()
    }
}

/// The loss and the norm of each step.
pub(crate) fn steps<M: Model>(
    trainer: &mut Trainer<M, AdamWConfig>,
    steps: std::ops::Range<usize>,
) -> Vec<[f64; 2]> {
    let steps = steps.map(|step| trainer.step(M::batch(step)).unwrap());
    steps.map(|done| [done.loss, done.grad_norm]).collect()
}
