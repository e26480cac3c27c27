//! Syntax that is not part of the language.

use attn::model;

model! {
    struct Statements<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        for layer in 0..3 { }
        gelu(x);
        let y = x.relu();
        let z = x / linear::<5>(x);
        let mut w = x;
        repeat 0 { w = gelu(w); }
        repeat 2 { let v = gelu(w); v }
        y + z + w + 1.0 / 0
    }
}

model! {
    struct Rust<d_model = 8>;
    fn forward(&self, mut x: [batch, seq, d_model], tokens: ids, y: [batch, d_model]) {
        let shaped: [batch, seq, d_model] = gelu(x);
        let (a, b) = softmax(x);
        repeat 2 { x = x.relu(); }
        if x { x } else { y }
        let z = a + b + shaped + tokens;
        x + z
    }
}

model! {
    struct Operators<d_model = 8>;
    fn forward(x: [batch, seq, d_model], tokens: ids[batch, seq]) -> [batch, seq, d_model] {
        let y = x + 0.1 * tokens;
        let z = linear<d_model, bias = false>(y);
        let product = gelu(x @ y);
        let element = x[0] + relu(y[1]);
        product + element + z
    }
}

model! {
    struct Inputs<d_model = 8>;
    fn forward(x: [batch, d_model], y: [batch, d_model]) -> [batch, d_model] {
        repeat 2 { x = gelu(x); }
        y = x + y;
        x - y
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

/// A model with a mistake has all items of a model.
const _: usize = Rust::PARAMS + Inputs::activation_bytes(2);

fn main() {
    let _ = (Statements::summary(), Inputs::flops(2), Rust::graph_dot());
}
