//! Tokens per second of whole training steps, and their share of the rate of a matrix product on this machine.
//!
//! ```sh
//! cargo run --release --example throughput
//! cargo run --release --example throughput -- --alone --only medium
//! ```
//!
//! Each model is declared by `model!`. A step is forward, cross entropy, backward and AdamW: with dfdx's tape, and by a trainer, whose
//! step has no tape and copies no parameter. Beside them runs the same model in plain dfdx, with dfdx's own loss and Adam. Rates are those of
//! the step with the tape.
//!
//! Work is that of the matrix products: 6 operations per token and weight, and causal attention at half of its square, twice
//! forward and five times backward. The table has the share of the rate of one product, and of the rate at which the model's own
//! products with parameters run back to back.

#[path = "../roofline/timing.rs"]
#[allow(dead_code, reason = "the roofline has cases as well")]
mod timing;

#[path = "../../benches/language_model/sizes.rs"]
mod sizes;

use attn::{
    dfdx::prelude::*,
    ops,
    train::{AdamW, AdamWConfig},
};
use clap::Parser;
use sizes::{MEDIUM, Medium, PlainMedium, PlainSmall, SMALL, Size, Small, VOCAB};
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

/// The products with parameters.
fn maps(size: &Size) -> Vec<Map> {
    let rows = size.batch * size.length;
    let d = size.d_model;
    let map = |[input, outputs]: [usize; 2]| Map {
        rows,
        input,
        outputs,
    };
    let layer = [[d, 3 * d], [d, d], [d, 4 * d], [4 * d, d]].map(map);
    let layers = layer.repeat(size.layers).into_iter();
    layers.chain([map([d, VOCAB])]).collect()
}

/// The seconds of a step.
struct Times {
    /// Of the declared model, with dfdx's tape.
    declared: f64,
    /// Of its trainer.
    trainer: f64,
    /// Of the same in plain dfdx, unless the model runs alone.
    plain: Option<f64>,
}

/// The times of the steps of a model.
macro_rules! steps {
    ($Model:ident, $Plain:ident, $size:ident, $alone:expr) => {{
        let inputs = $size.tokens();
        let targets = $size.tokens();
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
        let mut trainer = model.trainer(AdamWConfig::default());
        let batch = (inputs.clone(), targets.clone());
        let trainer = best(|| {
            let step = trainer.step(batch.clone());
            step.expect("the loss is finite");
        });
        let plain = (!$alone).then(|| {
            let mut plain = $Plain::new(&dev);
            best(|| plain.step(&inputs, &targets))
        });
        Times {
            declared,
            trainer,
            plain,
        }
    }};
}

/// The gradients of the last step, set to zero.
fn take(gradients: &mut Option<Gradients<f32, Cpu>>) -> Gradients<f32, Cpu> {
    gradients.take().unwrap_or_else(Gradients::leaky)
}

/// A model to time.
struct Case {
    size: &'static Size,
    parameters: usize,
    /// Operations of a forward pass.
    forward: u64,
    /// Bytes of activations of a step.
    activations: usize,
    steps: fn(alone: bool) -> Times,
}

fn main() {
    let options = Options::parse();
    println!(
        "{:<8} {:>11} {:>11} {:>10} {:>10} {:>10} {:>9} {:>7} {:>15} {:>14}",
        "model",
        "parameters",
        "activations",
        "step",
        "trainer",
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
            steps: |alone| steps!(Small, PlainSmall, SMALL, alone),
        },
        Case {
            size: &MEDIUM,
            parameters: Medium::PARAMS,
            forward: Medium::flops(MEDIUM.batch, MEDIUM.length),
            activations: Medium::activation_bytes(MEDIUM.batch, MEDIUM.length),
            steps: |alone| steps!(Medium, PlainMedium, MEDIUM, alone),
        },
    ];
    for case in models {
        let size = case.size;
        let parameters = case.parameters;
        if !size.name.contains(&options.only) {
            continue;
        }
        let before = Rate::measure();
        let Times {
            declared: time,
            trainer,
            plain,
        } = (case.steps)(options.alone);
        let rate = before.max(Rate::measure());
        let flops = size.work(case.forward) / time;
        let of_its_products = Rate::of(&maps(size), true).share(flops);
        let times = plain.map_or_else(String::new, |plain| format!("{:.1}", plain / time));
        println!(
            "{:<8} {:>11} {:>7.1} MiB {:>7.2} ms {:>7.2} ms {:>10.0} {:>9.1} {:>6.0}% {:>14.0}% {:>14}",
            size.name,
            parameters,
            case.activations as f64 / f64::from(1 << 20),
            1e3 * time,
            1e3 * trainer,
            (size.batch * size.length) as f64 / time,
            flops / 1e9,
            100.0 * rate.share(flops),
            100.0 * of_its_products,
            times
        );
    }
}
