//! A window, a dilation, a chunk and a prefix have at least one position.

use attn::{attention, dfdx::prelude::*};

const ZERO: usize = 0;

attention! {
    struct Window<heads = 2, d_model = 16, mask = sliding_window(0)>;
    struct Dilated<heads = 2, d_model = 16, mask = dilated_sliding_window(0, 0)>;
    struct Prefix<heads = 2, d_model = 16, mask = prefix_lm(n = 0)>;
    struct Chunk<heads = 2, d_model = 16, mask = causal & !chunked(0)>;
    struct TooLarge<heads = 2, d_model = 16, mask = sliding_window(2_147_483_649)>;
    struct ConstWindow<heads = 2, d_model = 16, mask = sliding_window(ZERO)>;
    struct ConstDilated<heads = 2, d_model = 16, mask = dilated_sliding_window(ZERO, dilation = ZERO, symmetric)>;
    struct ConstPrefix<heads = 2, d_model = 16, mask = prefix_lm(n = { ZERO + ZERO })>;
    struct ConstChunk<heads = 2, d_model = 16, mask = causal & !chunked(ZERO)>;
    struct ConstTooLarge<heads = 2, d_model = 16, mask = sliding_window({ usize::MAX })>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Window Dilated Prefix Chunk TooLarge ConstWindow ConstDilated ConstPrefix ConstChunk ConstTooLarge);
}
