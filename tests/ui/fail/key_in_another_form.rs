//! Keys of other libraries that have another notation here: each message says what to write.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Theta<heads = 2, d_model = 16, rope_theta = 500000.0>;
    struct Rotary<heads = 2, d_model = 16, rotary_pos_emb = true>;
    struct Window<heads = 2, d_model = 16, window_size = 256>;
    struct OneKey<heads = 2, d_model = 16, multi_query = true>;
    struct ZeroKey<heads = 2, d_model = 16, add_zero_attn = true>;
    struct Widths<heads = 2, d_model = 16, kdim = 8, vdim = 8>;
    struct Cross<heads = 2, d_model = 16, cross_attend = true>;
    struct Causal<heads = 2, d_model = 16, causal = true>;
    struct LeftOut<heads = 2, d_model = 16, batch_first = true, max_seq_len = 512>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Theta Rotary Window OneKey ZeroKey Widths Cross Causal LeftOut);
}
