//! The ranks of a measurement, which several trainers use in turn, and what is measured between them.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use attn::train::Collective;

/// Ranks of which all trainers of a rank have a clone.
pub(crate) type Ranks = Arc<Mutex<Box<dyn Collective>>>;

/// The seconds that `run` takes on rank 0, while the others sleep. They know from the last time how long: a rank that waits for a
/// message may use a core.
pub(crate) fn first(
    ranks: &mut Ranks,
    expected: f64,
    run: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    ranks.barrier()?;
    let taken = match ranks.rank() {
        0 => seconds(run)?,
        _ => {
            thread::sleep(Duration::from_secs_f64(1.2 * expected));
            0.0
        }
    };
    Ok(ranks.gather_numbers(&[taken])?[0][0])
}

/// The largest of each number over the ranks.
pub(crate) fn largest<const N: usize>(ranks: &mut Ranks, numbers: [f64; N]) -> Result<[f64; N]> {
    let all = ranks.gather_numbers(&numbers)?;
    let largest = |index: usize| all.iter().map(|of| of[index]).fold(0.0, f64::max);
    Ok(std::array::from_fn(largest))
}

/// The seconds that `run` takes.
pub(crate) fn seconds<E>(run: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The number in the middle, or the mean of the two.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        len => (sorted[(len - 1) / 2] + sorted[len / 2]) / 2.0,
    }
}
