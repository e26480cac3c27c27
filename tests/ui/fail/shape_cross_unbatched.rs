//! The input of cross-attention without a batch, and inputs that fit one form in part.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Cross<heads = 2, d_model = 16, d_context = 8>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Cross, f32>();
    let x: Tensor<Rank2<4, 16>, f32, _> = dev.sample_normal();
    let context: Tensor<Rank2<5, 8>, f32, _> = dev.sample_normal();

    let _ = layer.forward(x.clone());

    let wide: Tensor<Rank2<5, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward((x.clone(), wide));

    let wide: Tensor<Rank2<4, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward((wide, context.clone()));

    let batched: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let _ = layer.forward((batched, context));

    let batched: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
    let _ = layer.forward((x, batched));
}
