//! Which texts are a batch.

use super::{
    DataError, Position, at_least_one,
    epochs::{Epochs, epochs},
    share::Share,
};
use crate::random::{Subject, Words};

/// The number of batches among which texts of similar lengths are sought.
const WINDOW: usize = 50;

/// Batches of indices of texts, or of any other examples: an iterator of `Vec<usize>`, over one epoch if nothing else is said.
///
/// ```
/// use attn::batches::BatchSampler;
///
/// // In order, for an evaluation.
/// let batches: Vec<_> = BatchSampler::new(5, 2)?.collect();
/// assert_eq!(batches, [vec![0, 1], vec![2, 3], vec![4]]);
///
/// // Shuffled, for training.
/// let batches = BatchSampler::new(5, 2)?.shuffled(1337).drop_last().epochs(10);
/// assert_eq!(batches.count(), 20);
///
/// // Texts of similar lengths together.
/// let lengths = vec![3, 90, 4, 80];
/// for batch in BatchSampler::by_length(lengths, 2)?.shuffled(1337) {
///     assert!(batch == [1, 3] || batch == [2, 0]);
/// }
/// # Ok::<(), attn::batches::DataError>(())
/// ```
///
/// PyTorch: `BatchSampler(RandomSampler(data), batch_size, drop_last)`; by length, the `group_by_length` of Hugging Face's trainer.
#[derive(Clone, Debug)]
pub struct BatchSampler {
    count: usize,
    size: usize,
    seed: Option<u64>,
    lengths: Option<Vec<usize>>,
    window: usize,
    drop_last: bool,
    epochs: Epochs<usize>,
}

impl BatchSampler {
    /// Batches of `size` of the indices below `count`, in their order. The last one may be smaller.
    ///
    /// # Errors
    /// [`DataError::Zero`] if `size` is 0.
    pub fn new(count: usize, size: usize) -> Result<Self, DataError> {
        at_least_one("the number of texts in a batch", size)?;
        Ok(Self {
            count,
            size,
            seed: None,
            lengths: None,
            window: WINDOW,
            drop_last: false,
            epochs: Epochs::new(),
        })
    }

    /// Batches of texts of similar lengths, so that little of a batch is padding. The order is cut into windows of 50 batches, the texts in
    /// a window are sorted by length, longest first, and cut into batches. If it is [`shuffled`](Self::shuffled), these come in a random
    /// order, so that lengths do not rise and fall with the step.
    ///
    /// # Errors
    /// [`DataError::Zero`] if `size` is 0.
    #[doc(alias("group_by_length", "bucket"))]
    pub fn by_length(lengths: Vec<usize>, size: usize) -> Result<Self, DataError> {
        let sampler = Self::new(lengths.len(), size)?;
        Ok(Self {
            lengths: Some(lengths),
            ..sampler
        })
    }

    /// The number of batches in a window of [`by_length`](Self::by_length). A small one leaves more to chance, a large one has less padding.
    pub fn window(mut self, batches: usize) -> Self {
        self.window = batches.max(1);
        self.epochs.plan_again();
        self
    }

    epochs!(size);

    /// The number of batches of an epoch.
    pub fn batches(&self) -> usize {
        match self.drop_last {
            true => self.count / self.size,
            false => self.count.div_ceil(self.size),
        }
    }

    /// The batches of an epoch.
    fn plan(&self, epoch: u64) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.count).collect();
        if let Some(seed) = self.seed {
            Words::new(seed, Subject::Texts, epoch).shuffle(&mut order);
        }
        if let Some(lengths) = &self.lengths {
            for window in order.chunks_mut(self.size.saturating_mul(self.window)) {
                window.sort_by_key(|index| std::cmp::Reverse(lengths[*index]));
            }
        }
        let mut batches: Vec<Vec<usize>> = order.chunks(self.size).map(Vec::from).collect();
        batches.truncate(self.batches());
        if let (Some(seed), true) = (self.seed, self.lengths.is_some()) {
            Words::new(seed, Subject::Batches, epoch).shuffle(&mut batches);
        }
        batches
    }
}

impl Iterator for BatchSampler {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        // The plan reads the settings, and the epochs change.
        let mut epochs = std::mem::replace(&mut self.epochs, Epochs::new());
        let batch = epochs.next(|epoch| self.plan(epoch)).map(Vec::from);
        self.epochs = epochs;
        batch
    }
}
