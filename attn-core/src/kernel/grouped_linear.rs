//! Linear maps by group: row `i` of the result is `W_g x_i + b_g`, where `g` is the group of the row.
//!
//! The rows are sorted by their group. Some rows of one group are copied side by side, a product of matrices maps them, and its rows are
//! copied to their places: a [`PIECE`] at a time, which is still in the second-level cache when the next step reads it. No row is padded, and a
//! group without rows costs nothing. Pieces are small, so that the threads have the same work, also if one group has most of the rows.
//!
//! A row of the input may be that of several rows of the result, which are neighbours: a token with `k` groups is one row of the
//! input and `k` rows of the result.

use smallvec::SmallVec;

use super::compiled::compiled;
use super::linear::{self, FEW_ROWS};
use super::multiply::{COPY, Start, add_product, copy};
use super::panel::Panel;
use super::parallel::{FEW, for_each, rows_per_task};
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode};

/// The rows of a group whose outer products are added up at a time. The sums of a gradient are added part by part, so its bits depend on this.
const PART: usize = 1024;

/// The most rows of a product.
const PIECE: usize = 128;

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
}

impl RowGroups<'_> {
    /// The rows that a group keeps.
    pub fn rows_of(&self, group: usize) -> Vec<usize> {
        let each = times(self.rows, self.ids.len());
        let rows = (0..self.rows).filter(|row| self.ids[row / each] == group);
        rows.take(self.capacity()).collect()
    }

    /// The number of rows that a group may have.
    fn capacity(&self) -> usize {
        let share = self.rows as f64 / self.groups as f64;
        // A number beyond any `usize` becomes the largest.
        self.capacity_factor
            .map_or(usize::MAX, |factor| (factor * share).ceil() as usize)
    }
}

/// Rows by their group.
struct Sorted {
    /// The rows of the groups, one group after the other, in their order.
    rows: SmallVec<[usize; FEW]>,
    /// The end of each group among them.
    ends: SmallVec<[usize; FEW]>,
    /// The rows that their group has no space for.
    dropped: Vec<usize>,
}

/// Some rows of a group.
#[derive(Clone, Copy)]
struct Part<'a> {
    group: usize,
    rows: &'a [usize],
}

impl Sorted {
    /// Sorts by counting.
    ///
    /// # Panics
    /// If an id is no group, or the number of ids does not divide that of rows.
    #[track_caller]
    fn new(of: RowGroups<'_>) -> Self {
        let each = times(of.rows, of.ids.len());
        let capacity = of.capacity();
        let mut counts: SmallVec<[usize; FEW]> = SmallVec::from_elem(0, of.groups);
        for &id in of.ids {
            counts[id] += each;
        }
        let mut end = 0;
        let ends: SmallVec<[usize; FEW]> = counts
            .iter_mut()
            .map(|count| {
                let start = end;
                end += (*count).min(capacity);
                // From here on, the place of the next row of the group.
                *count = start;
                end
            })
            .collect();
        let mut rows: SmallVec<[usize; FEW]> = SmallVec::from_elem(0, end);
        let mut dropped = Vec::new();
        let groups = of.ids.iter().flat_map(|id| std::iter::repeat_n(*id, each));
        for (row, group) in groups.enumerate() {
            let place = &mut counts[group];
            if *place == ends[group] {
                dropped.push(row);
            } else {
                rows[*place] = row;
                *place += 1;
            }
        }
        Self {
            rows,
            ends,
            dropped,
        }
    }

    /// The rows of each group.
    fn groups(&self) -> impl Iterator<Item = Part<'_>> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts
            .zip(&self.ends)
            .enumerate()
            .map(|(group, (&start, &end))| Part {
                group,
                rows: &self.rows[start..end],
            })
    }
}

/// How many of `rows` belong to each of `count`.
#[track_caller]
fn times(rows: usize, count: usize) -> usize {
    let each = rows.checked_div(count).unwrap_or(0);
    assert_eq!(each * count, rows, "{count} for {rows} rows");
    each
}

