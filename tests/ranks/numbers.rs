//! Losses of numbers.

use attn::{
    dfdx::prelude::*,
    model,
    train::{Counted, SgdConfig, Threads},
};

model! {
    pub struct Line<d = 2>;
    fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
    fn loss(x: [batch, d]) -> [] { mean::<[batch, 1]>(pow(forward(x), 2)) }
}

pub(crate) fn line(number: f64) -> Tensor<Rank2<3, 2>, f64, Cpu> {
    Cpu::default().tensor([[number, 1.0], [2.0, 0.5], [3.0, -1.0]])
}

model! {
    struct Classifier<d = 2, classes = 3>;
    fn forward(x: [batch, d]) -> [batch, classes] { linear::<classes>(x) }
    fn loss(x: [batch, d], targets: ids[batch]) -> [] { cross_entropy::<ignore_index = 0>(forward(x), targets) }
}

/// The first rank has one target that counts, the second one three, whether they are counted by the trainer or here.
#[test]
fn ignored_targets_do_not_count() {
    let run = |ranks: usize, is_counted: bool| {
        let steps = Threads::run(ranks, |rank| {
            let dev = Cpu::seed_from_u64(1);
            let model = dev.build_module::<Classifier, f64>();
            let mut trainer = model.trainer(SgdConfig::default()).across(rank);
            let targets = [1, 0, 0, 0, 2, 1, 0, 2];
            let rows = match (trainer.ranks(), trainer.rank()) {
                (1, _) => 0..8,
                (_, 0) => 0..4,
                _ => 4..8,
            };
            let x = rows.clone().flat_map(|row| [row as f64, 1.0]);
            let x = dev.tensor_from_vec(x.collect(), (rows.len(), Const::<2>));
            let targets = targets[rows.clone()].to_vec();
            let count = targets.iter().filter(|id| **id != 0).count();
            let batch = (x, dev.tensor_from_vec(targets, (rows.len(),)));
            let mut step = || {
                let batch = batch.clone();
                let step = match is_counted {
                    true => trainer.step(Counted { batch, count }),
                    false => trainer.step(batch),
                };
                step.unwrap().loss
            };
            [step(), step(), step()]
        });
        steps.into_iter().next().unwrap().unwrap()
    };
    for is_counted in [false, true] {
        for (found, expected) in run(2, is_counted).iter().zip(run(1, false)) {
            assert!((found - expected).abs() < 1e-12, "{found} and {expected}");
        }
    }
}
