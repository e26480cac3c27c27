//! The same over MPI: `.ci/ranks` starts it on several ranks, and on ranks that end.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps fails where it should"
)]
#![allow(missing_docs)]

mod operations;
mod training;

use attn::{
    dfdx::prelude::*,
    train::{AdamWConfig, Alone, Collective, Mpi, TrainError},
};
use training::{Dropping, Model, assert_same, batch, steps};

type Failure = TrainError<CpuError>;

fn main() -> Result<(), Failure> {
    let ranks = Mpi::new()?;
    match std::env::var("ATTN_RANKS").as_deref() {
        Ok(how) => ends(ranks, how),
        Err(_) => works(ranks),
    }
}

fn works(mut ranks: Mpi) -> Result<(), Failure> {
    operations::run(&mut ranks)?;
    let make = |model: Dropping<f64, Cpu>| model.trainer(AdamWConfig::default()).seed(3);
    let expected = steps(Alone::default(), make, 50)?;
    let (rank, count) = (ranks.rank(), ranks.ranks());
    let found = steps(ranks, make, 50)?;
    assert_same(&found, &expected, 1e-12);
    println!("rank {rank} of {count}: 50 steps");
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
