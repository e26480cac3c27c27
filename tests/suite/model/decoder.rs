//! A GPT, declared, against the same out of dfdx's layers: the logits, every gradient, and twenty steps of training.

use super::*;
use crate::layers::compare::assert_close;
use crate::tensors::gradients;
use attn::{
    attention, model,
    nn::LearnedPosition,
    ops::{CrossEntropyOptions, cross_entropy},
    train::{AdamW, AdamWConfig},
};

const VOCAB: usize = 11;

model! {
    struct Gpt<vocab = VOCAB, d_model = 8, heads = 2, layers = 2, max_len = 16>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x = x + attention::<heads, d_model, mask = causal>(layer_norm(x));
            x = x + feed_forward::<hidden = { 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<vocab, bias = false>(layer_norm(x))
    }
}

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
}

type ByHand = (
    Embedding<VOCAB, 8>,
    LearnedPosition<16, 8>,
    Repeated<
        (
            Residual<(LayerNorm1D<8>, Causal)>,
            Residual<(LayerNorm1D<8>, (Linear<8, 32>, FastGeLU, Linear<32, 8>))>,
        ),
        2,
    >,
    LayerNorm1D<8>,
    UnbiasedLinear<8, VOCAB>,
);

type Model<T> = <T as BuildOnDevice<Cpu, f64>>::Built;

/// Both with the same numbers, parameter by parameter.
fn both() -> (Model<Gpt>, Model<ByHand>) {
    let dev = Cpu::default();
    let mut declared = dev.build_module::<Gpt, f64>();
    let mut by_hand = dev.build_module::<ByHand, f64>();
    scatter(&mut declared);
    let numbers = tensors::parameters(&declared);
    let mut numbers = numbers.into_iter().map(|parameter| parameter.values);
    tensors::fill(&mut by_hand, |_, _| {
        numbers.next().expect("as many parameters")
    });
    assert!(numbers.next().is_none());
    (declared, by_hand)
}

#[test]
fn parameters_are_saved_by_their_place() {
    let names = tensors::parameters(&Cpu::default().build_module::<Gpt, f32>());
    let names: Vec<_> = names.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        names[..8],
        [
            "embedding.weight",
            "learned_position.weight",
            "blocks.0.layer_norm.weight",
            "blocks.0.layer_norm.bias",
            "blocks.0.attention.q_proj.weight",
            "blocks.0.attention.q_proj.bias",
            "blocks.0.attention.k_proj.weight",
            "blocks.0.attention.k_proj.bias",
        ]
    );
    assert!(names.contains(&"blocks.1.feed_forward.down_proj.bias"));
    assert_eq!(names.last(), Some(&"linear.weight"));
}

/// 500 terms of order 1 in a chain of some thirty sums: √(30 · 500) ε / 2 = 60 ε, and ten times that.
const TOLERANCE: f64 = 600.0 * f64::EPSILON;

#[test]
fn twenty_steps_of_training_are_the_same() {
    let (mut declared, mut by_hand) = both();
    let config = AdamWConfig {
        lr: 0.01,
        ..Default::default()
    };
    let mut optimizers = [AdamW::new(config), AdamW::new(config)];
    let options = CrossEntropyOptions::default();
    for step in 0..20 {
        let (tokens, targets) = (ids((2, 12), VOCAB), ids((2, 12), VOCAB - step % 3));
        let logits = declared.forward_mut(tokens.clone().leaky_traced());
        let expected = by_hand.forward_mut(tokens.leaky_traced());
        // Rounding grows over the steps: Adam divides small gradients by their size.
        let tolerance = TOLERANCE * 10_f64.powi(step as i32 / 4);
        let what = format!("logits of step {step}");
        assert_close(&what, &logits.as_vec(), &expected.as_vec(), tolerance);
        let losses = [logits, expected].map(|logits| cross_entropy(logits, &targets, options));
        let [mut found, mut expected] = losses.map(|loss| loss.backward());
        let pairs = gradients(&declared, &found);
        for (a, b) in pairs.iter().zip(gradients(&by_hand, &expected)) {
            assert_close(&a.name, &a.values, &b.values, tolerance);
        }
        let [first, second] = &mut optimizers;
        first.update(&mut declared, &mut found).unwrap();
        second.update(&mut by_hand, &mut expected).unwrap();
    }
}

#[test]
fn a_token_changes_nothing_before_it() {
    let (declared, _) = both();
    let tokens = ids((1, 10), VOCAB).as_vec();
    let mut other = tokens.clone();
    other[6] = (other[6] + 1) % VOCAB;
    let logits = [tokens, other].map(|tokens| {
        let tokens = Cpu::default().tensor_from_vec(tokens, (1, 10));
        declared.forward(tokens).as_vec()
    });
    assert_eq!(logits[0][..6 * VOCAB], logits[1][..6 * VOCAB]);
    assert_ne!(logits[0][6 * VOCAB..], logits[1][6 * VOCAB..]);
}

#[test]
fn it_is_saved_and_loaded() {
    let dir = tempfile::tempdir().expect("a place for files");
    let file = dir.path().join("m.safetensors");
    let saved = Cpu::seed_from_u64(1).build_module::<Gpt, f32>();
    saved.save_safetensors(&file).expect("a file is written");
    let mut loaded = Cpu::seed_from_u64(2).build_module::<Gpt, f32>();
    loaded.load_safetensors(&file).expect("the file is read");
    let tokens = ids((2, 5), VOCAB);
    let (a, b) = (loaded.forward(tokens.clone()), saved.forward(tokens));
    assert_eq!(a.as_vec(), b.as_vec());
}
