//! The same over MPI: `.ci/ranks` starts it on several ranks, and on ranks that end.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]
#![allow(missing_docs)]

mod operations;
mod training;

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use attn::{
    dfdx::prelude::*,
    train::{
        AdamWConfig, Alone, Collective, CollectiveError, Mpi, MuonConfig, Threads, TrainError,
    },
};
use training::{Dropping, Gpt, How, Model, assert_same, batch, of_gpt, steps, steps_in_a_way};

type Failure = TrainError<CpuError>;

/// The rank of this process, which has several trainers, one after the other.
type Shared = Arc<Mutex<Mpi>>;

fn main() -> Result<(), Failure> {
    let ranks = Mpi::new()?;
    match std::env::var("ATTN_RANKS").as_deref() {
        Ok("stays") => stays(ranks).map_err(Failure::from),
        Ok(how) => ends(ranks, how),
        Err(_) => works(ranks),
    }
}

fn works(mut ranks: Mpi) -> Result<(), Failure> {
    operations::run(&mut ranks)?;
    let ranks: Shared = Arc::new(Mutex::new(ranks));
    let make = |model: Dropping<f64, Cpu>| model.trainer(AdamWConfig::default()).seed(3);
    let expected = steps(Alone::default(), make, 50)?;
    let found = steps(ranks.clone(), make, 50)?;
    assert_same(&found, &expected, 1e-12);
    // Its settings have a function, which is at another address in each process.
    let with_muon = |model: Gpt<f64, Cpu>| model.trainer(MuonConfig::default());
    let expected = steps(Alone::default(), with_muon, 5)?;
    assert_same(&steps(ranks.clone(), with_muon, 5)?, &expected, 1e-11);
    early_is_late(&ranks)?;
    println!("rank {} of {}: 50 steps", ranks.rank(), ranks.ranks());
    Ok(())
}

/// Gradients that are exchanged while others are computed give the same bits, and so do threads in place of processes.
fn early_is_late(ranks: &Shared) -> Result<(), Failure> {
    for (batches, is_bf16) in [(1, false), (3, false), (1, true), (3, true)] {
        let run = |ranks: Box<dyn Collective>, how: How, bucket: usize| {
            let model = Gpt::<f64, Cpu>::with_seed(ranks.rank() as u64);
            let trainer = model.trainer(AdamWConfig::default()).across(ranks);
            let mut trainer = trainer.bf16_gradients(is_bf16).bucket_bytes(bucket);
            steps_in_a_way(&mut trainer, batches, how, of_gpt)
        };
        let mpi = || Box::new(ranks.clone());
        let expected = run(mpi(), How::Late, 1 << 20)?;
        assert!(expected[0] != expected[5]);
        // Every parameter is a bucket of its own.
        let found = run(mpi(), How::Early, 1)?;
        assert_eq!(found, expected, "{batches} batches, bf16: {is_bf16}");
        for of_thread in Threads::run(ranks.ranks(), |rank| run(Box::new(rank), How::Early, 1)) {
            let of_thread = of_thread.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            assert_eq!(of_thread, expected, "{batches} batches, bf16: {is_bf16}");
        }
    }
    Ok(())
}

/// Rank 0 fails while rank 2 sends much to rank 1, and both go on to live. Rank 1 is to hear of it.
fn stays(mut ranks: Mpi) -> Result<(), CollectiveError> {
    ranks.barrier()?;
    let rank = ranks.rank();
    if rank == 0 {
        thread::sleep(Duration::from_millis(100));
        ranks.fail("on purpose");
    } else {
        let len = |to: usize| [0, 1 << 28][usize::from(rank == 2 && to == 1)];
        let messages = (0..ranks.ranks()).map(|to| vec![1; len(to)]).collect();
        if let Err(error) = ranks.all_to_all(messages) {
            eprintln!("rank {rank}: {error}");
            if rank == 1 {
                return Err(error);
            }
        }
    }
    thread::sleep(Duration::from_secs(60));
    Ok(())
}

/// The last rank ends after two steps, in this way. The others are to name it.
fn ends(ranks: Mpi, how: &str) -> Result<(), Failure> {
    let (rank, count) = (ranks.rank(), ranks.ranks());
    let model = Dropping::<f64, Cpu>::with_seed(1);
    let mut trainer = model.trainer(AdamWConfig::default()).across(ranks);
    for number in 0..20_000 {
        if number == 2 && rank == count - 1 {
            match how {
                "panics" => panic!("on purpose"),
                "leaves" => return Ok(()),
                "kills" => std::process::abort(),
                other => panic!("how it `{other}` is unknown"),
            }
        }
        if let Err(error) = trainer.step(batch(number, 0..2)) {
            eprintln!("rank {rank}: {error}");
            return Err(error);
        }
    }
    Ok(())
}
