//! Token by token: a causal convolution remembers the last of its inputs.

use super::*;
use attn::model;
use support::tensors::flat;

model! {
    /// An attention with short convolutions before and behind it, in two rounds.
    struct Mixed<vocab = 11, d = 6>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            x += silu(conv1d::<seq, d, kernel = 3, padding = causal, dilation = 2, groups = d>(layer_norm(x)));
            x += attention::<heads = 2, mask = causal>(layer_norm(x));
        }
        x += conv1d::<seq, d, kernel = 1, padding = causal>(x);
        linear::<vocab>(conv1d::<seq, out = 4, kernel = 4, padding = causal, bias = false>(x))
    }
}

#[test]
fn a_session_computes_what_the_model_computes() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Mixed, f32>();
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    let whole: Tensor<Rank2<1, 8>, usize, Cpu> = Cpu::default().tensor([tokens]);
    let whole = flat(&model.forward(whole));
    // Token by token, in parts that are longer and shorter than what is remembered, and all at once.
    for parts in [[1; 8].as_slice(), &[2, 5, 1], &[8]] {
        let mut session = model.session(8).unwrap();
        let mut place = 0;
        for part in parts {
            let logits = session.prefill(&tokens[place..place + part]).unwrap();
            place += part;
            for (a, b) in logits.iter().zip(&whole[(place - 1) * 11..]) {
                assert!((f64::from(*a) - b).abs() < 1e-5, "{parts:?}, {place}");
            }
        }
    }
}

/// The memory does not grow with the length, and a sequence that begins anew remembers nothing.
#[test]
fn sequences_are_apart_and_begin_anew() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Mixed, f32>();
    let mut session = model.session(8).unwrap();
    let first = session.prefill(&[3, 1, 4]).unwrap().to_vec();
    session.reset();
    assert_eq!(session.prefill(&[3, 1, 4]).unwrap().to_vec(), first);
}

model! {
    /// The tokens are the second input.
    struct Remembering<vocab = 11, d = 6>;
    fn forward(memory: [batch, src, d], tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = conv1d::<seq, d, kernel = 3, padding = causal>(embedding::<vocab, d>(tokens));
        linear::<vocab>(x + attention::<heads = 2>(x, context = memory))
    }
}

#[test]
fn a_session_whose_tokens_are_not_the_first_input_remembers_too() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Remembering, f32>();
    let memory = || {
        let numbers: Vec<f32> = (0..18).map(|i| (i % 7) as f32 / 7.0 - 0.4).collect();
        Cpu::default().tensor_from_vec(numbers, (1, 3, Const::<6>))
    };
    let tokens = [3, 1, 4, 1, 5, 9];
    let whole: Tensor<(usize, usize), usize, Cpu> =
        Cpu::default().tensor_from_vec(tokens.to_vec(), (1, 6));
    let whole = flat(&model.forward((memory(), whole)));
    for parts in [[1; 6].as_slice(), &[2, 4], &[6]] {
        let mut session = model.session(memory(), 6).unwrap();
        let mut place = 0;
        for part in parts {
            let logits = session.prefill(&tokens[place..place + part]).unwrap();
            place += part;
            for (a, b) in logits.iter().zip(&whole[(place - 1) * 11..]) {
                assert!((f64::from(*a) - b).abs() < 1e-5, "{parts:?}, {place}");
            }
        }
    }
}
