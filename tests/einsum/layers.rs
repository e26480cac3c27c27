//! Layers by hand against the built-in ones, and a session.

use super::*;
use attn::{model, nn::Weight};
use support::close::assert_close;

model! {
    struct BuiltIn<d = 6, heads = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<heads, d, bias = false>(x) }
}

model! {
    struct ByHand<d = 6, heads = 2, width = 3>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param w_q: [heads, width, d] = normal(0.5);
        param w_k: [heads, width, d] = normal(0.5);
        param w_v: [heads, width, d] = normal(0.5);
        param w_o: [d, heads, width] = normal(0.5);
        let context = x as [batch, kv = seq, d];
        let q = einsum::<[batch, heads, seq, width]>(x, w_q);
        let k = einsum::<[batch, heads, kv, width]>(context, w_k);
        let v = einsum::<[batch, heads, kv, width]>(context, w_v);
        let weights = softmax::<kv>(einsum::<[batch, heads, seq, kv]>(q, k) / sqrt(width));
        // The axis `d` of `w_o` is that of the result, not of the operand.
        einsum::<[batch, seq, d]>(weights, v, w_o)
    }
}

fn copy<S: Shape, S2: Shape>(from: &Tensor<S, f64, Cpu>, to: &mut Weight<S2, f64, Cpu>) {
    to.weight.copy_from(&from.as_vec());
}

#[test]
fn an_attention_by_hand_is_attention() {
    let mut built_in = Cpu::default().build_module::<BuiltIn, f64>();
    scatter(&mut built_in);
    let mut by_hand = Cpu::default().build_module::<ByHand, f64>();
    copy(&built_in.attention.q_proj.weight, &mut by_hand.w_q);
    copy(&built_in.attention.k_proj.weight, &mut by_hand.w_k);
    copy(&built_in.attention.v_proj.weight, &mut by_hand.w_v);
    copy(&built_in.attention.o_proj.weight, &mut by_hand.w_o);
    for (batch, seq) in [(1, 1), (2, 5), (3, 17)] {
        let x: Tensor<(usize, usize, Const<6>), f64, _> = tensor("x", (batch, seq, Const));
        let expected: Outcome = backpropagate(built_in.forward(x.leaky_trace()))
            .input("x", &x)
            .outcome();
        let found = backpropagate(by_hand.forward(x.leaky_trace()))
            .input("x", &x)
            .outcome();
        // Softmaxes of 17 numbers, and sums of 6 products.
        assert_same("attention", &found, &expected, 1e-12);
    }
}

#[test]
fn similarities_are_dots_of_all_pairs() {
    model! {
        struct Clip<d = 4>;
        fn forward(image: [batch, d], text: [batch, d]) -> [batch, batch] {
            einsum::<[batch, other]>(image, text as [other = batch, d])
        }
    }
    let model = Cpu::default().build_module::<Clip, f64>();
    let image: Tensor<Rank2<3, 4>, f64, _> = tensor("image", Default::default());
    let text: Tensor<Rank2<3, 4>, f64, _> = tensor("text", Default::default());
    let found: Tensor<Rank2<3, 3>, f64, _> = model.forward((image.clone(), text.clone()));
    let expected = image.matmul(text.permute::<Rank2<4, 3>, _>());
    assert_close("pairs", &found.as_vec(), &expected.as_vec(), 1e-14);
}

#[test]
fn a_session_goes_on_with_products_of_each_token() {
    model! {
        struct Net<vocab = 5, d = 4, heads = 2, width = 3>;
        fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
            param w: [d, heads, width] = normal(0.5);
            param out: [heads, width, vocab] = normal(0.5);
            let x = embedding::<vocab, d>(tokens);
            let x = x + attention::<heads = 2, mask = causal>(x);
            let y = einsum::<[batch, seq, heads, width]>(x, w);
            let gates = softmax::<heads>(einsum::<[batch, seq, heads]>(y, y));
            einsum::<[batch, seq, vocab]>(gates, y, out) as [batch, token = seq, vocab]
        }
    }
    let mut model = Cpu::default().build_module::<Net, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2];
    let whole: Tensor<Rank3<1, 5, 5>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let mut session = model.session(5).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        assert_close(position, logits, &whole.array()[0][position], 1e-13);
    }
}
