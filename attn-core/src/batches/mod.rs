//! Batches for training: tokens of a file or in memory, as the tensors that a model takes.
//!
//! | | batches | PyTorch and others |
//! | --- | --- | --- |
//! | [`RandomBlocks`] | blocks of equal length from random places of a text, with the next tokens | nanoGPT's `get_batch` |
//! | [`Blocks`] | consecutive blocks, in which every token but the first is a target once | an evaluation loop |
//! | [`TokenFile`] | such a text on the disk | `np.memmap` of nanoGPT's `.bin` |
//! | [`BatchSampler`] | which texts of a list are a batch: in order, shuffled, of similar lengths | `BatchSampler`, `group_by_length` |
//! | [`pad`], [`pad_next`], [`pad_pairs`] | texts of different lengths, with padding | `DataCollatorWithPadding`, `DataCollatorForSeq2Seq` |
//! | [`PackedBatches`] | several texts in each row, with ids of documents and positions | packing of TRL |
//!
//! [`RandomBlocks`], [`Blocks`], [`BatchSampler`] and [`PackedBatches`] are iterators. What they yield is a function of a seed and of a [`Position`] or a number, which may be saved with a checkpoint: an
//! iterator that [goes on](RandomBlocks::at) there yields the same bits.
//!
//! ```
//! use attn::{batches::{BatchSampler, RandomBlocks, pad_next}, dfdx::prelude::*};
//!
//! let dev = Cpu::default();
//! // A language model reads blocks of a long text ..
//! let text: Vec<usize> = (0..1000).map(|i| i % 10).collect();
//! for batch in RandomBlocks::new(&text, (4, 16), 1337, &dev)?.take(3) {
//!     let batch = batch?;
//!     assert_eq!(*batch.ids.shape(), (4, 16));
//!     assert_eq!(batch.targets.as_vec()[0], (batch.ids.as_vec()[0] + 1) % 10);
//! }
//!
//! // .. or short ones, those of similar lengths together.
//! let texts: Vec<Vec<usize>> = vec![vec![1, 2, 3], vec![4, 5], vec![6, 7, 8, 9], vec![1, 2]];
//! let lengths = texts.iter().map(Vec::len).collect();
//! for batch in BatchSampler::by_length(lengths, 2)?.shuffled(1337) {
//!     let batch = pad_next(batch.iter().map(|&index| &texts[index]), 0, 99, &dev)?;
//!     println!("{:?}", batch.ids.as_vec());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod epochs;
mod error;
mod pack;
mod pad;
mod sampler;
mod share;
mod token_file;
mod width;

pub use blocks::{Blocks, RandomBlocks, TokenBatch};
pub use epochs::Position;
pub use error::{BatchError, DataError};
pub use pack::{PackedBatch, PackedBatches};
pub use pad::{PaddedBatch, PaddedNext, PaddedPairs, pad, pad_next, pad_pairs};
pub use sampler::BatchSampler;
pub use token_file::{TokenFile, Tokens};
pub use width::TokenWidth;

use dfdx::tensor::{Tensor, TensorFromVec};

use crate::memory::can_allocate;

/// Ids, `[batch, seq]`.
type Ids<D> = Tensor<(usize, usize), usize, D>;

fn ids<D: TensorFromVec<usize>>(
    device: &D,
    ids: Vec<usize>,
    shape: (usize, usize),
) -> Result<Ids<D>, BatchError<D::Err>> {
    let tensor = device.try_tensor_from_vec(ids, shape);
    tensor.map_err(BatchError::Device)
}

/// Checks that so many lists of the ids of a batch fit the memory, beside a block and the token behind it.
fn check_memory(lists: usize, batch: usize, block: usize) -> Result<(), DataError> {
    let numbers = batch
        .checked_mul(lists)
        .and_then(|rows| rows.checked_mul(block))
        .and_then(|numbers| numbers.checked_add(batch))
        .and_then(|numbers| numbers.checked_add(block)?.checked_add(1));
    let bytes = numbers.and_then(|numbers| numbers.checked_mul(size_of::<usize>()));
    match can_allocate(bytes) {
        true => Ok(()),
        false => Err(DataError::BatchTooLarge { batch, block }),
    }
}

/// Checks a number of texts or tokens that a user asks for.
fn at_least_one(what: &'static str, count: usize) -> Result<(), DataError> {
    match count {
        0 => Err(DataError::Zero { what }),
        _ => Ok(()),
    }
}
