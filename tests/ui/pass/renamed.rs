//! The expansion finds its crate under any name, and through a re-export.

extern crate attn as renamed;

use renamed::dfdx::prelude::*;

/// A user's own `attn` is not the crate.
#[allow(dead_code)]
mod attn {
    pub mod __private {}
}

mod facade {
    pub use renamed::attention as layers;
    pub use renamed::dfdx as tensors;
}

renamed::attention! {
    struct Direct<heads = 2, d_model = 8>;
}

facade::layers! {
    struct Again<heads = 2, d_model = 8, mask = causal & padding, score = additive(3), qk_norm = none>;
}

mod elsewhere {
    use super::facade::layers as declare;

    declare! {
        pub struct Third<heads = 2, d_model = 8, position = rel_pos_bias, qk_norm = rms, dropout = 0.5>;
    }
}

#[test]
fn the_crate_has_any_name() {
    let dev = facade::tensors::tensor::AutoDevice::default();
    let x: Tensor<Rank3<2, 3, 8>, f32, _> = dev.sample_normal();
    let lengths: Tensor<Rank1<2>, usize, _> = dev.tensor([3, 2]);

    let y = dev.build_module::<Direct, f32>().forward(x);
    let y = dev.build_module::<Again, f32>().forward((y, lengths));
    let y = dev.build_module::<elsewhere::Third, f32>().forward(y);
    assert!(y.as_vec().iter().all(|y| y.is_finite()));
}
