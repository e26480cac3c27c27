//! What is known of a mask before it runs: how much of the work it leaves.

use std::ops::Range;

use crate::kernel::attention::{Coverage, Mask};

/// The share of pairs of a query and a key that attend, over the heads of the first sequence: from 0 to 1, and 0 if there
/// are no pairs.
pub fn mask_density(mask: &dyn Mask, heads: usize, query: usize, key: usize) -> f64 {
    let attending = (0..heads).map(|h| attending(mask, h, 0..query, 0..key));
    let pairs = heads as f64 * query as f64 * key as f64;
    if pairs == 0.0 {
        return 0.0;
    }
    attending.sum::<f64>() / pairs
}

/// Rectangles of no more pairs than this are looked at one by one.
const FEW: usize = 64;

/// The number of pairs in a rectangle that attend: its halves are counted by themselves until the mask knows.
fn attending(mask: &dyn Mask, h: usize, q: Range<usize>, k: Range<usize>) -> f64 {
    let pairs = q.len() * k.len();
    if pairs == 0 {
        return 0.0;
    }
    match mask.coverage(0, h, q.clone(), k.clone()) {
        Coverage::Empty => 0.0,
        Coverage::Full => pairs as f64,
        Coverage::Partial if pairs <= FEW => {
            let pairs = q.flat_map(|q| k.clone().map(move |k| (q, k)));
            pairs.filter(|(q, k)| mask.attends(0, h, *q, *k)).count() as f64
        }
        Coverage::Partial => {
            let (cut_q, cut_k) = (halves(&q), halves(&k));
            if q.len() >= k.len() {
                cut_q.map(|q| attending(mask, h, q, k.clone())).iter().sum()
            } else {
                cut_k.map(|k| attending(mask, h, q.clone(), k)).iter().sum()
            }
        }
    }
}

fn halves(range: &Range<usize>) -> [Range<usize>; 2] {
    let middle = range.start + range.len() / 2;
    [range.start..middle, middle..range.end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::{Interval, Truth};

    /// Head 0 looks back, head 1 sees the first ten keys, head 2 nothing.
    struct ByHead;

    impl Mask for ByHead {
        fn attends(&self, _: usize, h: usize, q: usize, k: usize) -> bool {
            [k <= q, k < 10, false][h]
        }

        fn coverage(&self, _: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
            let (q, k) = (Interval::of(&q), Interval::of(&k));
            let known = [k.at_most(q), k.less(Interval::exactly(10)), Truth::False];
            known[h].coverage()
        }
    }

    const LENGTHS: [(usize, usize); 8] = [
        (0, 0),
        (0, 3),
        (3, 0),
        (1, 1),
        (47, 49),
        (100, 100),
        (49, 600),
        (300, 17),
    ];

    #[test]
    fn density_is_the_share_of_pairs() {
        for (query, key) in LENGTHS {
            for heads in 1..=3 {
                let pairs = (0..heads)
                    .flat_map(|h| (0..query).flat_map(move |q| (0..key).map(move |k| (h, q, k))));
                let (mut all, mut attending) = (0, 0);
                for (h, q, k) in pairs {
                    all += 1;
                    attending += usize::from(ByHead.attends(0, h, q, k));
                }
                let expected = if all == 0 {
                    0.0
                } else {
                    attending as f64 / all as f64
                };
                assert_eq!(mask_density(&ByHead, heads, query, key), expected);
            }
        }
    }

    #[test]
    fn long_sequences_are_counted_by_rectangles() {
        let len = 1 << 16;
        let density = mask_density(&ByHead, 1, len, len);
        assert_eq!(density, (len + 1) as f64 / (2 * len) as f64);
    }
}
