//! Passes over the texts of a list.

use super::share::Share;

/// Where an iterator over epochs stands: two numbers to save with a checkpoint, `<[u64; 2]>::from(position)`.
///
/// ```
/// use attn::batches::{BatchSampler, Position};
///
/// let sampler = || Ok::<_, attn::batches::DataError>(BatchSampler::new(100, 8)?.shuffled(7).endless());
/// let mut first = sampler()?;
/// first.by_ref().take(30).for_each(drop);
/// let saved: [u64; 2] = first.position().into();
/// assert_eq!(saved, [2, 4]);
///
/// let resumed = sampler()?.at(Position::from(saved));
/// assert!(resumed.take(50).eq(first.take(50)));
/// # Ok::<(), attn::batches::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The number of the epoch, from 0.
    pub epoch: u64,
    /// The number of batches of this epoch so far.
    pub batch: u64,
}

impl From<Position> for [u64; 2] {
    fn from(position: Position) -> Self {
        [position.epoch, position.batch]
    }
}

impl From<[u64; 2]> for Position {
    fn from([epoch, batch]: [u64; 2]) -> Self {
        Self { epoch, batch }
    }
}

/// An iterator over the batches of epochs, each of which has a plan that is a function of its number.
#[derive(Clone, Debug)]
pub(super) struct Epochs<Row> {
    pub(super) position: Position,
    /// `None` is no end.
    pub(super) count: Option<u64>,
    /// The batches of the epoch of the position.
    plan: Option<Vec<Vec<Row>>>,
    pub(super) share: Share,
}

impl<Row> Epochs<Row> {
    /// One epoch.
    pub(super) fn new() -> Self {
        Self {
            position: Position::default(),
            count: Some(1),
            plan: None,
            share: Share::ALL,
        }
    }

    pub(super) fn move_to(&mut self, position: Position) {
        self.position = position;
        self.plan = None;
    }

    /// After a change of the settings.
    pub(super) fn plan_again(&mut self) {
        self.plan = None;
    }

    /// The own rows of the next batch, if there is one.
    pub(super) fn next(&mut self, plan: impl Fn(u64) -> Vec<Vec<Row>>) -> Option<&[Row]> {
        loop {
            let Position { epoch, batch } = self.position;
            if self.count.is_some_and(|count| epoch >= count) {
                self.plan = None;
                return None;
            }
            let batches = self.plan.get_or_insert_with(|| plan(epoch)).len();
            if batches == 0 {
                return None;
            }
            if batch < batches as u64 {
                break;
            }
            self.move_to(Position {
                epoch: epoch.saturating_add(1),
                batch: 0,
            });
        }
        let batch = self.position.batch as usize;
        self.position.batch += 1;
        let batch = self.plan.as_ref()?.get(batch)?;
        Some(&batch[self.share.of(batch.len())])
    }
}

/// The methods of an iterator over epochs.
macro_rules! epochs {
    ($($batch_size:tt)*) => {
        /// The part of each batch that a rank of several has. All ranks together have the batches of one process, in the order of the ranks, however
        /// many of them there are; a [`position`](Self::position) is of all of them, too.
        ///
        /// The last batch of an epoch may have fewer rows than ranks. Some of them have an empty part then, which a
        /// [trainer](crate::train::Trainer::across) takes as it takes the others; [`drop_last`](Self::drop_last) leaves the batch out.
        ///
        /// ```
        /// use attn::batches::BatchSampler;
        ///
        /// let all = || BatchSampler::new(7, 3);
        /// assert!(all()?.eq([vec![0, 1, 2], vec![3, 4, 5], vec![6]]));
        /// assert!(all()?.of_rank(0, 2)?.eq([vec![0], vec![3], vec![]]));
        /// assert!(all()?.of_rank(1, 2)?.eq([vec![1, 2], vec![4, 5], vec![6]]));
        /// # Ok::<(), attn::batches::DataError>(())
        /// ```
        ///
        /// PyTorch: `DistributedSampler(num_replicas=ranks, rank=rank)`.
        ///
        /// # Errors
        /// [`DataError::Ranks`] if there are more ranks than rows in a full batch; [`DataError::Rank`] if there is no such rank.
        #[doc(alias("DistributedSampler", "num_replicas"))]
        pub fn of_rank(mut self, rank: usize, ranks: usize) -> Result<Self, DataError> {
            self.epochs.share = Share::new(rank, ranks, self.$($batch_size)*)?;
            Ok(self)
        }

        /// Another order in every epoch, which the seed decides.
        pub fn shuffled(mut self, seed: u64) -> Self {
            self.seed = Some(seed);
            self.epochs.plan_again();
            self
        }

        /// Leaves out a batch that is smaller than the others.
        pub fn drop_last(mut self) -> Self {
            self.drop_last = true;
            self.epochs.plan_again();
            self
        }

        /// So many epochs, where one is the default.
        pub fn epochs(mut self, count: u64) -> Self {
            self.epochs.count = Some(count);
            self
        }

        /// Epochs without an end.
        pub fn endless(mut self) -> Self {
            self.epochs.count = None;
            self
        }

        /// Where it stands.
        pub fn position(&self) -> Position {
            self.epochs.position
        }

        /// Goes on at the position of another one, with the same texts and settings.
        pub fn at(mut self, position: Position) -> Self {
            self.epochs.move_to(position);
            self
        }
    };
}
pub(super) use epochs;
