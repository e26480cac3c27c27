//! Steps of the ranks beside those of one process, in turns.

use anyhow::{Context, Result};
use attn::{
    dfdx::prelude::*,
    train::{AdamWConfig, Collective, TrainBatch, Trainable, Trainer},
};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    ranks::{Ranks, first, largest, median, seconds},
    sizes::{Size, VOCAB},
};

type Ids = Tensor<(usize, usize), usize, Cpu>;

/// What is measured of a model. All times are medians over the steps, in seconds, and of each step the longest of all ranks.
pub(crate) struct Measured {
    /// The sequences of the fixed batch of all ranks, and of the fixed batch of each.
    pub(crate) sequences: [usize; 2],
    /// One process with as many threads as there are ranks, on the batch of all ranks.
    pub(crate) process: f64,
    /// One rank of one thread alone, on the batch of one.
    pub(crate) alone: f64,
    /// The ranks on the batch of all.
    pub(crate) strong: Exchanged,
    /// The ranks, each on a batch of its own.
    pub(crate) weak: Exchanged,
    /// Forward and backward pass on all ranks at a time without exchange: the sequences of each rank, and the seconds.
    pub(crate) passes: [[f64; 2]; 2],
    /// The update of all parameters on all ranks at a time.
    pub(crate) update: f64,
}

/// Steps of several ranks.
pub(crate) struct Exchanged {
    pub(crate) step: f64,
    /// For how long a rank waits, and at most.
    pub(crate) waiting: [f64; 2],
    pub(crate) bytes: f64,
}

/// The numbers of the steps so far.
#[derive(Default)]
struct Steps {
    seconds: Vec<f64>,
    waited: Vec<f64>,
    longest: Vec<f64>,
    bytes: Vec<f64>,
}

impl Steps {
    fn measured(&self) -> Exchanged {
        Exchanged {
            step: median(&self.seconds),
            waiting: [median(&self.waited), median(&self.longest)],
            bytes: median(&self.bytes),
        }
    }
}

/// A pool with so many threads, on which kernels run.
pub(crate) fn pool(threads: usize) -> Result<ThreadPool> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.context("there are no threads")
}

/// A batch of so many sequences.
fn batch(size: &Size, sequences: usize) -> (Ids, Ids) {
    let tokens = || {
        let ids = (0..sequences * size.length).map(|i| (i * i + 7) % VOCAB);
        Cpu::default().tensor_from_vec(ids.collect(), (sequences, size.length))
    };
    (tokens(), tokens())
}

/// Measures a model on the ranks, with one step to warm up.
pub(crate) fn measure<M>(ranks: &mut Ranks, size: &Size, steps: usize) -> Result<Measured>
where
    M: BuildOnDevice<Cpu, f32>,
    M::Built: Trainable<Element = f32, Device = Cpu> + Send,
    (Ids, Ids): TrainBatch<M::Built>,
{
    let count = ranks.ranks();
    let of_all = size.batch.next_multiple_of(count);
    let few = (size.batch / 4).max(1);
    let batch = |sequences| batch(size, sequences);
    let trainer = || {
        let model = Cpu::default().build_module::<M, f32>();
        Trainer::new(model, AdamWConfig::default())
    };
    let (mut one, mut across) = (trainer(), trainer().across(ranks.clone()));
    let mut process = match ranks.rank() {
        0 => Some((pool(count)?, trainer())),
        _ => None,
    };
    let mut times: [Vec<f64>; 5] = Default::default();
    let mut exchanged: [Steps; 2] = Default::default();
    let mut expected = [0.0; 2];
    for step in 0..=steps {
        let of_process = first(ranks, expected[0], || match &mut process {
            Some((pool, trainer)) => {
                let batch = batch(of_all);
                pool.install(|| trainer.step(batch).map(drop).map_err(anyhow::Error::from))
            }
            None => Ok(()),
        })?;
        exchange(ranks, &mut across, batch(of_all / count), &mut exchanged[0])?;
        let passes_of_few = pass(ranks, &mut one, batch(few))?;
        let alone = first(ranks, expected[1], || {
            one.step(batch(size.batch))
                .map(drop)
                .map_err(anyhow::Error::from)
        })?;
        exchange(ranks, &mut across, batch(size.batch), &mut exchanged[1])?;
        let passes_of_batch = pass(ranks, &mut one, batch(size.batch))?;
        expected = [of_process, alone];
        let [[few, update], [many, _]] = [passes_of_few, passes_of_batch];
        let all = [of_process, alone, few, many, update];
        times
            .iter_mut()
            .zip(all)
            .for_each(|(all, time)| all.push(time));
        if step == 0 {
            times.iter_mut().for_each(Vec::clear);
            exchanged = Default::default();
        }
    }
    let [process, alone, of_few, of_batch, update] = times.map(|times| median(&times));
    Ok(Measured {
        sequences: [of_all, size.batch],
        process,
        alone,
        strong: exchanged[0].measured(),
        weak: exchanged[1].measured(),
        passes: [[few as f64, of_few], [size.batch as f64, of_batch]],
        update,
    })
}

/// A step of the ranks with their exchange.
fn exchange<M>(
    ranks: &mut Ranks,
    trainer: &mut Trainer<M, AdamWConfig>,
    batch: (Ids, Ids),
    steps: &mut Steps,
) -> Result<()>
where
    M: Trainable<Element = f32, Device = Cpu>,
    (Ids, Ids): TrainBatch<M>,
{
    ranks.barrier()?;
    let (waited, sent) = (ranks.waited().as_secs_f64(), ranks.bytes_sent());
    let seconds = seconds(|| trainer.step(batch).map(drop))?;
    let waited = ranks.waited().as_secs_f64() - waited;
    let sent = ranks.bytes_sent() - sent;
    let mean = ranks.sum(&[waited, sent as f64])?;
    let [seconds, longest] = largest(ranks, [seconds, waited])?;
    let count = ranks.ranks() as f64;
    steps.seconds.push(seconds);
    steps.waited.push(mean[0] / count);
    steps.longest.push(longest);
    steps.bytes.push(mean[1] / count);
    Ok(())
}

/// The seconds of the passes, and of the update, of all ranks at a time without an exchange: the means over the ranks.
fn pass<M>(
    ranks: &mut Ranks,
    trainer: &mut Trainer<M, AdamWConfig>,
    batch: (Ids, Ids),
) -> Result<[f64; 2]>
where
    M: Trainable<Element = f32, Device = Cpu>,
    (Ids, Ids): TrainBatch<M>,
{
    ranks.barrier()?;
    let passes = seconds(|| trainer.accumulate(batch).map(drop))?;
    let update = seconds(|| trainer.apply().map(drop))?;
    let sums = ranks.sum(&[passes, update])?;
    let count = ranks.ranks() as f64;
    Ok([sums[0] / count, sums[1] / count])
}
