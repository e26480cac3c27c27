//! The guarantees of checkpoints, tested with a small model, so that its files can be damaged in every way.

mod across;
mod contents;
mod damage;
mod folder;
mod full_disk;
mod killed;
mod python;
mod resume;
mod roundtrip;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use dfdx::{
    nn::{BuildOnDevice, modules},
    prelude::*,
};

use super::{CheckpointError, Checkpoints, Contents, LoadOptions, Problem};
use crate::{Element, train::AdamWState};

/// Weights, and the numbers of a norm beside them.
type Model = (Linear<3, 2>, LayerNorm1D<2>);
type Built<E> = (
    modules::Linear<3, 2, E, Cpu>,
    modules::LayerNorm1D<2, E, Cpu>,
);

const STRICT: LoadOptions = LoadOptions {
    convert: false,
    allow_nan: false,
};

/// A model whose numbers all depend on the seed.
fn model<E: Element>(seed: u64) -> Built<E>
where
    Cpu: Device<E>,
{
    let mut model = Model::build_on_device(&Cpu::default());
    let number = |i: usize| E::of((seed * 100) as f64 + i as f64 / 3.0);
    let mut from = 0;
    let mut fill = |tensor: &mut dyn FnMut(&[E]), len: usize| {
        tensor(&(from..from + len).map(number).collect::<Vec<_>>());
        from += len;
    };
    fill(&mut |numbers| model.0.weight.copy_from(numbers), 6);
    fill(&mut |numbers| model.0.bias.copy_from(numbers), 2);
    fill(&mut |numbers| model.1.gamma.copy_from(numbers), 2);
    fill(&mut |numbers| model.1.beta.copy_from(numbers), 2);
    model.1.epsilon = seed as f64 / 7.0;
    model
}

/// All numbers of a model.
fn numbers<E: Element>(model: &Built<E>) -> Vec<f64>
where
    Cpu: Device<E>,
{
    let (linear, norm) = model;
    let tensors = [
        linear.weight.as_vec(),
        linear.bias.as_vec(),
        norm.gamma.as_vec(),
        norm.beta.as_vec(),
    ];
    let numbers = tensors.into_iter().flatten();
    let numbers = numbers.map(|number| number.to_f64().expect("floats are f64s"));
    numbers.chain([norm.epsilon]).collect()
}

/// The state of an optimizer of that model, whose numbers all depend on the seed.
fn state(seed: u64) -> AdamWState<f32> {
    let list = |len| vec![seed as f32 + 0.1; len];
    let lens = [
        ("0.weight", 6),
        ("0.bias", 2),
        ("1.gamma", 2),
        ("1.beta", 2),
    ];
    let moments = lens.into_iter().flat_map(|(name, len)| {
        ["mean", "square"].map(|moment| (format!("{name}.{moment}"), list(len)))
    });
    AdamWState {
        step: seed,
        lists: moments.collect(),
        ..AdamWState::default()
    }
}

/// Saves a checkpoint whose numbers all depend on the seed.
fn save(
    checkpoints: &Checkpoints,
    step: u64,
    seed: u64,
    metric: Option<f64>,
) -> Result<(), CheckpointError> {
    let model = model::<f32>(seed);
    let state = state(seed);
    let contents = Contents::new()
        .model(&model)
        .optimizer(&state)
        .json("trainer_state.json", &seed);
    checkpoints.save(step, &contents, metric).map(drop)
}

/// The step and the seed of the latest checkpoint. All of its files must be complete and have the same seed.
fn latest(checkpoints: &Checkpoints) -> Option<(u64, u64)> {
    let checkpoint = checkpoints.latest().unwrap()?;
    let seed = checkpoint.json("trainer_state.json").unwrap();
    let mut found = model::<f32>(0);
    checkpoint.load_model(&mut found, STRICT).unwrap();
    assert_eq!(numbers(&found), numbers(&model::<f32>(seed)));
    let optimizer = checkpoint.load_optimizer(&found, STRICT).unwrap();
    assert_eq!(optimizer, state(seed));
    Some((checkpoint.step(), seed))
}

/// The files in a folder, hidden or not, except the lock.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != ".lock").collect();
    names.sort();
    names
}

/// The environment variable with the task of a child process.
const TASK: &str = "ATTN_CHECKPOINT_TASK";

/// The task of this process, if a test has started it.
fn task() -> Option<Vec<String>> {
    let task = std::env::var(TASK).ok()?;
    Some(task.split('\n').map(String::from).collect())
}

/// Runs one of these tests in another process, with a task. `before` is the command that starts the program.
fn run_child(before: &[&str], test: &str, task: &[&str]) -> Output {
    let program = std::env::current_exe().unwrap();
    let test = format!("checkpoint::tests::{test}");
    let words = [text(&program), &test, "--exact", "--nocapture"];
    let mut words = before.iter().copied().chain(words);
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .env(TASK, task.join("\n"))
        .output()
        .unwrap()
}

/// Fails with the output of the process, unless it succeeded and ran its test.
#[track_caller]
fn assert_success(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let ran = said.contains("1 passed");
    assert!(output.status.success() && ran, "{said}\n{complained}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn file_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("weights.safetensors")
}
