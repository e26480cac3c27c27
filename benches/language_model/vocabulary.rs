//! The output layer of a language model and its loss: as one operation, and with a tensor of all logits.

use super::*;
use attn::memory;

/// The width, and the number of tokens.
const WIDTH: usize = 384;
const TOKENS: usize = 2048;

type Hidden<T = NoneTape> = Tensor<(usize, Const<WIDTH>), f32, Cpu, T>;
type Targets = Tensor<(usize,), usize, Cpu>;

/// Declares an output layer with so many classes, and times both ways. Prints the peak bytes of activations of each.
macro_rules! of_vocabulary {
    ($($name:ident: $Model:ident, $vocab:literal;)*) => {$(
        model! {
            struct $Model<d = WIDTH>;

            fn forward(x: [tokens, d]) -> [tokens, $vocab] { linear::<$vocab, bias = false>(x) }
            fn loss(x: [tokens, d], targets: ids[tokens]) -> [] { cross_entropy(forward(x), targets) }
        }

        pub(super) fn $name(criterion: &mut Criterion) {
            let dev = Cpu::default();
            let model = dev.build_module::<$Model, f32>();
            let x: Hidden = dev.sample_normal_like(&(TOKENS, Const));
            let targets = (0..TOKENS).map(|i| i * i % $vocab).collect();
            let targets: Targets = dev.tensor_from_vec(targets, (TOKENS,));
            let whole = |x: Hidden<Traced>| ops::cross_entropy(model.forward(x), &targets, Default::default());
            let fused = |x: Hidden<Traced>| model.loss((x, targets.clone()));
            let mut group = criterion.benchmark_group(concat!("output layer and loss, ", $vocab));
            group.sample_size(10).throughput(Throughput::Elements(TOKENS as u64));
            step(&mut group, "one operation", &x, fused);
            step(&mut group, "all logits", &x, whole);
            group.bench_function("one operation, without a tape", |bencher| {
                bencher.iter(|| model.loss((x.clone(), targets.clone())));
            });
            group.bench_function("all logits, without a tape", |bencher| {
                bencher.iter(|| ops::cross_entropy(model.forward(x.clone()), &targets, Default::default()));
            });
            group.finish();
        }
    )*};
}

of_vocabulary! {
    characters: Characters, 65;
    bytes: Bytes, 256;
    words: Words, 50_257;
}

/// Both passes.
fn step(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    x: &Hidden,
    loss: impl Fn(Hidden<Traced>) -> Tensor<Rank0, f32, Cpu, Traced>,
) {
    let before = memory::allocated();
    memory::reset_peak();
    loss(x.leaky_trace()).backward();
    println!("{name}: {} bytes", memory::peak() - before);
    group.bench_function(name, |bencher| {
        bencher.iter(|| loss(x.leaky_trace()).backward());
    });
}
