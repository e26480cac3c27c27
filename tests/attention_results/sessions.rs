//! Token by token: the logarithms of the sums are those of a pass, and what weights are multiplied by is attended.

use super::*;
use attn::generate::Session;
use support::{close::Tolerance, compare::flat};

model! {
    /// Attentions are joined by their sums; one of them has heads.
    struct Joined<vocab = 7, d = 6, heads = 2, w = 3>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            let q = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(linear::<d>(x));
            let (near, _weights, lse) = attend::<mask = sliding_window(4), position = rope(dims = 2)>(q, q, q);
            let gates = sigmoid(permute::<[batch, seq, heads]>(lse));
            let (all, _weights_2, of_all) = attend::<mask = causal, normalizer = softmax1>(x, x, tanh(x));
            let (_layer, _weights_3, of_layer) = attention::<heads, mask = causal, normalizer = sink>(x);
            let of_layer = permute::<[batch, seq, heads]>(of_layer);
            x += rearrange::<[batch, seq, (heads, w)]>(near * gates + of_layer) + sin(of_all) * all;
        }
        linear::<vocab>(x)
    }
}

model! {
    struct OfMemory<vocab = 7, d = 6>;
    fn forward(tokens: ids[batch, seq], memory: [batch, src, d], lens: lens[batch]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat 2 {
            let (own, _weights, of_own) = attend::<mask = causal>(x, x, x);
            let (read, _weights_2, of_read) = attend::<mask = padding, normalizer = softmax1>(x, memory, memory, padding = lens);
            let share = sigmoid(of_own - of_read);
            x += share * own + (1 - share) * read;
        }
        linear::<vocab>(x)
    }
}

model! {
    /// Tokens are copied from those before with the weights of an attention: as a product, and as values.
    struct Copier<vocab = 7, d = 6>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let { x, q } = queries(tokens);
        let (y, weights) = attend::<mask = causal>(q, x, x);
        let copied = einsum::<[batch, seq, vocab]>(weights, one_hot::<vocab>(tokens) as [batch, kv = seq, vocab]);
        copied + mean::<d>(y)
    }
    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let { x, q } = queries(tokens);
        let y = attend::<mask = causal>(q, x, concat(x, one_hot::<vocab>(tokens)));
        y[13 = 6..] + mean::<6>(y[13 = ..6])
    }
    fn queries(tokens: ids[batch, seq]) -> { x: [batch, seq, d], q: [batch, seq, d] } {
        let x = embedding::<vocab, d>(tokens);
        { x, q: linear::<d>(x) }
    }
}

const VOCAB: usize = 7;

/// Sums of tens of terms of order 1 in another order, in four attentions.
const NEAR: Tolerance = Tolerance::OfLargest(1e-13);

fn tokens(len: usize) -> (Vec<usize>, Tensor<(usize, usize), usize, Cpu>) {
    let tokens: Vec<usize> = (0..len).map(|i| (i * i + 1) % VOCAB).collect();
    let tensor = Cpu::default().tensor_from_vec(tokens.clone(), (1, len));
    (tokens, tensor)
}

/// Prompts of several lengths, and then one token after the other.
fn check(session: impl Fn() -> Session<f64>, tokens: &[usize], whole: &[f64]) {
    for prompt in [1, 5, tokens.len()] {
        let mut session = session();
        let mut logits = session.prefill(&tokens[..prompt]).unwrap().to_vec();
        for at in prompt..=tokens.len() {
            let row = &whole[(at - 1) * VOCAB..at * VOCAB];
            assert_close(format!("{prompt}, {at}"), &logits, row, NEAR);
            if let Some(token) = tokens.get(at) {
                logits = session.prefill(&[*token]).unwrap().to_vec();
            }
        }
    }
}

#[test]
fn sums_of_new_tokens_are_those_of_a_pass() {
    let mut model = Cpu::default().build_module::<Joined, f64>();
    scatter(&mut model);
    // More than a step has.
    for len in [12, 150] {
        let (tokens, all) = tokens(len);
        let whole = flat(&model.forward(all));
        check(|| model.session(160).unwrap(), &tokens, &whole);
    }
}

/// Two sequences with different numbers of tokens: the sums of a head are not side by side.
#[test]
fn sums_of_several_sequences_are_theirs() {
    let mut model = Cpu::default().build_module::<Joined, f64>();
    scatter(&mut model);
    let (tokens, all) = tokens(9);
    let whole = flat(&model.forward(all));
    let mut sessions = model.sessions(2, 16).unwrap();
    let found = sessions.prefill(&[&tokens[..3], &tokens[..8]]).unwrap();
    let found = found.values().to_vec();
    for (index, at) in [2, 7].into_iter().enumerate() {
        let logits = &found[index * VOCAB..][..VOCAB];
        let row = &whole[at * VOCAB..][..VOCAB];
        assert_close(format!("sequence {index}"), logits, row, NEAR);
    }
}

#[test]
fn sums_over_a_memory_are_those_of_a_pass() {
    let mut model = Cpu::default().build_module::<OfMemory, f64>();
    scatter(&mut model);
    let (tokens, all) = tokens(9);
    let dev = Cpu::default();
    let memory: Tensor<(usize, usize, Const<6>), f64, _> = dev.sample_normal_like(&(1, 5, Const));
    let lens = dev.tensor_from_vec(vec![4], (1,));
    let whole = flat(&model.forward((all, memory.clone(), lens.clone())));
    let session = || model.session(memory.clone(), lens.clone(), 20).unwrap();
    check(session, &tokens, &whole);
}

/// What the message about weights in a session says to write.
#[test]
fn a_product_with_the_weights_is_attended() {
    let mut model = Cpu::default().build_module::<Copier, f64>();
    scatter(&mut model);
    let (tokens, all) = tokens(9);
    let whole = flat(&model.forward(all.clone()));
    assert_close("decode", &flat(&model.decode(all)), &whole, NEAR);
    check(|| model.decode_session(20).unwrap(), &tokens, &whole);
}
