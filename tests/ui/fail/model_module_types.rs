//! `module`: properties of its type that only rustc can check.

use attn::{attention, dfdx::prelude::*, model};

attention! {
    struct Causal<heads = 2, d_model = 8, mask = causal>;
}

model! {
    struct Returns<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, 4] {
        module::<Linear<d_model, 3>, out = [batch, seq, 4]>(x)
    }
}

model! {
    struct Transposed<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [seq, batch, d_model] {
        module::<Causal, out = [seq, batch, d_model]>(x)
    }
}

model! {
    struct Takes<d_model = 16>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, 8] {
        module::<Causal, out = [batch, seq, 8]>(x)
    }
}

model! {
    struct Unknown<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        module::<Missing, out = [batch, seq, d_model]>(x)
    }
}

model! {
    struct Right<d_model = 8>;
    fn forward(x: [batch, seq, d_model]) -> [batch, seq, d_model] {
        module::<Causal, out = [batch, seq, d_model]>(x)
    }
}

fn main() {
    let dev = Cpu::default();
    let x: Tensor<Rank3<2, 4, 9>, f32, _> = dev.zeros();
    let _ = dev.build_module::<Right, f32>().forward(x);
    let _ = Right::PARAMS;
}
