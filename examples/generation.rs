//! The speed of generation: tokens per second, beside the limit of this machine's memory.
//!
//! ```sh
//! cargo run --release --example generation
//! cargo run --release --example generation -- prompt
//! ```
//!
//! A GPT of six layers continues a prompt of 16 tokens by 200, in a session. A token of one sequence reads all weights, and the
//! keys and values of the tokens before it, and does little arithmetic with each number: memory is the limit. Several sequences
//! share one read of the weights. Weights in bf16 and int8 are fewer bytes. A prompt of 1,024 tokens is arithmetic instead: AVX-512 BF16 has twice the
//! products of `f32` in an instruction, and so has VNNI for weights in int8, with rows of two bytes for each number; AMX has several times as many of both. Behind as many tokens, a token of several sequences
//! reads more bytes of keys and values than of weights, and half of them in bf16.
//!
//! The limit is the time in which all threads together copy the bytes that a token reads. The last column is the time with a pass
//! over the whole sequence for every token.

#[path = "roofline/timing.rs"]
#[allow(dead_code, reason = "the roofline has cases as well")]
mod timing;

use attn::{
    dfdx::prelude::*,
    generate::{Dtype, GenerateError, Sampler, Sampling, SessionError, Sessions, WeightFormat},
    model,
};
use clap::{Parser, ValueEnum};
use rayon::prelude::*;
use timing::best;

const VOCAB: usize = 65;
const WIDTH: usize = 384;
const LAYERS: usize = 6;
const PROMPT: usize = 16;
const NEW: usize = 200;
const LONG: usize = 1024;
/// The new tokens behind a long prompt.
const FEW: usize = 32;

model! {
    struct Gpt<d_model = WIDTH, layers = LAYERS, max_len = LONG>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x += attention::<6, d_model, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<VOCAB>(layer_norm(x))
    }
}

/// The bytes that a token of each sequence reads on average: all weights of products, of so many bytes each, keys and values.
fn bytes(sequences: usize, of_weight: usize) -> usize {
    let tables = (VOCAB + LONG) * WIDTH;
    let tokens = PROMPT + NEW / 2;
    let cache = LAYERS * 2 * WIDTH * tokens;
    of_weight * (Gpt::PARAMS - tables) + size_of::<f32>() * sequences * cache
}

/// The time in seconds in which all threads copy this many bytes from memory that exceeds the caches.
fn copy(bytes: usize) -> f64 {
    const LARGE: usize = 1 << 26;
    let from = vec![1.0_f32; LARGE];
    let mut to = vec![0.0_f32; LARGE];
    let seconds = best(|| {
        let part = LARGE / rayon::current_num_threads();
        let parts = to.par_chunks_mut(part).zip(from.par_chunks(part));
        parts.for_each(|(to, from)| to.copy_from_slice(from));
    });
    seconds * bytes as f64 / (size_of::<f32>() * LARGE) as f64
}

/// Sequences of at most so many tokens.
fn begin(
    model: &Gpt,
    [sequences, len]: [usize; 2],
    format: Option<WeightFormat>,
) -> Result<Sessions<f32>, SessionError> {
    let session = model.sessions(sequences, len);
    let session = session.expect("the model is long enough");
    match format {
        None => Ok(session),
        Some(format) => session.weights(format),
    }
}

fn prompt(len: usize) -> Vec<usize> {
    (0..len).map(|i| (i * i + 7) % VOCAB).collect()
}

/// The time in seconds in which a session reads a long prompt, with keys and values in this dtype.
fn read(model: &Gpt, format: Option<WeightFormat>, cache: Dtype) -> Result<f64, GenerateError> {
    let mut session = begin(model, [1, LONG], format)?.cache(cache)?;
    let prompt = prompt(LONG);
    Ok(best(|| {
        session.reset(0);
        session.prefill(&[&prompt]).expect("there is room");
    }))
}

/// The time in seconds of a round, with a token of each sequence.
fn write(
    model: &Gpt,
    sequences: usize,
    format: Option<WeightFormat>,
) -> Result<f64, GenerateError> {
    let mut session = begin(model, [sequences, PROMPT + NEW], format)?;
    session.prefill(&vec![&prompt(PROMPT)[..]; sequences])?;
    steps(&session, NEW)
}

/// The same behind a long prompt, with keys and values in this dtype.
fn write_long(
    model: &Gpt,
    sequences: usize,
    format: Option<WeightFormat>,
    cache: Dtype,
) -> Result<f64, GenerateError> {
    let mut session = begin(model, [sequences, LONG], format)?.cache(cache)?;
    session.prefill(&vec![&prompt(LONG - FEW)[..]; sequences])?;
    steps(&session, FEW)
}

