//! The results of tiles: sums and the initial numbers, written to the pieces of the result.

use std::{borrow::Borrow, ops::Range, slice};

use super::super::slice::{load_any, store_any};
use super::super::{MatrixMut, Real, Vector};
use super::{Initial, Product};

/// The part of the result that a tile computes.
pub(in super::super) struct Place {
    pub(in super::super) rows: Range<usize>,
    pub(in super::super) columns: Range<usize>,
}

impl Place {
    /// Whether all sums of a tile have a place.
    #[inline(always)]
    fn is_whole<V: Vector, const R: usize, const N: usize>(&self) -> bool {
        self.rows.len() == R && self.columns.len() == N * V::LANES
    }
}

impl<E: Real, A: Copy, B: Copy> Product<'_, '_, E, A, B> {
    /// Writes the sums of the tile at `place`.
    #[inline(always)]
    pub(in super::super) fn write<V, S, const R: usize, const C: usize>(
        &mut self,
        place: &Place,
        sums: S,
    ) where
        V: Vector<Element = E>,
        S: Borrow<[[V; C]; R]> + Copy,
    {
        let mut start = 0;
        for piece in &mut *self.to {
            let end = start + piece.cols();
            let some = place.columns.start.max(start)..place.columns.end.min(end);
            if place.is_whole::<V, R, C>() && some == place.columns {
                let columns = some.start - start..some.end - start;
                write_whole(sums.borrow(), piece, self.initial, place, columns);
            } else if !some.is_empty() {
                // A copy, as sums whose address is taken would be in memory from the first one on.
                let copied = sums;
                let numbers = numbers(copied.borrow()).chunks_exact(C * V::LANES);
                self.initial
                    .write_part::<V>(numbers, piece, start, place, some);
            }
            start = end;
        }
    }
}

/// Writes a tile of whole vectors to `columns` of a piece.
#[inline(always)]
fn write_whole<V: Vector, const R: usize, const N: usize>(
    sums: &[[V; N]; R],
    piece: &mut MatrixMut<'_, V::Element>,
    initial: Initial<'_, V::Element>,
    place: &Place,
    columns: Range<usize>,
) {
    macro_rules! row {
        ($i:ident) => {
            &mut piece.row_mut(place.rows.start + $i)[columns.clone()]
        };
    }
    // Loops, and no calls of `for_each`: the compiler may leave its closures as functions, in which it can't use the vectors.
    match initial {
        Initial::Zero => {
            for (i, sums) in sums.iter().enumerate() {
                write_row(sums, row!(i), |sum, _| sum);
            }
        }
        Initial::Old => {
            for (i, sums) in sums.iter().enumerate() {
                write_row(sums, row!(i), |sum, old| V::load(old) + sum);
            }
        }
        Initial::OfRows(of) => {
            for (i, sums) in sums.iter().enumerate() {
                let of = V::splat(of[place.rows.start + i]);
                write_row(sums, row!(i), |sum, _| of + sum);
            }
        }
        Initial::OfColumns(of) => {
            let mut starts = [V::zero(); N];
            for (n, start) in starts.iter_mut().enumerate() {
                *start = V::load(&of[place.columns.start + n * V::LANES..]);
            }
            for (i, sums) in sums.iter().enumerate() {
                let mut sums = *sums;
                for n in 0..N {
                    sums[n] = starts[n] + sums[n];
                }
                write_row(&sums, row!(i), |sum, _| sum);
            }
        }
    }
}

#[inline(always)]
fn write_row<V: Vector, const N: usize>(
    sums: &[V; N],
    to: &mut [V::Element],
    value: impl Fn(V, &[V::Element]) -> V,
) {
    for n in 0..N {
        let to = &mut to[n * V::LANES..(n + 1) * V::LANES];
        value(sums[n], to).store(to);
    }
}

impl<E: Real> Initial<'_, E> {
    /// Writes the numbers of a tile that are in `columns` of the result, to a piece whose first column is `start`.
    #[inline(always)]
    fn write_part<'s, V: Vector<Element = E>>(
        self,
        numbers: impl Iterator<Item = &'s [E]>,
        piece: &mut MatrixMut<'_, E>,
        start: usize,
        place: &Place,
        columns: Range<usize>,
    ) where
        E: 's,
    {
        for (row, numbers) in place.rows.clone().zip(numbers) {
            let to = &mut piece.row_mut(row)[columns.start - start..columns.end - start];
            let numbers = &numbers[columns.start - place.columns.start..][..to.len()];
            for at in (0..to.len()).step_by(V::LANES) {
                let to = &mut to[at..];
                let sum = load_any::<V>(&numbers[at..]);
                let sum = match self {
                    Initial::Zero => sum,
                    Initial::Old => load_any::<V>(to) + sum,
                    Initial::OfRows(of) => V::splat(of[row]) + sum,
                    Initial::OfColumns(of) => {
                        load_any::<V>(&of[columns.start + at..columns.end]) + sum
                    }
                };
                store_any(sum, to);
            }
        }
    }
}

/// The sums as numbers, `[R, N * LANES]`.
fn numbers<V: Vector, const R: usize, const N: usize>(sums: &[[V; N]; R]) -> &[V::Element] {
    const { assert!(size_of::<V>() == V::LANES * size_of::<V::Element>()) };
    // SAFETY: a vector has its lanes side by side, and as many bytes.
    unsafe { slice::from_raw_parts(sums.as_ptr().cast(), R * N * V::LANES) }
}
