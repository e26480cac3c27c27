//! The same rules for constants as for literals.

use attn::{attention, dfdx::prelude::*};

const ZERO: usize = 0;
const HUGE: usize = 1 << 21;

mod zero {
    use super::*;

    attention! {
        pub struct Heads<heads = ZERO, d_model = 16>;
        pub struct KvHeads<heads = 2, d_model = 16, kv_heads = ZERO>;
        pub struct HeadDim<heads = 2, d_model = 16, head_dim = ZERO>;
        pub struct ValueHeadDim<heads = 2, d_model = 16, value_head_dim = { ZERO * 2 }>;
        pub struct Hidden<heads = 2, d_model = 16, score = additive(ZERO)>;
    }
}

mod huge {
    use super::*;

    attention! {
        pub struct Heads<heads = HUGE, d_model = 16, head_dim = 1>;
        pub struct KvHeads<heads = 2, d_model = 16, kv_heads = HUGE>;
        pub struct HeadDim<heads = 2, d_model = 16, head_dim = HUGE>;
        pub struct ValueHeadDim<heads = 2, d_model = 16, value_head_dim = { HUGE * 2 }>;
        pub struct Hidden<heads = 2, d_model = 16, score = additive(HUGE)>;
    }
}

attention! {
    struct NoWidth<heads = 2, d_model = ZERO>;
    struct NoContext<heads = 2, d_model = 16, d_context = ZERO>;
}

#[macro_use]
#[path = "../uses.rs"]
mod uses;

fn main() {
    {
        use zero::*;
        use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Heads KvHeads HeadDim ValueHeadDim Hidden);
    }
    {
        use huge::*;
        use_layers!(Tensor<Rank3<2, 4, 16>, f32, _>; Heads KvHeads HeadDim ValueHeadDim Hidden);
    }
    use_layers!(Tensor<Rank3<2, 4, ZERO>, f32, _>; NoWidth);

    let dev = AutoDevice::default();
    let context: Tensor<Rank3<2, 5, ZERO>, f32, _> = dev.sample_normal();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let _: Tensor<Rank3<2, 4, 16>, f32, _> =
        dev.build_module::<NoContext, f32>().forward((x, context));
}
