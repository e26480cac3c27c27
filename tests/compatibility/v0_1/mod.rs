//! Version 0.1.

mod language;

use attn::{
    checkpoint::{Checkpoint, Checkpoints, Contents, LoadOptions},
    dfdx::prelude::*,
    model,
    ops::{CrossEntropyOptions, cross_entropy},
    text::Vocabulary,
    train::{AdamW, AdamWConfig},
};
use std::{fs, path::PathBuf};

const TEXT: &str = "in the beginning was the word";
const VOCAB: usize = 14;
const SEQ: usize = 5;
/// Steps before the checkpoint was written, and after it.
const BEFORE: u64 = 3;
const AFTER: u64 = 4;

model! {
    /// Every kind of parameter.
    struct Small<vocab = VOCAB, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<SEQ, d_model>(tokens);
        repeat 2 {
            x = x + attention::<2, kv_heads = 1, mask = causal, qk_norm = rms, normalizer = sink>(layer_norm(x)) {
                param slope: [heads] = alibi_slopes;
                fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
            };
            x = x + feed_forward::<12, activation = swiglu>(rms_norm(x));
        }
        linear::<tied = embedding>(x + linear::<d_model>(layer_norm(x)))
    }
}

type Model = Small<f64, Cpu>;

const CONFIG: AdamWConfig = AdamWConfig {
    lr: 0.02,
    betas: [0.9, 0.95],
    epsilon: 1e-8,
    weight_decay: 0.1,
};

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/compatibility/v0_1"))
}

/// Takes a step on a window of the text, and returns the loss before it.
fn train(model: &mut Model, optimizer: &mut AdamW<f64>, vocabulary: &Vocabulary, step: u64) -> f64 {
    let tokens = vocabulary.encode(TEXT).unwrap();
    let window = |from: usize| -> Tensor<(usize, usize), usize, Cpu> {
        let rows = [step as usize, 2 * step as usize + 7];
        let ids = rows.iter().flat_map(|row| &tokens[row + from..][..SEQ]);
        Cpu::default().tensor_from_vec(ids.copied().collect(), (2, SEQ))
    };
    let logits = model.forward_mut(window(0).traced(model.alloc_grads()));
    let loss = cross_entropy(logits, &window(1), CrossEntropyOptions::default());
    let found = loss.array();
    optimizer.update(model, &mut loss.backward()).unwrap();
    found
}

fn load(checkpoint: &Checkpoint) -> (Model, AdamW<f64>, Vocabulary) {
    let mut model = Cpu::default().build_module::<Small, f64>();
    checkpoint
        .load_model(&mut model, LoadOptions::default())
        .unwrap();
    let mut optimizer = AdamW::new(CONFIG);
    optimizer.state = checkpoint
        .load_optimizer(&model, LoadOptions::default())
        .unwrap();
    (model, optimizer, checkpoint.json("tokenizer.json").unwrap())
}

#[test]
fn a_run_of_0_1_resumes() {
    let run = Checkpoints::new(folder().join("run"));
    let checkpoint = run.latest().unwrap().unwrap();
    assert_eq!(checkpoint.step(), BEFORE);
    let (best, metric) = run.best().unwrap().unwrap();
    assert_eq!((best.step(), metric), (BEFORE, 1.25));

    let (mut model, mut optimizer, vocabulary) = load(&checkpoint);
    assert_eq!(vocabulary.len(), VOCAB);
    assert_eq!(optimizer.state.step, BEFORE);
    let text = fs::read_to_string(folder().join("losses.json")).unwrap();
    let expected: Vec<f64> = serde_json::from_str(&text).unwrap();
    assert_eq!(expected.len(), AFTER as usize);
    for (step, expected) in (BEFORE..).zip(expected) {
        let found = train(&mut model, &mut optimizer, &vocabulary, step);
        // Other vector widths add in another order: some hundred roundings of 1e-16 in a step, which four steps accumulate.
        assert!(
            (found - expected).abs() < 1e-12,
            "step {step}: {found} is not {expected}"
        );
    }
}

#[test]
#[ignore = "writes the files of a version: run once, when it is released"]
fn writes_the_run() {
    let run = folder().join("run");
    assert!(!run.exists(), "a version's files are never written again");
    let vocabulary = Vocabulary::characters(TEXT).unwrap();
    let mut model = Cpu::seed_from_u64(1).build_module::<Small, f64>();
    let mut optimizer = AdamW::new(CONFIG);
    for step in 0..BEFORE {
        train(&mut model, &mut optimizer, &vocabulary, step);
    }
    {
        let contents = Contents::new()
            .model(&model)
            .optimizer(&optimizer.state)
            .json("tokenizer.json", &vocabulary);
        let run = Checkpoints::new(&run);
        run.save(BEFORE, &contents, Some(1.25)).unwrap();
    }
    let losses = (BEFORE..BEFORE + AFTER)
        .map(|step| train(&mut model, &mut optimizer, &vocabulary, step))
        .collect::<Vec<_>>();
    let losses = serde_json::to_string_pretty(&losses).unwrap();
    fs::write(folder().join("losses.json"), losses).unwrap();
}
