//! `(x, context, padding, document)`, in this order.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Cross<heads = 2, d_model = 16, d_context = 8, mask = document & padding>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Cross, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let context: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
    let lengths: Tensor<Rank1<2>, usize, _> = dev.zeros();
    let of_queries: Tensor<Rank2<2, 4>, usize, _> = dev.zeros();
    let of_keys: Tensor<Rank2<2, 5>, usize, _> = dev.zeros();
    let ids = (of_queries, of_keys);

    // One of them missing.
    let _ = layer.forward((x.clone(), lengths.clone(), ids.clone()));
    let _ = layer.forward((x.clone(), context.clone(), ids.clone()));
    let _ = layer.forward((x.clone(), context.clone(), lengths.clone()));

    // Another order.
    let _ = layer.forward((x.clone(), context.clone(), ids.clone(), lengths.clone()));

    // A wrong width among the four.
    let wide: Tensor<Rank3<2, 5, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward((x.clone(), wide, lengths.clone(), ids.clone()));

    // A nested tuple.
    let _ = layer.forward(((x, context), lengths, ids));
}
