//! A `let` is inlined where it is used.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Doubled<heads = 2, d_model = 16> {
        fn score(score) {
            let a = score + score;
            let b = a + a;
            let c = b + b;
            let d = c + c;
            let e = d + d;
            let f = e + e;
            let g = f + f;
            let i = g + g;
            let j = i + i;
            let k = j + j;
            let l = k + k;
            let m = l + l;
            m
        }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Doubled);
}
