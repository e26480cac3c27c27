//! Scans whose rows are independent of each other: each thread takes some of them through all steps.

use super::claim::tolerance;
use super::*;
use attn::model;
use rayon::ThreadPoolBuilder;
use support::compare::assert_same;

macro_rules! models {
    ($($Gru:ident, $Lstm:ident: $keep:tt, $reverse:tt;)*) => {$(
        model! {
            struct $Gru<d = 24>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                scan seq, keep = $keep, reverse = $reverse {
                    state h: [batch, d] = 0.25;
                    let (xr, xz, xn) = split(linear::<{ 3 * d }>(x));
                    let (hr, hz, hn) = split(linear::<{ 3 * d }>(h));
                    let z = sigmoid(xz + hz);
                    h = (1 - z) * tanh(xn + sigmoid(xr + hr) * hn) + z * h;
                    yield h;
                }
            }
        }

        model! {
            struct $Lstm<d = 24>;
            fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
                let start = sin(mean::<seq>(x));
                let (y, last) = scan seq, keep = $keep, reverse = $reverse {
                    state h: [batch, d] = start;
                    state c: [batch, d] = 0.0;
                    let (i, f, g, o) = split(linear::<{ 4 * d }>(x) + linear::<{ 4 * d }, bias = false>(h));
                    c = sigmoid(f) * c + sigmoid(i) * tanh(g);
                    h = sigmoid(o) * tanh(c) + x;
                    yield h * x;
                    c
                };
                y + last
            }
        }
    )*};
}

models! {
    Gru, Lstm: all, false;
    GruBackwards, LstmBackwards: all, true;
    GruInSegments, LstmInSegments: sqrt, false;
    GruInSegmentsBackwards, LstmInSegmentsBackwards: sqrt, true;
}

model! {
    /// The norm of a step keeps numbers for its derivative, and the learned vector has a sum over the batch.
    struct Other<d = 24>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        param decay: [d] = normal(0.5);
        scan seq {
            state h: [batch, d] = 0.0;
            h = sigmoid(decay) * h + tanh(linear::<d>(layer_norm(h))) + x;
            yield h;
        }
    }
}

model! {
    /// Every row of the state has rows of its own, and is the first of what the steps read.
    struct Heads<d = 24, heads = 3>;
    fn forward(x: [batch, seq, heads, d]) -> ([batch, seq, heads, d], [batch, heads, d]) {
        scan seq {
            state h: [batch, heads, d] = 0.5;
            let a = tanh(linear::<d>(h) + x);
            h = 0.9 * h + a * linear::<d>(a * x);
            yield h + a;
            h
        }
    }
}

model! {
    /// No product depends on a state.
    struct Minimal<d = 24>;
    fn forward(x: [batch, seq, d]) -> [batch, seq, d] {
        scan seq {
            state h: [batch, d] = 0.0;
            let z = sigmoid(linear::<d>(x));
            h = (1 - z) * h + z * linear::<d>(x);
            yield h;
        }
    }
}

fn on<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.unwrap().install(run)
}

/// The output, all gradients, and the peak of the bytes of activations, which is that which the model states.
macro_rules! run {
    ($Model:ident, $x:expr, $form:ident) => {{
        let mut model = Cpu::default().build_module::<$Model, f32>();
        scatter(&mut model);
        let x = $x;
        let ran: Backpropagated<f32> = backpropagate(run!(@$form model).forward(x.clone().leaky_traced()));
        let outcome: Outcome = ran.input("x", &x).parameters(&model);
        outcome
    }};
    (@fused $model:ident) => { $model };
    (@composed $model:ident) => { $model.composed() };
}

/// One thread has all rows of a small scan. These are large enough to be shared.
macro_rules! same_bits {
    ($($name:ident: $($Model:ident),*;)*) => {$(
        #[test]
        fn $name() {
            $(
                for (batch, seq) in [(1, 200), (2, 100), (5, 41), (7, 40)] {
                    let x = || tensor::<_, f32>("x", (batch, seq, Const::<24>));
                    let alone = on(1, || run!($Model, x(), fused));
                    let what = format!("{}, {batch} x {seq}", stringify!($Model));
                    let composed = on(1, || run!($Model, x(), composed));
                    assert_same(&what, &alone, &composed, 10.0 * tolerance::<f32>());
                    for threads in [2, 3, 4, 8] {
                        let shared = on(threads, || run!($Model, x(), fused));
                        assert!(alone.all().eq(shared.all()), "{what}, {threads} threads");
                    }
                }
            )*
        }
    )*};
}

same_bits! {
    recurrences_have_the_same_bits_for_any_number_of_threads: Gru, Lstm, GruBackwards, LstmBackwards;
    segments_have_the_same_bits_for_any_number_of_threads:
        GruInSegments, LstmInSegments, GruInSegmentsBackwards, LstmInSegmentsBackwards;
    other_scans_have_the_same_bits_for_any_number_of_threads: Other, Minimal;
}

#[test]
fn rows_of_rows_have_the_same_bits_for_any_number_of_threads() {
    let of = |threads: usize| {
        on(threads, || {
            let mut model = Cpu::default().build_module::<Heads, f32>();
            scatter(&mut model);
            let x = tensor::<_, f32>("x", (3, 40, Const::<3>, Const::<24>));
            let (y, last) = model.forward(x.clone().leaky_traced());
            let ran: Backpropagated<f32> = backpropagate(y);
            let outcome: Outcome = ran.input("x", &x).parameters(&model);
            let numbers = outcome.all().map(|(_, numbers)| numbers.to_vec());
            (numbers.collect::<Vec<_>>(), last.as_vec())
        })
    };
    let alone = of(1);
    for threads in [2, 3, 4] {
        assert!(of(threads) == alone, "{threads} threads");
    }
}

/// A batch without rows, from given gradients: dfdx has no sum of nothing.
#[test]
fn there_may_be_no_rows() {
    macro_rules! none {
        ($($Model:ident),*) => {$(
            let model = Cpu::default().build_module::<$Model, f32>();
            let x = tensor::<_, f32>("x", (0, 5, Const::<24>));
            let y = model.forward(x.clone().leaky_traced());
            let gradients = attn::backward(y, &x);
            assert_eq!(gradients.get(&x).shape().concrete(), [0, 5, 24]);
        )*};
    }
    on(2, || {
        none!(Gru, Lstm, GruInSegments, LstmInSegmentsBackwards);
    });
}
