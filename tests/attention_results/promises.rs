//! What a model with these results promises besides their numbers.

use super::*;

model! {
    struct Unread<vocab = 5, d = 8, heads = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let (y, _weights) = attention::<heads, mask = causal>(x);
        let (y, _weights, _lse) = attend::<mask = causal>(y, x, x);
        linear::<vocab>(x + y)
    }
}

/// A result that nobody reads is not there: the model has sessions.
#[test]
fn a_session_goes_on_where_nobody_reads_the_weights() {
    let mut model = Cpu::default().build_module::<Unread, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2];
    let whole: Tensor<Rank3<1, 5, 5>, f64, Cpu> = model.forward(Cpu::default().tensor([tokens]));
    let mut session = model.session(5).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        assert_close(position, logits, &whole.array()[0][position], 1e-13);
    }
}

model! {
    /// What is read of the weights of an encoder is the same for all tokens.
    struct OfAContext<vocab = 5, d = 8, heads = 2>;
    fn forward(tokens: ids[batch, seq], memory: [batch, src, d]) -> [batch, seq, vocab] {
        let (encoded, weights) = attention::<heads, name = encoder>(memory);
        let memory = encoded * (mean::<[heads, src]>(weights) as [batch, src = kv]);
        let mut x = embedding::<vocab, d>(tokens);
        x += attention::<heads, mask = causal>(x);
        linear::<vocab>(x + attention::<heads, name = read>(x, context = memory))
    }
}

#[test]
fn a_session_is_given_what_is_computed_of_weights() {
    let mut model = Cpu::default().build_module::<OfAContext, f64>();
    scatter(&mut model);
    let tokens = [3, 1, 4, 1, 2];
    let memory: Tensor<Rank3<1, 7, 8>, f64, _> = tensor("memory", Default::default());
    let input = (Cpu::default().tensor([tokens]), memory.clone());
    let whole: Tensor<Rank3<1, 5, 5>, f64, Cpu> = model.forward(input);
    let mut session = model.session(memory, 5).unwrap();
    for (position, token) in tokens.into_iter().enumerate() {
        let logits = session.prefill(&[token]).unwrap();
        assert_close(position, logits, &whole.array()[0][position], 1e-13);
    }
}

model! {
    struct TwoResults<d = 8, heads = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (y, weights, lse) = attention::<heads>(x);
        y + mean::<[heads, kv]>(weights) + mean::<heads>(lse)
    }
}

#[test]
fn the_results_are_among_the_values() {
    let model = Cpu::default().build_module::<TwoResults, f32>();
    let x: Tensor<(usize, usize, Const<8>), f32, _> = tensor("x", (2, 5, Const));
    let values = model.values(x);
    let shape = |name: &str| values.get(name).unwrap().shape().to_vec();
    assert_eq!(shape("y"), [2, 5, 8]);
    assert_eq!(shape("weights"), [2, 2, 5, 5]);
    assert_eq!(shape("lse"), [2, 2, 5]);
    assert_eq!(values.get("weights").unwrap().operation(), "attention");
}

#[test]
fn attention_maps_are_the_weights() {
    let model = Cpu::default().build_module::<TwoResults, f32>();
    let x: Tensor<(usize, usize, Const<8>), f32, _> = tensor("x", (1, 5, Const));
    let maps = model.attention_maps(x.clone());
    let values = model.values(x);
    assert_eq!(maps.len(), 1);
    let weights = &values.get("weights").unwrap().numbers()[25..30];
    let weights: Vec<f64> = weights.to_vec();
    let row: Vec<f64> = maps[0].row(0, 1, 0).iter().map(|w| f64::from(*w)).collect();
    assert_close("weights", &row, &weights, 1e-6);
}
