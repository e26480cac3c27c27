//! Masks combine by `&`, `|`, `!` and parentheses.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Missing<heads = 2, d_model = 16, mask = causal padding>;
    struct Plus<heads = 2, d_model = 16, mask = causal + padding>;
    struct MissingInGroup<heads = 2, d_model = 16, mask = (causal padding) & document>;
    struct Doubled<heads = 2, d_model = 16, mask = causal && padding>;
    struct DoubledOr<heads = 2, d_model = 16, mask = causal || !padding || document>;
    struct Ends<heads = 2, d_model = 16, mask = causal &>;
    struct EndsInGroup<heads = 2, d_model = 16, mask = (causal | ) & padding>;
    struct EmptyGroup<heads = 2, d_model = 16, mask = causal & ()>;
    struct NothingNegated<heads = 2, d_model = 16, mask = !>;
    struct Word<heads = 2, d_model = 16, mask = causal and padding>;
    struct Words<heads = 2, d_model = 16, mask = not causal or (padding and not(document))>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Missing Plus MissingInGroup Doubled DoubledOr Ends EndsInGroup EmptyGroup NothingNegated Word Words);
}
