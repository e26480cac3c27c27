//! The generated layer, fused and composed, beside the same layer by hand, and beside dfdx's own, which has no mask.
//!
//! `attend/` is `ops::Attend`, without and with its weights as a result.
//!
//! See `README.md` in the folder above.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

mod hand_written;

use std::time::Duration;

use attn::dfdx::nn::builders::MultiHeadAttention;
use attn::{attention, dfdx::prelude::*, ops::Attend};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use hand_written::HandWritten;

attention! {
    struct Causal<heads = 8, d_model = 512, mask = causal>;
    struct Talking<heads = 8, d_model = 512, mask = causal, talking_heads = both>;
    struct Unmasked<heads = 8, d_model = 512>;
}

type Input<T = NoneTape> = Tensor<(usize, usize, Const<512>), f32, Cpu, T>;

/// `(batch, length)`
const CASES: [(usize, usize); 3] = [(8, 128), (4, 512), (1, 2048)];

/// Times `forward`, and with a tape also the backward pass from a gradient.
fn measure(
    criterion: &mut Criterion,
    layer: &str,
    (batch, len): (usize, usize),
    forward: impl Fn(Input) -> Input,
    traced: impl Fn(Input<OwnedTape<f32, Cpu>>) -> Input<OwnedTape<f32, Cpu>>,
) {
    let dev = Cpu::default();
    let x: Input = dev.sample_normal_like(&(batch, len, Const));
    let case = format!("{batch}x{len}");
    let mut group = criterion.benchmark_group(format!("forward/{case}"));
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    group.bench_function(BenchmarkId::from_parameter(layer), |bencher| {
        bencher.iter(|| forward(x.clone()))
    });
    group.finish();
    let mut group = criterion.benchmark_group(format!("forward+backward/{case}"));
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(3));
    group.bench_function(BenchmarkId::from_parameter(layer), |bencher| {
        bencher.iter(|| attn::backward(traced(x.leaky_trace()), &x));
    });
    group.finish();
}

fn attention(criterion: &mut Criterion) {
    let dev = Cpu::default();
    for case in CASES {
        let layer = dev.build_module::<Causal, f32>();
        measure(
            criterion,
            "generated",
            case,
            |x| layer.forward(x),
            |x| layer.forward(x),
        );
        measure(
            criterion,
            "generated_composed",
            case,
            |x| layer.composed().forward(x),
            |x| layer.composed().forward(x),
        );
        let layer = HandWritten::<512, 8>::new(&dev, case.1);
        measure(
            criterion,
            "hand_written",
            case,
            |x| layer.forward(x),
            |x| layer.forward(x),
        );
        let layer = dev.build_module::<Talking, f32>();
        measure(
            criterion,
            "generated_talking",
            case,
            |x| layer.forward(x),
            |x| layer.forward(x),
        );
        measure(
            criterion,
            "generated_talking_composed",
            case,
            |x| layer.composed().forward(x),
            |x| layer.composed().forward(x),
        );
        let layer = dev.build_module::<Unmasked, f32>();
        measure(
            criterion,
            "generated_unmasked",
            case,
            |x| layer.forward(x),
            |x| layer.forward(x),
        );
        let layer = dev.build_module::<MultiHeadAttention<512, 8>, f32>();
        measure(
            criterion,
            "dfdx_unmasked",
            case,
            |x| layer.forward(x),
            |x| layer.forward(x),
        );
    }
}

/// Attention that is put together at run time, without and with its weights as a result.
fn weights(criterion: &mut Criterion) {
    let dev = Cpu::default();
    for (batch, len) in CASES {
        let x: Tensor<(usize, Const<8>, usize, Const<64>), f32, Cpu> =
            dev.sample_normal_like(&(batch, Const, len, Const));
        let case = format!("{batch}x{len}");
        let mut group = criterion.benchmark_group(format!("attend/{case}"));
        group
            .sample_size(10)
            .measurement_time(Duration::from_secs(3));
        group.bench_function("forward", |bencher| {
            bencher.iter(|| {
                Attend::new()
                    .causal()
                    .forward(x.clone(), x.clone(), x.clone())
            })
        });
        group.bench_function("forward_with_weights", |bencher| {
            bencher.iter(|| {
                let options = Attend::new().causal();
                options.forward_with_weights(x.clone(), x.clone(), x.clone())
            })
        });
        group.bench_function("forward+backward", |bencher| {
            bencher.iter(|| {
                let y = Attend::new()
                    .causal()
                    .forward(x.leaky_trace(), x.clone(), x.clone());
                attn::backward(y, &x)
            })
        });
        group.bench_function("forward+backward_with_weights", |bencher| {
            bencher.iter(|| {
                let options = Attend::new().causal();
                let (y, weights) =
                    options.forward_with_weights(x.leaky_trace(), x.clone(), x.clone());
                // Their tape comes along, as in a loss that reads them, but they have no gradient.
                let (_, tape) = weights.split_tape();
                let (y, history) = y.split_tape();
                attn::backward(y.put_tape(history.merge(tape)), &x)
            })
        });
        group.finish();
    }
}

criterion_group!(benches, attention, weights);
criterion_main!(benches);
