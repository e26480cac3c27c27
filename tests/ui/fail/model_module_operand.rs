//! A `module` that does not accept its operand.

use attn::{dfdx::prelude::*, model};

model! {
    struct Net<d_model = 16>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        module::<BatchNorm1D<16>, out = [batch, seq, d_model]>(x)
    }
}

fn main() {
    let dev = Cpu::default();
    let net = dev.build_module::<Net, f32>();
    let x: Tensor<Rank3<2, 4, 16>, f32, _> = dev.zeros();
    net.forward(x);
}
