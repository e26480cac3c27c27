//! Which tiles of scores are visited.
//!
//! A block of queries meets the keys in blocks too. The mask says of every pair of blocks whether it is empty, and then it
//! is never visited, or full, and then no element of it is compared with the mask. Neighbours that remain are merged into
//! one tile, because a wide product is a fast one.

use std::ops::Range;

use super::{Coverage, TileMask, TileOrigin};

/// Queries of a tile: as many as `gemm` multiplies with a matrix without a copy of it, which is what the tile of keys or
/// values is to a product.
pub(super) const QUERIES: usize = 48;

/// Queries of a task that loads them, or that writes their gradients.
pub(super) const QUERIES_PER_TASK: usize = 64;

/// Keys that the mask is asked about at once.
pub(super) const BLOCK: usize = 16;

/// The most keys of a tile: one row of scores fits the first cache, the tile the second.
pub(super) const TILE: usize = 512;

/// A query head of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The sequence.
    pub b: usize,
    /// The head.
    pub h: usize,
}

/// A block of queries against a run of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub head: Head,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    /// Bit `i`: the mask hides some of block `i` of the keys, perhaps.
    partial: u64,
}

impl Tile {
    /// Where its first element stands.
    pub(super) fn place(&self) -> TileOrigin {
        TileOrigin {
            b: self.head.b,
            h: self.head.h,
            q: self.queries.start,
            k: self.keys.start,
        }
    }

    /// The columns of the tile that the mask hides something of, perhaps, in runs.
    pub(super) fn partial_columns(&self) -> impl Iterator<Item = Range<usize>> {
        let mut bits = self.partial;
        let mut at = 0;
        let end = self.keys.len();
        std::iter::from_fn(move || {
            let full = bits.trailing_zeros();
            bits = bits.checked_shr(full)?;
            let partial = bits.trailing_ones();
            bits = bits.checked_shr(partial).unwrap_or(0);
            let start = at + full as usize * BLOCK;
            at = start + partial as usize * BLOCK;
            Some(start..at.min(end))
        })
    }

    /// Whether the mask hides anything, perhaps.
    pub(super) fn is_partial(&self) -> bool {
        self.partial != 0
    }

    /// Takes in a block of keys that follows, if there is room.
    fn extend(&mut self, (keys, partial): &(Range<usize>, bool)) -> bool {
        let fits = self.keys.end == keys.start && self.keys.len() + keys.len() <= TILE;
        if fits {
            self.partial |= u64::from(*partial) << (self.keys.len() / BLOCK);
            self.keys.end = keys.end;
        }
        fits
    }
}

/// The tiles of a block of queries and a range of keys, in the order of the keys. They depend on the mask and on the ranges
/// alone.
pub(super) fn tiles<E>(
    mask: &dyn TileMask<E>,
    head: Head,
    queries: Range<usize>,
    keys: Range<usize>,
) -> impl Iterator<Item = Tile> {
    let coverage = move |queries, keys| mask.coverage(head.b, head.h, queries, keys);
    let mut blocks = blocks(coverage, queries.clone(), keys).peekable();
    std::iter::from_fn(move || {
        let (keys, partial) = blocks.next()?;
        let mut tile = Tile {
            head,
            queries: queries.clone(),
            keys,
            partial: u64::from(partial),
        };
        while blocks.next_if(|block| tile.extend(block)).is_some() {}
        Some(tile)
    })
}

/// The blocks of keys that are not empty, and whether they are partial.
pub(super) fn blocks(
    coverage: impl Fn(Range<usize>, Range<usize>) -> Coverage + Copy,
    queries: Range<usize>,
    keys: Range<usize>,
) -> impl Iterator<Item = (Range<usize>, bool)> {
    chunks(keys, TILE).flat_map(move |chunk| {
        let queries = queries.clone();
        // One question may answer for all blocks.
        let whole = coverage(queries.clone(), chunk.clone());
        let visited = if whole == Coverage::Empty {
            0..0
        } else {
            chunk
        };
        chunks(visited, BLOCK).filter_map(move |block| {
            let known = match whole {
                Coverage::Partial => coverage(queries.clone(), block.clone()),
                known => known,
            };
            (known != Coverage::Empty).then_some((block, known == Coverage::Partial))
        })
    })
}

/// `range` in pieces of `size`; the last may be shorter.
pub(super) fn chunks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range
        .step_by(size)
        .map(move |start| start..(start + size).min(end))
}
