//! Linear maps by group: row `i` of the result is `W_g x_i + b_g`, where `g` is the group of the row.
//!
//! The rows are sorted by their group. Some rows of one group are copied side by side, a product of matrices maps them, and its rows are
//! copied to their places: a [`PIECE`] at a time, which is still in the second-level cache when the next step reads it. Rows that stand
//! [by group](ByGroup) are read and written in their places. No row is padded, and a
//! group without rows costs nothing. Pieces are small, so that the threads have the same work, also if one group has most of the rows.
//!
//! A row of the input may be that of several rows of the result, which are neighbours: a token with `k` groups is one row of the
//! input and `k` rows of the result.

mod rows;

use self::rows::{Part, RowsMut, Sorted, Source, add, map_rows, times};
use super::compiled::compiled;
use super::linear::{self, FEW_ROWS};
use super::multiply::{COPY, Start, add_product, copy};
use super::parallel::{for_each, rows_per_task};
use super::quantized::{self, QuantizedMatrix};
use super::{Buffer, Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode};

pub use self::rows::{ByGroup, RowGroups};

/// The rows of a group whose outer products are added up at a time. The sums of a gradient are added part by part, so its bits depend on this.
const PART: usize = 1024;

/// The most rows of a product.
const PIECE: usize = 256;

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
        let x = input_of(x, groups);
        let sorted = Sorted::new(groups);
        map_rows(&sorted, groups.by_group.result, WriteMode::Overwrite, y, |part, mut to| {
            let bias = bias.map(|bias| of_group(bias, part.group, output));
            let w = weight(w, part.group, [output, input]);
            if part.rows.len() < FEW_ROWS {
                return to.put(0..output, WriteMode::Overwrite, |sums, _| {
                    linear::forward(x.rows(part).read(), w, bias, sums, Dtype::Model);
                });
            }
            let start = Start::bias(bias);
            let some = (COPY / input.max(1)).max(1);
            for first in (0..output).step_by(some) {
                let outputs = first..output.min(first + some);
                let w = copy(w.some_rows(outputs.clone()).transposed());
                for_each_piece(part, &mut to, |part, mut to| {
                    let x = x.rows(part);
                    to.put(outputs.clone(), WriteMode::Overwrite, |mut sums, _| {
                        let into = start.of_cols(outputs.clone()).write(sums.reborrow());
                        add_product(sums, into, x.read(), w.read(), Threads::One);
                    });
                });
            }
        });
    }

    /// [`forward`] with rounded weights, `[groups * out, in]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or an id is no group.
    #[track_caller]
    pub fn forward_quantized<E>(
        x: Matrix<'_, E>,
        w: &QuantizedMatrix,
        bias: Option<&[E]>,
        groups: RowGroups<'_>,
        y: MatrixMut<'_, E>,
    ) {
        let output = y.cols();
        let x = input_of(x, groups);
        let sorted = Sorted::new(groups);
        map_rows(&sorted, groups.by_group.result, WriteMode::Overwrite, y, |part, mut to| {
            let bias = bias.map(|bias| of_group(bias, part.group, output));
            let w = w.some_rows(part.group * output..(part.group + 1) * output);
            to.put(0..output, WriteMode::Overwrite, |sums, _| {
                let sums = [sums].into_iter().collect();
                quantized::forward(x.rows(part).read(), w.clone(), bias, sums);
            });
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
        let d_y = result_of(d_y, groups);
        let sorted = Sorted::new(groups);
        let map = |by_group: bool, into: WriteMode, to: MatrixMut<'_, E>| {
            map_rows(&sorted, by_group, into, to, |part, mut to| {
                let w = weight(w, part.group, [output, input]);
                for_each_piece(part, &mut to, |part, mut to| {
                    let d_y = d_y.rows(part);
                    to.put(0..input, into, |sums, into| {
                        add_product(sums, into, d_y.read(), w, Threads::One);
                    });
                });
            });
        };
        if each == 1 {
            return map(groups.by_group.input, into, d_x);
        }
        let mut terms = Buffer::uninit(groups.rows * input);
        let to = MatrixMut::new(&mut terms, groups.rows, input);
        map(true, WriteMode::Overwrite, to);
        let terms = Matrix::new(&terms, groups.rows, input);
        let places = sorted.places();
        let some = rows_per_task(input * each);
        for_each(d_x.row_chunks(some).enumerate(), |(index, mut d_x)| {
            for row in 0..d_x.rows() {
                let first = (index * some + row) * each;
                let to = d_x.row_mut(row);
                if into == WriteMode::Overwrite {
                    to.fill(E::ZERO);
                }
                let places = places[first..first + each].iter();
                places.for_each(|place| add(terms.row(*place), to));
            }
        });
    }

    /// `dW_g += Σ dy_i x_iᵀ` and `db_g += Σ dy_i`, those of the two that are there, over the rows of each group, for `d_w [groups, out, in]` and `d_b [groups, out]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or an id is no group.
    #[track_caller]
    pub fn add_gradients<E>(
        d_y: Matrix<'_, E>,
        x: Matrix<'_, E>,
        groups: RowGroups<'_>,
        d_w: Option<&mut [E]>,
        d_b: Option<&mut [E]>,
    ) {
        let [input, output] = [x.cols(), d_y.cols()];
        if let Some(d_w) = &d_w {
            check_weights(d_w, groups, [output, input]);
        }
        if output == 0 || d_w.is_none() && d_b.is_none() {
            return;
        }
        let [x, d_y] = [input_of(x, groups), result_of(d_y, groups)];
        let sorted = Sorted::new(groups);
        let d_w = d_w.map(|d_w| MatrixMut::new(d_w, groups.groups * output, input));
        let mut d_w = d_w.map(|d_w| d_w.row_chunks(output));
        let mut d_b = d_b.unwrap_or_default().chunks_mut(output);
        let all = sorted.groups().map(|[part, _]| {
            let d_w = d_w.as_mut().and_then(Iterator::next);
            (part, d_w, d_b.next())
        });
        for_each(all, |(part, mut d_w, mut d_b)| {
            for part in part.chunks(PART) {
                let [d_y, x] = [d_y.rows(part), x.rows(part)];
                let d_w = d_w.as_mut().map(MatrixMut::reborrow);
                linear::parameter_gradients(d_y.read(), x.read(), WriteMode::Add, d_w, d_b.as_deref_mut(), Dtype::Model);
            }
        });
    }
}

