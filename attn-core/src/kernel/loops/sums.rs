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
    /// The row and the column of the next one.
    row: usize,
    column: usize,
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
        row: 0,
        column: 0,
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
    /// Adds the next values.
    pub(super) fn add(&mut self, mut terms: &[E]) {
        while !terms.is_empty() {
            let (some, rest) = terms.split_at(terms.len().min(self.width - self.column));
            match self.of {
                Along::Rows => self.to[self.row] += call::sum(some),
                Along::Columns => {
                    let to = &mut self.to[self.column..][..some.len()];
                    call::axpy(E::ONE, some, to);
                }
            }
            self.column += some.len();
            if self.column == self.width {
                self.column = 0;
                self.row += 1;
            }
            terms = rest;
        }
    }
}
