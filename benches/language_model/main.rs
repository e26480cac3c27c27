//! Training steps of language models: one declared by `model!`, one of the modules of `attn`, both with our loss and optimizer,
//! and one with dfdx's.
//!
//! See `README.md` in the folder above.

#![allow(
    missing_docs,
    reason = "criterion's macros make undocumented functions"
)]

use std::time::Duration;

use attn::{
    attention,
    dfdx::prelude::*,
    model,
    nn::{self, GeluTanh, LearnedPosition},
    ops,
    train::{AdamW, AdamWConfig, clip_grad_norm},
};
use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};

mod bounded;
mod frozen;
#[allow(dead_code, reason = "the examples count operations as well")]
mod sizes;
mod vocabulary;
use sizes::{
    MEDIUM, Medium, Plain, PlainMedium, PlainSmall, SMALL, Small, VOCAB as VOCAB_OF_SIZES,
};

const VOCAB: usize = 128;
const BLOCK: usize = 64;
const BATCH: usize = 8;
const LAYERS: usize = 3;
const D_MODEL: usize = 64;
const D_HIDDEN: usize = 4 * D_MODEL;

attention! {
    struct Causal<heads = 4, d_model = D_MODEL, mask = causal>;
}

model! {
    struct Declared<d_model = D_MODEL>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<BLOCK, d_model>(tokens);
        repeat LAYERS {
            x += attention::<heads = 4, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<VOCAB, bias = false>(layer_norm(x))
    }
}

type Tokens<T = NoneTape> = Tensor<(usize, usize), usize, Cpu, T>;
type Traced = OwnedTape<f32, Cpu>;
type Logits<const V: usize> = Tensor<(usize, usize, Const<V>), f32, Cpu, Traced>;

/// The same model of modules.
mod modules {
    use super::*;

    type Block = (
        nn::Residual<(nn::LayerNorm<D_MODEL>, Causal)>,
        nn::Residual<(
            nn::LayerNorm<D_MODEL>,
            nn::FeedForward<D_MODEL, D_HIDDEN, GeluTanh>,
        )>,
    );
    pub(super) type Gpt = (
        nn::Embedding<VOCAB, D_MODEL>,
        LearnedPosition<BLOCK, D_MODEL>,
        Repeated<Block, LAYERS>,
        nn::LayerNorm<D_MODEL>,
        nn::UnbiasedLinear<D_MODEL, VOCAB>,
    );
}

fn tokens(dev: &Cpu) -> Tokens {
    let ids = (0..BATCH * BLOCK).map(|i| (i * i + 7) % VOCAB).collect();
    dev.tensor_from_vec(ids, (BATCH, BLOCK))
}

/// The model of `examples/char_lm`.
fn char_lm(criterion: &mut Criterion) {
    let dev = Cpu::default();
    let inputs = tokens(&dev);
    let targets = tokens(&dev);
    let mut group = group(criterion, "language model step", &inputs, 20);

    let declared = dev.build_module::<Declared, f32>();
    ours(&mut group, "model!", declared, &inputs, &targets);
    let modules = dev.build_module::<modules::Gpt, f32>();
    ours(&mut group, "modules", modules, &inputs, &targets);

    let mut plain = Plain::<VOCAB, BLOCK, D_MODEL, 4, D_HIDDEN, LAYERS>::new(&dev);
    group.bench_function("dfdx", |bencher| {
        bencher.iter(|| plain.step(&inputs, &targets));
    });
    group.finish();
}

/// The models of `examples/throughput`. Criterion takes the minimum number of samples, as a step takes up to a second.
macro_rules! of_size {
    ($name:ident: $Model:ident, $Plain:ident, $size:ident, $samples:literal) => {
        fn $name(criterion: &mut Criterion) {
            let dev = Cpu::default();
            let inputs = $size.tokens();
            let targets = $size.tokens();
            let name = format!("{} model step", $size.name);
            let mut group = group(criterion, &name, &inputs, $samples);
            let declared = dev.build_module::<$Model, f32>();
            ours(&mut group, "model!", declared, &inputs, &targets);
            let mut plain = $Plain::new(&dev);
            group.bench_function("dfdx", |bencher| {
                bencher.iter(|| plain.step(&inputs, &targets));
            });
            group.finish();
        }
    };
}

of_size!(small: Small, PlainSmall, SMALL, 20);
of_size!(medium: Medium, PlainMedium, MEDIUM, 10);

/// Times steps on these tokens.
fn group<'a>(
    criterion: &'a mut Criterion,
    name: &str,
    inputs: &Tokens,
    samples: usize,
) -> BenchmarkGroup<'a, WallTime> {
    let (batch, length) = *inputs.shape();
    let mut group = criterion.benchmark_group(name);
    group
        .throughput(Throughput::Elements((batch * length) as u64))
        .sample_size(samples)
        .measurement_time(Duration::from_secs(4));
    group
}

/// A step with our loss and optimizer.
fn ours<M, const V: usize>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut model: M,
    inputs: &Tokens,
    targets: &Tokens,
) where
    M: TensorCollection<f32, Cpu> + ModuleMut<Tokens<Traced>, Output = Logits<V>, Error = CpuError>,
{
    let mut optimizer = AdamW::new(AdamWConfig::default());
    let mut gradients = Some(model.alloc_grads());
    group.bench_function(name, |bencher| {
        bencher.iter(|| {
            let x = inputs.clone().traced(take(&mut gradients));
            let logits = model.forward_mut(x);
            let loss = ops::cross_entropy(logits, targets, Default::default());
            let mut done = loss.backward();
            clip_grad_norm(&model, &mut done, 1.0).expect("all parameters have gradients");
            optimizer
                .update(&mut model, &mut done)
                .expect("all parameters have gradients");
            model.zero_grads(&mut done);
            gradients = Some(done);
        });
    });
}

/// The gradients of the last step, set to zero.
fn take(gradients: &mut Option<Gradients<f32, Cpu>>) -> Gradients<f32, Cpu> {
    gradients.take().unwrap_or_else(Gradients::leaky)
}

criterion_group!(
    benches,
    char_lm,
    small,
    medium,
    frozen::small,
    bounded::memory,
    vocabulary::characters,
    vocabulary::bytes,
    vocabulary::words
);
criterion_main!(benches);
