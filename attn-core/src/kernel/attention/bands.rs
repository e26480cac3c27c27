//! The pairs of a tile that are multiplied.
//!
//! At the edge of a mask a tile has pairs that the mask hides: half of a square under a causal mask, half of two under a window. So the queries are
//! cut into strips, and a strip is multiplied with the keys from the first block to the last one of which it may see a part. Strips with the same keys
//! are one band.
//!
//! ```text
//! a row for each query             a row for each key
//!
//! ▒▒▒▒▒▒▒▒▒                        ▒▒│▒▒▒▒│  │          a product for each band, or for each run of keys with the
//! ─────────                          │▒▒▒▒│▒▒│          same queries
//!   ▒▒▒▒▒▒▒▒                         │▒▒▒▒│▒▒│
//! ```

use std::ops::Range;

use smallvec::SmallVec;

use crate::simd::{MatrixMut, Real};

/// The bands that are on the stack: a token of a session allocates nothing.
const FEW: usize = 4;

/// Some queries and some keys, each counted from the first one of the tile.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Band {
    queries: Range<usize>,
    keys: Range<usize>,
}

/// The bands of a tile: all of its queries, each in one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bands(SmallVec<[Band; FEW]>);

/// The rows of a product with the coefficients of a tile, which are weights or gradients of scores.
#[derive(Clone, Copy)]
pub(super) enum Side {
    /// A row for each query, from one for each key.
    Queries,
    /// A row for each key, from one for each query.
    Keys,
}

impl Bands {
    /// Adds the next strip of queries, with its keys.
    pub(super) fn push(&mut self, queries: Range<usize>, keys: Range<usize>) {
        match self.0.last_mut() {
            Some(last) if last.keys == keys => last.queries.end = queries.end,
            _ => self.0.push(Band { queries, keys }),
        }
    }

    /// `multiply(part, queries, keys)` for the parts of numbers of pairs, `[queries, keys]`, that are multiplied. The others get zeros.
    pub(super) fn for_each_part<E: Real>(
        &self,
        mut to: MatrixMut<'_, E>,
        mut multiply: impl FnMut(MatrixMut<'_, E>, Range<usize>, Range<usize>),
    ) {
        for Band { queries, keys } in self.0.iter().cloned() {
            let rows = to.reborrow().some_rows(queries.clone());
            let (mut before, rest) = rows.split_cols(keys.start);
            let (part, mut behind) = rest.split_cols(keys.len());
            before.fill(E::ZERO);
            behind.fill(E::ZERO);
            multiply(part, queries, keys);
        }
    }

    /// `add(part, rows, depths)` for the parts of the rows of `to`, with the depths of a product that are not all hidden from them.
    pub(super) fn for_each_rows<E>(
        &self,
        side: Side,
        mut to: MatrixMut<'_, E>,
        mut add: impl FnMut(MatrixMut<'_, E>, Range<usize>, Range<usize>),
    ) {
        let mut add = |rows: Range<usize>, depths| {
            let part = to.reborrow().some_rows(rows.clone());
            add(part, rows, depths);
        };
        match side {
            Side::Queries => {
                let bands = self.0.iter().cloned();
                bands.for_each(|Band { queries, keys }| add(queries, keys));
            }
            Side::Keys => {
                let runs = self.runs_of_keys().into_iter();
                runs.for_each(|Band { queries, keys }| add(keys, queries));
            }
        }
    }

    /// Runs of neighbouring keys, each with the queries from the first band to the last one that has them. Keys of no band are in no run.
    fn runs_of_keys(&self) -> SmallVec<[Band; 2 * FEW]> {
        let ends = self
            .0
            .iter()
            .flat_map(|band| [band.keys.start, band.keys.end]);
        let mut ends: SmallVec<[usize; 2 * FEW]> = ends.collect();
        ends.sort_unstable();
        ends.dedup();
        let runs = ends.windows(2).filter_map(|ends| {
            let keys = ends[0]..ends[1];
            let has_keys =
                |band: &&Band| band.keys.start <= keys.start && keys.end <= band.keys.end;
            let mut bands = self.0.iter().filter(has_keys);
            let first = bands.next()?;
            let last = bands.next_back().unwrap_or(first);
            let queries = first.queries.start..last.queries.end;
            Some(Band { queries, keys })
        });
        runs.collect()
    }
}
