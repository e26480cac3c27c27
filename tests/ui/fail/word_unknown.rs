//! An unknown value: the message has the similar one, or all of them.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Misspelled<heads = 2, d_model = 16, mask = caussal>;
    struct Upper<heads = 2, d_model = 16, position = RoPE>;
    struct Negated<heads = 2, d_model = 16, mask = !paddding>;
    struct Foreign<heads = 2, d_model = 16, normalizer = entmax>;
    struct EachKey<heads = 2, d_model = 16, score = cosine, position = sinusoidal, qk_norm = batch, init = eye>;
    struct ForeignMask<heads = 2, d_model = 16, mask = bigbird>;
    struct Truth<heads = 2, d_model = 16, qk_norm = true>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Misspelled Upper Negated Foreign EachKey ForeignMask Truth);
}
