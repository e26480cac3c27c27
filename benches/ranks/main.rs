//! Steps of several ranks whose gradients are exchanged behind the backward pass, or while it goes on.
//!
//! ```sh
//! cargo bench -p attn-benches --features mpi --bench ranks --no-run
//! RAYON_NUM_THREADS=1 mpirun --bind-to none -n 2 target/release/deps/ranks-...
//! ```
//!
//! Each turn takes a step in every way, and prints how long they took; the table comes behind the last turn. Turns end after a minute.
//!
//! Without `mpirun`, two ranks are threads of one process, which share its threads for kernels. See `README.md` in the folder above.

use std::{
    io::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use attn::{
    dfdx::prelude::*,
    train::{AdamWConfig, Collective, TrainError, Trainer},
};

#[path = "../language_model/sizes.rs"]
#[allow(dead_code, reason = "another bench has the other model")]
mod sizes;

use sizes::{MEDIUM, Medium};

type Failure = TrainError<CpuError>;
type Gpt = <Medium as BuildOnDevice<Cpu, f32>>::Built;

/// A rank that several trainers use in turn.
type Shared = Arc<Mutex<Box<dyn Collective>>>;

/// The time after which no turn begins.
const ENOUGH: Duration = Duration::from_secs(60);

/// A way to take a step, with the seconds of its steps, of waiting in them, and of the thread that drives MPI.
struct Way {
    name: &'static str,
    trainer: Trainer<Gpt, AdamWConfig>,
    is_early: bool,
    seconds: [Vec<f64>; 3],
}

/// The seconds that the thread which drives MPI has computed, where Linux tells them.
fn driven() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let of_mpi = tasks.flatten().map(|task| task.path()).find(|task| {
        std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim_end() == "mpi")
    });
    let times = of_mpi.and_then(|task| std::fs::read_to_string(task.join("schedstat")).ok());
    let nanoseconds = times.and_then(|times| times.split(' ').next()?.parse::<f64>().ok());
    nanoseconds.map_or(f64::NAN, |nanoseconds| nanoseconds / 1e9)
}

fn run(ranks: impl Collective + 'static, steps: usize) -> Result<(), Failure> {
    let mut ranks: Shared = Arc::new(Mutex::new(Box::new(ranks)));
    let way = |(name, bucket, is_early, is_bf16)| {
        let trainer = Cpu::default()
            .build_module::<Medium, f32>()
            .trainer(AdamWConfig::default());
        let trainer = match bucket {
            0 => trainer,
            bytes => trainer.across(ranks.clone()).bucket_bytes(bytes),
        };
        let trainer = trainer.bf16_gradients(is_bf16);
        Way {
            name,
            trainer,
            is_early,
            seconds: Default::default(),
        }
    };
    let ways = [
        ("no exchange", 0, true, false),
        ("behind the pass, 4 MB", 4 << 20, false, false),
        ("beside the pass, 16 MB", 16 << 20, true, false),
        ("beside the pass, 4 MB", 4 << 20, true, false),
        ("beside the pass, 1 MB", 1 << 20, true, false),
        ("beside the pass, 4 MB, bf16", 4 << 20, true, true),
    ];
    let mut ways = ways.map(way);
    let batch = || (MEDIUM.tokens(), MEDIUM.tokens());
    let first = Collective::rank(&ranks) == 0;
    let begin = Instant::now();
    for step in 0..=steps {
        // Rank 0 looks at its clock for all.
        let is_over = f64::from(u8::from(begin.elapsed() > ENOUGH));
        if ranks.gather_numbers(&[is_over])?[0][0] > 0.0 {
            break;
        }
        if first {
            print!("turn {step}:");
        }
        for way in &mut ways {
            ranks.barrier()?;
            let (waited, driven_before) = (ranks.waited(), driven());
            let begin = Instant::now();
            if way.is_early {
                way.trainer.step(batch())?;
            } else {
                way.trainer.accumulate(batch())?;
                way.trainer.apply()?;
            }
            let taken = begin.elapsed().as_secs_f64();
            let waited = (ranks.waited() - waited).as_secs_f64();
            let all = ranks.gather_numbers(&[taken, waited, driven() - driven_before])?;
            let slowest = all.iter().map(|of| of[0]).fold(0.0, f64::max);
            if first {
                print!(" {:.0} ms", 1e3 * slowest);
                std::io::stdout().flush().ok();
            }
            if step > 0 {
                for (at, seconds) in way.seconds.iter_mut().enumerate() {
                    seconds.push(all.iter().map(|of| of[at]).fold(0.0, f64::max));
                }
            }
        }
        if first {
            println!();
        }
    }
    if first {
        println!("\nLeast and median milliseconds, of the slowest rank:\n");
        println!("| gradients travel | step | waiting | thread of MPI |");
        println!("| --- | --- | --- | --- |");
        for mut way in ways {
            let cells = way.seconds.each_mut().map(|seconds| {
                seconds.sort_by(f64::total_cmp);
                let [least, median] = [seconds.first(), seconds.get(seconds.len() / 2)]
                    .map(|seconds| 1e3 * seconds.copied().unwrap_or(f64::NAN));
                format!("{least:.1}, {median:.1}")
            });
            println!("| {} | {} |", way.name, cells.join(" | "));
        }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    #[cfg(feature = "mpi")]
    {
        let ranks = attn::train::Mpi::new()?;
        if ranks.ranks() > 1 {
            return run(ranks, steps());
        }
    }
    for end in attn::train::Threads::run(2, |ranks| run(ranks, steps())) {
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(())
}

/// How many steps are timed in each way: the argument, and one of `--test`.
fn steps() -> usize {
    let mut args = std::env::args().skip(1);
    let steps = |arg: String| match &arg[..] {
        "--test" => Some(1),
        number => number.parse().ok(),
    };
    args.find_map(steps).unwrap_or(5)
}
