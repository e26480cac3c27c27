//! A claim that a mask does not satisfy is refuted by a query and a key.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Unmasked<heads = 2, d_model = 16, ensure = causal>;
    struct Window<heads = 2, d_model = 16, mask = sliding_window(4, symmetric), ensure = { every_query_attends & causal }>;
    struct TooFar<heads = 2, d_model = 16, mask = chunked(256) & causal, ensure = { causal & sliding_window(128) }>;
    struct Padded<heads = 2, d_model = 16, mask = causal & padding, ensure = { causal & every_query_attends }>;
    struct Packed<heads = 2, d_model = 16, mask = causal, ensure = document>;
    struct Several<heads = 2, d_model = 16, mask = !causal, ensure = (causal & every_query_attends)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Unmasked Window TooFar Padded Packed Several);
}
