//! Errors that come from rustc: the page `attn::when_rustc_says` explains them.

use attn::{
    attention,
    dfdx::{nn::BuildModule, prelude::*},
};

attention! {
    struct Layer<heads = 2, d_model = 16>;
    struct Cross<heads = 2, d_model = 16, d_context = 8>;
}

struct Block {
    layer: Layer,
}

fn types() {
    let _: Layer<2, 16>;
    let _: Layer<heads = 2>;
    let _: Layer<Cpu, f32>;
}

fn built(dev: &Cpu) {
    let _ = dev.build_module::<f32, Layer>();
    let _ = dev.build_module::<Block, f32>();
}

fn inferred(dev: &Cpu) {
    let layer = Layer::build(dev);
    drop(layer);
}

fn called(cross: Cross, x: Tensor<Rank3<2, 4, 16>, f32, Cpu>, context: Tensor<Rank3<2, 4, 8>, f32, Cpu>) {
    let _ = cross.forward(x.clone(), context.clone());
    let _ = Residual(cross).forward((x, context));
}

fn main() {}
