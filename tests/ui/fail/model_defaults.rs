//! Inputs by name, and inputs with a default.

use attn::prelude::*;

model! {
    struct Defaults<d = 8>;

    fn forward(x: [batch, d], bias: [other] = 0.0, ids: ids[batch] = 0.5, lens: lens[batch] = ..) -> [batch, d] {
        x + bias
    }
}

model! {
    struct First<d = 8>;

    fn forward(x: [batch, d] = 0.0, y: [batch, d]) -> [batch, d] { inner(x, y) }

    block inner(x: [..], y: [..] = 0.0) -> [..] { x + y }
}

model! {
    struct Ratio<d = 8>;

    fn forward(of: [batch, d], to: [batch, d], by: [d] = 1.0) -> [batch, d] { of - to * by }
}

fn main() {
    let dev = Cpu::default();
    let ratio = dev.build_module::<Ratio, f32>();
    let x: Tensor<Rank2<3, 8>, f32, _> = dev.zeros();
    let by: Tensor<Rank1<8>, f32, _> = dev.zeros();
    ratio.forward((x.clone(), x.clone(), by.clone()));
    ratio.forward(RatioInputs { of: x.clone(), to: by, by: None });
    ratio.forward(RatioInputs { of: x.clone(), to: x });
}
