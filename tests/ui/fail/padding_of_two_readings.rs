//! Numbers for every token may be the ones and zeros of a tokenizer, or lengths.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Encoder<heads = 2, d_model = 16, mask = padding>;
}

fn main() {
    let dev = AutoDevice::default();
    let layer = dev.build_module::<Encoder, f32>();

    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let attention_mask: Tensor<Rank2<2, 4>, usize, _> = dev.zeros();
    let _ = layer.forward((x, attention_mask));

    let x: Tensor<Rank2<4, 16>, f32, _> = dev.sample_normal();
    let attention_mask: Tensor<Rank1<4>, usize, _> = dev.zeros();
    let _ = layer.forward((x, &attention_mask));
}
