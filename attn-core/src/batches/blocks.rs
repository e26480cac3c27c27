//! Blocks of a long text.

use std::ops::Range;

use dfdx::tensor::{Tensor, TensorFromVec};

use super::{BatchError, DataError, Tokens, at_least_one, check_memory, ids, share::Share};
use crate::random::{Subject, Words};

/// `[batch, seq]`.
type Ids<D> = Tensor<(usize, usize), usize, D>;

/// Tokens, and the next token after each of them.
#[derive(Clone, Debug)]
pub struct TokenBatch<D: TensorFromVec<usize>> {
    /// `[batch, seq]`.
    pub ids: Tensor<(usize, usize), usize, D>,
    /// `[batch, seq]`.
    pub targets: Tensor<(usize, usize), usize, D>,
}

impl<D: TensorFromVec<usize>> TokenBatch<D> {
    /// The blocks of `seq` tokens that start at these places.
    fn read<T: Tokens>(
        tokens: &T,
        starts: impl ExactSizeIterator<Item = usize>,
        seq: usize,
        device: &D,
    ) -> Result<Self, BatchError<D::Err>> {
        let shape = (starts.len(), seq);
        let mut inputs = Vec::with_capacity(shape.0 * seq);
        let mut targets = Vec::with_capacity(shape.0 * seq);
        let mut block = vec![0; seq + 1];
        for start in starts {
            tokens.read(start, &mut block).map_err(BatchError::Data)?;
            inputs.extend(&block[..seq]);
            targets.extend(&block[1..]);
        }
        Ok(Self {
            ids: ids(device, inputs, shape)?,
            targets: ids(device, targets, shape)?,
        })
    }
}

fn check<T: Tokens>(tokens: &T, (batch, seq): (usize, usize)) -> Result<(), DataError> {
    at_least_one("the number of blocks in a batch", batch)?;
    at_least_one("the length of a block", seq).and_then(|()| match tokens.len().checked_sub(1) {
        Some(asked) if asked >= seq => Ok(()),
        _ => Err(too_short(tokens, seq)),
    })
}

fn too_short<T: Tokens>(tokens: &T, block: usize) -> DataError {
    DataError::TooShort {
        path: tokens.path().map(Into::into),
        tokens: tokens.len(),
        block,
    }
}

/// Batches of blocks from random places of a text, without an end: an iterator of [`TokenBatch`]es.
///
/// ```
/// use attn::{batches::RandomBlocks, dfdx::prelude::*};
///
/// let text: Vec<usize> = (0..100).collect();
/// let blocks = || RandomBlocks::new(&text, (2, 5), 1337, &Cpu::default());
/// let mut first = blocks()?;
/// let batch = first.next().unwrap()?;
/// let (ids, targets) = (batch.ids.as_vec(), batch.targets.as_vec());
/// assert!(ids.iter().zip(targets).all(|(id, target)| id + 1 == target));
///
/// // A resumed run goes on with the batch after it.
/// let mut resumed = blocks()?.at(first.position());
/// assert_eq!(resumed.next().unwrap()?.ids.as_vec(), first.next().unwrap()?.ids.as_vec());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// nanoGPT: `get_batch("train")`.
#[derive(Clone, Debug)]
pub struct RandomBlocks<T, D> {
    tokens: T,
    shape: (usize, usize),
    seed: u64,
    device: D,
    position: u64,
    share: Share,
}

impl<T: Tokens, D: TensorFromVec<usize>> RandomBlocks<T, D> {
    /// Batches of the shape `(batch, seq)`. Every place has the same chance.
    ///
    /// # Errors
    /// [`DataError::TooShort`] if there are less than `seq` + 1 tokens, [`DataError::Zero`] if a size is 0,
    /// [`DataError::BatchTooLarge`] if there is no memory for the ids and targets of a batch.
    pub fn new(tokens: T, shape: (usize, usize), seed: u64, device: &D) -> Result<Self, DataError> {
        check(&tokens, shape)?;
        check_memory(2, shape.0, shape.1)?;
        Ok(Self {
            tokens,
            shape,
            seed,
            device: device.clone(),
            position: 0,
            share: Share::ALL,
        })
    }

    /// The part of each batch that a rank of several has: all of them together have the batches of one process.
    ///
    /// ```
    /// use attn::{batches::RandomBlocks, dfdx::prelude::*};
    ///
    /// let text: Vec<usize> = (0..100).collect();
    /// let blocks = || RandomBlocks::new(&text, (5, 3), 1337, &Cpu::default());
    /// let all = blocks()?.next().unwrap()?.ids.as_vec();
    /// let mut parts = Vec::new();
    /// for rank in 0..2 {
    ///     parts.extend(blocks()?.of_rank(rank, 2)?.next().unwrap()?.ids.as_vec());
    /// }
    /// assert_eq!(parts, all);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// PyTorch: `DistributedSampler(num_replicas=ranks, rank=rank)`.
    ///
    /// # Errors
    /// [`DataError::Ranks`] if there are more ranks than blocks in a batch; [`DataError::Rank`] if there is no such rank.
    #[doc(alias("DistributedSampler", "num_replicas"))]
    pub fn of_rank(mut self, rank: usize, ranks: usize) -> Result<Self, DataError> {
        self.share = Share::new(rank, ranks, self.shape.0)?;
        Ok(self)
    }

