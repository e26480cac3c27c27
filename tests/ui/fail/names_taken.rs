//! The user's types have names of generated items of a layer and a model.

use attn::{attention, model};

struct CausalInput;

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
}

struct NetBlocks;

model! {
    struct Net<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        let mut x = x;
        repeat 2 {
            x = x + layer_norm(x);
        }
        x
    }
}

fn main() {}
