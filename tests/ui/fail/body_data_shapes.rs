//! Arguments for data: element types, axes, tapes, order.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Graph<heads = 2, d_model = 16> {
        data distance: ids[batch, q_len, kv_len];
        data weight: [batch, kv_len];
        fn score(score, b, q_idx, kv_idx) {
            score + weight[b, kv_idx] * distance[b, q_idx, kv_idx] as f32
        }
    }
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Graph, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let distance: Tensor<Rank3<2, 4, 4>, usize, _> = dev.zeros();
    let weight: Tensor<Rank2<2, 4>, f32, _> = dev.zeros();
    let _ = layer.forward((x.clone(), distance.clone(), weight.clone()));

    // Missing, and in another order.
    let _ = layer.forward(x.clone());
    let _ = layer.forward((x.clone(), distance.clone()));
    let _ = layer.forward((x.clone(), weight.clone(), distance.clone()));

    // Floats for ids, and ids for floats.
    let floats: Tensor<Rank3<2, 4, 4>, f32, _> = dev.zeros();
    let ids: Tensor<Rank2<2, 4>, usize, _> = dev.zeros();
    let _ = layer.forward((x.clone(), floats, weight.clone()));
    let _ = layer.forward((x.clone(), distance.clone(), ids));

    // Another length, and none.
    let long: Tensor<Rank3<2, 4, 5>, usize, _> = dev.zeros();
    let flat: Tensor<Rank1<4>, f32, _> = dev.zeros();
    let _ = layer.forward((x.clone(), long, weight.clone()));
    let _ = layer.forward((x.clone(), distance.clone(), flat));

    // A traced tensor.
    let _ = layer.forward((x, distance, weight.leaky_trace()));
}
