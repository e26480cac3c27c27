//! Arguments without a default.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Window<heads = 2, d_model = 16, mask = sliding_window>;
    struct Empty<heads = 2, d_model = 16, mask = chunked()>;
    struct Second<heads = 2, d_model = 16, mask = dilated_sliding_window(4)>;
    struct OnlyFlag<heads = 2, d_model = 16, mask = prefix_lm(lower_right)>;
    struct Hidden<heads = 2, d_model = 16, score = additive>;
    struct Std<heads = 2, d_model = 16, init = normal>;
    struct NamedWithoutValue<heads = 2, d_model = 16, mask = chunked(n = )>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Window Empty Second OnlyFlag Hidden Std NamedWithoutValue);
}
