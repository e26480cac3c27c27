//! Mistakes, and what an optimizer does with frozen parameters.

use attn::train::{Ema, TrainError, UpdateError, clip_grad_norm};

use super::*;

type Small = Gpt<f64, Cpu>;

#[test]
fn a_pattern_without_a_parameter_is_an_error() {
    let mut trainer = Small::trained_by(adamw()).freeze("block.*");
    let before = parameters(trainer.model());
    let error = trainer.step(Small::batch(0)).unwrap_err();
    let start = "no parameter has a name like `block.*`: the names are `embedding.weight`, ";
    assert!(error.to_string().starts_with(start), "{error}");
    assert_eq!(parameters(trainer.model()), before);
    assert_eq!(trainer.state().step, 0);

    let mut trainer = Small::trained_by(adamw());
    let error = trainer.set_frozen("block.*", true).unwrap_err();
    assert!(matches!(&error, UpdateError::NoParameter { pattern, .. } if pattern == "block.*"));
    trainer.step(Small::batch(0)).unwrap();
}

#[test]
fn a_step_that_trains_nothing_is_an_error() {
    let mut trainer = Small::trained_by(adamw()).freeze("*");
    let error = trainer.step(Small::batch(0)).unwrap_err();
    assert!(matches!(error, TrainError::Update(UpdateError::AllFrozen)));
    assert_eq!(
        error.to_string(),
        "all parameters are frozen: a step trains nothing"
    );
    let error = trainer.accumulate(Small::batch(0)).unwrap_err();
    assert!(matches!(error, TrainError::Update(UpdateError::AllFrozen)));
    assert!(trainer.evaluate(Small::batch(0)).is_ok());
    trainer.set_frozen("layer_norm.*", false).unwrap();
    trainer.step(Small::batch(0)).unwrap();
}

#[test]
fn the_last_pattern_holds_and_any_name_of_a_tied_table_means_it() {
    let frozen = |trainer: Trainer<Small, AdamWConfig>| {
        let all = trainer.parameters().into_iter();
        let frozen = all.filter(|of| of.frozen).map(|of| of.name);
        frozen.collect::<Vec<_>>()
    };
    let trainer = Small::trained_by(adamw()).freeze("*").unfreeze("*");
    assert!(frozen(trainer).is_empty());
    let trainer = Small::trained_by(adamw())
        .freeze("blocks.*")
        .unfreeze("*.bias")
        .freeze("blocks.0.*");
    let names = frozen(trainer);
    assert!(
        names
            .iter()
            .any(|name| name.starts_with("blocks.0.") && name.ends_with(".bias"))
    );
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("blocks.1.") && name.ends_with(".bias"))
    );
    let trainer = Small::trained_by(adamw()).freeze("embedding.weight");
    assert_eq!(frozen(trainer), ["embedding.weight"]);
}

#[test]
fn accumulated_batches_are_forgotten_when_other_parameters_are_frozen() {
    let mut trainer = Small::trained_by(adamw());
    trainer.accumulate(Small::batch(0)).unwrap();
    trainer.set_frozen("blocks.*", true).unwrap();
    let error = trainer.apply().unwrap_err();
    assert!(matches!(error, TrainError::NoBatch), "{error}");
}

/// Gradients of the tape are there for all parameters, and are ignored.
#[test]
fn an_optimizer_leaves_frozen_parameters_alone() {
    let mut model = Small::unset();
    scatter(&mut model);
    let begin = parameters(&model);
    let mut optimizer = Optimizer::new(adamw()).freeze("blocks.*");
    let mut ema = Ema::new(0.5);
    let mut gradients = model.alloc_grads();
    for number in 0..3 {
        let (tokens, targets) = Small::batch(number);
        let loss = model.loss((tokens.traced(gradients), targets));
        gradients = loss.backward();
        clip_grad_norm(&model, &mut gradients, 1.0).unwrap();
        optimizer.update(&mut model, &mut gradients).unwrap();
        model.zero_grads(&mut gradients);
        ema.update(&model).unwrap();
    }
    for (begin, end) in begin.iter().zip(&parameters(&model)) {
        let is_frozen = begin.name.starts_with("blocks.");
        assert_eq!(begin.values == end.values, is_frozen, "{}", begin.name);
        let average = &ema.averages[&begin.name];
        assert_eq!(*average == begin.values, is_frozen, "{}", begin.name);
    }
    let mut lists = optimizer.state.lists.keys();
    assert!(lists.all(|name| !name.starts_with("blocks.")));
}

#[test]
fn an_optimizer_needs_no_gradient_of_what_is_frozen() {
    let dev = Cpu::default();
    let mut pair: (Tensor<Rank1<1>, f64, Cpu>, Tensor<Rank1<1>, f64, Cpu>) =
        (dev.tensor([1.0]), dev.tensor([2.0]));
    let gradients = |pair: &(Tensor<Rank1<1>, f64, Cpu>, _)| {
        let loss = pair.0.leaky_trace().square().sum();
        loss.backward()
    };
    let mut optimizer = Optimizer::new(adamw());
    let mut update = |optimizer: &mut Optimizer<f64, AdamWConfig>| {
        let mut given = gradients(&pair);
        let updated = optimizer.update(&mut pair, &mut given);
        (updated, pair.0.array()[0], pair.1.array()[0])
    };
    let (error, ..) = update(&mut optimizer);
    let error = error.unwrap_err();
    assert!(matches!(error, UpdateError::NoGradient { .. }), "{error}");
    optimizer.set_frozen("1*", true);
    let (updated, first, second) = update(&mut optimizer);
    updated.unwrap();
    assert!(first < 1.0);
    assert_eq!(second, 2.0);
    optimizer.set_frozen("0*", true);
    let (error, ..) = update(&mut optimizer);
    let error = error.unwrap_err();
    assert!(matches!(error, UpdateError::AllFrozen), "{error}");
}
