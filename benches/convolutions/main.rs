//! Convolutions beside the product of a matrix with as many multiplications, forward, and forward and backward: the two layers of Whisper's
//! front, of 3,000 frames of 80 mel bins, the patches of 8 images for a transformer, and a depthwise one. dfdx has convolutions on nightly
//! compilers alone.
//!
//! See `README.md` in the folder above.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::time::Duration;

use attn::{
    dfdx::{
        prelude::*,
        tensor::{Gradients, PutTape, SplitTape},
    },
    model,
};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

model! {
    struct First<n_mels = 80, d = 384>;
    fn forward(mel: [batch, n_mels, seq]) -> [batch, d, seq] {
        conv1d::<seq, d, 3, padding = 1, channels = n_mels>(mel)
    }
}
model! {
    /// The same with the channels last.
    struct FirstLast<n_mels = 80, d = 384>;
    fn forward(mel: [batch, seq, n_mels]) -> [batch, seq, d] { conv1d::<seq, d, 3, padding = 1>(mel) }
}
model! {
    /// The product of the first layer.
    struct FirstProduct<patch = 240, d = 384>;
    fn forward(x: [rows, patch]) -> [rows, d] { linear::<d>(x) }
}
model! {
    struct Second<d = 384>;
    fn forward(x: [batch, d, seq]) -> [batch, d, frames] {
        conv1d::<seq, d, 3, stride = 2, padding = 1, channels = d, to = frames>(x)
    }
}
model! {
    struct SecondLast<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, frames, d] {
        conv1d::<seq, d, 3, stride = 2, padding = 1, to = frames>(x)
    }
}
model! {
    struct SecondProduct<patch = 1152, d = 384>;
    fn forward(x: [rows, patch]) -> [rows, d] { linear::<d>(x) }
}
model! {
    struct Patches<c = 3, height = 224, width = 224, d = 384>;
    fn forward(image: [batch, c, height, width]) -> [batch, d, 14, 14] {
        conv2d::<[height, width], d, kernel = 16, stride = 16, channels = c>(image)
    }
}
model! {
    struct PatchesProduct<patch = 768, d = 384>;
    fn forward(x: [rows, patch]) -> [rows, d] { linear::<d>(x) }
}
model! {
    /// The short convolution of Mamba.
    struct Depthwise<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { conv1d::<seq, d, 4, padding = causal, groups = d>(x) }
}

/// Times a layer, and a training step of it without an optimizer.
macro_rules! measure {
    ($criterion:ident, $($model:ident: $shape:expr),* $(,)?) => {$({
        let dev = Cpu::seed_from_u64(1);
        let model = dev.build_module::<$model, f32>();
        let x = dev.sample_normal_like(&$shape);
        let mut group = $criterion.benchmark_group("forward");
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.bench_function(BenchmarkId::from_parameter(stringify!($model)), |bencher| {
            bencher.iter(|| model.forward(x.clone()))
        });
        group.finish();
        let mut group = $criterion.benchmark_group("forward+backward");
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.bench_function(BenchmarkId::from_parameter(stringify!($model)), |bencher| {
            bencher.iter(|| backward(model.forward(x.clone().leaky_traced())))
        });
        group.finish();
    })*};
}

/// The backward pass with gradients of zero, which take as long as others.
fn backward<S: Shape>(y: Tensor<S, f32, Cpu, OwnedTape<f32, Cpu>>) -> Gradients<f32, Cpu> {
    let (_, tape) = y.split_tape();
    let loss: Tensor<Rank0, f32, Cpu> = Cpu::default().zeros();
    loss.put_tape(tape).backward()
}

fn convolutions(criterion: &mut Criterion) {
    measure!(
        criterion,
        First: (1, Const::<80>, 3000),
        FirstLast: (1, 3000, Const::<80>),
        FirstProduct: (3000, Const::<240>),
        Second: (1, Const::<384>, 3000),
        SecondLast: (1, 3000, Const::<384>),
        SecondProduct: (1500, Const::<1152>),
        Patches: (8, Const::<3>, Const::<224>, Const::<224>),
        PatchesProduct: (8 * 196, Const::<768>),
        Depthwise: (8, 256, Const::<384>),
    );
}

criterion_group!(benches, convolutions);
criterion_main!(benches);
