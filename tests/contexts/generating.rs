//! What generates goes on with a memory as without one.

use attn::{
    dfdx::prelude::*,
    generate::{BeamSearch, Sampling},
};
use support::cases::{scatter, tensor};

use super::{Translator, VOCAB, ids, lens};

fn best(logits: &[f64]) -> usize {
    let mut best = 0;
    for (token, logit) in logits.iter().enumerate() {
        if *logit > logits[best] {
            best = token;
        }
    }
    best
}

#[test]
fn greedy_tokens_are_those_of_the_whole_sequence() {
    let mut net = Cpu::default().build_module::<Translator<f64>, f64>();
    scatter(&mut net);
    let memory: Tensor<(usize, usize, Const<16>), f64, _> = tensor("memory", (1, 6, Const));
    let mut expected = vec![1];
    for _ in 0..7 {
        let input = (ids(&[expected.clone()]), memory.clone(), lens(&[4]));
        let logits = net.decode(input).as_vec();
        expected.push(best(&logits[logits.len() - VOCAB..]));
    }
    let session = || net.decode_session(memory.clone(), lens(&[4]), 8).unwrap();
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let mut one = session();
    let tokens = one.generate(&[1], greedy, &[]).unwrap().take(7);
    let tokens: Vec<usize> = tokens.collect::<Result<_, _>>().unwrap();
    assert_eq!(tokens, expected[1..]);
    // One beam is greedy.
    let search = BeamSearch {
        beams: 1,
        tokens: 7,
        ..BeamSearch::default()
    };
    let beams = session().beam_search(&[1], &search).unwrap();
    assert_eq!(beams[0].tokens, expected[1..]);
    let more = BeamSearch { beams: 3, ..search };
    let found = session().beam_search(&[1], &more).unwrap();
    assert!(found[0].log_probability >= beams[0].log_probability - 1e-12);
}
