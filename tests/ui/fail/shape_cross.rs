//! The input of cross-attention: `x` and `context`.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Cross<heads = 2, d_model = 16, d_context = 8>;
}

fn main() {
    let dev = AutoDevice::default();
    let mut layer = dev.build_module::<Cross, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let context: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();

    // No context.
    let _ = layer.forward(x.clone());
    let _ = layer.forward((x.clone(),));

    // A context of another width.
    let wide: Tensor<Rank3<2, 5, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward((x.clone(), wide));
    let wide: Tensor<Rank3<2, 6, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward_with_weights((x.clone(), wide));
    let wide: Tensor<Rank3<2, 7, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward_mut((x.clone().traced(layer.alloc_grads()), wide));

    // An `x` of another width.
    let wide: Tensor<Rank3<2, 4, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward((wide, context.clone()));

    // Both of other widths, since they are swapped.
    let _ = layer.forward((context.clone(), x.clone()));

    // More than both.
    let _ = layer.forward((x.clone(), context.clone(), context.clone()));
    let _ = layer.forward(((x, context.clone()), context));
}
