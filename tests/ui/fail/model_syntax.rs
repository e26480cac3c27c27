//! What is not part of the language.

use attn::model;

model! {
    struct Statements<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        for layer in 0..3 { }
        gelu(x);
        let y = x.relu();
        let z = x / x;
        let mut w = x;
        repeat 0 { w = gelu(w); }
        repeat 2 { let v = gelu(w); v }
        y + z + w + 1.0 / 0
    }
}

model! {
    struct Header<d_model>;
    fn forward(x: [batch, d_model]) -> [batch, d_model] { x }
}

model! {
    fn forward(x: [batch, 8]) -> [batch, 8] { x }
}

model! {
    struct Nothing;
}

fn main() {}
