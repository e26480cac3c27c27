//! A mask that is put together at run time.

use std::{borrow::Cow, fmt, ops::Range, sync::Arc};

use super::plan::TILE;
use super::{Coverage, TileMask, TileOrigin};
use crate::simd::{MatrixMut, Real};

/// A tensor `[batch, heads, query, key]`, some of whose axes are repeated.
#[derive(Clone, Debug)]
pub struct PairTensor<'a, V: Clone> {
    values: Cow<'a, [V]>,
    /// The distance between neighbours on every axis, 0 on those that are repeated.
    strides: [usize; 4],
}

impl<'a, V: Clone> PairTensor<'a, V> {
    /// Values of these sizes, row-major. An axis of size 1 is repeated.
    ///
    /// # Panics
    /// If there are more or fewer values.
    pub fn new(values: impl Into<Cow<'a, [V]>>, sizes: [usize; 4]) -> Self {
        let values = values.into();
        let mut strides = [0; 4];
        let mut stride = 1;
        for (axis, to) in strides.iter_mut().enumerate().rev() {
            *to = if sizes[axis] == 1 { 0 } else { stride };
            stride *= sizes[axis];
        }
        assert_eq!(values.len(), stride, "values of {sizes:?}");
        Self { values, strides }
    }

    /// The values of a query and of keys in a row: one for all of them, or one for each.
    fn row(&self, at: TileOrigin, len: usize) -> &[V] {
        let place = [at.b, at.h, at.q, at.k].into_iter().zip(self.strides);
        let first: usize = place.map(|(index, stride)| index * stride).sum();
        let len = if self.strides[3] == 0 { 1 } else { len };
        &self.values[first..][..len]
    }

    /// `body(value, element)` for every element of a row.
    pub(super) fn zip<E>(&self, at: TileOrigin, row: &mut [E], body: impl Fn(&V, &mut E)) {
        match self.row(at, row.len()) {
            [one] => row.iter_mut().for_each(|element| body(one, element)),
            each => each
                .iter()
                .zip(row)
                .for_each(|(value, element)| body(value, element)),
        }
    }
}

impl PairTensor<'_, bool> {
    /// How much of a rectangle is `true`.
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        let queries = if self.strides[2] == 0 {
            q.start..q.start + 1
        } else {
            q
        };
        let mut found = None;
        for q in queries {
            let row = self.row(
                TileOrigin {
                    b,
                    h,
                    q,
                    k: k.start,
                },
                k.len(),
            );
            let first = *found.get_or_insert(row[0]);
            if row.iter().any(|mark| *mark != first) {
                return Coverage::Partial;
            }
        }
        match found {
            Some(true) => Coverage::Full,
            _ => Coverage::Empty,
        }
    }
}

/// Writes whether a query attends to keys in a row, from `at.k` on.
pub type Attends = dyn Fn(TileOrigin, &mut [bool]) + Send + Sync;

/// A mask that is put together at run time. A query attends to a key if every part that is there lets it.
#[derive(Clone, Default)]
pub struct PairMask {
    /// A query attends to the keys up to its own position. That of query `i` is `i` plus this number.
    pub causal: Option<i64>,
    /// To so many keys before its own position at most, that one included.
    pub window: Option<usize>,
    /// To so many of the first keys, in each sequence.
    pub lengths: Option<Vec<usize>>,
    /// To the keys whose mark is `true`.
    pub marks: Option<PairTensor<'static, bool>>,
    /// To those that a function says. It is asked about each pair which the others let through or do not rule out as a tile.
    pub function: Option<Arc<Attends>>,
}

impl fmt::Debug for PairMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairMask")
            .field("causal", &self.causal)
            .field("window", &self.window)
            .field("lengths", &self.lengths)
            .field("has_marks", &self.marks.is_some())
            .field("has_function", &self.function.is_some())
            .finish()
    }
}

impl PairMask {
    /// The keys that the ranges leave to a query. Both ends grow with the query.
    fn keys(&self, b: usize, q: usize) -> Range<usize> {
        let mut start = 0;
        let mut end = usize::MAX;
        if let Some(offset) = self.causal {
            // The key after the query's position.
            let behind = usize::try_from(q as i64 + offset + 1).unwrap_or(0);
            end = behind;
            start = self
                .window
                .map_or(0, |window| behind.saturating_sub(window));
        }
        if let Some(lengths) = &self.lengths {
            end = end.min(lengths[b]);
        }
        start.min(end)..end
    }

    fn coverage_of_ranges(&self, b: usize, q: &Range<usize>, k: &Range<usize>) -> Coverage {
        let first = self.keys(b, q.start);
        let last = self.keys(b, q.end - 1);
        if k.start >= last.end || k.end <= first.start {
            Coverage::Empty
        } else if k.start >= last.start && k.end <= first.end {
            Coverage::Full
        } else {
            Coverage::Partial
        }
    }

    /// Whether a query attends to a key.
    pub fn attends(&self, at: TileOrigin) -> bool {
        let mut score = [0.0];
        self.hide_row(at, &mut score);
        score[0] == 0.0
    }

