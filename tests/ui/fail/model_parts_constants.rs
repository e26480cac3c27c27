//! Indices, ranges, parts and distributions that only rustc can evaluate.

use attn::model;

const WIDTH: usize = 8;
const FIRST: usize = 8;
const START: usize = 4;
const END: usize = 4;
const NONE: usize = 0;
const DEVIATION: f64 = 0.0;

model! {
    struct Indices<d = WIDTH>;
    fn forward(x: [batch, seq, d]) -> [batch] {
        x[d = FIRST, seq = 0] + x[seq = -NONE, d = 0]
    }
}

model! {
    struct Ranges<d = WIDTH>;
    fn forward(x: [batch, seq, d]) -> ([batch, seq, { END - START }], [batch, seq, 2], [batch, { END - START }, d]) {
        (x[d = START..END], x[d = { FIRST - 1 }..{ FIRST + 1 }], x[seq = START..END])
    }
}

model! {
    struct Splits<d = WIDTH>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, { WIDTH / 3 }] {
        let (a, b, c) = split(x);
        a + b + c
    }
}

model! {
    struct Starts<d = WIDTH>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param scale: [d] = truncated_normal(DEVIATION);
        x * scale
    }
}

fn main() {}
