//! Custom masks and score functions beside the built-in ones: attention with 8 heads of 64, on one sequence.
//!
//! The layers have `d_model = 8`, so that projections take little time. See `README.md` in the folder above.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::time::Duration;

use attn::{attention, dfdx::prelude::*};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

attention! {
    struct Full<heads = 8, d_model = 8, head_dim = 64>;
    struct Causal<heads = 8, d_model = 8, head_dim = 64, mask = causal>;
    struct OwnCausal<heads = 8, d_model = 8, head_dim = 64> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx }
    }
    struct Window<heads = 8, d_model = 8, head_dim = 64, mask = sliding_window(256)>;
    struct OwnWindow<heads = 8, d_model = 8, head_dim = 64> {
        fn mask(q_idx, kv_idx) { kv_idx <= q_idx && q_idx - kv_idx < 256 }
    }
    struct Alibi<heads = 8, d_model = 8, head_dim = 64, mask = causal, position = alibi>;
    struct OwnAlibi<heads = 8, d_model = 8, head_dim = 64, mask = causal> {
        fn score(score, h, q_idx, kv_idx) {
            score - exp(-ln(2.0) * (h + 1) as f32) * (q_idx - kv_idx) as f32
        }
    }
    struct LearnedAlibi<heads = 8, d_model = 8, head_dim = 64, mask = causal> {
        param slope: [heads] = alibi_slopes;
        fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
    }
    struct LearnedBias<heads = 8, d_model = 8, head_dim = 64, mask = causal> {
        param bias: [heads, 129] = zeros;
        fn score(score, h, q_idx, kv_idx) { score + bias[h, min(max(q_idx - kv_idx, 0), 128)] }
    }
    struct SoftCap<heads = 8, d_model = 8, head_dim = 64, mask = causal, softcap = 20.0>;
    struct OwnSoftCap<heads = 8, d_model = 8, head_dim = 64, mask = causal> {
        fn score(score) { 20.0 * tanh(score / 20.0) }
    }
    struct Sigmoid<heads = 8, d_model = 8, head_dim = 64, mask = causal, normalizer = sigmoid>;
    // The weights of far keys underflow.
    struct SigmoidAlibi<heads = 8, d_model = 8, head_dim = 64, mask = causal, normalizer = sigmoid, position = alibi>;
    struct Neighborhood<heads = 8, d_model = 8, head_dim = 64, grid = [64, 64], mask = neighborhood(7)>;
    struct ShiftedWindows<heads = 8, d_model = 8, head_dim = 64, grid = [64, 64], mask = window(8, shift = 4)>;
    /// The same by indices.
    struct OwnNeighborhood<heads = 8, d_model = 8, head_dim = 64> {
        fn mask(q_idx, kv_idx) {
            let row = clamp(q_idx / 64, 3, 60) - kv_idx / 64;
            let col = clamp(q_idx % 64, 3, 60) - kv_idx % 64;
            abs(row) <= 3 && abs(col) <= 3
        }
    }
    struct Document<heads = 8, d_model = 8, head_dim = 64, mask = causal & document>;
}

type Input<T = NoneTape> = Tensor<(usize, usize, Const<8>), f32, Cpu, T>;

/// The average length of a document is the length of the sequence divided by this.
const DOCUMENTS: usize = 8;

fn ids(len: usize) -> Tensor<(usize, usize), usize, Cpu> {
    let document = |at: usize| (at * DOCUMENTS).div_ceil(len.max(1)) + usize::from(at > len / 3);
    Cpu::default().tensor_from_vec((0..len).map(document).collect(), (1, len))
}

/// Times the layer, and with a tape also its backward pass.
macro_rules! measure {
    ($criterion:ident, $len:expr, $($layer:ident $(($data:ident))?),* $(,)?) => {$({
        let dev = Cpu::seed_from_u64(1);
        let layer = dev.build_module::<$layer, f32>();
        let x: Input = dev.sample_normal_like(&(1, $len, Const));
        let mut group = $criterion.benchmark_group(format!("forward/{}", $len));
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.bench_function(BenchmarkId::from_parameter(stringify!($layer)), |bencher| {
            bencher.iter(|| layer.forward(measure!(@ x.clone(), $len $(, $data)?)))
        });
        group.finish();
        let mut group = $criterion.benchmark_group(format!("forward+backward/{}", $len));
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.bench_function(BenchmarkId::from_parameter(stringify!($layer)), |bencher| {
            bencher.iter(|| {
                let y = layer.forward(measure!(@ x.leaky_trace(), $len $(, $data)?));
                attn::backward(y, &x)
            })
        });
        group.finish();
    })*};
    (@ $x:expr, $len:expr) => { $x };
    (@ $x:expr, $len:expr, $data:ident) => { ($x, $data($len)) };
}

fn custom(criterion: &mut Criterion) {
    for len in [1024, 4096] {
        measure! {
            criterion, len,
            Full, Causal, OwnCausal, Window, OwnWindow, Alibi, OwnAlibi, LearnedAlibi, LearnedBias,
            SoftCap, OwnSoftCap, Sigmoid, SigmoidAlibi, Document(ids),
        }
    }
    measure!(
        criterion,
        4096,
        Neighborhood,
        OwnNeighborhood,
        ShiftedWindows
    );
    measure!(criterion, 8192, Causal, Window, OwnWindow);
}

criterion_group!(benches, custom);
criterion_main!(benches);
