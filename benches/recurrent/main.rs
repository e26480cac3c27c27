//! Recurrent layers beside the products of their steps: a GRU and an LSTM of 256 with 8 sequences of 128 tokens, forward, forward and
//! backward, and a token of a session.
//!
//! The products are those with the inputs, for all steps at once, and those with the states, one step after the other. A layer computes
//! the gates beside that. See `README.md` in the folder above.

#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "criterion's macros make undocumented functions, and a bench that unwraps fails where it should"
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
    struct Gru<d = 256, hidden = 256>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
        scan seq {
            state h: [batch, hidden] = 0.0;
            let (xr, xz, xn) = split(linear::<{ 3 * hidden }, name = ih>(x));
            let (hr, hz, hn) = split(linear::<{ 3 * hidden }, name = hh>(h));
            let z = sigmoid(xz + hz);
            h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
            yield h;
        }
    }
}
model! {
    struct Lstm<d = 256, hidden = 256>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, hidden] {
        scan seq {
            state h: [batch, hidden] = 0.0;
            state c: [batch, hidden] = 0.0;
            let (i, f, g, o) = split(linear::<{ 4 * hidden }, name = ih>(x) + linear::<{ 4 * hidden }, name = hh>(h));
            c = sigmoid(f) * c + sigmoid(i) * tanh(g);
            h = sigmoid(o) * tanh(c);
            yield h;
        }
    }
}
model! {
    /// The products of the GRU with all inputs.
    struct GruProduct<d = 256>;
    fn forward(x: [rows, d]) -> [rows, { 3 * d }] { linear::<{ 3 * d }>(x) }
}
model! {
    struct LstmProduct<d = 256>;
    fn forward(x: [rows, d]) -> [rows, { 4 * d }] { linear::<{ 4 * d }>(x) }
}
model! {
    struct GruLm<vocab = 256, d = 256>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let y = scan seq {
            state h: [batch, d] = 0.0;
            let (xr, xz, xn) = split(linear::<{ 3 * d }, name = ih>(x));
            let (hr, hz, hn) = split(linear::<{ 3 * d }, name = hh>(h));
            let z = sigmoid(xz + hz);
            h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
            yield h;
        };
        linear::<vocab>(y)
    }
}
model! {
    struct LstmLm<vocab = 256, d = 256>;
    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let x = embedding::<vocab, d>(tokens);
        let y = scan seq {
            state h: [batch, d] = 0.0;
            state c: [batch, d] = 0.0;
            let (i, f, g, o) = split(linear::<{ 4 * d }, name = ih>(x) + linear::<{ 4 * d }, name = hh>(h));
            c = sigmoid(f) * c + sigmoid(i) * tanh(g);
            h = sigmoid(o) * tanh(c);
            yield h;
        };
        linear::<vocab>(y)
    }
}

const BATCH: usize = 8;
const SEQ: usize = 128;

/// Times something in the group of this name.
fn time<T>(criterion: &mut Criterion, group: &str, name: &str, mut run: impl FnMut() -> T) {
    let mut group = criterion.benchmark_group(group);
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(2));
    group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
        bencher.iter(&mut run);
    });
    group.finish();
}

/// Times a layer, and its products.
macro_rules! measure {
    ($criterion:ident, $($layer:ident: $product:ident),* $(,)?) => {$({
        let dev = Cpu::seed_from_u64(1);
        let layer = dev.build_module::<$layer, f32>();
        let product = dev.build_module::<$product, f32>();
        let x = dev.sample_normal_like(&(BATCH, SEQ, Const::<256>));
        let all = dev.sample_normal_like(&(BATCH * SEQ, Const::<256>));
        let step = dev.sample_normal_like(&(BATCH, Const::<256>));
        time($criterion, "recurrent/forward", stringify!($layer), || layer.forward(x.clone()));
        time($criterion, "recurrent/forward", stringify!($product), || {
            (0..SEQ).for_each(|_| drop(product.forward(step.clone())));
            product.forward(all.clone())
        });
        time($criterion, "recurrent/forward+backward", stringify!($layer), || {
            backward(layer.forward(x.clone().leaky_traced()))
        });
        time($criterion, "recurrent/forward+backward", stringify!($product), || {
            (0..SEQ).for_each(|_| drop(backward(product.forward(step.clone().leaky_traced()))));
            backward(product.forward(all.clone().leaky_traced()))
        });
    })*};
}

/// Times a token of a session of so many sequences.
macro_rules! measure_tokens {
    ($criterion:ident, $($model:ident),*) => {$(
        for sequences in [1, BATCH] {
            let model = Cpu::seed_from_u64(1).build_module::<$model, f32>();
            // A scan remembers its states alone, so that a session may be of any length.
            let mut session = model.sessions(sequences, 1 << 40).unwrap();
            let tokens = vec![7; sequences];
            let name = format!("{}/{sequences}", stringify!($model));
            time($criterion, "recurrent/token", &name, || {
                session.step(&tokens).unwrap().row(0)[0]
            });
        }
    )*};
}

/// The backward pass with gradients of zero, which take as long as others.
fn backward<S: Shape>(y: Tensor<S, f32, Cpu, OwnedTape<f32, Cpu>>) -> Gradients<f32, Cpu> {
    let (_, tape) = y.split_tape();
    let loss: Tensor<Rank0, f32, Cpu> = Cpu::default().zeros();
    loss.put_tape(tape).backward()
}

fn recurrent(criterion: &mut Criterion) {
    measure!(criterion, Gru: GruProduct, Lstm: LstmProduct);
    measure_tokens!(criterion, GruLm, LstmLm);
}

criterion_group!(benches, recurrent);
criterion_main!(benches);
