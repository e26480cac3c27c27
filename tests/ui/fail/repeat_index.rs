//! The index of a loop.

use attn::model;

const LAYERS: usize = 7;

model! {
    struct Index<d = 4, layers = 6, later = LAYERS>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat layers as i { x = if i < 2 { tanh(x) } else { linear::<d>(x) }; }
        repeat layers as i { x = if (i + 1) % 2 == 0 { tanh(x) } else { linear::<d>(x) }; }
        repeat layers as i { x = linear::<d>(x); }
        repeat layers as i { x = if i % later == 0 { tanh(x) } else { linear::<d>(x) }; }
        repeat layers as i, share = true { x = if i % 2 == 0 { tanh(x) } else { linear::<d>(x) }; }
        repeat layers as i { x = if i % 5 == 0 && i % 7 == 0 && i % 3 == 1 { tanh(x) } else { linear::<d>(x) }; }
        x
    }
}

model! {
    struct Rest<d = 4, layers = LAYERS>;

    fn forward(x: [batch, d]) -> [batch, d] {
        let mut x = x;
        repeat layers as i { x = if i % 2 == 0 { tanh(linear::<d>(x)) } else { linear::<d>(x) }; }
        x
    }
}

fn main() {}
