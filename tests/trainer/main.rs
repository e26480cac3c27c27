//! `model.trainer(..)`: steps against those with dfdx's tape and an optimizer, settings, and what a step refuses.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]

use attn::{
    Error,
    dfdx::prelude::*,
    model,
    train::{Algorithm, Optimizer, TrainBatch, Trainable, Trainer, clip_grad_norm},
};
use support::{
    cases::{scatter, tensor},
    close::assert_close,
    tensors::{Named, parameters},
};

type Grads = Gradients<f64, Cpu>;
type Loss = Tensor<Rank0, f64, Cpu, OwnedTape<f64, Cpu>>;

/// A model that the tests train.
trait Model: Trainable<Element = f64, Device = Cpu> {
    type Batch: TrainBatch<Self>;

    fn unset() -> Self;

    /// The batch with this number.
    fn batch(number: usize) -> Self::Batch;

    /// The loss on dfdx's tape.
    fn traced(&mut self, batch: Self::Batch, gradients: Grads) -> Result<Loss, Error<CpuError>>;

    /// With numbers that are not those of an initialisation.
    fn scattered() -> Self {
        let mut model = Self::unset();
        scatter(&mut model);
        model
    }
}

macro_rules! model_of_test {
    ($Model:ident, |$number:ident| ($first:expr, $($rest:expr),*) as $Batch:ty) => {
        impl Model for $Model<f64, Cpu> {
            type Batch = $Batch;

            fn unset() -> Self {
                Cpu::default().build_module::<$Model, f64>()
            }

            fn batch($number: usize) -> Self::Batch {
                ($first, $($rest),*)
            }

            fn traced(&mut self, (first, second): Self::Batch, gradients: Grads) -> Result<Loss, Error<CpuError>> {
                self.try_loss_mut((first.traced(gradients), second))
            }
        }
    };
}

mod bf16;
mod equal;
mod finite;
mod groups;
mod names;
mod refused;
mod settings;

/// Tokens of the batch with this number.
fn tokens<const B: usize, const S: usize>(
    number: usize,
    vocab: usize,
) -> Tensor<Rank2<B, S>, usize, Cpu> {
    let ids = (0..B * S).map(|i| (i * i + (3 + number) * i + number) % vocab);
    Cpu::default().tensor_from_vec(ids.collect(), Default::default())
}

fn numbers<S: ConstShape>(name: &str, number: usize) -> Tensor<S, f64, Cpu> {
    tensor(&format!("{name}{number}"), S::default())
}

model! {
    /// Rotations, packed projections, a tied table, and dropout.
    struct Gpt<vocab = 11, d_model = 8, p = 0.0>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens);
        repeat 2 {
            let h = attention::<2, mask = causal, position = rope, bias = [q, k, v]>(layer_norm(x));
            x = x + dropout::<p>(h);
            x = x + feed_forward::<hidden = 12>(layer_norm(x));
        }
        linear::<tied = embedding>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model_of_test!(Gpt, |number| (tokens(number, 11), tokens(number + 5, 11))
    as (
        Tensor<Rank2<2, 5>, usize, Cpu>,
        Tensor<Rank2<2, 5>, usize, Cpu>
    ));

/// Steps on dfdx's tape: the losses, the norms, and the parameters.
fn by_hand<M: Model, A: Algorithm>(
    mut model: M,
    algorithm: A,
    clip: Option<f64>,
    steps: usize,
) -> (Vec<[f64; 2]>, M) {
    let mut optimizer = Optimizer::<f64, A>::new(algorithm);
    let mut gradients = model.alloc_grads();
    let mut done = Vec::new();
    for step in 0..steps {
        let loss = model.traced(M::batch(step), gradients).unwrap();
        let number = loss.array();
        gradients = loss.backward();
        let norm = clip_grad_norm(&model, &mut gradients, clip.unwrap_or(f64::INFINITY)).unwrap();
        optimizer.update(&mut model, &mut gradients).unwrap();
        model.zero_grads(&mut gradients);
        done.push([number, norm]);
    }
    (done, model)
}

/// The same steps of a trainer.
fn trained<M: Model, A: Algorithm>(
    trainer: &mut Trainer<M, A>,
    steps: std::ops::Range<usize>,
) -> Vec<[f64; 2]> {
    let steps = steps.map(|step| trainer.step(M::batch(step)).unwrap());
    steps.map(|done| [done.loss, done.grad_norm]).collect()
}

fn assert_same(found: &[Named], expected: &[Named], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.name, expected.name);
        assert_close(&found.name, &found.values, &expected.values, tolerance);
    }
}