/// The input of the map.
#[track_caller]
fn input_of<'a, E>(matrix: Matrix<'a, E>, of: RowGroups<'_>) -> Source<'a, E> {
    let each = times(of.rows, matrix.rows());
    let by_group = of.by_group.input;
    assert!(
        !by_group || matrix.rows() == of.rows,
        "a row for each of the groups"
    );
    Source {
        matrix,
        each,
        by_group,
    }
}

/// Its result, or the gradient of that.
fn result_of<'a, E>(matrix: Matrix<'a, E>, of: RowGroups<'_>) -> Source<'a, E> {
    let by_group = of.by_group.result;
    Source {
        matrix,
        each: 1,
        by_group,
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

/// `body(rows, the same rows of the result)` for equal parts of the rows of a group.
fn for_each_piece<'m, E: Pooled>(
    part: Part<'_>,
    to: &mut RowsMut<'_, 'm, E>,
    body: impl Fn(Part<'_>, RowsMut<'_, 'm, E>) + Send + Sync,
) {
    let rows = part.rows.len();
    let some = rows.div_ceil(rows.div_ceil(PIECE));
    let pieces = part.chunks(some).zip(to.chunks(some));
    for_each(pieces, |(part, to)| body(part, to));
}

#[cfg(test)]
mod tests;
