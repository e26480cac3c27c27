//! The time that the macros add to `cargo check`: crates with declarations beside an empty one, all of which depend on `attn`.
//!
//! ```sh
//! cargo bench --bench compile_time
//! ```
//!
//! See `README.md` in the folder above.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// The number of checks per crate, in turns.
const ROUNDS: usize = 7;

/// The crates are not in the workspace, and are checked in another folder.
const ROOT: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/compile_time");

fn main() -> std::io::Result<()> {
    // Criterion's arguments: run each once, or those with this in their name.
    let mut words = env::args().skip(1).filter(|word| word != "--bench");
    if words.any(|word| !"compile_time".contains(&word)) {
        return Ok(());
    }
    let cases = [
        Case::new("empty", "")?,
        Case::new("gpt", &gpt())?,
        Case::new("trained_gpt", &trained_gpt())?,
        Case::new("bodies", &bodies())?,
    ];
    let mut times = cases.each_ref().map(|_| Vec::new());
    // The first check includes the dependencies of `attn`.
    cases.iter().try_for_each(|case| case.check().map(drop))?;
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut times) {
            times.push(case.check()?);
        }
    }
    let [empty, gpt, trained_gpt, bodies] = times.map(median);
    println!("{:<36} {:>11} {:>15}", "", "cargo check", "more than empty");
    for (what, time) in [
        ("empty", empty),
        ("the GPT on the page of `model!`", gpt),
        ("the same with a loss and a trainer", trained_gpt),
        ("50 bodies", bodies),
    ] {
        let [time, more] = [time, time.saturating_sub(empty)].map(|time| time.as_secs_f64());
        println!("{what:<36} {time:>9.2} s {more:>13.2} s");
    }
    Ok(())
}

/// The first declaration of the page.
fn gpt() -> String {
    let page = include_str!("../../src/model.md");
    let start = page.find("model! {").unwrap_or_default();
    let end = page[start..]
        .find("\n}\n")
        .map_or(start, |end| start + end + 3);
    format!("use attn::model;\n\n{}", &page[start..end])
}

/// The same with a loss, and a step of its trainer.
fn trained_gpt() -> String {
    let gpt = gpt();
    let body = gpt.trim_end().strip_suffix('}').unwrap_or_default();
    format!(
        "{body}
            fn loss(tokens: ids[batch, seq], targets: ids[batch, seq]) -> [] {{
                cross_entropy(forward(tokens), targets)
            }}
        }}

        use attn::{{prelude::*, train::{{AdamWConfig, TrainError}}}};

        type Ids = Tensor<(usize, usize), usize, Cpu>;

        pub fn train(model: Gpt<f32, Cpu>, batch: (Ids, Ids)) -> Result<f64, TrainError<CpuError>> {{
            let mut trainer = model.trainer(AdamWConfig::default()).clip(1.0);
            Ok(trainer.step(batch)?.loss)
        }}"
    )
}

/// Ten bodies of each kind.
fn bodies() -> String {
    let kinds = [
        ("Mask", "fn mask(q_idx, kv_idx) { kv_idx <= q_idx }"),
        ("Window", "fn mask(q_idx, kv_idx) { kv_idx <= q_idx && q_idx - kv_idx < 256 }"),
        (
            "Alibi",
            "param slope: [heads] = alibi_slopes;
             fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }",
        ),
        ("SoftCap", "fn score(score) { 20.0 * tanh(score / 20.0) }"),
        (
            "Bias",
            "param bias: [heads, 129] = zeros;
             fn score(score, h, q_idx, kv_idx) { score + bias[h, min(max(q_idx - kv_idx, 0), 128)] }",
        ),
    ];
    let layers = kinds.iter().flat_map(|(kind, body)| {
        (0..10).map(move |number| {
            format!("pub struct {kind}{number}<heads = 8, d_model = 512> {{ {body} }}\n")
        })
    });
    format!("attn::attention! {{ {} }}", layers.collect::<String>())
}

/// A crate to check.
struct Case {
    folder: PathBuf,
    text: String,
}

impl Case {
    fn new(name: &str, text: &str) -> std::io::Result<Self> {
        let folder = Path::new(ROOT).join(name);
        let attn = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
        let manifest = format!(
            "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [dependencies]\nattn = {{ package = \"attn-dsl\", path = {attn:?} }}\n\n[workspace]\n"
        );
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("Cargo.toml"), manifest)?;
        // The lock file has the versions that the benches were built with.
        fs::copy(
            Path::new(attn).join("Cargo.lock"),
            folder.join("Cargo.lock"),
        )?;
        Ok(Self {
            folder,
            text: text.to_owned(),
        })
    }

    /// The time of a check, after its source was rewritten.
    fn check(&self) -> std::io::Result<Duration> {
        fs::write(self.folder.join("src/lib.rs"), &self.text)?;
        let before = Instant::now();
        let status = Command::new(env!("CARGO"))
            .args(["check", "--quiet", "--offline"])
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", Path::new(ROOT).join("target"))
            // The whole crate is checked, not only the changes.
            .env("CARGO_INCREMENTAL", "0")
            .status()?;
        assert!(status.success(), "{} is not checked", self.folder.display());
        Ok(before.elapsed())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
