//! A model with a mistake still takes and returns what `forward` declares, so that its uses compile.

use attn::{dfdx::prelude::*, model};

model! {
    struct Misspelled<vocab = 9, d_model = 8>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embeding::<vocab, d_model>(tokens);
        linear::<vocab>(x)
    }
}

model! {
    struct Several<d_model = 8>;

    fn forward(x: [batch, seq, d_model], lens: lens[batch]) -> ([batch, d_model], [batch, seq, 3]) {
        (mean_poll(x, lens), linear::<3>(x))
    }
}

fn main() {
    let dev = AutoDevice::default();
    let tokens: Tensor<Rank2<2, 5>, usize, Cpu> = dev.zeros();
    let mut model = dev.build_module::<Misspelled, f32>();
    let logits: Tensor<Rank3<2, 5, 9>, f32, Cpu, _> = model.forward_mut(tokens.traced(model.alloc_grads()));
    let _ = logits.square().mean().backward();
    let _ = Misspelled::PARAMS;

    let x: Tensor<Rank3<2, 5, 8>, f32, Cpu> = dev.sample_normal();
    let lens: Tensor<Rank1<2>, usize, Cpu> = dev.ones();
    let (pooled, y) = dev.build_module::<Several, f32>().forward((x, lens));
    let _: (Tensor<Rank2<2, 8>, f32, Cpu>, Tensor<Rank3<2, 5, 3>, f32, Cpu>) = (pooled, y);
}