compiled! {
    GroupedLinear:

    /// `y_i = W_g x_i + b_g`, for `x [rows / n, in]`, `w [groups, out, in]`, `bias [groups, out]` and `y [rows, out]`: row `i` of `y` is
    /// made of row `i / n` of `x`.
    ///
    /// # Panics
    /// If the shapes do not fit, or an id is no group.
    #[track_caller]
    pub fn forward<E>(
        x: Matrix<'_, E>,
        w: &[E],
        bias: Option<&[E]>,
        groups: RowGroups<'_>,
        y: MatrixMut<'_, E>,
    ) {
        let [input, output] = [x.cols(), y.cols()];
        check_weights(w, groups, [output, input]);
        let each = times(groups.rows, x.rows());
        let x = |rows: &[usize]| gather(x, rows.iter().map(|row| row / each));
        map_rows(groups, WriteMode::Overwrite, y, |part, to| {
            let bias = bias.map(|bias| of_group(bias, part.group, output));
            let w = weight(w, part.group, [output, input]);
            if part.rows.len() < FEW_ROWS {
                let mut sums = Panel::new(part.rows.len(), output);
                linear::forward(x(part.rows).read(), w, bias, sums.write());
                return put(sums.read(), WriteMode::Overwrite, 0, to);
            }
            let start = Start::bias(bias);
            let some = (COPY / input.max(1)).max(1);
            for first in (0..output).step_by(some) {
                let outputs = first..output.min(first + some);
                let w = copy(w.some_rows(outputs.clone()).transposed());
                for_each_piece(part.rows, to, |rows, to| {
                    let mut sums = Panel::new(rows.len(), outputs.len());
                    let into = start.of_cols(outputs.clone()).write(sums.write());
                    let x = x(rows);
                    add_product(sums.write(), into, x.read(), w.read(), Threads::One);
                    put(sums.read(), WriteMode::Overwrite, first, to);
                });
            }
        });
    }

    /// `dx = Σ W_gᵀ dy`, or `dx +=` that: the sum over the rows that were made of a row of `x`, in their order.
    ///
    /// # Panics
    /// If the shapes do not fit, or an id is no group.
    #[track_caller]
    pub fn input_gradient<E>(
        d_y: Matrix<'_, E>,
        w: &[E],
        groups: RowGroups<'_>,
        into: WriteMode,
        d_x: MatrixMut<'_, E>,
    ) {
        let [input, output] = [d_x.cols(), d_y.cols()];
        check_weights(w, groups, [output, input]);
        let each = times(groups.rows, d_x.rows());
        let map = |to: MatrixMut<'_, E>, into: WriteMode| {
            map_rows(groups, into, to, |part, to| {
                let w = weight(w, part.group, [output, input]);
                for_each_piece(part.rows, to, |rows, to| {
                    let d_y = gather(d_y, rows.iter().copied());
                    let mut sums = Panel::new(rows.len(), input);
                    let d_y = d_y.read();
                    add_product(sums.write(), WriteMode::Overwrite, d_y, w, Threads::One);
                    put(sums.read(), into, 0, to);
                });
            });
        };
        if each == 1 {
            return map(d_x, into);
        }
        let mut terms = Buffer::uninit(groups.rows * input);
        let to = MatrixMut::new(&mut terms, groups.rows, input);
        map(to, WriteMode::Overwrite);
        let terms = Matrix::new(&terms, groups.rows, input);
        let some = rows_per_task(input * each);
        for_each(d_x.row_chunks(some).enumerate(), |(index, mut d_x)| {
            for row in 0..d_x.rows() {
                let first = (index * some + row) * each;
                let to = d_x.row_mut(row);
                if into == WriteMode::Overwrite {
                    to.fill(E::ZERO);
                }
                (first..first + each).for_each(|term| add(terms.row(term), to));
            }
        });
    }

    /// `dW_g += Σ dy_i x_iᵀ` and `db_g += Σ dy_i`, over the rows of each group, for `d_w [groups, out, in]` and `d_b [groups, out]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or an id is no group.
    #[track_caller]
    pub fn add_gradients<E>(
        d_y: Matrix<'_, E>,
        x: Matrix<'_, E>,
        groups: RowGroups<'_>,
        d_w: &mut [E],
        d_b: Option<&mut [E]>,
    ) {
        let [input, output] = [x.cols(), d_y.cols()];
        check_weights(d_w, groups, [output, input]);
        if output == 0 {
            return;
        }
        let each = times(groups.rows, x.rows());
        let sorted = Sorted::new(groups);
        let mut d_w = MatrixMut::new(d_w, groups.groups * output, input);
        let mut d_w = d_w.reborrow().row_chunks(output);
        let mut d_b = d_b.unwrap_or_default().chunks_mut(output);
        let all = sorted.groups().map(|part| (part, d_w.next(), d_b.next()));
        for_each(all, |(part, d_w, mut d_b)| {
            let Some(mut d_w) = d_w else { return };
            for rows in part.rows.chunks(PART) {
                let d_y = gather(d_y, rows.iter().copied());
                let x = gather(x, rows.iter().map(|row| row / each));
                linear::add_gradients(d_y.read(), x.read(), d_w.reborrow(), d_b.as_deref_mut());
            }
        });
    }
}

