//! The layer among others, composed as in dfdx.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct SelfAttention<heads = 2, d_model = 16>;
    struct Encoder<heads = 2, d_model = 16, mask = padding>;
}

fn main() {
    let dev = AutoDevice::default();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    type TooWide = (Linear<16, 32>, SelfAttention);
    let _ = dev.build_module::<TooWide, f32>().forward(x);

    let x: Tensor<Rank2<4, 16>, f32, _> = dev.sample_normal();
    type InResidual = (Linear<16, 32>, Residual<(LayerNorm1D<32>, SelfAttention)>);
    let _ = dev.build_module::<InResidual, f32>().forward(x);

    let x: Tensor<Rank3<2, 4, 8>, f32, _> = dev.sample_normal();
    type Stack = Repeated<Residual<SelfAttention>, 2>;
    let _ = dev.build_module::<Stack, f32>().forward(x);

    let tokens: Tensor<Rank2<2, 4>, usize, _> = dev.zeros();
    type Tokens = (Embedding<8, 32>, SelfAttention);
    let mut model = dev.build_module::<Tokens, f32>();
    let _ = model.forward_mut(tokens.traced(model.alloc_grads()));

    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    type NeedsLengths = (Linear<16, 16>, Encoder);
    let _ = dev.build_module::<NeedsLengths, f32>().forward(x);
}
