//! Tokens around a key and in place of its value: other signs, paths, closures, braces, comments of Python.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Arrow<heads => 2, d_model => 16>;
    struct Typed<heads: usize = 2, const d_model: usize = 16>;
    struct Qualified<attn.heads = 2, attn::d_model = 16>;
    struct Mask<heads = 2, d_model = 16, mask = |q, k| q >= k>;
    struct Score<heads = 2, d_model = 16, score = |q, k| q * k, init = xavier_uniform>;
    struct Braces<heads = 2, d_model = 16, position = rope { theta: 500000.0 }>;
    struct Brackets<heads = 2, d_model = 16, mask = causal & sliding_window[256]>;
    struct Colon<heads = 2, d_model = 16, position = rope(theta: 500000.0)>;
}

attention! {
    # eight heads
    struct Comment<
        heads = 2, # and no fewer
        d_model = 16,
    > {
        # a slope for each head
        param slope: [heads] = ones;
        fn score(score, h) {
            score * slope[h] # times the slope
        }
    }
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Arrow Typed Qualified Mask Score Braces Brackets Colon Comment);
}
