//! The input of self-attention: `[batch, seq, d_model]` or `[seq, d_model]`.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct SelfAttention<heads = 2, d_model = 16, mask = causal>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<SelfAttention, f32>();

    let wrong_width: Tensor<Rank3<2, 4, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward(wrong_width);

    let wrong_width: Tensor<(usize, usize, Const<32>), f32, _> = dev.zeros_like(&(2, 4, Const));
    let _ = layer.forward(wrong_width);

    let wrong_width_unbatched: Tensor<Rank2<4, 32>, f32, _> = dev.sample_normal();
    let _ = layer.forward(wrong_width_unbatched);

    let width_at_run_time: Tensor<(usize, usize, usize), f32, _> = dev.zeros_like(&(2, 4, 16));
    let _ = layer.forward(width_at_run_time);

    let transposed: Tensor<Rank3<2, 16, 4>, f32, _> = dev.sample_normal();
    let _ = layer.forward(transposed);

    let a_vector: Tensor<Rank1<16>, f32, _> = dev.sample_normal();
    let _ = layer.forward(a_vector);

    let with_heads: Tensor<Rank4<2, 2, 4, 16>, f32, _> = dev.sample_normal();
    let _ = layer.forward(with_heads);
}
