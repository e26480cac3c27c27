//! A sequence that goes on: new queries, and those keys of the past that are still there.

use std::ops::Range;

use super::{
    Attention, Coverage, HeadTransform, ScoreSums, Sizes, SumLens, TileMask, TileOrigin, TileScore,
};
use crate::kernel::compiled::compiled;
use crate::kernel::{Buffer, Matrix, MatrixMut};

/// Where the rows of new queries and of keys stand in their sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Which sequence it is, for masks that know several.
    pub sequence: usize,
    /// The position of the first query. The others follow.
    pub first: usize,
    /// So many keys stand at the start of the sequence.
    pub kept: usize,
    /// So many are there no more. The other keys follow them.
    pub dropped: usize,
}

impl Positions {
    /// Rows of keys as positions: those before the gap, and those behind it.
    fn keys(self, rows: Range<usize>) -> [Range<usize>; 2] {
        let gap = self.kept.clamp(rows.start, rows.end);
        [rows.start..gap, gap + self.dropped..rows.end + self.dropped]
    }
}

compiled! {
    Continues:

    /// The output of [`Attention::forward`] for new queries of a sequence, whose keys and values are there up to the last of
    /// these: prepared, by their positions. Nothing is dropped out.
    ///
    /// # Panics
    /// If the shapes do not fit the widths.
    pub fn decode<E>(
        attention: &Attention<'_, E>,
        positions: Positions,
        q: Matrix<'_, E>,
        keys: Matrix<'_, E>,
        values: Matrix<'_, E>,
        output: MatrixMut<'_, E>,
    ) {
        let sizes = Sizes {
            batch: 1,
            query: q.rows(),
            key: keys.rows(),
            ..attention.sizes
        };
        let placed = Placed {
            mask: attention.mask,
            score: attention.score,
            positions,
        };
        let attention = Attention {
            sizes,
            query: attention.query.from(positions.first),
            key: HeadTransform::default(),
            value: HeadTransform::default(),
            score: attention.score.is_some().then_some(&placed as _),
            mask: &placed,
            dropout: None,
            ..*attention
        };
        let mut lse = Buffer::uninit(sizes.heads * sizes.query);
        attention.forward(q, keys, values, output, &mut lse);
    }
}

/// The mask, and the function of the score, on rows of queries and keys.
struct Placed<'a, E> {
    mask: &'a dyn TileMask<E>,
    score: Option<&'a dyn TileScore<E>>,
    positions: Positions,
}

impl<E> Placed<'_, E> {
    /// `body(place, part)` for the parts of a tile whose keys follow each other.
    fn for_parts(
        &self,
        at: TileOrigin,
        scores: &mut MatrixMut<'_, E>,
        mut body: impl FnMut(TileOrigin, &mut MatrixMut<'_, E>),
    ) {
        let keys = at.k..at.k + scores.cols();
        let mut rest = scores.reborrow();
        for keys in self.positions.keys(keys) {
            let (mut part, others) = rest.split_cols(keys.len());
            rest = others;
            let at = TileOrigin {
                b: self.positions.sequence,
                h: at.h,
                q: at.q + self.positions.first,
                k: keys.start,
            };
            if !keys.is_empty() {
                body(at, &mut part);
            }
        }
    }
}

impl<E: Sync> TileMask<E> for Placed<'_, E> {
    fn coverage(&self, _b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        let Positions {
            sequence, first, ..
        } = self.positions;
        let q = q.start + first..q.end + first;
        let parts = self.positions.keys(k).into_iter();
        let parts = parts.filter(|keys| !keys.is_empty());
        let coverage = parts.map(|keys| self.mask.coverage(sequence, h, q.clone(), keys));
        let same = |one, other| if one == other { one } else { Coverage::Partial };
        coverage.reduce(same).unwrap_or(Coverage::Empty)
    }

    fn hide(&self, at: TileOrigin, scores: &mut MatrixMut<'_, E>) {
        self.for_parts(at, scores, |at, part| self.mask.hide(at, part));
    }
}

// Not for every `E`: another crate may have a number for which this were a `Score`.
macro_rules! score {
    ($($E:ty)*) => {$(
        impl TileScore<$E> for Placed<'_, $E> {
            fn apply(&self, at: TileOrigin, scores: &mut MatrixMut<'_, $E>) {
                if let Some(score) = self.score {
                    self.for_parts(at, scores, |at, part| score.apply(at, part));
                }
            }

            fn backward(
                &self,
                _: TileOrigin,
                _: Matrix<'_, $E>,
                _: &mut MatrixMut<'_, $E>,
                _: Option<ScoreSums<'_, $E>>,
            ) {
                unreachable!("a session takes no derivative")
            }

            fn sums(&self) -> SumLens {
                SumLens::default()
            }
        }
    )*};
}

score!(f32 f64);
