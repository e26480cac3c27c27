//! The speed of generation: tokens per second, beside the limit of this machine's memory.
//!
//! ```sh
//! cargo run --release --example generation
//! ```
//!
//! A GPT of six layers continues a prompt of 16 tokens by 200, in a session. A token of one sequence reads all weights, and the
//! keys and values of the tokens before it, and does little arithmetic with each number: memory is the limit. Several sequences
//! share one read of the weights.
//!
//! The limit is the time in which all threads together copy the bytes that a token reads. The last column is the time with a pass
//! over the whole sequence for every token.

#[path = "roofline/timing.rs"]
#[allow(dead_code, reason = "the roofline has cases as well")]
mod timing;

use attn::{
    dfdx::prelude::*,
    generate::{GenerateError, Sampler, Sampling},
    model,
};
use rayon::prelude::*;
use timing::best;

const VOCAB: usize = 65;
const WIDTH: usize = 384;
const LAYERS: usize = 6;
const PROMPT: usize = 16;
const NEW: usize = 200;

model! {
    struct Gpt<d_model = WIDTH, layers = LAYERS, max_len = 256>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, VOCAB] {
        let mut x = embedding::<VOCAB, d_model>(tokens) + learned_position::<max_len, d_model>(tokens);
        repeat layers {
            x += attention::<6, d_model, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model }, activation = gelu_tanh>(layer_norm(x));
        }
        linear::<VOCAB>(layer_norm(x))
    }
}

/// The bytes that a token of each sequence reads on average: all weights of products, keys and values.
fn bytes(sequences: usize) -> usize {
    let tables = (VOCAB + 256) * WIDTH;
    let tokens = PROMPT + NEW / 2;
    let cache = LAYERS * 2 * WIDTH * tokens;
    size_of::<f32>() * (Gpt::PARAMS - tables + sequences * cache)
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

/// The time in seconds of a round, with a token of each sequence.
fn write(model: &Gpt, sequences: usize) -> Result<f64, GenerateError> {
    let mut session = model
        .sessions(sequences, PROMPT + NEW)
        .expect("the model is long enough");
    let prompt: Vec<usize> = (0..PROMPT).map(|i| (i * i + 7) % VOCAB).collect();
    session.prefill(&vec![&prompt[..]; sequences])?;
    let mut tokens = vec![0; sequences];
    let mut sampler = Sampler::new(Sampling {
        temperature: 0.0,
        ..Sampling::default()
    })?;
    let seconds = best(|| {
        let mut text = session.fork();
        for _ in 0..NEW {
            let logits = text.step(&tokens).expect("there is room");
            for (sequence, token) in tokens.iter_mut().enumerate() {
                let chosen = sampler.choose(logits.row(sequence), &[]);
                *token = chosen.expect("logits are numbers");
            }
        }
    });
    Ok(seconds / NEW as f64)
}

/// The time in seconds of a pass over the sequences at their average length.
fn pass(model: &Gpt, sequences: usize) -> f64 {
    let len = PROMPT + NEW / 2;
    let ids = (0..sequences * len).map(|i| (i * i + 7) % VOCAB);
    let tokens = Cpu::default().tensor_from_vec(ids.collect(), (sequences, len));
    best(|| drop(model.forward(tokens.clone())))
}

fn main() -> Result<(), GenerateError> {
    let model = Cpu::default().build_module::<Gpt, f32>();
    println!(
        "{} parameters, {PROMPT} tokens of prompt, {NEW} new ones",
        Gpt::PARAMS
    );
    println!(
        "{:>9} {:>12} {:>10} {:>12} {:>15} {:>18}",
        "sequences",
        "a token each",
        "tokens/s",
        "memory alone",
        "times the limit",
        "times without it"
    );
    for sequences in [1, 8] {
        let before = copy(bytes(sequences));
        let seconds = write(&model, sequences)?;
        let limit = before.min(copy(bytes(sequences)));
        println!(
            "{sequences:>9} {:>9.2} ms {:>10.0} {:>9.2} ms {:>15.2} {:>18.1}",
            1e3 * seconds,
            sequences as f64 / seconds,
            1e3 * limit,
            seconds / limit,
            pass(&model, sequences) / seconds
        );
    }
    Ok(())
}
