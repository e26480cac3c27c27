//! Training that stops and resumes in another process ends with the same bits.

use dfdx::{nn::BuildOnDevice, prelude::*};
use serde::{Deserialize, Serialize};

use super::{Checkpoints, Contents, STRICT, assert_success, run_child, task, text};
use crate::{
    checkpoint::Checkpoint,
    nn,
    random::Philox4x32,
    train::{AdamW, AdamWConfig, AdamWState},
};

type Net = (nn::Linear<4, 8>, nn::LayerNorm<8>, Tanh, nn::Linear<8, 2>);
type Built = <Net as BuildOnDevice<Cpu, f32>>::Built;

/// The state of a trainer besides weights and moments.
#[derive(Deserialize, Serialize)]
struct Trainer {
    /// The position in the data.
    drawn: u32,
    lr: f64,
}

impl Trainer {
    fn draw<S: ConstShape>(&mut self) -> Tensor<S, f32, Cpu> {
        let number = |_| {
            self.drawn += 1;
            let [word, ..] = Philox4x32::new(5).block([self.drawn, 0, 0, 0]);
            word as f32 / u32::MAX as f32
        };
        let numbers = (0..S::NUMEL).map(number).collect();
        Cpu::default().tensor_from_vec(numbers, S::default())
    }
}

struct Training {
    model: Built,
    optimizer: AdamW<f32>,
    trainer: Trainer,
}

impl Training {
    fn new() -> Self {
        Self {
            model: Net::build_on_device(&Cpu::seed_from_u64(3)),
            optimizer: AdamW::new(AdamWConfig::default()),
            trainer: Trainer { drawn: 0, lr: 0.1 },
        }
    }

    fn steps(&mut self, count: usize) {
        let mut gradients = self.model.alloc_grads();
        for _ in 0..count {
            let x = self.trainer.draw::<Rank2<3, 4>>();
            let y = self.trainer.draw::<Rank2<3, 2>>();
            let loss = mse_loss(self.model.forward_mut(x.trace(gradients)), y);
            gradients = loss.backward();
            // It differs in every step, and is not an exact decimal.
            self.trainer.lr *= 0.9;
            self.optimizer.config.lr = self.trainer.lr;
            self.optimizer
                .update(&mut self.model, &mut gradients)
                .unwrap();
            self.model.zero_grads(&mut gradients);
        }
    }

    fn save(&self, checkpoints: &Checkpoints) {
        let contents = Contents::new()
            .model(&self.model)
            .optimizer(&self.optimizer.state)
            .json("trainer_state.json", &self.trainer);
        let step = self.optimizer.state.step;
        checkpoints.save(step, &contents, None).unwrap();
    }

    fn load(checkpoint: &Checkpoint) -> Self {
        let mut training = Self::new();
        checkpoint.load_model(&mut training.model, STRICT).unwrap();
        let state = checkpoint.load_optimizer(&training.model, STRICT);
        training.optimizer.state = state.unwrap();
        training.trainer = checkpoint.json("trainer_state.json").unwrap();
        training
    }

    /// All state, to the last bit.
    fn bits(&self) -> (Vec<u32>, Vec<u32>, u64) {
        let (first, norm, _, last) = &self.model;
        let parameters = [
            first.weight.as_vec(),
            first.bias.as_vec(),
            norm.weight.as_vec(),
            norm.bias.as_vec(),
            last.weight.as_vec(),
            last.bias.as_vec(),
        ];
        let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect();
        let AdamWState { step, lists, .. } = &self.optimizer.state;
        let moments = lists.values().flatten().copied();
        (bits(parameters.concat()), bits(moments.collect()), *step)
    }
}

#[test]
fn training_in_two_processes_equals_training_in_one() {
    if let Some([folder]) = task().as_deref() {
        let checkpoints = Checkpoints::new(folder);
        let mut training = Training::load(&checkpoints.latest().unwrap().unwrap());
        training.steps(10);
        return training.save(&checkpoints);
    }
    let mut at_once = Training::new();
    at_once.steps(20);

    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut training = Training::new();
    training.steps(10);
    training.save(&checkpoints);
    let test = "resume::training_in_two_processes_equals_training_in_one";
    assert_success(&run_child(&[], test, &[text(folder.path())]));

    let resumed = checkpoints.latest().unwrap().unwrap();
    assert_eq!(resumed.step(), 20);
    let resumed = Training::load(&resumed);
    assert_eq!(resumed.bits(), at_once.bits());
    assert_eq!(resumed.trainer.lr.to_bits(), at_once.trainer.lr.to_bits());
    // The training changed something.
    assert_ne!(training.bits(), at_once.bits());
}
