//! Models that name each other as `module`.

use attn::model;

model! {
    struct First<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        module::<Second, out = [batch, seq, d_model]>(gelu(x))
    }
}

model! {
    struct Second<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        module::<First, out = [batch, seq, d_model]>(gelu(x))
    }
}

fn main() {}
