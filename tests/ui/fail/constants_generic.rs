//! A declaration is an item: it knows no generics of the function around it.

use attn::{attention, dfdx::prelude::*};

fn build<const HEADS: usize, T>() {
    attention! {
        struct Layer<heads = HEADS, d_model = 16>;
        struct Sized<heads = 2, d_model = { size_of::<T>() }>;
    }
    let dev = AutoDevice::default();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.sample_normal();
    let _: Tensor<Rank3<2, 4, 16>, f32, _> = dev.build_module::<Layer, f32>().forward(x);
}

fn main() {
    build::<2, [u8; 16]>();
}