    fn hide_row<E: Real>(&self, at: TileOrigin, scores: &mut [E]) {
        let keys = self.keys(at.b, at.q);
        let [start, end] = [keys.start, keys.end].map(|key| {
            let column = key.saturating_sub(at.k);
            column.min(scores.len())
        });
        scores[..start].fill(-E::INFINITY);
        scores[end..].fill(-E::INFINITY);
        let hide = |attends: &bool, score: &mut E| {
            *score = if *attends { *score } else { -E::INFINITY };
        };
        if let Some(marks) = &self.marks {
            marks.zip(at, scores, hide);
        }
        if let Some(function) = &self.function {
            let mut attends = [false; TILE];
            for (tile, scores) in scores.chunks_mut(TILE).enumerate() {
                let attends = &mut attends[..scores.len()];
                function(at.later(0, tile * TILE), attends);
                attends.iter().zip(scores).for_each(|(a, s)| hide(a, s));
            }
        }
    }
}

impl<E: Real> TileMask<E> for PairMask {
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        let ranges = self.coverage_of_ranges(b, &q, &k);
        if ranges == Coverage::Empty {
            return Coverage::Empty;
        }
        let marks = match &self.marks {
            Some(marks) => marks.coverage(b, h, q, k),
            None => Coverage::Full,
        };
        match (ranges, marks, &self.function) {
            (_, Coverage::Empty, _) => Coverage::Empty,
            (Coverage::Full, Coverage::Full, None) => Coverage::Full,
            _ => Coverage::Partial,
        }
    }

    fn hide(&self, at: TileOrigin, scores: &mut MatrixMut<'_, E>) {
        for row in 0..scores.rows() {
            self.hide_row(at.later(row, 0), scores.row_mut(row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of part, and all of them.
    fn masks() -> Vec<PairMask> {
        let marks = |sizes: [usize; 4]| {
            let len = sizes.iter().product();
            let marks: Vec<bool> = (0..len).map(|i| i / 7 % 3 != 1).collect();
            Some(PairTensor::new(marks, sizes))
        };
        let none = PairMask::default();
        let causal = Some(0);
        let lengths = Some(vec![30, 0]);
        let function: Arc<Attends> = Arc::new(|at, to| {
            let keys = (at.k..).zip(to);
            keys.for_each(|(k, to)| *to = (k + at.q + at.h) % 5 != 0);
        });
        let mut masks = vec![none.clone()];
        for causal in [-3, 0, 20] {
            for window in [None, Some(0), Some(1), Some(9)] {
                masks.push(PairMask {
                    causal: Some(causal),
                    window,
                    ..none.clone()
                });
            }
        }
        for sizes in [[1, 1, 40, 50], [2, 1, 1, 50], [1, 3, 40, 1], [2, 3, 40, 50]] {
            masks.push(PairMask {
                marks: marks(sizes),
                ..none.clone()
            });
        }
        masks.push(PairMask {
            lengths: lengths.clone(),
            ..none.clone()
        });
        masks.push(PairMask {
            causal,
            window: Some(20),
            lengths,
            marks: marks([2, 3, 40, 50]),
            function: Some(function),
        });
        masks
    }

    #[test]
    fn coverage_agrees_with_the_pairs() {
        for mask in masks() {
            for (b, h) in (0..2).flat_map(|b| (0..3).map(move |h| (b, h))) {
                for (q, k) in (0..40)
                    .step_by(8)
                    .flat_map(|q| (0..50).step_by(10).map(move |k| (q, k)))
                {
                    let pairs = (q..q + 8).flat_map(|q| (k..k + 10).map(move |k| (q, k)));
                    let attends: Vec<_> = pairs
                        .map(|(q, k)| mask.attends(TileOrigin { b, h, q, k }))
                        .collect();
                    let found = TileMask::<f32>::coverage(&mask, b, h, q..q + 8, k..k + 10);
                    let exact = match (attends.contains(&true), attends.contains(&false)) {
                        (true, false) => Coverage::Full,
                        (false, _) => Coverage::Empty,
                        _ => Coverage::Partial,
                    };
                    // Windows without a key, and functions, may be unknown.
                    let is_known = mask.function.is_none() && mask.window != Some(0);
                    assert!(
                        found == exact || (!is_known && found == Coverage::Partial),
                        "{found:?} at {q}, {k} of {mask:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn ranges_are_those_of_their_definition() {
        for mask in masks() {
            let (Some(offset), None) = (mask.causal, &mask.function) else {
                continue;
            };
            for (q, k) in (0..40).flat_map(|q| (0..50).map(move |k| (q, k))) {
                let back = q as i64 + offset - k as i64;
                let expected = back >= 0 && mask.window.is_none_or(|n| back < n as i64);
                let at = TileOrigin { b: 0, h: 0, q, k };
                assert_eq!(mask.attends(at), expected, "{q} {k} of {mask:?}");
            }
        }
    }
}
