//! Query heads share the key heads evenly.

use attn::{attention, dfdx::prelude::*};

const THREE: usize = 3;
const EIGHT: usize = 8;

attention! {
    struct Literals<heads = 8, kv_heads = 3, d_model = 16>;
    struct More<heads = 2, kv_heads = 4, d_model = 16>;
    struct KvHeads<heads = 4, kv_heads = THREE, d_model = 16>;
    struct Heads<heads = EIGHT, kv_heads = 3, d_model = 16>;
    struct Both<heads = EIGHT, kv_heads = { THREE + 2 }, d_model = 16>;
    struct Additive<heads = 4, kv_heads = THREE, d_model = 16, score = additive(4)>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Literals More KvHeads Heads Both Additive);
}