    /// The number of batches so far, which is all that a resumed run needs.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes on after so many batches. `u64::MAX` is the last position, which stays.
    pub fn at(mut self, position: u64) -> Self {
        self.position = position;
        self
    }

    /// The batches as the pairs `(ids, targets)`, which a model's `loss` takes.
    pub fn pairs(
        self,
    ) -> impl Iterator<Item = Result<(Ids<D>, Ids<D>), BatchError<D::Err>>> + use<T, D> {
        self.map(|batch| batch.map(|TokenBatch { ids, targets }| (ids, targets)))
    }
}

impl<T: Tokens, D: TensorFromVec<usize>> Iterator for RandomBlocks<T, D> {
    type Item = Result<TokenBatch<D>, BatchError<D::Err>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (batch, seq) = self.shape;
        let mut words = Words::new(self.seed, Subject::Blocks, self.position);
        let places = self.tokens.len() - seq;
        let starts: Vec<_> = (0..batch).map(|_| words.below(places)).collect();
        let starts = starts[self.share.of(batch)].iter().copied();
        self.position = self.position.saturating_add(1);
        Some(TokenBatch::read(&self.tokens, starts, seq, &self.device))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// Batches of the consecutive blocks of a text, which together ask for every token but the first once: an iterator of [`TokenBatch`]es. The
/// last block may be shorter, and is a batch by itself then.
///
/// ```
/// use attn::{batches::Blocks, dfdx::prelude::*};
///
/// let text: Vec<usize> = (0..10).collect();
/// let blocks = Blocks::new(&text, (8, 4), &Cpu::default())?;
/// assert!(blocks.ranges().eq([0..4, 4..8, 8..9]));
/// let targets = blocks.map(|batch| Ok::<_, attn::batches::BatchError<_>>(batch?.targets.as_vec()));
/// assert_eq!(targets.collect::<Result<Vec<_>, _>>()?.concat(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Blocks<T, D> {
    tokens: T,
    shape: (usize, usize),
    device: D,
    /// The number of blocks that are read, spread over all.
    count: usize,
    /// The number of blocks so far.
    position: usize,
}

impl<T: Tokens, D: TensorFromVec<usize>> Blocks<T, D> {
    /// Batches of up to `batch` blocks of `seq` tokens, for a shape `(batch, seq)`.
    ///
    /// # Errors
    /// [`DataError::TooShort`] if there are less than two tokens, [`DataError::Zero`] if a size is 0.
    pub fn new(tokens: T, shape: (usize, usize), device: &D) -> Result<Self, DataError> {
        check(&tokens, (shape.0, shape.1.min(1)))?;
        let blocks = Self {
            tokens,
            shape,
            device: device.clone(),
            count: 0,
            position: 0,
        };
        Ok(Self {
            count: blocks.all(),
            ..blocks
        })
    }

    /// At most so many blocks, spread evenly over the text: for an estimate.
    pub fn spread(mut self, count: usize) -> Self {
        self.count = self.all().min(count);
        self
    }

    /// The places of the blocks.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = Range<usize>> {
        (0..self.count).map(|index| self.range(index))
    }

    /// The number of blocks so far, which is all that a resumed run needs.
    pub fn position(&self) -> u64 {
        self.position as u64
    }

    /// Goes on after so many blocks.
    pub fn at(mut self, position: u64) -> Self {
        self.position = usize::try_from(position).unwrap_or(usize::MAX);
        self
    }

    /// The number of all blocks of the text.
    fn all(&self) -> usize {
        (self.tokens.len() - 1).div_ceil(self.shape.1)
    }

    fn range(&self, index: usize) -> Range<usize> {
        let block = index as u128 * self.all() as u128 / self.count as u128;
        let start = block as usize * self.shape.1;
        let asked = self.tokens.len() - 1;
        start..asked.min(start.saturating_add(self.shape.1))
    }

    /// The batches as the pairs `(ids, targets)`, which a model's `loss` takes.
    pub fn pairs(
        self,
    ) -> impl Iterator<Item = Result<(Ids<D>, Ids<D>), BatchError<D::Err>>> + use<T, D> {
        self.map(|batch| batch.map(|TokenBatch { ids, targets }| (ids, targets)))
    }
}

impl<T: Tokens, D: TensorFromVec<usize>> Iterator for Blocks<T, D> {
    type Item = Result<TokenBatch<D>, BatchError<D::Err>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position >= self.count {
            return None;
        }
        let end = self.count.min(self.position.saturating_add(self.shape.0));
        let seq = self.range(self.position).len();
        // A batch has one length.
        let starts: Vec<usize> = (self.position..end)
            .map(|index| self.range(index))
            .take_while(|block| block.len() == seq)
            .map(|block| block.start)
            .collect();
        self.position += starts.len();
        let starts = starts.into_iter();
        Some(TokenBatch::read(&self.tokens, starts, seq, &self.device))
    }
}
