//! Items that only a model of known layers has.

use attn::{dfdx::prelude::*, model};

model! {
    struct Mixed<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        x + module::<Linear<d_model, d_model>, out = [batch, seq, d_model]>(gelu(x))
    }
}

const _: usize = Mixed::PARAMS;
const _: usize = Mixed::activation_bytes(2, 3);

fn main() {
    let _ = Mixed::flops(2, 3);
    let _ = Mixed::summary_of(2, 3);
    let mixed = AutoDevice::default().build_module::<Mixed, f32>();
    mixed.composed();
}
