//! The part of a rank in each batch.

use std::ops::Range;

use super::DataError;

/// Which rows of each batch a rank of several has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    rank: usize,
    ranks: usize,
}

impl Share {
    /// All of them.
    pub(super) const ALL: Self = Self { rank: 0, ranks: 1 };

    /// The rows of a rank, where a full batch has this number of rows.
    pub(super) fn new(rank: usize, ranks: usize, batch: usize) -> Result<Self, DataError> {
        if rank >= ranks {
            return Err(DataError::Rank { rank, ranks });
        }
        match batch < ranks {
            true => Err(DataError::Ranks { batch, ranks }),
            false => Ok(Self { rank, ranks }),
        }
    }

    /// The rows of this rank in a batch with this number of rows, which may be fewer than ranks. All ranks together have each row once, in their order.
    pub(super) fn of(self, rows: usize) -> Range<usize> {
        let place = |rank: usize| (rows as u128 * rank as u128 / self.ranks as u128) as usize;
        place(self.rank)..place(self.rank + 1)
    }
}
