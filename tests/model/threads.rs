//! The results of a model and its gradients do not depend on the number of threads: not in the last bit.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;

use super::*;
use attn::{
    Backend, Element, model,
    ops::{CrossEntropyOptions, cross_entropy},
};
use rayon::ThreadPoolBuilder;

/// The alphabet of nanoGPT's plays. With it the tiles of a gradient of weights would leave one row.
const VOCAB: usize = 65;

model! {
    struct Gpt<vocab = VOCAB, d_model = 64>;

    fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
        let mut x = embedding::<vocab, d_model>(tokens) + learned_position::<130, d_model>(tokens);
        repeat 2 {
            x += attention::<heads = 4, mask = causal>(layer_norm(x));
            x += feed_forward::<{ 4 * d_model + 1 }>(layer_norm(x));
        }
        linear::<vocab>(layer_norm(x))
    }
}

/// The results of a forward and a backward pass as bits: the logits, the loss and every gradient, by name.
fn compute<E: Element>() -> Vec<(String, Vec<u64>)>
where
    Cpu: Backend<E>,
{
    let mut gpt = Cpu::default().build_module::<Gpt, E>();
    scatter(&mut gpt);
    // More tokens than a block of the gradient of weights, and not a multiple of that.
    let [tokens, next] = [ids((3, 129), VOCAB), ids((3, 129), VOCAB - 1)];
    let logits = gpt.forward(tokens.leaky_traced());
    let numbers = tensors::flat(&logits);
    let loss = cross_entropy(logits, &next, CrossEntropyOptions::default());
    let outcome = backpropagate(loss).parameters(&gpt);
    let values = [("logits", &numbers[..]), ("loss", &[outcome.loss()])];
    let bits = |(name, numbers): (&str, &[f64])| {
        let bits = numbers.iter().map(|x| x.to_bits()).collect();
        (name.to_owned(), bits)
    };
    let values = values.into_iter().map(bits);
    values.chain(outcome.gradients().map(bits)).collect()
}

fn run<E: Element>(threads: usize) -> Vec<(String, Vec<u64>)>
where
    Cpu: Backend<E>,
{
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads can be started")
        .install(|| compute::<E>())
}

fn threads_change_no_bit<E: Element>()
where
    Cpu: Backend<E>,
{
    let alone = run::<E>(1);
    for threads in [2, 3, 8] {
        let several = run::<E>(threads);
        for ((name, bits), (_, others)) in alone.iter().zip(&several) {
            assert!(bits == others, "{name} with {threads} threads");
        }
    }
}

#[test]
fn threads_change_no_bit_in_f32() {
    threads_change_no_bit::<f32>();
}

#[test]
fn threads_change_no_bit_in_f64() {
    threads_change_no_bit::<f64>();
}

/// The environment variable of a process that prints its results.
const TASK: &str = "ATTN_THREADS_TASK";

/// The prefix of such a line.
const LINE: &str = "computed ";

/// The lines of this test in a process whose pool has the size in its environment.
fn lines_of_a_process(threads: usize) -> Vec<String> {
    let program = std::env::current_exe().unwrap();
    let output = Command::new(program)
        .args([
            "threads::processes_of_any_number_of_threads_compute_the_same",
            "--exact",
            "--nocapture",
        ])
        .env(TASK, "")
        .env("RAYON_NUM_THREADS", threads.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    let lines = said.lines().filter_map(|line| line.strip_prefix(LINE));
    let (pool, lines): (Vec<_>, Vec<_>) = lines
        .map(str::to_owned)
        .partition(|line| line.starts_with("by "));
    assert_eq!(pool, [format!("by {threads} threads")]);
    // Logits, loss and gradients, of both types.
    assert!(lines.len() > 50, "{lines:?}");
    lines
}

/// By default a program has the global pool, and `RAYON_NUM_THREADS` sets its size.
#[test]
fn processes_of_any_number_of_threads_compute_the_same() {
    if std::env::var_os(TASK).is_some() {
        // The test harness has begun a line.
        println!("\n{LINE}by {} threads", rayon::current_num_threads());
        let [single, double] = [compute::<f32>(), compute::<f64>()];
        for (name, bits) in single.into_iter().chain(double) {
            let mut hasher = DefaultHasher::new();
            bits.hash(&mut hasher);
            println!("{LINE}{name}: {:016x}", hasher.finish());
        }
        return;
    }
    let alone = lines_of_a_process(1);
    for threads in [2, 3] {
        for (line, expected) in lines_of_a_process(threads).iter().zip(&alone) {
            assert_eq!(line, expected, "{threads} threads");
        }
    }
}
