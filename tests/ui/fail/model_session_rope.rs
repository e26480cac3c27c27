//! A rotation by frequencies that depend on the length of the sequence has no session.

use attn::{dfdx::prelude::*, model};

model! {
    struct Dynamic<vocab = 7, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, d_model] {
        attention::<2, mask = causal, position = rope(scaling = dynamic_ntk(2, 64))>(embedding::<vocab, d_model>(tokens))
    }
}

model! {
    struct Channels<vocab = 7, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, d_model, seq] {
        group_norm::<2, axis = d_model>(permute::<[batch, d_model, seq]>(embedding::<vocab, d_model>(tokens)))
    }
}

fn main() {
    let dev = Cpu::default();
    dev.build_module::<Dynamic, f32>().session(8);
    dev.build_module::<Channels, f32>().session(8);
}
