//! Multi-head latent attention beside the product of a matrix with as many multiplications, on 4 sequences of 512 vectors of 512, and tokens
//! of sessions that remember keys and values, or the latents alone.
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
    struct Latent<d = 512, heads = 8, q_rank = 256, rank = 128, rot = 32, nope = 64, value = 64, width = 96>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let q = linear::<{ heads * width }, bias = false>(rms_norm(linear::<q_rank, bias = false>(x)));
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(q);
        let c = rms_norm(linear::<rank, bias = false>(x));
        let k = linear::<{ heads * nope }, bias = false>(c);
        let k = rearrange::<[batch, seq, (heads, nope)] -> [batch, seq, heads, nope]>(k);
        let key = expand::<[batch, seq, heads, rot]>(linear::<rot, bias = false>(x));
        let v = linear::<{ heads * value }, bias = false>(c);
        let v = rearrange::<[batch, seq, (heads, value)] -> [batch, seq, heads, value]>(v);
        let y = attend::<mask = causal, position = rope(dims = rot)>(q, concat(key, k), v);
        linear::<d, bias = false>(rearrange::<[batch, seq, (heads, value)]>(y))
    }
}
model! {
    /// As many multiplications: 802,816 of projections for each token, and 328,320 of the keys before it.
    struct Product<d = 512>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, 2208] { linear::<2208, bias = false>(x) }
}
model! {
    /// A layer with as many multiplications in its projections.
    struct Layer<d = 512>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        attention::<heads = 8, mask = causal, position = rope, bias = false>(x)
    }
}

/// The backward pass with gradients of zero, which take as long as others.
fn backward<S: Shape>(y: Tensor<S, f32, Cpu, OwnedTape<f32, Cpu>>) -> Gradients<f32, Cpu> {
    let (_, tape) = y.split_tape();
    let loss: Tensor<Rank0, f32, Cpu> = Cpu::default().zeros();
    loss.put_tape(tape).backward()
}

macro_rules! measure {
    ($criterion:ident, $($model:ident),*) => {$({
        let dev = Cpu::seed_from_u64(1);
        let model = dev.build_module::<$model, f32>();
        let x: Tensor<Rank3<4, 512, 512>, f32, _> = dev.sample_normal();
        for name in ["forward", "forward+backward"] {
            let mut group = $criterion.benchmark_group(name);
            group.sample_size(10).measurement_time(Duration::from_secs(3));
            group.bench_function(BenchmarkId::from_parameter(stringify!($model)), |bencher| match name {
                "forward" => bencher.iter(|| drop(model.forward(x.clone()))),
                _ => bencher.iter(|| drop(backward(model.forward(x.clone().leaky_traced())))),
            });
            group.finish();
        }
    })*};
}

fn latent(criterion: &mut Criterion) {
    measure!(criterion, Latent, Product, Layer);
}

criterion_group!(benches, latent);
criterion_main!(benches);
