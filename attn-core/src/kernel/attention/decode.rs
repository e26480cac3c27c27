//! The decode step of attention: new queries of a sequence, and its cached keys.

use std::ops::Range;

use super::{
    Attention, Coverage, HeadTransform, KeySource, PagedRows, ScoreSums, Sizes, SumLens, TileMask,
    TileOrigin, TileScore,
};
use crate::kernel::compiled::compiled;
use crate::kernel::{Dtype, Matrix, MatrixMut};

/// The positions of new queries and cached keys in their sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    /// The index of the sequence, for masks that depend on it.
    pub sequence: usize,
    /// The position of the first query. The others follow.
    pub first: usize,
    /// The number of cached keys at the start of the sequence.
    pub kept: usize,
    /// The number of evicted keys, which follow them. The other cached keys follow these.
    pub dropped: usize,
}

impl Positions {
    /// The positions of a range of cached keys: those before the gap, and those after it.
    fn keys(self, rows: Range<usize>) -> [Range<usize>; 2] {
        let gap = self.kept.clamp(rows.start, rows.end);
        [rows.start..gap, gap + self.dropped..rows.end + self.dropped]
    }
}

compiled! {
    DecodeKernels:

    /// The output of [`Attention::forward`] for new queries of a sequence, and the logarithms of the sums, `[heads, queries]`. The cache
    /// holds its keys and values up to the last of these queries, already transformed for their positions. There is no dropout. If keys and values are
    /// in bf16, so are the other operands of the products with them: [`Dtype::Bf16`].
    ///
    /// # Panics
    /// If the shapes do not fit the widths.
    pub fn decode<E>(
        attention: &Attention<'_, E>,
        positions: Positions,
        q: Matrix<'_, E>,
        keys: PagedRows<'_, E>,
        values: PagedRows<'_, E>,
        output: MatrixMut<'_, E>,
        lse: &mut [E],
    ) {
        let sizes = Sizes {
            batch: 1,
            query: q.rows(),
            key: keys.rows(),
            ..attention.sizes
        };
        let cached = CachedTiles {
            mask: attention.mask,
            score: attention.score,
            positions,
        };
        let attention = Attention {
            sizes,
            query: attention.query.from(positions.first),
            key: HeadTransform::default(),
            value: HeadTransform::default(),
            score: attention.score.is_some().then_some(&cached as _),
            mask: &cached,
            dropout: None,
            dtype: match keys {
                PagedRows::Model(_) => attention.dtype,
                PagedRows::Bf16(_) => Dtype::Bf16,
            },
            ..*attention
        };
        attention.forward(q, KeySource::Paged(keys), KeySource::Paged(values), output, lse);
    }
}

/// The mask and the score function, on rows of queries and cached keys.
struct CachedTiles<'a, E> {
    mask: &'a dyn TileMask<E>,
    score: Option<&'a dyn TileScore<E>>,
    positions: Positions,
}

impl<E> CachedTiles<'_, E> {
    /// `body(place, part)` for the parts of a tile whose keys are consecutive.
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

impl<E: Sync> TileMask<E> for CachedTiles<'_, E> {
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

// The implementation is not generic over `E`: another crate might implement `Score` for an element type of its own.
macro_rules! score {
    ($($E:ty)*) => {$(
        impl TileScore<$E> for CachedTiles<'_, $E> {
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
