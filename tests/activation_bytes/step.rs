//! Complete training steps.

use super::*;
use attn::{
    Error, model,
    ops::{CrossEntropyOptions, cross_entropy},
    train::{AdamW, AdamWConfig, Dtype},
};

model! {
    struct Gpt<vocab = 65, d_model = 24, layers = 3>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = dropout::<0.1>(embedding::<vocab, d_model>(tokens) + learned_position::<200, d_model>(tokens));
        repeat layers {
            x += attention::<heads = 3, mask = causal, dropout = 0.1>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }

    fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {
        cross_entropy(forward(tokens), targets)
    }
}

model! {
    /// Hidden layers of odd widths, gated and not.
    struct Wide<d_model = 5>;

    fn forward(x: [batch, d_model]) -> [batch, d_model] {
        let x = x + feed_forward::<7, activation = relu_squared>(x);
        x + feed_forward::<3, activation = swiglu>(x)
    }

    fn loss(x: [batch, d_model]) -> [] {
        mean::<[batch, d_model]>(forward(x))
    }
}

/// A bound on the memory, which rustc checks.
const _: () = assert!(Gpt::activation_bytes(8, 200) < 8 << 20);

fn tokens(batch: usize, length: usize) -> Tensor<(usize, usize), usize, Cpu> {
    ids((batch, length), 65)
}

/// The loss and the optimizer take less than the model in the middle of its backward pass.
#[test]
fn training_steps_take_the_stated_bytes() {
    let _alone = alone();
    let mut gpt = Cpu::default().build_module::<Gpt, f32>();
    let mut optimizer = AdamW::new(Default::default());
    let mut gradients = Some(gpt.alloc_grads());
    for (batch, length) in [(2, 199), (1, 64), (3, 33)] {
        let ids = tokens(batch, length);
        let before = memory::allocated();
        memory::reset_peak();
        let traced = ids.clone().traced(gradients.take().unwrap());
        let logits = gpt.forward_mut(traced);
        let loss = cross_entropy(logits, &ids, CrossEntropyOptions::default());
        let mut done = loss.backward();
        optimizer.update(&mut gpt, &mut done).unwrap();
        gpt.zero_grads(&mut done);
        gradients = Some(done);
        assert_eq!(
            memory::peak() - before,
            Gpt::activation_bytes(batch, length)
        );
        assert_eq!(memory::allocated(), before);
    }
}

/// A trainer's step takes what its loss states, with either dtype of its products, but for the loss and its gradient, which are no tensors there.
#[test]
fn steps_of_a_trainer_take_the_stated_bytes() {
    let _alone = alone();
    let dev = Cpu::default();
    for (dtype, stated, of_wide) in [
        (
            Dtype::Model,
            Gpt::loss_activation_bytes as fn(usize, usize) -> usize,
            Wide::loss_activation_bytes as fn(usize) -> usize,
        ),
        (
            Dtype::Bf16,
            Gpt::loss_activation_bytes_bf16,
            Wide::loss_activation_bytes_bf16,
        ),
    ] {
        let config = AdamWConfig::default();
        let mut gpt = dev.build_module::<Gpt, f32>().trainer(config).dtype(dtype);
        for (batch, length) in [(2, 199), (1, 64), (3, 33)] {
            let ids = tokens(batch, length);
            let before = memory::allocated();
            memory::reset_peak();
            gpt.step((ids.clone(), ids)).unwrap();
            let taken = memory::peak() - before + 2 * size_of::<f32>();
            assert_eq!(taken, stated(batch, length), "{dtype:?} {batch} x {length}");
            assert_eq!(memory::allocated(), before);
        }
        let mut wide = dev.build_module::<Wide, f32>().trainer(config).dtype(dtype);
        for batch in [1, 2, 11] {
            let x: Tensor<(usize, Const<5>), f32, _> = dev.ones_like(&(batch, Const));
            let before = memory::allocated();
            memory::reset_peak();
            wide.step(x).unwrap();
            let taken = memory::peak() - before + 2 * size_of::<f32>();
            assert_eq!(taken, of_wide(batch), "{dtype:?} {batch}");
        }
    }
    // While the hidden layer of the last block is computed, it has both: of the others, a half of each is kept.
    let [whole, rounded] = [
        Gpt::loss_activation_bytes(8, 200),
        Gpt::loss_activation_bytes_bf16(8, 200),
    ];
    assert!(rounded < whole, "{rounded} of {whole}");
}

/// A pass without a tape saves nothing, and a pass without dropout takes no more than one with it.
#[test]
fn passes_without_training_take_less() {
    let _alone = alone();
    let gpt = Cpu::default().build_module::<Gpt, f32>();
    let promised = Gpt::activation_bytes(2, 50);
    let before = memory::allocated();
    memory::reset_peak();
    drop(gpt.forward(tokens(2, 50)));
    assert_eq!(memory::allocated(), before);
    assert!(memory::peak() - before < promised);
    let taken = peak::<f32, _>(|| gpt.forward(tokens(2, 50).leaky_traced()));
    assert!(taken <= promised, "{taken} of {promised}");
}

#[test]
fn overflowing_bytes_are_the_largest_number() {
    assert_eq!(Gpt::activation_bytes(usize::MAX, 2), usize::MAX);
    assert_eq!(
        Gpt::activation_bytes(usize::MAX, 0),
        Gpt::activation_bytes(0, 0)
    );
}

/// A pass for which there is no memory is refused, and the bytes of the message are those that it would take: with the batch, all of
/// them grow.
#[test]
fn what_is_refused_is_what_a_pass_would_take() {
    const TIMES: usize = 1 << 36;

    fn check<E: Element>()
    where
        Cpu: Backend<E>,
    {
        let gpt = Cpu::default().build_module::<Gpt, E>();
        // One token, as many.
        let token: Tensor<Rank0, usize, _> = Cpu::default().zeros();
        let tokens = |batch| token.clone().broadcast_like::<_, Axes2<0, 1>>(&(batch, 50));
        let bytes = |result: Option<Error<CpuError>>| match result {
            Some(Error::TooLarge {
                layer: "Gpt",
                sizes,
            }) => sizes[0].1,
            other => panic!("{other:?}"),
        };
        let refused = bytes(gpt.try_forward(tokens(2 * TIMES)).err());
        memory::reset_peak();
        drop(gpt.forward(tokens(2)));
        assert_eq!(refused, TIMES * memory::peak());

        let refused = bytes(gpt.try_forward(tokens(2 * TIMES).leaky_traced()).err());
        let step = Gpt::activation_bytes(2 * TIMES, 50);
        assert_eq!(refused, step / size_of::<f32>() * size_of::<E>());
    }
    let _alone = alone();
    check::<f32>();
    check::<f64>();
}
