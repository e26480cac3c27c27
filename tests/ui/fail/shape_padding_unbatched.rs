//! The argument of a `padding` mask without a batch.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Encoder<heads = 2, d_model = 16, mask = padding>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Encoder, f32>();
    let x: Tensor<Rank2<4, 16>, f32, _> = dev.sample_normal();

    let _ = layer.forward(x.clone());
    let _ = layer.forward((x.clone(), 3.0));
    let _ = layer.forward((x.clone(), 3i32));
    let _ = layer.forward((x.clone(), true));

    let of_a_batch: Tensor<Rank2<2, 4>, bool, _> = dev.zeros();
    let _ = layer.forward((x.clone(), of_a_batch));

    let other_length: Tensor<Rank1<5>, usize, _> = dev.zeros();
    let _ = layer.forward((x, other_length));
}
