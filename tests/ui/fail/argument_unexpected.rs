//! Words that take no arguments, other arguments, or fewer.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct None<heads = 2, d_model = 16, score = dot(2)>;
    struct Empty<heads = 2, d_model = 16, mask = padding()>;
    struct Name<heads = 2, d_model = 16, position = rope(base = 500000)>;
    struct Position<heads = 2, d_model = 16, mask = sliding_window(4, 4)>;
    struct Flag<heads = 2, d_model = 16, mask = causal(symmetric)>;
    struct NamedFlag<heads = 2, d_model = 16, mask = causal(alignment = lower_right)>;
    struct Several<heads = 2, d_model = 16, position = rel_pos_bias(32, 128, 3, bidirectional = true)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; None Empty Name Position Flag NamedFlag Several);
}
