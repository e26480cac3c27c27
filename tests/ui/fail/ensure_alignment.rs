//! In cross-attention, a claim on positions must state the alignment.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Causal<heads = 2, d_model = 16, d_context = 8, mask = causal(lower_right), ensure = causal>;
    struct Other<heads = 2, d_model = 16, d_context = 8, mask = causal(lower_right), ensure = causal(upper_left)>;
    struct Rows<heads = 2, d_model = 16, d_context = 8, mask = causal(lower_right), ensure = every_query_attends>;
}

macro_rules! use_layers {
    ($($Layer:ident)*) => {$({
        let dev = AutoDevice::default();
        let layer = dev.build_module::<$Layer, f32>();
        let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
        let context: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
        let _: Tensor<Rank3<2, 4, 16>, f32, _> = layer.forward((x, context));
    })*};
}

fn main() {
    use_layers!(Causal Other Rows);
}
