//! The earlier keys that a mask still needs.

use std::ops::Range;

use crate::kernel::attention::{Coverage, Sizes, TileMask};

/// The number of queries for which the mask is evaluated at once.
const QUERIES: usize = 16;
/// The maximum number of blocks of queries. In longer sequences a block has more queries, and at most one more block is cached
/// than necessary.
const MAX_BLOCKS: usize = 1 << 16;

/// The keys that later queries attend to: the first `kept`, and the last `window`, including that of the query itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyWindow {
    pub kept: usize,
    pub window: usize,
}

/// Coverage of rectangles in all sequences and heads.
struct MaskCoverage<'a, E> {
    mask: &'a dyn TileMask<E>,
    sequences: usize,
    heads: usize,
}

impl<E> MaskCoverage<'_, E> {
    fn coverages(&self, q: &Range<usize>, k: &Range<usize>) -> impl Iterator<Item = Coverage> {
        let heads = (0..self.sequences).flat_map(|b| (0..self.heads).map(move |h| (b, h)));
        heads.map(|(b, h)| self.mask.coverage(b, h, q.clone(), k.clone()))
    }

    /// Whether no query attends to any of the keys.
    fn ignored(&self, q: &Range<usize>, k: Range<usize>) -> bool {
        k.is_empty() || self.coverages(q, &k).all(|known| known == Coverage::Empty)
    }

    /// The first of the keys that no query attends to, by bisection.
    fn first_ignored(&self, q: &Range<usize>, k: Range<usize>) -> Option<usize> {
        if self.ignored(q, k.clone()) {
            return (!k.is_empty()).then_some(k.start);
        }
        if k.len() == 1 || self.coverages(q, &k).any(|known| known == Coverage::Full) {
            return None;
        }
        let middle = k.start + k.len() / 2;
        let first = self.first_ignored(q, k.start..middle);
        first.or_else(|| self.first_ignored(q, middle..k.end))
    }
}

impl KeyWindow {
    /// All keys of a sequence.
    pub(super) fn all(capacity: usize) -> Self {
        Self {
            kept: capacity,
            window: 0,
        }
    }

    /// The key window of a causal mask, for sequences of up to `capacity` tokens.
    ///
    /// The coverage of a rectangle is never wrong, but it may be imprecise. Then more keys are cached than necessary.
    pub(super) fn of<E>(
        mask: &dyn TileMask<E>,
        sizes: Sizes,
        sequences: usize,
        capacity: usize,
    ) -> Self {
        let coverage = MaskCoverage {
            mask,
            sequences,
            heads: sizes.heads,
        };
        let last = capacity.saturating_sub(1)..capacity;
        let Some(kept) = coverage.first_ignored(&last, 0..capacity) else {
            return Self::all(capacity);
        };
        let mut window = 0;
        let block = QUERIES.max(capacity / MAX_BLOCKS);
        for first in (0..capacity).step_by(block) {
            let end = capacity.min(first + block);
            // The keys before the window of the last query are before the windows of all queries.
            let is_enough = |window: usize| {
                let keys = kept..(end.saturating_sub(window)).max(kept);
                coverage.ignored(&(first..end), keys)
            };
            if !is_enough(window) {
                let mut less = window;
                let mut more = end;
                while more - less > 1 {
                    let middle = less + (more - less) / 2;
                    if is_enough(middle) {
                        more = middle;
                    } else {
                        less = middle;
                    }
                }
                window = more;
            }
        }
        Self { kept, window }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::kernel::{MatrixMut, attention::TileOrigin};

    /// A mask of the first `kept` keys and the last `window`, which counts its evaluations.
    struct Window {
        kept: usize,
        window: usize,
        evaluations: AtomicUsize,
    }

    impl TileMask<f32> for Window {
        fn coverage(&self, _: usize, _: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
            self.evaluations.fetch_add(1, Ordering::Relaxed);
            let Self { kept, window, .. } = *self;
            let some = k.start < kept || k.end + window > q.start + 1;
            let every = k.end <= kept || k.start + window >= q.end;
            match (some && k.start < q.end, every && k.end <= q.start + 1) {
                (false, _) => Coverage::Empty,
                (true, true) => Coverage::Full,
                (true, false) => Coverage::Partial,
            }
        }

        fn hide(&self, _: TileOrigin, _: &mut MatrixMut<'_, f32>) {
            unreachable!("nothing is computed")
        }
    }

    fn key_window(kept: usize, window: usize, capacity: usize) -> (KeyWindow, usize) {
        let mask = Window {
            kept,
            window,
            evaluations: AtomicUsize::new(0),
        };
        let sizes = Sizes {
            batch: 1,
            heads: 2,
            kv_heads: 2,
            query: capacity,
            key: capacity,
            width: 4,
            value_width: 4,
        };
        let found = KeyWindow::of(&mask, sizes, 1, capacity);
        (found, mask.evaluations.into_inner())
    }

    #[test]
    fn key_windows_of_masks_are_found() {
        for (kept, window) in [(0, 5), (3, 40), (0, 300), (7, 1)] {
            let (found, _) = key_window(kept, window, 1000);
            assert_eq!(found.kept, kept);
            // The window of a block of queries is that of its last query, plus the block.
            assert!(
                (window..window + QUERIES).contains(&found.window),
                "{found:?}"
            );
        }
        assert_eq!(key_window(0, 1000, 1000).0, KeyWindow::all(1000));
    }

    #[test]
    fn the_number_of_mask_evaluations_is_bounded_for_long_sequences() {
        let capacity = 20_000_000;
        let (causal, evaluations) = key_window(0, capacity, capacity);
        assert_eq!(causal, KeyWindow::all(capacity));
        assert!(evaluations < 10, "{evaluations}");
        let (window, evaluations) = key_window(4, 256, capacity);
        assert_eq!(window.kept, 4);
        assert!(
            (256..256 + capacity / MAX_BLOCKS + 1).contains(&window.window),
            "{window:?}"
        );
        // Two heads for each block, and the bisections for the end of a window.
        assert!(evaluations < 3 * MAX_BLOCKS, "{evaluations}");
    }
}
