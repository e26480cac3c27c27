//! Token by token: what a token becomes does not depend on others.

use super::*;
use attn::model;

model! {
    struct Heads<vocab = 11, d = 6, heads = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let parts = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, w, heads]>(x);
        let both = stack::<[batch, seq, 2, d]>(rearrange::<[batch, seq, (w, heads)]>(parts), x);
        let x = x + rearrange::<[batch, seq, (2, d)]>(both)[12 = 2..8];
        let x = x + attention::<heads, mask = causal>(layer_norm(x));
        linear::<vocab>(pad::<before = 1>(shift::<by = 1>(x)))
    }
}

#[test]
fn a_session_computes_what_the_model_computes() {
    let _alone = checked::alone();
    let model = Cpu::default().build_module::<Heads, f32>();
    let tokens = [3, 1, 4, 1, 5];
    let whole: Tensor<Rank2<1, 5>, usize, Cpu> = Cpu::default().tensor([tokens]);
    let whole = flat(&model.forward(whole));
    let mut session = model.session(8).unwrap();
    for (place, token) in tokens.iter().enumerate() {
        let logits = session.prefill(&[*token]).unwrap();
        for (a, b) in logits.iter().zip(&whole[place * 11..]) {
            assert!((f64::from(*a) - b).abs() < 1e-5, "{place}");
        }
    }
}
