//! Values one after the other along an axis, and axes in another order.

use attn::model;

model! {
    struct Joins<d = 8, rows = 3>;
    fn forward(x: [batch, seq, d], y: [batch, rows, d], tokens: ids[batch, rows, d]) -> [batch, seq, d] {
        let a = concat::<seq>(x, x);
        let b = concat::<rows>(y, linear::<5>(y));
        let c = concat::<rows>(y, tokens);
        let e = concat::<[rows, d]>(y, y);
        let f = concat::<cols>(y, y);
        let g = concat::<rows>(y, x);
        a + b + c + e + f + g
    }
}

model! {
    struct Orders<d = 8>;
    fn forward(x: [batch, seq, d], tokens: ids[batch, seq]) -> [batch, seq, d] {
        let a = permute(x);
        let b = permute::<[d, seq]>(x);
        let c = permute::<[batch, seq, d]>(x);
        let e = permute::<[d, seq, seq]>(x);
        let f = permute::<[seq, batch]>(tokens);
        let g = transpose(x) + permute::<seq>(x);
        a + b + c + e + f + g
    }
}

const LONG: usize = 4;

model! {
    struct Constants<rows = 3>;
    fn forward(x: [batch, rows, 4], y: [batch, rows, LONG], z: [batch, rows, { LONG + 1 }]) -> [batch, 9, 4] {
        concat::<rows>(x, y, z)
    }
}

fn main() {}
