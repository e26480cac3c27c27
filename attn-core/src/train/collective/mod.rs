//! The ranks of a run, and what they say to each other.

mod error;
mod link;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(any(test, feature = "mpi"))]
mod peers;
mod processes;
mod program;
mod threads;

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use error::CollectiveError;
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use processes::processes;
pub(super) use program::program;
pub use threads::Threads;

/// The ranks that train one model together: processes, or threads of one. PyTorch: a process group of `torch.distributed`.
///
/// [`Alone`] is a run of one rank, [`Threads`] are ranks of one process, and `Mpi`, behind the feature `mpi`, those that `mpirun` started.
/// [`Trainer::across`](super::Trainer::across) takes one.
///
/// All ranks call the same operations in the same order. In each, every rank sends a message to every other one, which says what it calls:
/// so a rank that calls something else, has left or has failed is an error of the others that names it, and nobody waits forever. Behind such
/// an error, all operations return it again. Behind [`CollectiveError::Length`] and [`CollectiveError::Differs`], which are of what messages
/// say, they go on.
///
/// [`begin`](Self::begin) sends, and [`wait`](Self::wait) receives; work between the two is done at the same time. The other methods do both.
/// Sums are in the order of the ranks, so all ranks have the same bits, in every run.
///
/// Several trainers of a rank, such as those of a generator and a discriminator, share it as an `Arc<Mutex<_>>`.
///
/// ```
/// use attn::train::{Collective, Threads};
///
/// let sums = Threads::run(3, |mut ranks| ranks.sum(&[1.0, ranks.rank() as f64]));
/// for sum in sums {
///     assert_eq!(sum.expect("no rank panics")?, [3.0, 3.0]);
/// }
/// # Ok::<(), attn::train::CollectiveError>(())
/// ```
#[doc(alias("ProcessGroup", "torch.distributed", "nccl", "gloo", "world_size"))]
pub trait Collective: Send {
    /// The number of this rank, from 0. PyTorch: `dist.get_rank()`.
    fn rank(&self) -> usize;

    /// How many ranks there are. PyTorch: `dist.get_world_size()`.
    #[doc(alias = "get_world_size")]
    fn ranks(&self) -> usize;

    /// Begins an operation: sends to every other rank.
    ///
    /// # Errors
    /// That of an earlier operation.
    fn begin(&mut self, call: Call, send: Outgoing) -> Result<Pending, CollectiveError>;

    /// Ends an operation: the messages of all ranks in their order, with the own one among them. Operations that began earlier may be
    /// waited for later.
    ///
    /// # Errors
    /// A rank that fails, leaves, or calls something else.
    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError>;

    /// Ends the run of all ranks: the next [`wait`](Self::wait) of every other one is an error with this rank and the reason.
    #[doc(alias = "abort")]
    fn fail(&mut self, reason: &str);

    /// The bytes of the messages that this rank has sent to others so far. Each message has [`HEADER`](Message::HEADER) bytes more.
    fn bytes_sent(&self) -> u64;

    /// The time in which this rank has had nothing to do but to wait for messages of others so far.
    fn waited(&self) -> Duration;

    /// Sends a message to each rank, and returns those of all ranks to this one. PyTorch: `dist.all_to_all`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If there are not as many messages as ranks.
    fn all_to_all(&mut self, messages: Vec<Vec<u8>>) -> Result<Vec<Message>, CollectiveError> {
        let pending = self.begin(Call::AllToAll, Outgoing::Each(messages))?;
        self.wait(pending)
    }

    /// Returns the messages of all ranks, which may have different lengths. PyTorch: `dist.all_gather`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn all_gather(&mut self, message: Vec<u8>) -> Result<Vec<Message>, CollectiveError> {
        let pending = self.begin(Call::AllGather, Outgoing::Same(message))?;
        self.wait(pending)
    }

    /// Returns the message of the rank `root`, that of the others being ignored. PyTorch: `dist.broadcast`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// If there is no such rank.
    fn broadcast(&mut self, root: usize, message: Vec<u8>) -> Result<Message, CollectiveError> {
        let ranks = self.ranks();
        assert!(root < ranks, "there is no rank {root} of {ranks}");
        let message = if self.rank() == root {
            message
        } else {
            Vec::new()
        };
        let pending = self.begin(Call::Broadcast { root }, Outgoing::Same(message))?;
        Ok(self.wait(pending)?.swap_remove(root))
    }

    /// The sums of numbers over all ranks, in the order of the ranks. PyTorch: `dist.all_reduce`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`CollectiveError::Length`] if a rank has another number of them.
    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>, CollectiveError> {
        let mut sums = vec![0.0; numbers.len()];
        for of_rank in self.gather_numbers(numbers)? {
            for (sum, number) in sums.iter_mut().zip(of_rank) {
                *sum += number;
            }
        }
        Ok(sums)
    }

    /// The numbers of all ranks.
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    fn gather_numbers(&mut self, numbers: &[f64]) -> Result<Vec<Vec<f64>>, CollectiveError> {
        let message = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let pending = self.begin(Call::Numbers, Outgoing::Same(message))?;
        let mut all = Vec::with_capacity(self.ranks());
        for (rank, message) in self.wait(pending)?.iter().enumerate() {
            let expected = size_of_val(numbers);
            message.check_len(rank, Call::Numbers, expected)?;
            let (numbers, _) = message.as_chunks();
            all.push(numbers.iter().map(|x| f64::from_le_bytes(*x)).collect());
        }
        Ok(all)
    }

    /// Waits until all ranks are here. PyTorch: `dist.barrier()`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    fn barrier(&mut self) -> Result<(), CollectiveError> {
        let pending = self.begin(Call::Barrier, Outgoing::Same(Vec::new()))?;
        self.wait(pending).map(drop)
    }

    /// Checks that all ranks have the same value, such as a hash of the data. `what` names it.
    ///
    /// # Errors
    /// [`CollectiveError::Differs`] on all ranks, with the first one whose value is not that of rank 0; as [`wait`](Self::wait).
    fn agree(&mut self, what: &str, value: &[u8]) -> Result<(), CollectiveError> {
        let pending = self.begin(Call::Agree, Outgoing::Same(value.to_vec()))?;
        let all = self.wait(pending)?;
        match all.iter().position(|other| **other != *all[0]) {
            None => Ok(()),
            Some(rank) => Err(CollectiveError::Differs {
                rank,
                what: what.to_owned(),
            }),
        }
    }
}

