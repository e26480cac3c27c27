//! Queries, keys and values of three inputs: one tuple, a value for every key, and widths that are declared.

use attn::{attention, dfdx::prelude::*, model};

attention! {
    struct Layer<heads = 2, d_model = 16, d_context = 8, d_values = 4>;
    struct WithoutKeys<heads = 2, d_model = 16, d_values = 4>;
    struct OfPlaces<heads = 2, d_model = 16, d_context = 8, d_values = 4> {
        fn score(q_idx, kv_idx) { -abs(q_idx - kv_idx) as f32 }
    }
}

model! {
    struct Model<d = 8>;

    fn forward(q: [batch, seq, d], k: [batch, keys, d], v: [batch, keys, d]) -> [batch, seq, d] {
        attention::<2>(q, values = v) + attention::<2>(q, k, v)
    }
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Layer, f32>();
    let query: Tensor<Rank3<2, 3, 16>, f32, _> = dev.sample_normal();
    let key: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
    let value: Tensor<Rank3<2, 4, 4>, f32, _> = dev.sample_normal();

    let _ = layer.forward((query.clone(), key.clone(), value));
    let _ = layer.forward((query, key));
}
