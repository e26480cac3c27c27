//! Training that goes on from a checkpoint has the same bits, with every algorithm, clipping, a schedule, groups, dropout and averages.

use attn::{
    checkpoint::{Checkpoints, LoadOptions},
    train::{
        AdafactorConfig, AdamWConfig, Cosine, LearningRate, LionConfig, MuonConfig,
        ScheduleFreeConfig, SgdConfig,
    },
};

use super::*;

model! {
    /// With dropout.
    struct Drops<vocab = 7, d = 6>;

    fn forward(ids: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = dropout::<0.2>(embedding::<vocab, d>(ids));
        linear::<vocab>(x + linear::<d>(layer_norm(x)))
    }

    fn loss(ids: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy::<ignore_index = PAD>(forward(ids), targets)
    }
}

fn resumes<A>(algorithm: &A, change: fn(&mut A))
where
    A: Algorithm + LearningRate + Clone + Send + Sync + 'static,
{
    let name = A::NAME;
    let rates = Cosine {
        highest: 0.03,
        lowest: 0.0,
        warm_up: 2,
        steps: 6,
    };
    let build = || {
        let mut model = Cpu::default().build_module::<Drops, f32>();
        scatter(&mut model);
        let trainer = model.trainer(algorithm.clone());
        let trainer = trainer.clip(0.2).schedule(rates).seed(5).ema(0.8);
        trainer
            .group("embedding.*", change)
            .group("*.bias", change)
            .decaying(|parameter| parameter.name.ends_with("weight"))
    };
    let run = |trainer: &mut Trainer<_, A>, steps: std::ops::Range<usize>| {
        let steps = steps.map(|number| trainer.step(batch(number)).unwrap());
        steps.collect::<Vec<_>>()
    };
    let mut whole = build();
    let expected = run(&mut whole, 0..6);
    assert!(
        expected.iter().any(|step| step.grad_norm > 0.2),
        "{name} clips"
    );

    let folder = tempfile::tempdir().unwrap();
    let mut first = build();
    let mut found = run(&mut first, 0..3);
    let checkpoints = Checkpoints::new(folder.path());
    checkpoints.save(3, &first.contents(), None).unwrap();
    drop(first);
    let mut second = build();
    // What it begins with must not matter.
    support::tensors::fill(second.model_mut(), |_, values| vec![0.5; values.len()]);
    let checkpoint = checkpoints.latest().unwrap().unwrap();
    second.load(&checkpoint, LoadOptions::default()).unwrap();
    found.extend(run(&mut second, 3..6));
    assert_eq!(found, expected, "{name}");
    assert!(second.state() == whole.state(), "{name}");
    let parameters = [&mut second, &mut whole].map(|trainer| parameters(trainer.model()));
    assert!(parameters[0] == parameters[1], "{name}");
}

#[test]
fn adamw() {
    let config = AdamWConfig {
        weight_decay: 0.1,
        ..AdamWConfig::default()
    };
    resumes(&config, |config| config.lr *= 0.5);
}

#[test]
fn sgd() {
    let config = SgdConfig {
        momentum: 0.9,
        nesterov: true,
        ..SgdConfig::default()
    };
    resumes(&config, |config| config.momentum = 0.5);
}

#[test]
fn lion() {
    resumes(&LionConfig::default(), |config| config.lr *= 0.5);
}

#[test]
fn adafactor() {
    resumes(&AdafactorConfig::default(), |config| {
        config.weight_decay = 0.1;
    });
}

#[test]
fn muon() {
    resumes(&MuonConfig::default(), |config| config.scale_lr(0.5));
}

#[test]
fn schedule_free() {
    let config = ScheduleFreeConfig {
        warm_up: 4,
        ..ScheduleFreeConfig::default()
    };
    resumes(&config, |config| config.betas[0] = 0.8);
}
