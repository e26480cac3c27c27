//! Trainers of models that have no loss, and batches that are not those of the loss.

use attn::{dfdx::prelude::*, model, train::AdamWConfig};

model! {
    struct WithoutLoss<d = 8>;
    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1>(x)
    }
}

model! {
    struct OfRows<d = 8>;
    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1>(x)
    }
    fn loss(x: [batch, d]) -> [batch, 1] {
        pow(forward(x), 2)
    }
}

model! {
    struct Mixed<d = 8>;
    fn forward(x: [batch, d]) -> [batch, d] {
        module::<Linear<d, d>, out = [batch, d]>(x)
    }
}

model! {
    struct Net<d = 8>;
    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1>(x)
    }
    fn loss(x: [batch, d], target: [batch, 1]) -> [] {
        mean::<[batch, 1]>(pow(forward(x) - target, 2))
    }
}

model! {
    struct Mistaken<d = 8>;
    fn forward(x: [batch, d]) -> [batch, 1] {
        linear::<1>(y)
    }
    fn loss(x: [batch, d], target: [batch, 1]) -> [] {
        mean::<[batch, 1]>(pow(forward(x) - target, 2))
    }
}

fn main() {
    let dev = Cpu::default();
    dev.build_module::<WithoutLoss, f32>().trainer(AdamWConfig::default());
    dev.build_module::<OfRows, f32>().trainer(AdamWConfig::default());
    dev.build_module::<Mixed, f32>().trainer(AdamWConfig::default());

    let mut trainer = dev.build_module::<Net, f32>().trainer(AdamWConfig::default());
    let x: Tensor<Rank2<4, 8>, f32, Cpu> = dev.zeros();
    let target: Tensor<Rank2<4, 2>, f32, Cpu> = dev.zeros();
    let _ = trainer.step((x.clone(), target.clone()));
    let _ = trainer.step(x.clone());

    // The mistake in the declaration is the only one.
    let mut trainer = dev.build_module::<Mistaken, f32>().trainer(AdamWConfig::default());
    let _ = trainer.step((x, target));
}
