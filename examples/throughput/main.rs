//! Tokens per second of whole training steps, and how close they come to the rate at which this machine multiplies
//! matrices.
//!
//! ```sh
//! cargo run --release --example throughput
//! cargo run --release --example throughput -- --alone --only medium
//! ```
//!
//! Each model is declared by `model!`; a step is forward, cross entropy, backward and AdamW. Beside it runs the same model as a
//! person writes it with dfdx, with dfdx's own loss and Adam.
//!
//! Work is what the matrix products do: 6 operations per token and weight in one, and causal attention at half of its
//! square, twice forward and five times backward. Beside the share of the rate of one product stands that of the rate at which
//! the model's own products with parameters run, one after the other and nothing else between.

#[path = "../roofline/timing.rs"]
#[allow(dead_code, reason = "the roofline has cases as well")]
mod timing;

#[path = "../../benches/language_model/plain.rs"]
mod plain;

use attn::{
    dfdx::prelude::*,
    model, ops,
    train::{AdamW, AdamWConfig},
};
use clap::Parser;
use plain::Plain;
use timing::{Map, Rate, best};

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

impl Size {
    /// The products with parameters.
    fn maps(&self) -> Vec<Map> {
        let (rows, d) = (self.batch * self.length, self.d_model);
        let map = |[input, outputs]: [usize; 2]| Map {
            rows,
            input,
            outputs,
        };
        let layer = [[d, 3 * d], [d, d], [d, 4 * d], [4 * d, d]].map(map);
        let layers = layer.repeat(self.layers).into_iter();
        layers.chain([map([d, VOCAB])]).collect()
    }
}

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

/// The seconds of a step: of the declared model, and of the same in plain dfdx.
macro_rules! steps {
    ($Model:ident, $size:expr, heads = $heads:literal, $alone:expr) => {{
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
        let plain = (!$alone).then(|| {
            const SIZE: &Size = $size;
            const WIDTH: usize = SIZE.d_model;
            let mut plain = Plain::<
                VOCAB,
                { SIZE.length },
                WIDTH,
                $heads,
                { 4 * WIDTH },
                { SIZE.layers },
            >::new(&dev);
            best(|| plain.step(&inputs, &targets))
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
        "{:<8} {:>11} {:>11} {:>10} {:>10} {:>9} {:>7} {:>15} {:>14}",
        "model",
        "parameters",
        "activations",
        "step",
        "tokens/s",
        "GFLOP/s",
        "share",
        "own products",
        "times dfdx"
    );
    let models = [
        Case {
            size: &SMALL,
            parameters: Small::PARAMS,
            forward: Small::flops(SMALL.batch, SMALL.length),
            activations: Small::activation_bytes(SMALL.batch, SMALL.length),
            steps: |alone| steps!(Small, &SMALL, heads = 4, alone),
        },
        Case {
            size: &MEDIUM,
            parameters: Medium::PARAMS,
            forward: Medium::flops(MEDIUM.batch, MEDIUM.length),
            activations: Medium::activation_bytes(MEDIUM.batch, MEDIUM.length),
            steps: |alone| steps!(Medium, &MEDIUM, heads = 6, alone),
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
        let of_its_products = Rate::of(&size.maps(), true).share(flops);
        let times = plain.map_or_else(String::new, |plain| format!("{:.1}", plain / time));
        println!(
            "{:<8} {:>11} {:>7.1} MiB {:>7.2} ms {:>10.0} {:>9.1} {:>6.0}% {:>14.0}% {:>14}",
            size.name,
            parameters,
            case.activations as f64 / f64::from(1 << 20),
            1e3 * time,
            (size.batch * size.length) as f64 / time,
            flops / 1e9,
            100.0 * rate.share(flops),
            100.0 * of_its_products,
            times
        );
    }
}
