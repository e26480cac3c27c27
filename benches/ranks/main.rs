//! Steps of several ranks whose gradients are exchanged behind the backward pass, or while it goes on.
//!
//! ```sh
//! cargo bench -p attn-benches --features mpi --bench ranks --no-run
//! RAYON_NUM_THREADS=1 mpirun --bind-to none -n 2 target/release/deps/ranks-...
//! ```
//!
//! Without the feature `mpi`, two ranks are threads of one process, which share its threads for kernels. See `README.md` in the folder above.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use attn::{
    dfdx::prelude::*,
    train::{
        AdamWConfig, Call, Collective, CollectiveError, Message, Outgoing, Pending, TrainError,
        Trainer,
    },
};

#[path = "../language_model/sizes.rs"]
#[allow(dead_code, reason = "another bench has the other model")]
mod sizes;

use sizes::{MEDIUM, Medium};

type Failure = TrainError<CpuError>;
type Gpt = <Medium as BuildOnDevice<Cpu, f32>>::Built;

/// A rank that several trainers use in turn.
#[derive(Clone)]
struct Shared(Arc<Mutex<Box<dyn Collective>>>);

impl Shared {
    fn ranks(&self) -> MutexGuard<'_, Box<dyn Collective>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collective for Shared {
    fn rank(&self) -> usize {
        self.ranks().rank()
    }

    fn ranks(&self) -> usize {
        self.ranks().ranks()
    }

    fn begin(&mut self, call: Call, send: Outgoing) -> Result<Pending, CollectiveError> {
        Shared::ranks(self).begin(call, send)
    }

    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError> {
        Shared::ranks(self).wait(pending)
    }

    fn fail(&mut self, reason: &str) {
        Shared::ranks(self).fail(reason);
    }

    fn bytes_sent(&self) -> u64 {
        Shared::ranks(self).bytes_sent()
    }

    fn waited(&self) -> Duration {
        Shared::ranks(self).waited()
    }
}

/// A way to take a step, with the seconds of its steps, and of waiting in them.
struct Way {
    name: &'static str,
    trainer: Trainer<Gpt, AdamWConfig>,
    is_early: bool,
    taken: Vec<f64>,
    waited: Vec<f64>,
}

fn run(ranks: impl Collective + 'static, steps: usize) -> Result<(), Failure> {
    let mut ranks = Shared(Arc::new(Mutex::new(Box::new(ranks))));
    let way = |(name, bucket, is_early)| {
        let trainer = Cpu::default()
            .build_module::<Medium, f32>()
            .trainer(AdamWConfig::default());
        let trainer = match bucket {
            0 => trainer,
            bytes => trainer.across(ranks.clone()).bucket_bytes(bytes),
        };
        Way {
            name,
            trainer,
            is_early,
            taken: Vec::new(),
            waited: Vec::new(),
        }
    };
    let ways = [
        ("no exchange", 0, true),
        ("behind the pass, 25 MB", 25 << 20, false),
        ("behind the pass, 4 MB", 4 << 20, false),
        ("beside the pass, 25 MB", 25 << 20, true),
        ("beside the pass, 8 MB", 8 << 20, true),
        ("beside the pass, 4 MB", 4 << 20, true),
        ("beside the pass, 1 MB", 1 << 20, true),
        ("beside the pass, 256 kB", 1 << 18, true),
    ];
    let mut ways = ways.map(way);
    let batch = || (MEDIUM.tokens(), MEDIUM.tokens());
    for step in 0..=steps {
        for way in &mut ways {
            ranks.barrier()?;
            let (begin, before) = (Instant::now(), ranks.waited());
            if way.is_early {
                way.trainer.step(batch())?;
            } else {
                way.trainer.accumulate(batch())?;
                way.trainer.apply()?;
            }
            let waited = ranks.waited() - before;
            let taken = begin.elapsed();
            let all = ranks.gather_numbers(&[taken.as_secs_f64(), waited.as_secs_f64()])?;
            if step > 0 {
                let most = |at: usize| all.iter().map(|of| of[at]).fold(0.0, f64::max);
                way.taken.push(most(0));
                way.waited.push(most(1));
            }
        }
    }
    if Collective::rank(&ranks) == 0 {
        println!(
            "| gradients travel | least step, ms | median step, ms | least waiting, ms | median waiting, ms |"
        );
        println!("| --- | --- | --- | --- | --- |");
        for mut way in ways {
            way.taken.sort_by(f64::total_cmp);
            way.waited.sort_by(f64::total_cmp);
            let [taken, waited] = [way.taken, way.waited].map(|all| [all[0], all[all.len() / 2]]);
            let [taken, waited] = [taken, waited].map(|all| all.map(|time| 1e3 * time));
            println!(
                "| {} | {:.1} | {:.1} | {:.1} | {:.1} |",
                way.name, taken[0], taken[1], waited[0], waited[1]
            );
        }
    }
    Ok(())
}

#[cfg(feature = "mpi")]
fn main() -> Result<(), Failure> {
    run(attn::train::Mpi::new()?, steps())
}

#[cfg(not(feature = "mpi"))]
fn main() -> Result<(), Failure> {
    for end in attn::train::Threads::run(2, |ranks| run(ranks, steps())) {
        end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    }
    Ok(())
}

/// How many steps are taken in each way: the argument.
fn steps() -> usize {
    let mut args = std::env::args().skip(1);
    args.find_map(|arg| arg.parse().ok()).unwrap_or(5)
}
