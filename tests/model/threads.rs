//! What a model computes, and its gradients, do not depend on how many threads there are: not in the last bit.

use super::*;
use attn::{
    Backend, Element, model,
    ops::{CrossEntropyOptions, cross_entropy},
};
use rayon::ThreadPoolBuilder;

/// The alphabet of nanoGPT's plays: tiles of the gradient of its weights leave one row over, unless they take care.
const VOCAB: usize = 65;

model! {
    struct Gpt<vocab = VOCAB, d_model = 64>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<130, d_model>(tokens);
        repeat 2 {
            x += attention::<heads = 4, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model + 1 }>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

fn run<E: Element>(threads: usize) -> Outcome
where
    Cpu: Backend<E>,
{
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads can be started").install(|| {
        let mut gpt = Cpu::default().build_module::<Gpt, E>();
        scatter(&mut gpt);
        // More tokens than a gradient of weights sees at a time, and no multiple of that.
        let [tokens, next] = [ids((3, 129), VOCAB), ids((3, 129), VOCAB - 1)];
        let logits = gpt.forward(tokens.leaky_traced());
        let loss = cross_entropy(logits, &next, CrossEntropyOptions::default());
        backpropagate(loss).parameters(&gpt)
    })
}

fn threads_change_no_bit<E: Element>()
where
    Cpu: Backend<E>,
{
    let alone = run::<E>(1);
    for threads in [2, 3, 8] {
        let several = run::<E>(threads);
        let bits = |numbers: &[f64]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(alone.loss().to_bits(), several.loss().to_bits());
        for (name, gradient) in alone.gradients() {
            let same = bits(gradient) == bits(several.gradient(name));
            assert!(same, "the gradient of {name} with {threads} threads");
        }
    }
}

#[test]
fn threads_change_no_bit_in_f32() {
    threads_change_no_bit::<f32>();
}

#[test]
fn threads_change_no_bit_in_f64() {
    threads_change_no_bit::<f64>();
}
