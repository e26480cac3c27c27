//! Sessions: token by token the same as at once.

use attn::{dfdx::prelude::*, model};
use support::cases::{scatter, tensor};
use support::close::assert_close;

model! {
    struct Layers<vocab = 5, d = 8, heads = 2, width = 4>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        x += attention::<4, kv_heads = 2, mask = causal, position = rope, talking_heads = both>(x);
        x += attention::<2, mask = sliding_window(3), position = alibi, talking_heads = before, normalizer = sink, name = near>(x);
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<8>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<8>(x));
        let y = attend::<mask = causal, talking_heads = both, normalizer = sigmoid>(q, k, k);
        linear::<vocab>(rearrange::<[batch, heads, seq, width] -> [batch, seq, (heads, width)]>(y) + x)
    }
}

#[test]
fn a_session_goes_on_with_heads_that_talk() {
    let mut model = Cpu::default().build_module::<Layers, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2, 0, 4, 2, 2];
    let whole: Tensor<Rank3<1, 9, 5>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let whole = &whole.array()[0];
    let mut session = model.session(9).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        assert_close(position, logits, &whole[position], 1e-13);
    }
    // Several at a time are one block of queries.
    let mut session = model.session(9).unwrap();
    session.prefill(&tokens[..4]).unwrap();
    let logits = session.prefill(&tokens[4..]).unwrap();
    assert_close("at once", logits, &whole[8], 1e-13);
}

model! {
    struct Decoder<vocab = 5, d = 8>;
    fn forward(tokens: ids[batch, seq], memory: [batch, src, d], lens: lens[batch]) -> [batch, seq, vocab] {
        let y = embedding::<vocab, d>(tokens);
        let y = y + attention::<2, mask = padding, talking_heads = both>(y, context = memory, padding = lens);
        linear::<vocab>(y)
    }
}

#[test]
fn so_does_one_with_a_context() {
    let mut model = Cpu::default().build_module::<Decoder, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1];
    let memory: Tensor<(usize, usize, Const<8>), f64, _> = tensor("memory", (1, 7, Const));
    let lens: Tensor<(usize,), usize, _> = Cpu::default().tensor_from_vec(vec![5], (1,));
    let ids: Tensor<(usize, usize), usize, _> =
        Cpu::default().tensor_from_vec(tokens.into(), (1, 4));
    let whole = model.forward((ids, memory.clone(), lens.clone())).as_vec();
    let mut session = model.session(memory, lens, 4).unwrap();
    for (token, whole) in tokens.into_iter().zip(whole.chunks(5)) {
        assert_close(token, session.prefill(&[token]).unwrap(), whole, 1e-13);
    }
}
