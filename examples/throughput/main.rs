//! Tokens per second of whole training steps, and how close they come to the rate at which this machine multiplies
//! matrices.
//!
//! ```sh
//! cargo run --release --example throughput
//! cargo run --release --example throughput -- --alone --only medium
//! ```
//!
//! Each model is declared by `model!`; a step is forward, cross entropy, backward and AdamW. Beside it runs the same model as a
//! chain of dfdx's operations, with dfdx's own loss and Adam.
//!
//! Work is what the matrix products do: 6 operations per token and weight in one, and causal attention at half of its
//! square, twice forward and five times backward.

#[path = "../roofline/timing.rs"]
#[allow(dead_code, reason = "the roofline has cases as well")]
mod timing;

use attn::{
    dfdx::{optim::Adam, prelude::*},
    model, ops,
    train::{AdamW, AdamWConfig},
};
use clap::Parser;
use timing::{Rate, best};

/// Times training steps of two language models.
#[derive(Parser)]
struct Options {
    /// Run the models whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave out the models in plain dfdx, which take most of the time.
    #[arg(long)]
    alone: bool,
}

const VOCAB: usize = 65;

/// A model, and how much it is given.
struct Size {
    name: &'static str,
    layers: usize,
    d_model: usize,
    length: usize,
    batch: usize,
}

const SMALL: Size = Size {
    name: "small",
    layers: 4,
    d_model: 128,
    length: 64,
    batch: 12,
};
const MEDIUM: Size = Size {
    name: "medium",
    layers: 6,
    d_model: 384,
    length: 256,
    batch: 8,
};

/// Declares a GPT of this size.
macro_rules! gpt {
    ($Name:ident, $size:ident, heads = $heads:literal) => {
        model! {
            struct $Name<d_model = { $size.d_model }, layers = { $size.layers }, max_len = { $size.length }>;

            fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
                let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
                repeat layers {
                    x += attention::<$heads, d_model, mask = causal>(layer_norm(x));
                    x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
                }
                linear::<VOCAB>(layer_norm(x))
            }
        }
    };
}

gpt!(Small, SMALL, heads = 4);
gpt!(Medium, MEDIUM, heads = 6);

type Tokens = Tensor<(usize, usize), usize, Cpu>;

fn tokens(size: &Size) -> Tokens {
    let ids = (0..size.batch * size.length).map(|i| (i * i + 7) % VOCAB);
    Cpu::default().tensor_from_vec(ids.collect(), (size.batch, size.length))
}

/// Of a step.
fn work(size: &Size, forward: u64) -> f64 {
    let pairs = (size.batch * size.length * size.length) as f64;
    let scores = 4.0 * pairs * (size.layers * size.d_model) as f64;
    3.0 * (forward as f64 - scores) + 3.5 * scores / 2.0
}

/// The seconds of a step: of the declared model, and of the same as a chain of dfdx's operations.
macro_rules! steps {
    ($Model:ident, $size:expr, $alone:expr) => {{
        let (inputs, targets) = (tokens($size), tokens($size));
        let dev = Cpu::default();
        let mut model = dev.build_module::<$Model, f32>();
        let mut optimizer = AdamW::new(AdamWConfig::default());
        let mut gradients = Some(model.alloc_grads());
        let declared = best(|| {
            let x = inputs.clone().traced(take(&mut gradients));
            let loss = ops::cross_entropy(model.forward_mut(x), &targets, Default::default());
            let mut done = loss.backward();
            optimizer
                .update(&mut model, &mut done)
                .expect("all parameters have gradients");
            model.zero_grads(&mut done);
            gradients = Some(done);
        });
        let mut optimizer = Adam::new(&model, AdamConfig::default());
        let plain = (!$alone).then(|| {
            best(|| {
                let x = inputs.clone().traced(take(&mut gradients));
                let logits = model.composed().forward_mut(x);
                let nats = logits.log_softmax::<Axis<2>>().select(targets.clone());
                let mut done = nats.mean().negate().backward();
                optimizer
                    .update(&mut model, &done)
                    .expect("all parameters have gradients");
                model.zero_grads(&mut done);
                gradients = Some(done);
            })
        });
        (declared, plain)
    }};
}

/// The gradients of the last step, which are zeros again.
fn take(gradients: &mut Option<Gradients<f32, Cpu>>) -> Gradients<f32, Cpu> {
    gradients.take().unwrap_or_else(Gradients::leaky)
}

/// A model to be timed.
struct Case {
    size: &'static Size,
    parameters: usize,
    /// Operations of a forward pass.
    forward: u64,
    /// Bytes of activations of a step.
    activations: usize,
    /// The seconds of a step, and of one in plain dfdx, unless the model runs alone.
    steps: fn(alone: bool) -> (f64, Option<f64>),
}

fn main() {
    let options = Options::parse();
    println!(
        "{:<8} {:>11} {:>11} {:>10} {:>10} {:>9} {:>7} {:>14}",
        "model", "parameters", "activations", "step", "tokens/s", "GFLOP/s", "share", "times dfdx"
    );
    let models = [
        Case {
            size: &SMALL,
            parameters: Small::PARAMS,
            forward: Small::flops(SMALL.batch, SMALL.length),
            activations: Small::activation_bytes(SMALL.batch, SMALL.length),
            steps: |alone| steps!(Small, &SMALL, alone),
        },
        Case {
            size: &MEDIUM,
            parameters: Medium::PARAMS,
            forward: Medium::flops(MEDIUM.batch, MEDIUM.length),
            activations: Medium::activation_bytes(MEDIUM.batch, MEDIUM.length),
            steps: |alone| steps!(Medium, &MEDIUM, alone),
        },
    ];
    for case in models {
        let (size, parameters) = (case.size, case.parameters);
        if !size.name.contains(&options.only) {
            continue;
        }
        let before = Rate::measure();
        let (time, plain) = (case.steps)(options.alone);
        let rate = before.max(Rate::measure());
        let flops = work(size, case.forward) / time;
        let times = plain.map_or_else(String::new, |plain| format!("{:.1}", plain / time));
        println!(
            "{:<8} {:>11} {:>7.1} MiB {:>7.2} ms {:>10.0} {:>9.1} {:>6.0}% {:>14}",
            size.name,
            parameters,
            case.activations as f64 / f64::from(1 << 20),
            1e3 * time,
            (size.batch * size.length) as f64 / time,
            flops / 1e9,
            100.0 * rate.share(flops),
            times
        );
    }
}
