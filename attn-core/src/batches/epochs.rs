//! Passes over the texts of a list.

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
pub(super) struct Epochs<Batch> {
    pub(super) position: Position,
    /// `None` is no end.
    pub(super) count: Option<u64>,
    /// The batches of the epoch of the position.
    plan: Option<Vec<Batch>>,
}

impl<Batch> Epochs<Batch> {
    /// One epoch.
    pub(super) fn new() -> Self {
        Self {
            position: Position::default(),
            count: Some(1),
            plan: None,
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

    /// The next batch, and whether there is one.
    pub(super) fn next(&mut self, plan: impl Fn(u64) -> Vec<Batch>) -> Option<&Batch> {
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
                epoch: epoch + 1,
                batch: 0,
            });
        }
        let batch = self.position.batch as usize;
        self.position.batch += 1;
        self.plan.as_ref().and_then(|plan| plan.get(batch))
    }
}

/// The methods of an iterator over epochs.
macro_rules! epochs {
    () => {
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
