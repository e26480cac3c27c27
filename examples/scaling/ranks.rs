//! The ranks of a measurement, which several trainers use in turn, and what is measured between them.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use attn::train::{Call, Collective, CollectiveError, Message, Outgoing, Pending};

/// Ranks of which all trainers of a rank have a clone.
#[derive(Clone)]
pub(crate) struct Ranks(Arc<Mutex<Box<dyn Collective>>>);

impl Ranks {
    pub(crate) fn new(ranks: impl Collective + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(ranks))))
    }

    fn ranks_of_all(&self) -> MutexGuard<'_, Box<dyn Collective>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The seconds that `run` takes on rank 0, while the others sleep. They know from the last time how long: a rank that waits for a
    /// message may use a core.
    pub(crate) fn first(&mut self, expected: f64, run: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.barrier()?;
        let taken = match self.rank() {
            0 => seconds(run)?,
            _ => {
                thread::sleep(Duration::from_secs_f64(1.2 * expected));
                0.0
            }
        };
        Ok(self.gather_numbers(&[taken])?[0][0])
    }

    /// The largest of each number over the ranks.
    pub(crate) fn largest<const N: usize>(&mut self, numbers: [f64; N]) -> Result<[f64; N]> {
        let all = self.gather_numbers(&numbers)?;
        let largest = |index: usize| all.iter().map(|of| of[index]).fold(0.0, f64::max);
        Ok(std::array::from_fn(largest))
    }
}

/// The seconds that `run` takes.
pub(crate) fn seconds<E>(run: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed().as_secs_f64())
}

impl Collective for Ranks {
    fn rank(&self) -> usize {
        self.ranks_of_all().rank()
    }

    fn ranks(&self) -> usize {
        self.ranks_of_all().ranks()
    }

    fn begin(&mut self, call: Call, send: Outgoing) -> Result<Pending, CollectiveError> {
        self.ranks_of_all().begin(call, send)
    }

    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError> {
        self.ranks_of_all().wait(pending)
    }

    fn fail(&mut self, reason: &str) {
        self.ranks_of_all().fail(reason);
    }

    fn bytes_sent(&self) -> u64 {
        self.ranks_of_all().bytes_sent()
    }

    fn waited(&self) -> Duration {
        self.ranks_of_all().waited()
    }
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
