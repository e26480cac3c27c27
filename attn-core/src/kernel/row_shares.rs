//! Shares of rows, each of which a thread takes through all steps of a scan: no thread waits for another one within a step.

use std::ops::Range;

use super::parallel::{FEW_MULTIPLICATIONS, for_each, threads};
use crate::memory;

/// The numbers of weights that stay in the second-level cache of a thread from step to step.
const CACHED: usize = 256 * 1024;
/// The rows of a thread from which on it does not matter that weights are read from further away at each step.
const MANY_ROWS: usize = 8;
/// A number that an elementwise operation computes takes as long as so many multiplications.
const ELEMENTWISE: usize = 16;

/// How rows are shared among the threads.
#[derive(Clone, Copy, Debug)]
pub struct RowShares {
    rows: usize,
    count: usize,
}

/// The rows of one thread.
#[derive(Clone, Debug)]
pub struct RowShare {
    rows: Range<usize>,
    of: usize,
}

impl RowShares {
    /// The shares of a scan of so many steps. At each, a row is multiplied with so many `weights`, and so many `numbers` are computed of it.
    /// Small scans have one share, and so have those with few rows and large weights: these products are shared instead.
    pub fn new(rows: usize, steps: usize, weights: usize, numbers: usize) -> Self {
        let of_row = weights.saturating_add(numbers.saturating_mul(ELEMENTWISE));
        let all = of_row.saturating_mul(rows).saturating_mul(steps);
        let threads = threads();
        let is_one = all <= FEW_MULTIPLICATIONS
            || (weights > CACHED && rows < threads.saturating_mul(MANY_ROWS));
        Self::of(rows, if is_one { 1 } else { threads })
    }

    /// Rows in `count` shares, or in as many as there are rows.
    pub fn of(rows: usize, count: usize) -> Self {
        let count = count.min(rows).max(1);
        Self { rows, count }
    }

    fn iter(self) -> impl Iterator<Item = RowShare> {
        let bound = move |index: usize| index * self.rows / self.count;
        (0..self.count).map(move |index| RowShare {
            rows: bound(index)..bound(index + 1),
            of: self.rows,
        })
    }

    /// Calls `body` for each share with its part of each array. The arrays that it makes are counted as if all shares had theirs at once. Of
    /// several shares each runs on one thread from its begin to its end; the kernels of a single one run on all threads.
    pub fn for_each<A: Cut + Send, const N: usize>(
        self,
        arrays: [A; N],
        body: impl Fn(&RowShare, [A; N]) + Sync + Send,
    ) {
        if self.count == 1 {
            let rows = 0..self.rows;
            let of = self.rows;
            return body(&RowShare { rows, of }, arrays);
        }
        let mut rest = arrays.map(Some);
        let mut peaks = vec![0; self.count];
        let shares = self.iter().zip(&mut peaks).map(|(share, peak)| {
            let parts = rest.each_mut().map(|rest| {
                let (part, others) = match rest.take() {
                    Some(all) => all.cut(share.len(), self.rows - share.rows.start),
                    None => unreachable!("there is a rest of an array until the last share"),
                };
                *rest = Some(others);
                part
            });
            (share, parts, peak)
        });
        let shares: Vec<_> = shares.collect();
        for_each(
            shares,
            |(share, parts, peak): (RowShare, [A; N], &mut usize)| {
                *peak = memory::of_share(|| body(&share, parts));
            },
        );
        memory::at_once(peaks.iter().sum());
    }
}

/// Memory with rows, or with the same number of places for each of them.
pub trait Cut: Sized {
    /// The part of the first so many rows, `of` all that it has, and the others.
    fn cut(self, rows: usize, of: usize) -> (Self, Self);
}

impl RowShare {
    /// The number of rows.
    #[allow(
        clippy::len_without_is_empty,
        reason = "a scan without rows has a share"
    )]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The places of the share in an array that has the same number of them for each row.
    pub fn range(&self, places: usize) -> Range<usize> {
        let each = places / self.of.max(1);
        self.rows.start * each..self.rows.end * each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Cut for &mut [usize] {
        fn cut(self, rows: usize, of: usize) -> (Self, Self) {
            let each = self.len() / of.max(1);
            self.split_at_mut(rows * each)
        }
    }

    #[test]
    fn kernels_run_on_the_thread_of_their_share() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build();
        pool.expect("three threads").install(|| {
            let none = || [(); 0].map(|()| -> &mut [usize] { &mut [] });
            for (count, threads_of_share) in [(1, 3), (2, 1)] {
                RowShares::of(8, count).for_each(none(), |_, []| {
                    assert_eq!(threads(), threads_of_share);
                    let own = std::thread::current().id();
                    for_each(0..50, |_| {
                        let is_own = std::thread::current().id() == own;
                        assert!(is_own || count == 1);
                    });
                });
            }
            assert_eq!(threads(), 3);
        });
    }

    #[test]
    fn each_row_is_of_one_share() {
        for rows in [0, 1, 2, 5, 9] {
            for count in [1, 2, 3, 8] {
                let mut numbers = vec![0; 3 * rows];
                let shares = RowShares::of(rows, count);
                shares.for_each([&mut numbers[..]], |share, [numbers]| {
                    let places = share.range(3 * rows);
                    assert_eq!(numbers.len(), places.len());
                    assert_eq!(places.len(), 3 * share.len());
                    for (number, place) in numbers.iter_mut().zip(places) {
                        *number += place + 1;
                    }
                });
                assert!(numbers.into_iter().eq(1..=3 * rows), "{rows} in {count}");
            }
        }
    }

    #[test]
    fn what_shares_take_is_counted_as_if_at_once() {
        let shares = RowShares::of(3, 3);
        let peak = memory::of_share(|| {
            shares.for_each(
                [(); 0].map(|()| -> &mut [usize] { &mut [] }),
                |share, []| {
                    drop(crate::kernel::Buffer::<f32>::counted(10 * share.len()));
                },
            );
        });
        assert_eq!(peak, 120);
    }

    #[test]
    fn small_scans_and_those_with_few_rows_and_large_weights_have_one_share() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        pool.expect("two threads").install(|| {
            let are_several = |rows, steps, weights, numbers| {
                RowShares::new(rows, steps, weights, numbers).count > 1
            };
            assert!(are_several(8, 128, 3 * 256 * 256, 5 * 256));
            assert!(are_several(2, 1000, 0, 100));
            assert!(!are_several(8, 4, 64, 64));
            assert!(!are_several(8, 128, 3 * 1024 * 1024, 5 * 1024));
            assert!(are_several(16, 128, 3 * 1024 * 1024, 5 * 1024));
            assert!(!are_several(1, 128, 3 * 256 * 256, 5 * 256));
        });
    }
}
