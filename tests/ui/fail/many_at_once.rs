//! Every mistake is reported, also those of other declarations in the call.

use attn::{attention, dfdx::prelude::*};

const TWICE: f64 = 2.0;

attention! {
    /// Nine mistakes.
    pub struct Many<
        heads = 7,
        d_model = 512,
        kv_heads = 3,
        mask = caussal & padding & sliding_window(0),
        score = dot(2),
        scale = "1",
        dropout = 1.0,
        bais = false,
        heads = 8,
    >;

    pub(crate) struct AnotherOne<heads = 2, d_model = 16, qk_norm = rms, score = additive, mask = causal && padding, dropout = TWICE>;

    struct Right<heads = 2, d_model = 16>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Many AnotherOne Right);
}
