//! Rows of matrices by their group, wherever they stand.

use smallvec::SmallVec;

use super::super::panel::Panel;
use super::super::parallel::{FEW, for_each};
use super::super::{Matrix, MatrixMut, Pooled};
use crate::simd::WriteMode;

/// The group of each row.
#[derive(Clone, Copy, Debug)]
pub struct RowGroups<'a> {
    /// The groups, each of so many rows that follow one another: as many as there are for one id.
    pub ids: &'a [usize],
    /// The number of rows.
    pub rows: usize,
    /// The number of groups.
    pub groups: usize,
    /// How many times its even share of the rows a group may have, rounded up. The rows beyond that are dropped: they are 0.
    pub capacity_factor: Option<f64>,
    /// Which matrices have the rows of the groups one group after the other, and not in the order of the ids.
    pub by_group: ByGroup,
}

/// The matrices whose rows stand in the order of their groups. Between two maps with the same groups, nothing has to move then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByGroup {
    /// The input, which has a row for each of the result.
    pub input: bool,
    /// The result.
    pub result: bool,
}

impl RowGroups<'_> {
    /// The rows that a group keeps.
    pub fn rows_of(&self, group: usize) -> Vec<usize> {
        let each = times(self.rows, self.ids.len());
        let rows = (0..self.rows).filter(|row| self.ids[row / each] == group);
        rows.take(self.capacity()).collect()
    }

    /// The number of rows that a group may have.
    pub(super) fn capacity(&self) -> usize {
        let Some(factor) = self.capacity_factor else {
            return usize::MAX;
        };
        let rows = factor * self.rows as f64 / self.groups as f64;
        // The factor, the product and the quotient are rounded: 1.1 * 100 is 110.00000000000001, and is meant to be 110.
        // A number beyond any `usize` becomes the largest.
        (rows * (1.0 - 2.0 * f64::EPSILON)).ceil() as usize
    }
}

/// Rows in the order of their groups. Those that their group has no space for stand behind its others.
pub(super) struct Sorted {
    pub(super) rows: SmallVec<[usize; FEW]>,
    /// The end of each group among them.
    pub(super) ends: SmallVec<[usize; FEW]>,
    capacity: usize,
}

/// Some rows of a group.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) group: usize,
    /// Where they begin in the order of the groups.
    start: usize,
    /// Their places in the order of the ids.
    pub(super) rows: &'a [usize],
}

impl<'a> Part<'a> {
    /// At most so many rows each.
    pub(super) fn chunks(self, some: usize) -> impl ExactSizeIterator<Item = Part<'a>> {
        let rows = self.rows.chunks(some).enumerate();
        rows.map(move |(index, rows)| Part {
            start: self.start + index * some,
            rows,
            ..self
        })
    }
}

impl Sorted {
    /// Sorts by counting.
    ///
    /// # Panics
    /// If an id is no group, or the number of ids does not divide that of rows.
    #[track_caller]
    pub(super) fn new(of: RowGroups<'_>) -> Self {
        let each = times(of.rows, of.ids.len());
        let mut counts: SmallVec<[usize; FEW]> = SmallVec::from_elem(0, of.groups);
        for &id in of.ids {
            counts[id] += each;
        }
        let mut end = 0;
        let ends: SmallVec<[usize; FEW]> = counts
            .iter_mut()
            .map(|count| {
                let start = end;
                end += *count;
                // From here on, the place of the next row of the group.
                *count = start;
                end
            })
            .collect();
        let mut rows: SmallVec<[usize; FEW]> = SmallVec::from_elem(0, of.rows);
        let groups = of.ids.iter().flat_map(|id| std::iter::repeat_n(*id, each));
        for (row, group) in groups.enumerate() {
            rows[counts[group]] = row;
            counts[group] += 1;
        }
        Self {
            rows,
            ends,
            capacity: of.capacity(),
        }
    }

    /// The rows that each group has space for, and the others.
    pub(super) fn groups(&self) -> impl Iterator<Item = [Part<'_>; 2]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        let groups = starts.zip(&self.ends).enumerate();
        groups.map(|(group, (&start, &end))| {
            let kept = (end - start).min(self.capacity);
            [(start, start + kept), (start + kept, end)].map(|(start, end)| Part {
                group,
                start,
                rows: &self.rows[start..end],
            })
        })
    }

    /// The place of each row in the order of the groups.
    pub(super) fn places(&self) -> SmallVec<[usize; FEW]> {
        let mut places: SmallVec<[usize; FEW]> = SmallVec::from_elem(0, self.rows.len());
        for (place, row) in self.rows.iter().enumerate() {
            places[*row] = place;
        }
        places
    }
}

/// How many of `rows` belong to each of `count`.
#[track_caller]
pub(super) fn times(rows: usize, count: usize) -> usize {
    let each = rows.checked_div(count).unwrap_or(0);
    assert_eq!(each * count, rows, "{count} for {rows} rows");
    each
}

/// A matrix of which the rows of a group are read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a, E> {
    pub(super) matrix: Matrix<'a, E>,
    /// How many rows of the result are made of one of its rows.
    pub(super) each: usize,
    pub(super) by_group: bool,
}

