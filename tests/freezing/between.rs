//! Memory of gradients, and freezing between steps.

use super::*;

#[test]
fn gradients_that_are_not_wanted_take_no_memory() {
    let gradients = |pattern: &str| {
        let mut trainer = Gpt::<f64, Cpu>::trained_by(adamw()).freeze(pattern);
        steps(&mut trainer, 0..1);
        trainer.gradient_bytes()
    };
    let all = Gpt::<f64, Cpu>::trained_by(adamw()).parameters();
    let bytes = |trained: &dyn Fn(&str) -> bool| {
        let trained = all.iter().filter(|of| trained(&of.name));
        let numbers = trained.map(|of| of.dims.iter().product::<usize>());
        8 * numbers.sum::<usize>()
    };
    // The tied table is one parameter, with one gradient.
    let mut unfrozen = Gpt::<f64, Cpu>::trained_by(adamw());
    steps(&mut unfrozen, 0..1);
    assert_eq!(unfrozen.gradient_bytes(), 8 * Gpt::PARAMS);
    for pattern in ["blocks.0.", "blocks.3.", "blocks."] {
        let expected = bytes(&|name| !name.starts_with(pattern));
        let found = gradients(&format!("{pattern}*"));
        assert_eq!(found, expected, "{pattern}");
    }
}

#[test]
fn freezing_between_steps_gives_memory_back_and_unfreezing_takes_it_again() {
    let mut trainer = Gpt::<f64, Cpu>::trained_by(adamw());
    steps(&mut trainer, 0..1);
    let all = trainer.gradient_bytes();
    let begin = parameters(trainer.model());
    trainer.set_frozen("blocks.*", true).unwrap();
    steps(&mut trainer, 1..3);
    assert!(trainer.gradient_bytes() < all);
    let middle = parameters(trainer.model());
    trainer.set_frozen("blocks.*", false).unwrap();
    steps(&mut trainer, 3..4);
    assert_eq!(trainer.gradient_bytes(), all);
    let end = parameters(trainer.model());
    for ((begin, middle), end) in begin.iter().zip(&middle).zip(&end) {
        let is_block = begin.name.starts_with("blocks.");
        assert_eq!(begin.values == middle.values, is_block, "{}", begin.name);
        assert_ne!(middle.values, end.values, "{}", begin.name);
    }
}

model! {
    /// The gradient of its input is nobody's.
    struct Wide<d = 64>;

    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1>(tanh(rms_norm(x)))
    }

    fn loss(x: [batch, d]) -> [] {
        mean::<[batch, 1]>(forward(x))
    }
}

model_of_test!(Wide, |number| (numbers("x", number)), (Dense<Rank2<5, 64>>));

/// The gain of the norm is learned, so its derivative runs, which writes both gradients at once. A trainer keeps that of the gain alone.
#[test]
fn a_trainer_keeps_no_gradient_of_an_input() {
    let mut trainer = Wide::<f64, Cpu>::trained_by(adamw());
    let mut tape = Wide::<f64, Cpu>::unset();
    scatter(&mut tape);
    let gradients = tape.alloc_grads();
    let (_, mut gradients) = tape.differentiate(0, gradients);
    attn::train::AdamW::new(adamw())
        .update(&mut tape, &mut gradients)
        .unwrap();
    steps(&mut trainer, 0..1);
    assert_eq!(parameters(trainer.model()), parameters(&tape));
    let numbers = trainer.parameters().into_iter();
    let numbers: usize = numbers.map(|of| of.dims.iter().product::<usize>()).sum();
    assert_eq!(trainer.gradient_bytes(), 8 * numbers);
}
