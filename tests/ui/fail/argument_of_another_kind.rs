//! Arguments are sizes or numbers.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Window<heads = 2, d_model = 16, mask = sliding_window(0.5)>;
    struct Dilation<heads = 2, d_model = 16, mask = dilated_sliding_window(4, dilation = "2")>;
    struct Both<heads = 2, d_model = 16, mask = dilated_sliding_window(-4, 2.0)>;
    struct Buckets<heads = 2, d_model = 16, position = rel_pos_bias(num_buckets = 32.0, max_distance = true)>;
    struct Hidden<heads = 2, d_model = 16, score = additive(hidden = -1)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Window Dilation Both Buckets Hidden);
}
