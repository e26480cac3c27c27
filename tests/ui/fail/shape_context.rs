//! The context: no tape, the batch axis of `x`, the layer's element type.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Cross<heads = 2, d_model = 16, d_context = 8>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Cross, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let context: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();

    let traced = context.clone().traced(layer.alloc_grads());
    let _ = layer.forward((x.clone(), traced));

    let both = (
        x.clone().traced(layer.alloc_grads()),
        context.traced(layer.alloc_grads()),
    );
    let _ = layer.forward(both);

    let double: Tensor<Rank3<2, 5, 8>, f64, _> = dev.sample_normal();
    let _ = layer.forward((x.clone(), double));

    let other_batch: Tensor<Rank3<3, 5, 8>, f32, _> = dev.sample_normal();
    let _ = layer.forward((x.clone(), other_batch));

    let batch_at_run_time: Tensor<(usize, Const<5>, Const<8>), f32, _> =
        dev.zeros_like(&(2, Const, Const));
    let _ = layer.forward((x.clone(), batch_at_run_time));

    let width_at_run_time: Tensor<(Const<2>, Const<5>, usize), f32, _> =
        dev.zeros_like(&(Const, Const, 8));
    let _ = layer.forward((x.clone(), width_at_run_time));

    let tokens: Tensor<Rank2<2, 5>, usize, _> = dev.zeros();
    let _ = layer.forward((x, tokens));
}
