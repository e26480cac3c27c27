//! The tiles of scores that are visited.
//!
//! Queries and keys are cut into blocks. For every pair of blocks the mask says whether it is empty, full or partial. Empty pairs
//! are never visited, and full ones are never compared with the mask. The remaining neighbours are merged into one tile, because
//! a wide product is a fast one.

use std::ops::Range;

use super::bands::Bands;
use super::{Coverage, TileMask, TileOrigin};

/// The number of queries of a tile: the most that `gemm` multiplies without copying the right side, which is the tile of keys or
/// values.
pub(super) const QUERIES: usize = 48;

/// Queries of a task that loads them, or that writes their gradients.
pub(super) const QUERIES_PER_TASK: usize = 64;

/// Keys that the mask is asked about at once.
pub(super) const BLOCK: usize = 16;

/// The maximum number of keys of a tile: a row of scores fits the first-level cache, and the tile the second.
pub(super) const TILE: usize = 512;

/// The queries of a strip: the rows of two tiles of a microkernel. They are even, as two neighbours are rounded to one pair.
const STRIP: usize = 12;

/// The same of narrow heads, whose products take little longer than their calls.
const STRIP_OF_NARROW: usize = 24;

/// Heads of fewer numbers are narrow.
const WIDE: usize = 48;

/// A query head of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The sequence.
    pub b: usize,
    /// The head.
    pub h: usize,
}

/// A block of queries with a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    pub head: Head,
    pub queries: Range<usize>,
    pub keys: Range<usize>,
    /// Bit `i` is set if the mask may hide a part of block `i` of the keys.
    partial: u64,
    bands: Bands,
}

impl Tile {
    /// The same of another head of the sequence.
    pub(super) fn of_head(&self, h: usize) -> Self {
        let head = Head { h, ..self.head };
        Self {
            head,
            ..self.clone()
        }
    }

    /// The pairs that are multiplied.
    pub(super) fn bands(&self) -> &Bands {
        &self.bands
    }

    /// The position of its first element.
    pub(super) fn origin(&self) -> TileOrigin {
        TileOrigin {
            b: self.head.b,
            h: self.head.h,
            q: self.queries.start,
            k: self.keys.start,
        }
    }

    /// The column ranges of the tile in which the mask may hide something.
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

    /// Whether the mask may hide something.
    pub(super) fn is_partial(&self) -> bool {
        self.partial != 0
    }

    /// Adds the next block of keys, if there is room. Returns whether it was added.
    fn extend(&mut self, (keys, partial): &(Range<usize>, bool)) -> bool {
        let fits = self.keys.end == keys.start && self.keys.len() + keys.len() <= TILE;
        if fits {
            self.partial |= u64::from(*partial) << (self.keys.len() / BLOCK);
            self.keys.end = keys.end;
        }
        fits
    }

    /// The bands of a tile of heads of this width.
    fn find_bands<E>(&self, mask: &dyn TileMask<E>, width: usize) -> Bands {
        let mut bands = Bands::default();
        let all = 0..self.queries.len();
        if !self.is_partial() {
            bands.push(all, 0..self.keys.len());
            return bands;
        }
        let strip = if width < WIDE { STRIP_OF_NARROW } else { STRIP };
        for queries in chunks(all, strip) {
            let keys = self.visible_keys(mask, &queries);
            bands.push(queries, keys);
        }
        bands
    }

    /// The keys from the first block to the last one that the mask does not hide from all of some queries.
    fn visible_keys<E>(&self, mask: &dyn TileMask<E>, queries: &Range<usize>) -> Range<usize> {
        let [q, k] = [self.queries.start, self.keys.start];
        let is_visible = |(block, keys): &(usize, Range<usize>)| {
            let coverage = || {
                let queries = q + queries.start..q + queries.end;
                let keys = k + keys.start..k + keys.end;
                mask.coverage(self.head.b, self.head.h, queries, keys)
            };
            let is_full = self.partial >> block & 1 == 0;
            is_full || coverage() != Coverage::Empty
        };
        let mut blocks = chunks(0..self.keys.len(), BLOCK).enumerate();
        let Some((_, first)) = blocks.find(is_visible) else {
            return 0..0;
        };
        let last = blocks.rfind(is_visible);
        first.start..last.map_or(first.end, |(_, last)| last.end)
    }
}

/// The tiles of a block of queries and a range of keys, in the order of the keys, of heads of this width. They depend only on the mask, the ranges
/// and the width.
pub(super) fn tiles<E>(
    mask: &dyn TileMask<E>,
    head: Head,
    queries: Range<usize>,
    keys: Range<usize>,
    width: usize,
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
            bands: Bands::default(),
        };
        while blocks.next_if(|block| tile.extend(block)).is_some() {}
        tile.bands = tile.find_bands(mask, width);
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
        // One coverage may settle all blocks.
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

/// The chunks of `range`, each of `size`; the last may be shorter.
pub(super) fn chunks(
    range: Range<usize>,
    size: usize,
) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
    let end = range.end;
    range
        .step_by(size)
        .map(move |start| start..(start + size).min(end))
}
