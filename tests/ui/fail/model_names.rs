//! Names of values, sizes, axes, operations and keys.

use attn::model;

model! {
    struct Values<d_model = 8, unused = 3>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let early = late + x;
        let late = gelu(x);
        let forgotten = relu(x);
        let fixed = x;
        fixed = silu(fixed);
        early + late + fixed
    }
}

model! {
    struct Sizes<unused = 3, d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] { gelu(x) }
}

model! {
    struct Another<vocab = 5, d = 8>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        linear::<vocab>(embedding::<vocab, d_model>(tokens))
    }
}

model! {
    struct Axes<d_model = 8>;
    fn forward(x: [batch, seq, d_model], y: tokens[batch]) -> [batch, sec, d_model] { gelu(x) }
}

model! {
    struct Operations<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let a = layernorm(x);
        let b = linear::<out = d_model, biass = false>(x);
        let c = linear(x);
        let d = attention::<d_model, heads>(x);
        let e = attention::<4, d_model, mask = causla>(x);
        let f = linear::<tied = table>(x);
        let g = linear::<d_model, name = head>(linear::<d_model, name = head>(x));
        let h = dropout::<1.5>(x);
        let i = mean_pool(x, padding = x);
        let j = dropout(x);
        a + b + c + d + e + f + g + h + i + j
    }
}

model! {
    struct Unknown<d_model = 8>;
    fn forward(x: [B, T, d_model], alone: [C, d_model]) -> [B, S, d_model] {
        let mut y = gelu(alone);
        repeat 2 { y = y * later + { FACTOR * y }; }
        let later = linear::<{ 2 * T }>(y);
        later + undefined * FACTOR / C
    }
}

fn main() {}
