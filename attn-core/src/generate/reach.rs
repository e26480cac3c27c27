//! How much of the past a mask looks at.

use crate::kernel::attention::{Coverage, Sizes, TileMask};

/// Queries that a mask is asked about at once.
const QUERIES: usize = 16;

/// What of a sequence later queries attend to: the first `kept` keys, and the last `window` of those that there are, the
/// query's own among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub kept: usize,
    pub window: usize,
}

impl Reach {
    /// Of a mask that looks back only, for sequences of up to `capacity` tokens.
    ///
    /// What the mask says of rectangles is never wrong, but may say too little: then more is kept than need be.
    pub(super) fn of<E>(
        mask: &dyn TileMask<E>,
        sizes: Sizes,
        sequences: usize,
        capacity: usize,
    ) -> Self {
        let heads = (0..sequences).flat_map(|b| (0..sizes.heads).map(move |h| (b, h)));
        let ignored = |queries: std::ops::Range<usize>, keys: std::ops::Range<usize>| {
            keys.is_empty()
                || heads.clone().all(|(b, h)| {
                    mask.coverage(b, h, queries.clone(), keys.clone()) == Coverage::Empty
                })
        };
        let last = capacity.saturating_sub(1);
        let kept = (0..capacity).take_while(|&key| !ignored(last..capacity, key..key + 1));
        let kept = kept.count();
        let mut window = 0;
        for first in (0..capacity).step_by(QUERIES) {
            let end = capacity.min(first + QUERIES);
            // The keys before the window of the last query, and so before those of the others.
            let is_enough = |window: usize| {
                let keys = kept..(end.saturating_sub(window)).max(kept);
                ignored(first..end, keys)
            };
            if !is_enough(window) {
                let (mut less, mut more) = (window, end);
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