#[track_caller]
fn check_weights<E>(w: &[E], groups: RowGroups<'_>, [output, input]: [usize; 2]) {
    let count = groups.groups;
    assert_eq!(
        w.len(),
        count * output * input,
        "{count} weights of ({output} x {input})"
    );
}

/// The numbers of a group, of which each has so many.
fn of_group<E>(all: &[E], group: usize, count: usize) -> &[E] {
    &all[group * count..][..count]
}

fn weight<E>(w: &[E], group: usize, [output, input]: [usize; 2]) -> Matrix<'_, E> {
    Matrix::new(of_group(w, group, output * input), output, input)
}

/// Rows of a matrix, one after the other.
fn gather<E: Pooled>(x: Matrix<'_, E>, rows: impl ExactSizeIterator<Item = usize>) -> Panel<E> {
    let mut panel = Panel::new(rows.len(), x.cols());
    let mut to = panel.write();
    for (i, row) in rows.enumerate() {
        to.row_mut(i).copy_from_slice(x.row(row));
    }
    panel
}

/// `map(group, rows of the result)` for every group. It writes them, or adds to them. Dropped rows are 0.
fn map_rows<E: Pooled>(
    groups: RowGroups<'_>,
    into: WriteMode,
    to: MatrixMut<'_, E>,
    map: impl Fn(Part<'_>, &mut [MatrixMut<'_, E>]) + Send + Sync,
) {
    assert_eq!(to.rows(), groups.rows, "a row for each of the groups");
    if to.cols() == 0 {
        return;
    }
    let sorted = Sorted::new(groups);
    let mut unsorted: SmallVec<[Option<MatrixMut<'_, E>>; FEW]> =
        to.row_chunks(1).map(Some).collect();
    if into == WriteMode::Overwrite {
        for row in &sorted.dropped {
            if let Some(mut row) = unsorted[*row].take() {
                row.row_mut(0).fill(E::ZERO);
            }
        }
    }
    let rows = sorted.rows.iter();
    let mut rows: SmallVec<[MatrixMut<'_, E>; FEW]> =
        rows.filter_map(|row| unsorted[*row].take()).collect();
    let mut rest = &mut rows[..];
    let parts = sorted.groups().filter(|part| !part.rows.is_empty());
    let parts = parts.map(|part| {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(part.rows.len());
        rest = others;
        (part, own)
    });
    for_each(parts, |(part, own)| map(part, own));
}

/// `body(rows, rows of the result)` for equal parts of the rows of a group.
fn for_each_piece<'a, E: Pooled>(
    rows: &[usize],
    to: &mut [MatrixMut<'a, E>],
    body: impl Fn(&[usize], &mut [MatrixMut<'a, E>]) + Send + Sync,
) {
    let some = rows.len().div_ceil(rows.len().div_ceil(PIECE));
    let pieces = rows.chunks(some).zip(to.chunks_mut(some));
    for_each(pieces, |(rows, to)| body(rows, to));
}

/// Writes the rows of `from` to these rows, or adds them, from this column on.
fn put<E: Pooled>(
    from: Matrix<'_, E>,
    into: WriteMode,
    column: usize,
    to: &mut [MatrixMut<'_, E>],
) {
    for (i, to) in to.iter_mut().enumerate() {
        let to = &mut to.row_mut(0)[column..][..from.cols()];
        match into {
            WriteMode::Overwrite => to.copy_from_slice(from.row(i)),
            WriteMode::Add => add(from.row(i), to),
        }
    }
}

fn add<E: Pooled>(x: &[E], to: &mut [E]) {
    for (to, x) in to.iter_mut().zip(x) {
        *to += *x;
    }
}

#[cfg(test)]
mod tests;
