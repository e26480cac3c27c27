//! Results of a loop that are summed as they are computed: the values are nowhere in memory.

use super::{Place, Write};
use crate::kernel::Pooled;
use crate::simd::{Target, WriteMode};

/// Sums of the values for elements of rows.
#[derive(Debug)]
pub(super) struct Sums<'a, E> {
    to: &'a mut [E],
    of: Along,
    width: usize,
    /// The number of values that are left.
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
    Place::Sums(sums).into()
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

    /// How many values there are up to the end of the row.
    pub(super) fn left(&self) -> usize {
        self.width - self.column
    }

    /// How many rows of this width, at most what is [left](Self::left), are added in the same way.
    pub(super) fn rows(&self, width: usize) -> usize {
        match width == self.width {
            true => self.terms / width,
            false => 1,
        }
    }

    /// Where the values of so many rows go, which are the next ones.
    pub(super) fn next(&mut self, [rows, width]: [usize; 2]) -> Target<'_, E> {
        let [row, column] = [self.row, self.column];
        self.terms -= rows * width;
        self.column += width;
        if self.column == self.width {
            self.column = 0;
            self.row += rows;
        }
        match self.of {
            Along::Rows => Target::Sum {
                numbers: &mut self.to[row..row + rows],
                step: 1,
            },
            Along::Columns => Target::Elements {
                numbers: &mut self.to[column..column + width],
                step: 0,
                mode: WriteMode::Add,
            },
        }
    }
}
