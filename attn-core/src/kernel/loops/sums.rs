//! Results of a loop that are summed as they are computed: the values are nowhere in memory.

use super::{Target, Write};
use crate::kernel::Pooled;
use crate::simd::{WriteMode, call};

/// Sums of the values for elements of rows.
#[derive(Debug)]
pub(super) struct Sums<'a, E> {
    to: &'a mut [E],
    of: Along,
    width: usize,
    /// The number of values.
    terms: usize,
}

#[derive(Clone, Copy, Debug)]
enum Along {
    Rows,
    Columns,
}

/// The sum of the values of each row of so many, a number for each.
pub fn row_sums<E: Pooled>(to: &mut [E], mode: WriteMode, width: usize) -> Write<'_, E> {
    let terms = to.len() * width;
    sums(to, mode, Along::Rows, width, terms)
}

/// Adds the values of each column of so many rows to its number.
pub fn column_sums<E: Pooled>(to: &mut [E], rows: usize) -> Write<'_, E> {
    let width = to.len();
    sums(to, WriteMode::Add, Along::Columns, width, rows * width)
}

fn sums<E: Pooled>(
    to: &mut [E],
    mode: WriteMode,
    of: Along,
    width: usize,
    terms: usize,
) -> Write<'_, E> {
    if mode == WriteMode::Overwrite {
        to.fill(E::ZERO);
    }
    let sums = Sums {
        to,
        of,
        width,
        terms,
    };
    Target::Sums(sums).into()
}

impl<E> Sums<'_, E> {
    pub(super) fn terms(&self) -> usize {
        self.terms
    }

    pub(super) fn reborrow(&mut self) -> Sums<'_, E> {
        Sums {
            to: self.to,
            ..*self
        }
    }
}

impl<E: Pooled> Sums<'_, E> {
    /// Adds the values of the elements from `first` on.
    pub(super) fn add(&mut self, first: usize, mut terms: &[E]) {
        let mut place = first % self.width.max(1);
        let mut row = first / self.width.max(1);
        while !terms.is_empty() {
            let (some, rest) = terms.split_at(terms.len().min(self.width - place));
            match self.of {
                Along::Rows => self.to[row] += call::sum(some),
                Along::Columns => call::axpy(E::ONE, some, &mut self.to[place..][..some.len()]),
            }
            terms = rest;
            place = 0;
            row += 1;
        }
    }
}
