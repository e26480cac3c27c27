//! Mistakes with the results of an attention: how many there are, and which of them have a meaning.

use attn::model;

model! {
    struct Results<d = 8, heads = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (a) = attend(x, x, x);
        let (b, c, e, f) = attention::<heads>(x);
        let (y, _weights, lse) = attend::<normalizer = sparsemax>(x, x, x);
        let (y, _weights, lse) = attention::<heads, normalizer = sigmoid>(y);
        let { y, weights } = attend(x, x, x);
        let (y, weights) = attend(x, x);
        y
    }
}

model! {
    struct Unused<d = 8, heads = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (y, weights, lse) = attention::<heads>(x);
        y
    }
}

model! {
    struct Shapes<d = 8, heads = 2>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (y, weights) = attention::<heads>(x);
        y + weights
    }
}

model! {
    struct Tokens<vocab = 5, d = 8, heads = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let (y, weights) = attention::<heads, mask = causal>(x);
        linear::<vocab>(y + mean::<[heads, kv]>(weights))
    }
}

fn main() {
    use attn::dfdx::prelude::*;

    let tokens = Cpu::default().build_module::<Tokens, f32>();
    let session = tokens.session(10);
}
