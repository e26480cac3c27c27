//! Mismatched shapes inside of a model, in the words of the declaration.

use attn::{dfdx::prelude::*, model};

model! {
    struct Sums<d_model = 384>;
    fn forward(x: [batch, seq, d_model], tokens: ids[batch, seq]) -> [batch, seq, d_model] {
        let wide = x + linear::<512>(x);
        let table = x * tokens;
        let pooled = mean_pool(x) + x;
        let joined = concat(x, pooled);
        wide + table + joined
    }
}

model! {
    struct Layers<d_model = 384>;
    fn forward(x: [batch, seq, d_model], y: [rows, len, 16], lens: lens[batch]) -> [batch, seq, d_model] {
        let a = attention::<heads = 7>(x);
        let b = attention::<8, 512>(x);
        let c = attention::<8>(x, context = y);
        let d = attention::<8, mask = padding>(x);
        let e = attention::<8, mask = padding>(x, padding = x);
        let f = layer_norm(lens);
        let g = embedding::<10, 16>(x);
        a + b + c + d + e + f + g
    }
}

model! {
    struct Result<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> ([batch, d_model], [batch, seq, 9]) {
        (x, linear::<10>(x))
    }
}

model! {
    struct Loop<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, 16] {
        let mut y = x;
        repeat 3 { y = linear::<16>(y); }
        y
    }
}

fn main() {}
