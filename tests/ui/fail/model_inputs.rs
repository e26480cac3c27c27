//! The inputs of a model.

use attn::{dfdx::prelude::*, model};

model! {
    struct Encoder<vocab = 11, d_model = 8>;
    fn forward(tokens: ids[batch, seq], lens: lens[batch]) -> [batch, seq, d_model] {
        let x = embedding::<vocab, d_model>(tokens);
        x + attention::<2, mask = padding>(x, padding = lens)
    }
}

model! {
    struct Head;
    fn forward(x: [batch, 8]) -> [batch, 2] { linear::<2>(x) }
}

fn main() {
    let dev = AutoDevice::default();
    let encoder = dev.build_module::<Encoder, f32>();
    let tokens: Tensor<Rank2<2, 5>, usize, _> = dev.zeros();
    encoder.forward(tokens.clone());
    let lens: Tensor<Rank1<3>, usize, _> = dev.zeros();
    encoder.forward((tokens, lens));
    let head = dev.build_module::<Head, f32>();
    let x: Tensor<Rank2<2, 9>, f32, _> = dev.zeros();
    head.forward(x);
}
