//! Layers written in the language of `model!` beside the built-in ones: forward and backward on 8 sequences of 256 vectors of 384.
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

const WIDTH: usize = 384;

model! {
    struct RmsNorm<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { rms_norm(x) }
}
model! {
    struct OwnRmsNorm<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param gain: [d] = ones;
        x / sqrt(mean::<d>(x * x) + 1e-6) * gain
    }
}
model! {
    struct LayerNorm<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { layer_norm(x) }
}
model! {
    struct OwnLayerNorm<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param gain: [d] = ones;
        param bias: [d] = zeros;
        (x - mean::<d>(x)) / sqrt(variance::<d>(x) + 1e-5) * gain + bias
    }
}
model! {
    struct Softmax<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { softmax(x) }
}
model! {
    struct OwnSoftmax<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let powers = exp(x - max::<d>(x));
        powers / sum::<d>(powers)
    }
}
model! {
    struct SwiGlu<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { feed_forward::<1024, activation = swiglu>(x) }
}
model! {
    struct OwnSwiGlu<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (gate, value) = split(linear::<2048, bias = false>(x));
        linear::<d, bias = false>(silu(gate) * value)
    }
}
model! {
    struct Modulated<d = 384>;
    fn forward(x: [batch, seq, d], scale: [batch, seq, d], shift: [batch, seq, d]) -> [batch, seq, d] {
        layer_norm(x) * (1 + scale) + shift
    }
}
model! {
    struct ModulatedBySequence<d = 384>;
    fn forward(x: [batch, seq, d], scale: [batch, d], shift: [batch, d]) -> [batch, seq, d] {
        layer_norm(x) * (1 + scale) + shift
    }
}

model! {
    struct LinearMap<d = 384, hidden = 1536>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] { linear::<hidden, bias = false>(x) }
}
model! {
    struct ProductMap<d = 384, hidden = 1536>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
        param w: [d, hidden] = normal(0.02);
        einsum::<[batch, seq, hidden]>(x, w)
    }
}
model! {
    struct Dense<d = 384>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { feed_forward::<1536, activation = swiglu>(x) }
}
model! {
    /// As many multiplications as the dense layer, but for those of the router.
    struct TopTwoOfEight<d = 384, experts = 8, hidden = 768>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let (best, ids) = top_k::<k = 2>(linear::<experts, bias = false>(x));
        let h = silu(grouped_linear::<hidden, experts, bias = false>(x, ids));
        let h = h * grouped_linear::<hidden, experts, bias = false>(x, ids);
        sum::<2>(softmax(best) * grouped_linear::<d, experts, bias = false>(h, ids))
    }
}
model! {
    struct AttentionLayer<d = 384, heads = 6>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<heads, d>(x) }
}
model! {
    struct OwnAttention<d = 384, heads = 6, width = 64>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param w_q: [d, heads, width] = normal(0.02);
        param w_k: [d, heads, width] = normal(0.02);
        param w_v: [d, heads, width] = normal(0.02);
        param w_o: [heads, width, d] = normal(0.02);
        let context = x as [batch, kv = seq, d];
        let q = einsum::<[batch, heads, seq, width]>(x, w_q);
        let k = einsum::<[batch, heads, kv, width]>(context, w_k);
        let v = einsum::<[batch, heads, kv, width]>(context, w_v);
        let weights = softmax::<kv>(einsum::<[batch, heads, seq, kv]>(q, k) / sqrt(width));
        einsum::<[batch, seq, d]>(weights, v, w_o)
    }
}

model! {
    struct CausalLayer<d = 384, heads = 6>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] { attention::<heads, d, mask = causal, position = rope>(x) }
}
model! {
    struct OwnCausalLayer<d = 384, heads = 6, width = 64>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d>(x));
        let v = rearrange::<[batch, seq, (heads, width)] -> [batch, seq, heads, width]>(linear::<d>(x));
        let y = attend::<mask = causal, position = rope>(q, k, v);
        linear::<d>(rearrange::<[batch, seq, (heads, width)]>(y))
    }
}
model! {
    /// The heads before the sequence.
    struct TransposedCausalLayer<d = 384, heads = 6, width = 64>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        let q = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d>(x));
        let k = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d>(x));
        let v = rearrange::<[batch, seq, (heads, width)] -> [batch, heads, seq, width]>(linear::<d>(x));
        let y = attend::<mask = causal, position = rope>(q, k, v);
        linear::<d>(rearrange::<[batch, seq, (heads, width)]>(y))
    }
}

type Input = Tensor<(usize, usize, Const<WIDTH>), f32, Cpu>;

/// Times a training step without an optimizer.
macro_rules! measure {
    ($criterion:ident, $($model:ident ($($other:expr),*)),* $(,)?) => {$({
        let dev = Cpu::seed_from_u64(1);
        let model = dev.build_module::<$model, f32>();
        let x: Input = dev.sample_normal_like(&(8, 256, Const));
        let mut group = $criterion.benchmark_group("forward+backward");
        group.sample_size(10).measurement_time(Duration::from_secs(2));
        group.bench_function(BenchmarkId::from_parameter(stringify!($model)), |bencher| {
            bencher.iter(|| backward(model.forward(measure!(@ x.clone().leaky_traced() $(, $other.clone())*))))
        });
        group.finish();
    })*};
    (@ $x:expr) => { $x };
    (@ $($x:expr),+) => { ($($x),+) };
}

/// The backward pass with gradients of zero, which take as long as others.
fn backward<S: Shape>(y: Tensor<S, f32, Cpu, OwnedTape<f32, Cpu>>) -> Gradients<f32, Cpu> {
    let (_, tape) = y.split_tape();
    let loss: Tensor<Rank0, f32, Cpu> = Cpu::default().zeros();
    loss.put_tape(tape).backward()
}

fn formulas(criterion: &mut Criterion) {
    let dev = Cpu::seed_from_u64(2);
    let by_token: Input = dev.sample_normal_like(&(8, 256, Const));
    let by_sequence: Tensor<(usize, Const<WIDTH>), f32, Cpu> = dev.sample_normal_like(&(8, Const));
    measure!(
        criterion,
        RmsNorm(),
        OwnRmsNorm(),
        LayerNorm(),
        OwnLayerNorm(),
        Softmax(),
        OwnSoftmax(),
        SwiGlu(),
        OwnSwiGlu(),
        LinearMap(),
        ProductMap(),
        Dense(),
        TopTwoOfEight(),
        AttentionLayer(),
        OwnAttention(),
        CausalLayer(),
        OwnCausalLayer(),
        TransposedCausalLayer(),
        Modulated(by_token, by_token),
        ModulatedBySequence(by_sequence, by_sequence),
    );
}

criterion_group!(benches, formulas);
criterion_main!(benches);
