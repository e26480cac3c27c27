//! A layer of integers, and one that is generic over dfdx's devices.

use attn::{attention, dfdx::prelude::*};

attention! {
    struct Layer<heads = 2, d_model = 8>;
}

fn on_any_device<D: Device<f32>>(layer: &Layer<f32, D>, x: Tensor<Rank3<1, 2, 8>, f32, D>) {
    let _ = layer.forward(x);
}

fn of_integers(layer: &Layer<i32, Cpu>, x: Tensor<Rank3<1, 2, 8>, i32, Cpu>) {
    let _ = layer.forward(x);
}

fn main() {}