/// The rows of a group, one after the other: where they stand, or copied.
pub(super) enum Rows<'a, E: Pooled> {
    InPlace(Matrix<'a, E>),
    Copied(Panel<E>),
}

impl<E: Pooled> Rows<'_, E> {
    pub(super) fn read(&self) -> Matrix<'_, E> {
        match self {
            Rows::InPlace(rows) => *rows,
            Rows::Copied(panel) => panel.read(),
        }
    }
}

impl<'a, E: Pooled> Source<'a, E> {
    pub(super) fn rows(&self, part: Part<'_>) -> Rows<'a, E> {
        let Self { matrix, each, .. } = *self;
        if self.by_group {
            return Rows::InPlace(matrix.some_rows(part.start..part.start + part.rows.len()));
        }
        let mut panel = Panel::new(part.rows.len(), matrix.cols());
        let mut to = panel.write();
        for (i, row) in part.rows.iter().enumerate() {
            to.row_mut(i).copy_from_slice(matrix.row(row / each));
        }
        Rows::Copied(panel)
    }
}

/// The rows of a result that belong to a group.
pub(super) enum RowsMut<'a, 'm, E> {
    /// They stand one after the other.
    Together(MatrixMut<'a, E>),
    /// A matrix of each.
    Apart(&'a mut [MatrixMut<'m, E>]),
}

impl<'m, E: Pooled> RowsMut<'_, 'm, E> {
    /// `compute(to, mode)` writes these columns of the rows to a matrix, or adds them.
    pub(super) fn put(
        &mut self,
        cols: std::ops::Range<usize>,
        into: WriteMode,
        compute: impl FnOnce(MatrixMut<'_, E>, WriteMode),
    ) {
        match self {
            RowsMut::Together(rows) => {
                let (before, _) = rows.reborrow().split_cols(cols.end);
                compute(before.split_cols(cols.start).1, into);
            }
            RowsMut::Apart(rows) => {
                let mut sums = Panel::new(rows.len(), cols.len());
                compute(sums.write(), WriteMode::Overwrite);
                let sums = sums.read();
                for (i, to) in rows.iter_mut().enumerate() {
                    let to = &mut to.row_mut(0)[cols.clone()];
                    match into {
                        WriteMode::Overwrite => to.copy_from_slice(sums.row(i)),
                        WriteMode::Add => add(sums.row(i), to),
                    }
                }
            }
        }
    }

    /// At most so many rows each.
    pub(super) fn chunks(&mut self, some: usize) -> SmallVec<[RowsMut<'_, 'm, E>; FEW]> {
        match self {
            RowsMut::Together(rows) => {
                let chunks = rows.reborrow().row_chunks(some);
                chunks.map(RowsMut::Together).collect()
            }
            RowsMut::Apart(rows) => rows.chunks_mut(some).map(RowsMut::Apart).collect(),
        }
    }
}

/// `map(rows of a group, the same rows of the result)` for every group with rows. It writes them, or adds to them. Dropped rows are 0.
pub(super) fn map_rows<E: Pooled>(
    sorted: &Sorted,
    by_group: bool,
    into: WriteMode,
    to: MatrixMut<'_, E>,
    map: impl Fn(Part<'_>, RowsMut<'_, '_, E>) + Send + Sync,
) {
    assert_eq!(to.rows(), sorted.rows.len(), "a row for each of the groups");
    if to.cols() == 0 {
        return;
    }
    if by_group {
        let mut rest = to;
        let parts = sorted.groups().map(|[kept, dropped]| {
            let others = MatrixMut::without_cols(0);
            let (own, others) = std::mem::replace(&mut rest, others).split_rows(kept.rows.len());
            let (unused, others) = others.split_rows(dropped.rows.len());
            rest = others;
            (kept, own, unused)
        });
        return for_each(parts, |(part, own, unused)| {
            if into == WriteMode::Overwrite {
                set_to_zero(unused);
            }
            if !part.rows.is_empty() {
                map(part, RowsMut::Together(own));
            }
        });
    }
    let mut unsorted: SmallVec<[Option<MatrixMut<'_, E>>; FEW]> =
        to.row_chunks(1).map(Some).collect();
    let mut own: SmallVec<[MatrixMut<'_, E>; FEW]> = SmallVec::new();
    for [kept, dropped] in sorted.groups() {
        own.extend(kept.rows.iter().filter_map(|row| unsorted[*row].take()));
        if into == WriteMode::Overwrite {
            let dropped = dropped.rows.iter();
            dropped.for_each(|row| unsorted[*row].take().into_iter().for_each(set_to_zero));
        }
    }
    let mut rest = &mut own[..];
    let parts = sorted.groups().map(|[part, _]| {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(part.rows.len());
        rest = others;
        (part, own)
    });
    let parts = parts.filter(|(part, _)| !part.rows.is_empty());
    for_each(parts, |(part, own)| map(part, RowsMut::Apart(own)));
}

fn set_to_zero<E: Pooled>(mut rows: MatrixMut<'_, E>) {
    rows.fill(E::ZERO);
}

pub(super) fn add<E: Pooled>(x: &[E], to: &mut [E]) {
    for (to, x) in to.iter_mut().zip(x) {
        *to += *x;
    }
}