/// The time in seconds of a round of forks of a session, of so many rounds.
fn steps(session: &Sessions<f32>, rounds: usize) -> Result<f64, GenerateError> {
    let mut tokens = vec![0; session.lens().len()];
    let mut sampler = Sampler::new(Sampling {
        temperature: 0.0,
        ..Sampling::default()
    })?;
    let seconds = best(|| {
        let mut text = session.fork();
        for _ in 0..rounds {
            let logits = text.step(&tokens).expect("there is room");
            for (sequence, token) in tokens.iter_mut().enumerate() {
                let chosen = sampler.choose(logits.row(sequence), &[]);
                *token = chosen.expect("logits are numbers");
            }
        }
    });
    Ok(seconds / rounds as f64)
}

/// The time in seconds of a pass over the sequences at their average length.
fn pass(model: &Gpt, sequences: usize) -> f64 {
    let len = PROMPT + NEW / 2;
    let ids = (0..sequences * len).map(|i| (i * i + 7) % VOCAB);
    let tokens = Cpu::default().tensor_from_vec(ids.collect(), (sequences, len));
    best(|| drop(model.forward(tokens.clone())))
}

/// A part of the measurement.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Tokens behind a short prompt
    Tokens,
    /// A long prompt
    Prompt,
    /// Tokens behind a long prompt
    Behind,
}

/// Times the session of a GPT.
#[derive(Parser)]
struct Options {
    /// One part alone
    part: Option<Part>,
}

/// The names of the weights of a session, with the bytes of one.
const FORMATS: [(&str, Option<WeightFormat>, usize); 3] = [
    ("f32", None, 4),
    ("bf16", Some(WeightFormat::Bf16), 2),
    ("int8", Some(WeightFormat::Int8), 1),
];

/// The names of keys and values.
const CACHES: [(&str, Dtype); 2] = [("f32", Dtype::Model), ("bf16", Dtype::Bf16)];

fn main() -> Result<(), GenerateError> {
    let Options { part } = Options::parse();
    let is_timed = |this: Part| part.is_none_or(|part| part == this);
    let model = Cpu::default().build_module::<Gpt, f32>();
    println!("{} parameters", Gpt::PARAMS);
    if is_timed(Part::Tokens) {
        tokens(&model)?;
    }
    if is_timed(Part::Prompt) {
        whole_prompt(&model)?;
    }
    if is_timed(Part::Behind) {
        tokens_behind(&model)?;
    }
    Ok(())
}

fn tokens(model: &Gpt) -> Result<(), GenerateError> {
    println!(
        "\n{PROMPT} tokens of prompt, {NEW} new ones\n{:>9} {:>7} {:>12} {:>10} {:>12} {:>15} {:>18}",
        "sequences",
        "weights",
        "a token each",
        "tokens/s",
        "memory alone",
        "times the limit",
        "times without it"
    );
    for sequences in [1, 8] {
        let pass = pass(model, sequences);
        for (name, format, of_weight) in FORMATS {
            let bytes = bytes(sequences, of_weight);
            let before = copy(bytes);
            let seconds = write(model, sequences, format)?;
            let limit = before.min(copy(bytes));
            println!(
                "{sequences:>9} {name:>7} {:>9.2} ms {:>10.0} {:>9.2} ms {:>15.2} {:>18.1}",
                1e3 * seconds,
                sequences as f64 / seconds,
                1e3 * limit,
                seconds / limit,
                pass / seconds
            );
        }
    }
    Ok(())
}

fn whole_prompt(model: &Gpt) -> Result<(), GenerateError> {
    println!("\na prompt of {LONG} tokens");
    let exact = read(model, None, Dtype::Model)?;
    for (name, format, _) in FORMATS {
        for (cache, dtype) in CACHES {
            let seconds = read(model, format, dtype)?;
            println!(
                "{name:>17}, keys and values {cache:>4} {:>9.2} ms {:>10.0} tokens/s {:>6.2} times as fast as f32",
                1e3 * seconds,
                LONG as f64 / seconds,
                exact / seconds
            );
        }
    }
    Ok(())
}

fn tokens_behind(model: &Gpt) -> Result<(), GenerateError> {
    println!("\na token behind {} others", LONG - FEW);
    for sequences in [1, 8] {
        let exact = write_long(model, sequences, None, Dtype::Model)?;
        for (name, format, _) in FORMATS {
            for (cache, dtype) in CACHES {
                let seconds = write_long(model, sequences, format, dtype)?;
                println!(
                    "{sequences:>9} {name:>7}, keys and values {cache:>4} {:>9.2} ms {:>10.0} tokens/s {:>6.2} times as fast as f32",
                    1e3 * seconds,
                    sequences as f64 / seconds,
                    exact / seconds
                );
            }
        }
    }
    Ok(())
}
