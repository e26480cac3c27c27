//! Linear maps by group: row `i` of the result is `W_g x_i + b_g`, where `g` is the group of the row.
//!
//! The rows are sorted by their group. The rows of one group are copied side by side, at most [`PART`] of them at a time, and a
//! product of matrices maps them. No row is padded, and a group without rows costs nothing. Parts run on all threads, and so does
//! the product of one part: a group with most of the rows has all threads.
//!
//! A row of the input may be that of several rows of the result, which are neighbours: a token with `k` groups is one row of the
//! input and `k` rows of the result.

use smallvec::SmallVec;

use super::compiled::compiled;
use super::linear;
use super::panel::Panel;
use super::parallel::{FEW, for_each, rows_per_task};
use super::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::WriteMode;

/// The rows that are copied at a time. The weights of a group are read once for as many rows. The sums of a gradient are added
/// part by part, so its bits depend on this.
const PART: usize = 1024;

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

impl<'a> Part<'a> {
    fn pieces(self) -> impl Iterator<Item = Part<'a>> {
        let group = self.group;
        self.rows.chunks(PART).map(move |rows| Part { group, rows })
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
        map_rows(groups, WriteMode::Overwrite, y, |part, to| {
            let x = gather(x, part.rows.iter().map(|row| row / each));
            let bias = bias.map(|bias| of_group(bias, part.group, output));
            linear::forward(x.read(), weight(w, part.group, [output, input]), bias, to);
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
        let product = |part: Part<'_>, to: MatrixMut<'_, E>| {
            let d_y = gather(d_y, part.rows.iter().copied());
            let w = weight(w, part.group, [output, input]);
            linear::input_gradient(d_y.read(), w, WriteMode::Overwrite, to);
        };
        if each == 1 {
            return map_rows(groups, into, d_x, product);
        }
        let mut terms = Buffer::uninit(groups.rows * input);
        let to = MatrixMut::new(&mut terms, groups.rows, input);
        map_rows(groups, WriteMode::Overwrite, to, product);
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
            for part in part.pieces() {
                let d_y = gather(d_y, part.rows.iter().copied());
                let x = gather(x, part.rows.iter().map(|row| row / each));
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

/// Writes the rows of each part, which `map` computes one after the other, to their places. Dropped rows are 0.
fn map_rows<E: Pooled>(
    groups: RowGroups<'_>,
    into: WriteMode,
    to: MatrixMut<'_, E>,
    map: impl Fn(Part<'_>, MatrixMut<'_, E>) + Send + Sync,
) {
    let cols = to.cols();
    assert_eq!(to.rows(), groups.rows, "a row for each of the groups");
    if cols == 0 {
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
    let parts = sorted.groups().flat_map(Part::pieces).map(|part| {
        let (own, others) = std::mem::take(&mut rest).split_at_mut(part.rows.len());
        rest = others;
        (part, own)
    });
    for_each(parts, |(part, own)| {
        let mut panel = Panel::new(part.rows.len(), cols);
        map(part, panel.write());
        let panel = panel.read();
        for (i, to) in own.iter_mut().enumerate() {
            match into {
                WriteMode::Overwrite => to.row_mut(0).copy_from_slice(panel.row(i)),
                WriteMode::Add => add(panel.row(i), to.row_mut(0)),
            }
        }
    });
}

fn add<E: Pooled>(x: &[E], to: &mut [E]) {
    for (to, x) in to.iter_mut().zip(x) {
        *to += *x;
    }
}

#[cfg(test)]
mod tests;