impl<C: Collective + ?Sized> Collective for Box<C> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn ranks(&self) -> usize {
        (**self).ranks()
    }

    fn begin(&mut self, call: Call, send: Outgoing) -> Result<Pending, CollectiveError> {
        (**self).begin(call, send)
    }

    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError> {
        (**self).wait(pending)
    }

    fn fail(&mut self, reason: &str) {
        (**self).fail(reason);
    }

    fn bytes_sent(&self) -> u64 {
        (**self).bytes_sent()
    }

    fn waited(&self) -> Duration {
        (**self).waited()
    }
}

/// A rank that several trainers use, one after the other: each has a clone.
impl<C: Collective + ?Sized> Collective for Arc<Mutex<C>> {
    fn rank(&self) -> usize {
        locked(self).rank()
    }

    fn ranks(&self) -> usize {
        locked(self).ranks()
    }

    fn begin(&mut self, call: Call, send: Outgoing) -> Result<Pending, CollectiveError> {
        locked(self).begin(call, send)
    }

    fn wait(&mut self, pending: Pending) -> Result<Vec<Message>, CollectiveError> {
        locked(self).wait(pending)
    }

    fn fail(&mut self, reason: &str) {
        locked(self).fail(reason);
    }

    fn bytes_sent(&self) -> u64 {
        locked(self).bytes_sent()
    }

    fn waited(&self) -> Duration {
        locked(self).waited()
    }
}

/// A rank whose user has panicked is as before: its operations end with an error where they have to.
fn locked<C: ?Sized>(ranks: &Mutex<C>) -> MutexGuard<'_, C> {
    ranks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An operation of a [`Collective`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// [`Collective::all_to_all`].
    AllToAll,
    /// [`Collective::all_gather`].
    AllGather,
    /// [`Collective::broadcast`].
    Broadcast {
        /// The rank whose message all get.
        root: usize,
    },
    /// [`Collective::sum`], [`Collective::gather_numbers`].
    Numbers,
    /// [`Collective::barrier`].
    Barrier,
    /// [`Collective::agree`].
    Agree,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::AllToAll => write!(f, "all_to_all"),
            Call::AllGather => write!(f, "all_gather"),
            Call::Broadcast { root } => write!(f, "broadcast of rank {root}"),
            Call::Numbers => write!(f, "sum"),
            Call::Barrier => write!(f, "barrier"),
            Call::Agree => write!(f, "agree"),
        }
    }
}

/// The messages of a rank to all.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// The same to all.
    Same(Vec<u8>),
    /// One to each rank, in their order.
    Each(Vec<Vec<u8>>),
}

/// An operation that has begun: its number.
#[derive(Debug)]
#[must_use = "an operation that has begun is waited for"]
pub struct Pending(u64);

/// A message of a rank. Its bytes are shared, not copied, if it goes to several.
#[derive(Clone, Debug)]
pub struct Message(Arc<Vec<u8>>);

impl Message {
    /// The bytes that say what a message belongs to, at its end.
    pub const HEADER: usize = 24;

    /// # Errors
    /// [`CollectiveError::Length`] if the message of this rank has another number of bytes.
    pub fn check_len(
        &self,
        rank: usize,
        call: Call,
        expected: usize,
    ) -> Result<(), CollectiveError> {
        let found = self.len();
        match found == expected {
            true => Ok(()),
            false => Err(CollectiveError::Length {
                rank,
                call,
                found,
                expected,
            }),
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0[..self.0.len() - Self::HEADER]
    }
}

/// A run of one rank: all operations return at once.
///
/// ```
/// use attn::train::{Alone, Collective};
///
/// assert_eq!(Alone::default().sum(&[2.0])?, [2.0]);
/// # Ok::<(), attn::train::CollectiveError>(())
/// ```
#[derive(Debug, Default)]
pub struct Alone(link::Sequence);

impl link::Link for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn ranks(&self) -> usize {
        1
    }

    fn sequence(&mut self) -> &mut link::Sequence {
        &mut self.0
    }

    fn post(&mut self, _: Vec<Message>) {}

    fn receive(&mut self) -> Result<Vec<Option<Message>>, link::Broken> {
        Ok(vec![None])
    }
}

link::collective!(Alone, |this| &this.0);
