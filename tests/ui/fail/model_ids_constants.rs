//! Ids of axes whose sizes only rustc knows.

use attn::model;

const WIDTH: usize = 8;

model! {
    struct Constants<vocab = 5>;
    fn forward(x: [seq, WIDTH]) -> [seq, vocab] {
        let (values, _ids) = top_k::<k = { WIDTH + 1 }>(x);
        let y = x[WIDTH = [0, WIDTH]];
        let z = one_hot::<vocab>(argmax::<WIDTH>(x));
        z * sum::<2>(y) * sum::<{ WIDTH + 1 }>(values)
    }
}

fn main() {}
