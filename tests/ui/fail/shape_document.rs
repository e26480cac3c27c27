//! The argument of a `document` mask.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Packed<heads = 2, d_model = 16, mask = causal & document>;
    struct Cross<heads = 2, d_model = 16, d_context = 8, mask = document>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Packed, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let _ = layer.forward(x.clone());

    let floats: Tensor<Rank2<2, 4>, f32, _> = dev.zeros();
    let _ = layer.forward((x.clone(), floats));

    let without_batch: Tensor<Rank1<4>, usize, _> = dev.zeros();
    let _ = layer.forward((x.clone(), without_batch));

    let other_length: Tensor<Rank2<2, 5>, usize, _> = dev.zeros();
    let _ = layer.forward((x.clone(), other_length.clone()));

    let ids: Tensor<Rank2<2, 4>, usize, _> = dev.zeros();
    let layer = dev.build_module::<Cross, f32>();
    let context: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
    let _ = layer.forward((x.clone(), context.clone()));

    // The ids of the queries only.
    let _ = layer.forward((x.clone(), context.clone(), ids.clone()));
    // The ids of the keys first.
    let _ = layer.forward((
        x.clone(),
        context.clone(),
        (other_length.clone(), ids.clone()),
    ));
    // Not as a pair.
    let _ = layer.forward((x, context, ids, other_length));
}
