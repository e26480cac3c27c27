//! Training on several ranks: how steps scale on this machine, and what a model of their cost predicts for a cluster.
//!
//! ```sh
//! cargo run --release --example scaling
//! mpirun --bind-to none -n 2 cargo run --release --features mpi --example scaling
//! ```
//!
//! Ranks are threads of one process, or with `mpirun` processes; each computes with one thread. Without `--bind-to none` a process may be
//! bound to one core, which the thread of MPI shares with it. Three tables are printed.
//!
//! - Steps, as medians of turns. *Strong* scaling: all ranks have one batch, beside one process with as many threads. *Weak* scaling:
//!   each rank has such a batch, beside one rank alone. The last columns are what the model of the cost predicts.
//! - What the prediction is made of: the passes by the number of sequences and the update by parameters, on all ranks at a time without
//!   an exchange; latency and bandwidth of messages; the copies in and out of them. `cost.rs` puts them together.
//! - The predicted efficiency of 8 to 1,024 ranks, each a machine with its own link, on GPTs of 124 M and 1.5 B parameters: the time of a
//!   step of one rank alone divided by that of a step of all. Products run at the rate that they have here, on every core of the rank.
//!
//! The prediction is drawn to `scaling.svg` in the folder `--out`.

mod calibrate;
mod chart;
mod cost;
mod measure;
mod models;
mod prediction;
mod ranks;
#[path = "../../benches/language_model/sizes.rs"]
#[allow(dead_code, reason = "the benches have the model in plain dfdx as well")]
mod sizes;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use anyhow::{Result, anyhow};
use attn::train::{Collective, Threads};
use clap::Parser;

use calibrate::Messages;
use cost::{Cluster, Link, Shards, Step, Work, line};
use measure::{Exchanged, Measured, pool};
use ranks::Ranks;
use sizes::{MEDIUM, Medium, SMALL, Size, Small};

/// Measures training on several ranks, and predicts it for a cluster.
#[derive(Clone, Debug, Parser)]
struct Options {
    /// Ranks as threads of this process [default: the cores of the machine, at least 2]; `mpirun` has its own number
    #[arg(long)]
    ranks: Option<usize>,
    /// Steps that are measured of each kind
    #[arg(long, default_value_t = 7)]
    steps: usize,
    /// Run the models whose name contains this: `small`, `medium`
    #[arg(long, default_value = "")]
    only: String,
    /// The small model, few steps, short messages
    #[arg(long)]
    quick: bool,
    /// Folder of the chart
    #[arg(long, default_value = "target/scaling")]
    out: PathBuf,
    /// Microseconds that a message takes in the prediction, beside its bytes
    #[arg(long, default_value_t = 10.0)]
    latency: f64,
    /// Sequences of 1,024 tokens of each rank in the prediction
    #[arg(long, default_value_t = 4)]
    sequences: usize,
    /// Cores of each rank in the prediction
    #[arg(long, value_delimiter = ',', default_values_t = [2, 32])]
    cores: Vec<usize>,
}

impl Options {
    fn runs(&self, size: &Size) -> bool {
        size.name.contains(&self.only) && !(self.quick && size.name == MEDIUM.name)
    }

