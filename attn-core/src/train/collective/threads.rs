//! Ranks that are threads of one process.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

use super::{
    Message,
    link::{self, Broken, End, Link, Sequence},
};

/// A rank of several threads of this process. Messages are handed over without a copy.
///
/// It is for tests of programs that run on several machines, which need no MPI then. For speed a program on one machine needs one rank
/// alone, whose operations are on all threads.
///
/// ```
/// use attn::{prelude::*, train::{SgdConfig, Threads}};
///
/// model! {
///     struct Regression<d = 2>;
///     fn forward(x: [batch, d]) -> [batch, 1] { linear::<1>(x) }
///     fn loss(x: [batch, d], target: [batch, 1]) -> [] { mean::<[batch, 1]>(pow(forward(x) - target, 2)) }
/// }
///
/// // Each rank has its part of the batch; both have the loss of all rows.
/// let losses = Threads::run(2, |rank| {
///     let dev = Cpu::default();
///     let mut trainer = dev.build_module::<Regression, f32>().trainer(SgdConfig::default()).across(rank);
///     let x: Tensor<Rank2<4, 2>, f32, _> = dev.sample_normal();
///     let target: Tensor<Rank2<4, 1>, f32, _> = dev.sample_normal();
///     trainer.step((x, target)).map(|step| step.loss)
/// });
/// let losses: Vec<_> = losses.into_iter().map(|loss| loss.expect("no rank panics").unwrap()).collect();
/// assert_eq!(losses[0], losses[1]);
/// ```
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    shared: Arc<Shared>,
    sequence: Sequence,
}

#[derive(Debug)]
struct Shared {
    /// The messages that nobody has received: to a rank, from a rank.
    inboxes: Mutex<Vec<Vec<VecDeque<Message>>>>,
    changed: Condvar,
}

impl Shared {
    fn inboxes(&self) -> MutexGuard<'_, Vec<Vec<VecDeque<Message>>>> {
        self.inboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Threads {
    /// So many ranks, in their order.
    pub fn new(ranks: usize) -> Vec<Self> {
        let shared = Arc::new(Shared {
            inboxes: Mutex::new(vec![vec![VecDeque::new(); ranks]; ranks]),
            changed: Condvar::new(),
        });
        let rank = |rank| Self {
            rank,
            shared: Arc::clone(&shared),
            sequence: Sequence::default(),
        };
        (0..ranks).map(rank).collect()
    }

    /// Calls `run` on a thread for each of so many ranks, and returns what these return, or what they panicked with.
    pub fn run<R: Send>(ranks: usize, run: impl Fn(Self) -> R + Sync) -> Vec<thread::Result<R>> {
        let run = &run;
        thread::scope(|scope| {
            let threads = Self::new(ranks).into_iter();
            let threads = threads.map(|rank| scope.spawn(move || run(rank)));
            let threads: Vec<_> = threads.collect();
            let results = threads.into_iter();
            results.map(|thread| thread.join()).collect()
        })
    }
}

impl Link for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.shared.inboxes().len()
    }

    fn sequence(&mut self) -> &mut Sequence {
        &mut self.sequence
    }

    fn post(&mut self, messages: Vec<Message>) {
        let mut inboxes = self.shared.inboxes();
        for (inbox, message) in inboxes.iter_mut().zip(messages) {
            inbox[self.rank].push_back(message);
        }
        inboxes[self.rank][self.rank].clear();
        self.shared.changed.notify_all();
    }

    fn receive(&mut self) -> Result<Vec<Option<Message>>, Broken> {
        let mut inboxes = self.shared.inboxes();
        loop {
            let inbox = &mut inboxes[self.rank];
            let others = || {
                (0..)
                    .zip(inbox.iter())
                    .filter(|(from, _)| *from != self.rank)
            };
            let mut ends = others().filter_map(|(rank, queue)| {
                let end = queue.front()?.end()?;
                Some(Broken { rank, end })
            });
            // A rank that failed is the reason why another one left.
            let first = ends.next();
            if let Some(broken) = ends
                .find(|broken| matches!(broken.end, End::Failed { .. }))
                .filter(|_| matches!(first, Some(Broken { end: End::Left, .. })))
                .or(first)
            {
                return Err(broken);
            }
            if others().all(|(_, queue)| !queue.is_empty()) {
                return Ok(inbox.iter_mut().map(VecDeque::pop_front).collect());
            }
            let changed = self.shared.changed.wait(inboxes);
            inboxes = changed.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        link::leave(self);
    }
}

link::collective!(Threads, |this| &this.sequence);
