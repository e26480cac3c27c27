//! Times one piece of work the way benchmarks of several libraries do, and prints it as a line of JSON.
//!
//! ```sh
//! cargo run --release --example peer -- w1_train_b4_s512
//! ```
//!
//! | case | work |
//! | --- | --- |
//! | `w1_fwd_b8_s128`, `w1_train_b4_s512` | a causal layer, `d_model` 512 and 8 heads: forward, and backward from a given gradient, of batch `b` and length `s` |
//! | `w2_fwd_causal_s1024`, `w2_train_w256_s4096` | the attention core on slices, 8 heads of 64: causal, and within a window |
//! | `w3_small`, `w3_medium` | a training step of a GPT, by a trainer: forward, loss, backward, AdamW; with `_bf16` behind the name, products of rounded operands |
//! | `w4_decode` | 200 tokens of the medium GPT behind a prompt of 16, greedily |
//! | `w5_gru`, `w5_lstm` | a GRU and an LSTM of width 256, 8 sequences of 128 tokens: forward, and backward from a given gradient, as all cases below |
//! | `w6_conv1d`, `w6_conv1d_second` | the two convolutions of Whisper's front on 3,000 frames of 80 bins, with the activation between them, and the second alone |
//! | `w6_conv2d` | patches of 16 pixels, of 8 images of 224 |
//! | `w6_residual` | a block of two convolutions of 3 x 3 with norms of groups, 8 images of 64 x 56 x 56 |
//! | `w6_depthwise` | a depthwise convolution of 7 x 7, 8 images of 96 x 56 x 56 |
//! | `w7_weights_s512`, `w7_no_weights_s512` | a loss of attention of 8 heads of 64, of length `s`, with and without a loss of the weights |
//! | `w7_loss_s512` | that loss alone, of given weights |
//! | `w8_attention`, `w8_attend` | the layer of `w1_train_b4_s512` in `model!`, in one piece and as `linear` and `attend` |
//!
//! With `_forward` behind the name of a layer (`w5`, `w6`, `w8`), its forward pass alone is timed.
//!
//! `peer/pytorch.py` times the same in PyTorch from `w5` on.
//!
//! All numbers are `f32`. A time is the median of the runs of 4 seconds, behind 2 runs that warm up: at least 5 runs and at most 200, and if
//! they are slow, those of 25 seconds.

#[path = "roofline/by_hand.rs"]
mod by_hand;
#[path = "roofline/core.rs"]
#[allow(dead_code, reason = "the roofline has cases of its own")]
mod core;
#[path = "peer/layers.rs"]
mod layers;
#[path = "../benches/language_model/sizes.rs"]
#[allow(dead_code, reason = "the benches have the model in plain dfdx as well")]
mod sizes;
#[path = "roofline/timing.rs"]
#[allow(dead_code, reason = "the roofline compares with products")]
mod timing;

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use attn::{
    attention, backward,
    dfdx::prelude::*,
    generate::{Sampler, Sampling},
    train::{AdamWConfig, Dtype},
};
use clap::{Parser, ValueEnum};
use serde_json::json;
use sizes::{MEDIUM, Medium, SMALL, Size, Small};

attention! { struct Causal<heads = 8, d_model = 512, mask = causal>; }

type Sequences = Tensor<(usize, usize, Const<512>), f32, Cpu>;

/// Times one piece of work, and prints a line of JSON.
#[derive(Parser)]
struct Options {
    /// `w1_train_b4_s512`, `w2_fwd_causal_s1024`, `w3_small`, `w3_medium_bf16`, `w4_decode`, `w5_gru`, `w5_lstm`, `w6_conv1d`, `w6_conv1d_second`, `w6_conv2d`, `w6_residual`, `w6_depthwise`,
    /// `w7_weights_s512`, `w7_no_weights_s512`, `w7_loss_s512`, `w8_attention`, `w8_attend`; `_forward` behind the name of a layer is its
    /// forward pass alone
    case: String,
    /// The form of the layer of `w1`.
    #[arg(default_value = "fused")]
    form: Form,
    /// The name in the line.
    #[arg(default_value = "attn")]
    label: String,
}

/// The two forms of a layer.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    Fused,
    Composed,
}

