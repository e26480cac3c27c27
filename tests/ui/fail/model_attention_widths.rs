//! Widths of an attention that are not those of its operands.

use attn::model;

const W: usize = 9;

model! {
    struct Literal<d = 16>;
    fn forward(x: [batch, seq, d], y: [batch, len, 8], z: [batch, len, 4]) -> [batch, seq, d] {
        let a = attention::<4, d_context = 9>(x, context = y);
        let b = attention::<4, d_values = 9>(x, context = y, values = z);
        a + b
    }
}

model! {
    struct Constant<d = 16>;
    fn forward(x: [batch, seq, d], y: [batch, len, 8]) -> [batch, seq, d] {
        let a = attention::<4, d_context = W>(x, context = y);
        attention::<4, d_model = W>(a)
    }
}

fn main() {}
