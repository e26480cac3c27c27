//! In cross-attention, a comparison of positions must state the alignment.

use attn::{attention, dfdx::prelude::*};

const N: usize = 4;

attention! {
    struct Causal<heads = 2, d_model = 16, d_context = 8, mask = causal>;
    struct Window<heads = 2, d_model = 16, d_context = 8, mask = sliding_window(4, symmetric)>;
    struct Dilated<heads = 2, d_model = 16, d_context = 8, mask = dilated_sliding_window(N, dilation = 2)>;
    struct Combined<heads = 2, d_model = 16, d_context = 8, mask = prefix_lm(N) & (padding | !chunked(2 * 2))>;
    struct OneOfTwo<heads = 2, d_model = 16, d_context = 8, mask = causal(lower_right) | causal>;
}

macro_rules! use_layers {
    ($($Layer:ident)*) => {$({
        let dev = AutoDevice::default();
        let layer = dev.build_module::<$Layer, f32>();
        let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
        let context: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
        let y: Tensor<Rank3<2, 4, 16>, f32, _> = layer.forward((x.clone(), context.clone()));
        let _ = layer.forward((y.traced(layer.alloc_grads()), context.clone(), 3));
        let (_, _weights) = layer.forward_with_weights((x, context));
    })*};
}

fn main() {
    use_layers!(Causal Window Dilated Combined OneOfTwo);
}
