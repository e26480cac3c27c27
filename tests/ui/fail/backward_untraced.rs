//! `backward` without a tape, and on more than one number.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Layer<heads = 2, d_model = 16>;
}

fn main() {
    let dev = AutoDevice::default();
    let mut layer = dev.build_module::<Layer, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let gradients = layer.forward(x.clone()).square().mean().backward();
    let _ = gradients.get(&layer.q_proj.weight);
    let _ = layer.forward_mut(x.clone()).sum().try_backward();

    // With a tape, and on one number.
    let _ = layer.forward_mut(x.clone().leaky_trace()).sum().backward();
    let _ = layer.forward(x.leaky_trace()).backward();
}
