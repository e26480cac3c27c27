//! Loops that are tied to another one, and are not the same.

use attn::model;

model! {
    struct Ties<vocab = 7, d = 6, heads = 2, w = 3, layers = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            x += attention::<heads, mask = causal>(x);
            let y = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(x);
            x += rearrange::<[batch, seq, (heads, w)]>(attend::<normalizer = sink>(y, y, y));
        }
        linear::<vocab>(x)
    }
    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<tied = embedding>(tokens);
        repeat layers, tied = blocks {
            x += attention::<heads, mask = sliding_window(3)>(x);
            let y = rearrange::<[batch, seq, (heads, w)] -> [batch, seq, heads, w]>(x);
            x += rearrange::<[batch, seq, (heads, w)]>(attend::<normalizer = sink>(y, y, y) { fn score(score) { 2.0 * score } });
        }
        linear::<tied = embedding>(x)
    }
    fn others(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<tied = embedding>(tokens);
        repeat 3, tied = blocks { x += attention::<heads, mask = causal>(x); }
        repeat layers, tied = block { x += attention::<heads, mask = causal>(x); }
        repeat layers, tied = blocks { x += linear::<d>(x); }
        repeat layers, tied = blocks { x += linear::<d, name = attention>(x); }
        linear::<tied = embedding>(x)
    }
}

model! {
    struct Bodies<vocab = 7, d = 6, layers = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            x += attend(x, x, x) { param by: [heads] = ones; fn score(score, h) { by[h] * score } };
        }
        linear::<vocab>(x)
    }
    fn decode(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<tied = embedding>(tokens);
        repeat layers, tied = blocks {
            x += attend(x, x, x) { param by: [heads] = ones; fn score(score, h) { by[h] + score } };
        }
        linear::<tied = embedding>(x)
    }
}

model! {
    struct Normalizers<vocab = 7, d = 6, heads = 2, layers = 2>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d>(tokens);
        repeat layers {
            x += attention::<heads>(x) { fn normalize(score) { sigmoid(score) } };
            x += attention::<heads, position = rel_pos_bias, bidirectional = true>(x);
            x += attend(x, x, x) { param by: [heads] = ones; fn score(score, h) { by[h] * score } };
        }
        linear::<vocab>(x)
    }
    fn decode(tokens: ids[batch, seq], memory: [batch, kv, d]) -> [batch, seq, vocab] {
        let mut x = embedding::<tied = embedding>(tokens);
        repeat layers, tied = blocks {
            x += attention::<heads>(x) { fn normalize(score) { tanh(score) } };
            x += attention::<heads, position = rel_pos_bias, bidirectional = false>(x);
            x += attend(x, memory, memory) { param by: [heads] = ones; fn score(score, h) { by[h] * score } };
        }
        linear::<tied = embedding>(x)
    }
}

fn main() {}