    fn steps(&self) -> usize {
        if self.quick {
            self.steps.min(3)
        } else {
            self.steps
        }
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    #[cfg(feature = "mpi")]
    {
        let ranks = attn::train::Mpi::new()?;
        if ranks.ranks() > 1 {
            return on_one_thread(ranks, &options, "processes");
        }
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let count = options.ranks.unwrap_or(cores).max(2);
    let ended = Threads::run(count, |ranks| {
        on_one_thread(ranks, &options, "threads of one process")
    });
    for rank in ended {
        rank.map_err(|_| anyhow!("a rank has panicked"))??;
    }
    Ok(())
}

/// Runs a rank whose kernels have one thread.
fn on_one_thread(ranks: impl Collective + 'static, options: &Options, kind: &str) -> Result<()> {
    let mut ranks: Ranks = Arc::new(Mutex::new(Box::new(ranks)));
    pool(1)?.install(|| run(&mut ranks, options, kind))
}

fn run(ranks: &mut Ranks, options: &Options, kind: &str) -> Result<()> {
    let largest = if options.quick { 4 << 20 } else { 64 << 20 };
    let messages = calibrate::messages(ranks, largest, if options.quick { 5 } else { 9 })?;
    let is_first = ranks.rank() == 0;
    if is_first {
        println!("{} ranks as {kind}, one thread each\n", ranks.ranks());
        messages.print();
    }
    let mut measured = None;
    if options.runs(&SMALL) {
        let small = measure::measure::<Small>(ranks, &SMALL, options.steps())?;
        measured = Some(Run::new(
            &SMALL,
            Small::flops(SMALL.batch, SMALL.length),
            small,
        ));
    }
    if let Some(run) = measured.as_ref().filter(|_| is_first) {
        run.print(&messages, ranks.ranks());
    }
    if options.runs(&MEDIUM) {
        let medium = measure::measure::<Medium>(ranks, &MEDIUM, options.steps())?;
        let run = Run::new(&MEDIUM, Medium::flops(MEDIUM.batch, MEDIUM.length), medium);
        if is_first {
            run.print(&messages, ranks.ranks());
        }
        measured = Some(run);
    }
    match measured.filter(|_| is_first) {
        Some(run) => prediction::print(&run, &messages, options),
        None => Ok(()),
    }
}

impl Messages {
    fn print(&self) {
        let megabytes = |per_byte: f64| 1e-6 / per_byte;
        println!("messages between all ranks at a time");
        println!(
            "{:>12} {:>12} {:>14}",
            "bytes", "all_to_all", "MB/s per rank"
        );
        for [bytes, seconds] in &self.sizes {
            println!(
                "{bytes:>12.0} {:>9.3} ms {:>14.0}",
                1e3 * seconds,
                bytes / seconds / 1e6
            );
        }
        println!(
            "latency {:.1} us, bandwidth {:.0} MB/s; copied into messages {:.0} MB/s, added {:.0} MB/s, copied out of them {:.0} MB/s",
            1e6 * self.link.latency,
            megabytes(self.link.per_byte),
            megabytes(self.pack),
            megabytes(self.add),
            megabytes(self.read),
        );
    }
}

/// A model that was measured.
struct Run {
    size: &'static Size,
    /// Operations of the step of one batch.
    work: f64,
    lens: Vec<usize>,
    measured: Measured,
}

impl Run {
    fn new(size: &'static Size, forward: u64, measured: Measured) -> Self {
        Self {
            size,
            work: size.work(forward),
            lens: models::lens_of_size(size),
            measured,
        }
    }

    /// The operations per second of the passes of a rank, while all ranks run.
    fn rate(&self) -> f64 {
        let [_, [_, seconds]] = self.measured.passes;
        self.work / seconds
    }

    fn update_per_parameter(&self) -> f64 {
        self.measured.update / self.lens.iter().sum::<usize>() as f64
    }

    /// The work of a rank with so many sequences.
    fn work(&self, messages: &Messages, sequences: f64) -> Work {
        let [few, many] = self.measured.passes;
        let [overhead, per_sequence] = line(few, many);
        Work {
            compute: overhead + per_sequence * sequences,
            update: self.update_per_parameter(),
            pack: messages.pack,
            add: messages.add,
            read: messages.read,
        }
    }

    /// The step that is predicted for the ranks that were measured.
    fn predict(&self, messages: &Messages, ranks: usize, sequences: usize) -> Step {
        let work = self.work(messages, sequences as f64 / ranks as f64);
        let cluster = Cluster {
            ranks,
            link: messages.link,
            shards: Shards::Equal,
            // The trainer's own.
            bucket: 4 << 20,
            hidden: true,
            bf16: false,
        };
        cost::step(&self.lens, &work, &cluster)
    }

    fn print(&self, messages: &Messages, ranks: usize) {
        let Measured {
            sequences: [of_all, of_one],
            process,
            alone,
            strong,
            weak,
            passes: [[few, of_few], [many, of_many]],
            update,
        } = &self.measured;
        println!(
            "\n{}: {} layers of {}, {} parameters, sequences of {} tokens",
            self.size.name,
            self.size.layers,
            self.size.d_model,
            self.lens.iter().sum::<usize>(),
            self.size.length
        );
        println!(
            "passes of {few} sequences {:.1} ms, of {many} {:.1} ms, {:.0} GFLOP/s; update {:.2} ms",
            1e3 * of_few,
            1e3 * of_many,
            self.rate() / 1e9,
            1e3 * update
        );
        println!(
            "{:<34} {:>9} {:>10} {:>9} {:>6} {:>13} {:>11} {:>10} {:>6} {:>13}",
            "steps",
            "sequences",
            "step",
            "tokens/s",
            "times",
            "waiting, most",
            "sent a rank",
            "predicted",
            "error",
            "waiting, sent"
        );
        let reference = |name: String, sequences: usize, step: f64| {
            let tokens = (sequences * self.size.length) as f64 / step;
            println!(
                "{name:<34} {sequences:>9} {:>7.1} ms {tokens:>9.0}",
                1e3 * step
            );
        };
        let exchanged = |name: &str, sequences: usize, of: &Exchanged, beside: f64| {
            let predicted = self.predict(messages, ranks, sequences);
            let percent = |seconds: f64, step: f64| 100.0 * seconds / step;
            let [mean, most] = of.waiting.map(|waiting| percent(waiting, of.step));
            let error = percent(predicted.seconds - of.step, of.step);
            println!(
                "{:<34} {sequences:>9} {:>7.1} ms {:>9.0} {:>6.2} {:>5.1}%, {:>4.1}% {:>8.2} MB {:>7.1} ms {error:>+5.1}% {:>4.1}%, {:.2} MB{}",
                format!("{ranks} ranks, {name}"),
                1e3 * of.step,
                (sequences * self.size.length) as f64 / of.step,
                of.step / beside,
                mean,
                most,
                of.bytes / 1e6,
                1e3 * predicted.seconds,
                percent(predicted.waiting, predicted.seconds),
                predicted.bytes / 1e6,
                if error.abs() > 15.0 {
                    "  MORE THAN 15% OFF"
                } else {
                    ""
                }
            );
        };
        reference(format!("1 process of {ranks} threads"), *of_all, *process);
        exchanged("batch of all fixed", *of_all, strong, *process);
        reference("1 rank alone".into(), *of_one, *alone);
        exchanged("batch of each fixed", ranks * of_one, weak, *alone);
    }
}
