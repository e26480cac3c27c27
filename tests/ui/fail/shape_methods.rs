//! A wrong shape has the same message for every method.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct SelfAttention<heads = 2, d_model = 16>;
}

/// A caller that is generic over the module.
fn run<X, M: Module<X>>(module: &M, x: X) {
    let _ = module.forward(x);
}

fn main() {
    let dev = AutoDevice::default();
    let mut layer = dev.build_module::<SelfAttention, f32>();
    let x: Tensor<Rank3<2, 4, 32>, f32, _> = dev.sample_normal();
    let _ = layer.try_forward(x);

    let x: Tensor<Rank3<2, 4, 33>, f32, _> = dev.sample_normal();
    let _ = layer.forward_mut(x.traced(layer.alloc_grads()));

    let x: Tensor<Rank3<2, 4, 34>, f32, _> = dev.sample_normal();
    let _ = layer.try_forward_mut(x.traced(layer.alloc_grads()));

    let x: Tensor<Rank3<2, 4, 35>, f32, _> = dev.sample_normal();
    let _ = layer.forward_with_weights(x);

    let x: Tensor<Rank3<2, 4, 36>, f32, _> = dev.sample_normal();
    let _ = layer.try_forward_with_weights(x);

    let x: Tensor<Rank3<2, 4, 37>, f32, _> = dev.sample_normal();
    run(&layer, x);
}
