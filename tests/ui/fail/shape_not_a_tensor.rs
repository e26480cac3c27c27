//! Other elements, other things.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct SelfAttention<heads = 2, d_model = 16>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<SelfAttention, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();

    let double: Tensor<Rank3<2, 4, 16>, f64, _> = dev.sample_normal();
    let _ = layer.forward(double);

    let tokens: Tensor<Rank2<2, 4>, usize, _> = dev.zeros();
    let _ = layer.forward(tokens);

    let _ = layer.forward(&x);
    let _ = layer.forward(0.5);
    let _ = layer.forward((x.clone(),));
    let _ = layer.forward((x.clone(), 3));
    let _ = layer.forward((x.clone(), x));
}