fn main() -> Result<()> {
    let Options { case, form, label } = Options::parse();
    let parts: Vec<&str> = case.split('_').collect();
    let is_composed = form == Form::Composed;
    ensure!(!is_composed || parts[0] == "w1", "`w1` alone has two forms");
    let (times, tokens) = match *parts {
        ["w1", pass, batch, length] => {
            let size = (number(batch, 'b')?, number(length, 's')?);
            (layer(is_training(pass)?, is_composed, size), None)
        }
        ["w2", pass, mask, length] => {
            let window = match mask {
                "causal" => usize::MAX,
                window => number(window, 'w')?,
            };
            let run = core::on_slices(number(length, 's')?, window, is_training(pass)?);
            (times(run), None)
        }
        ["w3", "small", ref dtype @ ..] => {
            let times = step::<Small>(&SMALL, numbers(dtype)?);
            (times, Some(SMALL.batch * SMALL.length))
        }
        ["w3", "medium", ref dtype @ ..] => {
            let times = step::<Medium>(&MEDIUM, numbers(dtype)?);
            (times, Some(MEDIUM.batch * MEDIUM.length))
        }
        ["w4", "decode"] => (decode()?, Some(DECODED)),
        _ => (layers::run(&parts)?, None),
    };
    let median = times[times.len() / 2];
    println!(
        "{}",
        json!({
            "peer": label,
            "workload": case,
            "median_ms": median,
            "min_ms": times[0],
            "max_ms": times[times.len() - 1],
            "peak_rss_mb": peak_mb(),
            "extra": {
                "runs": times.len(),
                "form": if is_composed { "composed" } else { "fused" },
                "tok_s": tokens.map(|tokens| 1e3 * tokens as f64 / median),
            },
        })
    );
    Ok(())
}

fn is_training(pass: &str) -> Result<bool> {
    match pass {
        "fwd" => Ok(false),
        "train" => Ok(true),
        _ => bail!("`{pass}` is neither `fwd` nor `train`"),
    }
}

/// The dtype of the operands of products.
fn numbers(parts: &[&str]) -> Result<Dtype> {
    match parts {
        [] => Ok(Dtype::Model),
        ["bf16"] => Ok(Dtype::Bf16),
        _ => bail!("`{}` is not `bf16`", parts.join("_")),
    }
}

/// `512` of `s512`.
fn number(part: &str, letter: char) -> Result<usize> {
    let digits = part.strip_prefix(letter);
    let number = digits.and_then(|digits| digits.parse().ok());
    number.with_context(|| format!("`{part}` is not `{letter}` and a number"))
}

/// The milliseconds of each run, in their order by length. If runs are slow there are fewer.
fn times(mut run: impl FnMut()) -> Vec<f64> {
    (0..2).for_each(|_| run());
    let start = Instant::now();
    let mut times = Vec::new();
    loop {
        let before = Instant::now();
        run();
        times.push(1e3 * before.elapsed().as_secs_f64());
        let [count, seconds] = [times.len(), start.elapsed().as_secs() as usize];
        if count >= 200 || (count >= 5 && seconds >= 4) || (count >= 2 && seconds >= 25) {
            times.sort_by(f64::total_cmp);
            return times;
        }
    }
}

fn layer(trains: bool, composed: bool, (batch, length): (usize, usize)) -> Vec<f64> {
    let dev = Cpu::default();
    let layer = dev.build_module::<Causal, f32>();
    let [x, upstream]: [Sequences; 2] =
        [(); 2].map(|()| dev.sample_normal_like(&(batch, length, Const)));
    times(|| match (trains, composed) {
        (true, false) => drop(backward(layer.forward(x.leaky_trace()), &upstream)),
        (true, true) => drop(backward(
            layer.composed().forward(x.leaky_trace()),
            &upstream,
        )),
        (false, false) => drop(layer.forward(x.clone())),
        (false, true) => drop(layer.composed().forward(x.clone())),
    })
}

/// The model's step. The learning rate is small, so that the loss of the random tokens stays finite for any number of steps.
fn step<M>(size: &Size, dtype: Dtype) -> Vec<f64>
where
    M: BuildOnDevice<Cpu, f32>,
    M::Built: attn::train::Trainable<Element = f32, Device = Cpu>,
    (Tokens, Tokens): attn::train::TrainBatch<M::Built>,
{
    let batch = (size.tokens(), size.tokens());
    let mut trainer = attn::train::Trainer::new(
        Cpu::default().build_module::<M, f32>(),
        AdamWConfig {
            lr: 1e-4,
            ..Default::default()
        },
    )
    .dtype(dtype);
    times(|| {
        let step = trainer.step(batch.clone());
        step.expect("the loss is finite");
    })
}

type Tokens = Tensor<(usize, usize), usize, Cpu>;

/// The tokens that `w4` generates.
const DECODED: usize = 200;

fn decode() -> Result<Vec<f64>> {
    let model = Cpu::default().build_module::<Medium, f32>();
    let prompt: Vec<usize> = (0..16).map(|i| (i * i + 3) % sizes::VOCAB).collect();
    let mut session = model.session(prompt.len() + DECODED)?;
    let mut greedy = Sampler::new(Sampling {
        temperature: 0.0,
        ..Default::default()
    })?;
    Ok(times(|| {
        session.reset();
        let logits = session.prefill(&prompt).expect("there is room");
        let mut token = greedy.choose(logits, &[]).expect("logits are numbers");
        for _ in 1..DECODED {
            let logits = session.step(token).expect("there is room");
            token = greedy.choose(logits, &[]).expect("logits are numbers");
        }
    }))
}

/// The most memory that the process had, where the system tells.
fn peak_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024.0)
}
