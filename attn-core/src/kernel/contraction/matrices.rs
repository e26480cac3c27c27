//! Products of matrices, one for every index of the batch.

use super::plan::{Plan, Step, count, offsets};
use crate::kernel::linear::{FEW_ROWS, multiply_rows};
use crate::kernel::multiply::{self, add_product, copy};
use crate::kernel::outer_products::outer_products;
use crate::kernel::panel::Panel;
use crate::kernel::parallel::{FEW_MULTIPLICATIONS, for_each};
use crate::kernel::{Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::transpose;
use crate::simd::{Threads, WriteMode, dots_of_rows, product};

/// From this number of products on, each is computed by one thread.
const MANY: usize = 8;

/// A product of this many multiplications is shared by all threads, if there are few of them.
const LARGE: usize = 4 * FEW_MULTIPLICATIONS;

/// The products of a plan.
pub(super) fn multiply<E: Pooled>(plan: &Plan, a: &[E], b: &[E], to: &mut [E], into: WriteMode) {
    let [outer, inner] = [count(&plan.outer), count(&plan.inner)];
    let [rows, cols] = [plan.rows.size, plan.cols.size];
    let to = MatrixMut::new(to, outer * rows, inner * cols);
    let batch = Batch { plan, a, b, into };
    let work = rows * cols * plan.depth[0].size;
    let is_shared = outer * inner == 1 || outer * inner < MANY && work > LARGE;
    if is_shared {
        batch.each([0, 0], to, |to, a, b| shared(to, into, a, b));
        return;
    }
    // A task has as many products as are worth a thread, neighbours in memory.
    let at_once = FEW_MULTIPLICATIONS.div_ceil(work);
    let inner_at_once = at_once.min(inner);
    let outer_at_once = at_once.div_ceil(inner).min(outer);
    let parts = to.row_chunks(outer_at_once * rows).enumerate();
    let parts = parts.flat_map(|(i, to)| {
        let parts = to.col_chunks(inner_at_once * cols).enumerate();
        parts.map(move |(j, to)| ([i * outer_at_once, j * inner_at_once], to))
    });
    for_each(parts, |(first, to)| batch.on_one_thread(first, to));
}

struct Batch<'a, E> {
    plan: &'a Plan,
    a: &'a [E],
    b: &'a [E],
    into: WriteMode,
}

impl<E: Pooled> Batch<'_, E> {
    /// The products of a part of the result, which begins at these indices of the outer and of the inner axes.
    fn each(
        &self,
        first: [usize; 2],
        to: MatrixMut<'_, E>,
        mut each: impl FnMut(MatrixMut<'_, E>, Matrix<'_, E>, Matrix<'_, E>),
    ) {
        let Plan {
            outer,
            inner,
            rows,
            cols,
            depth,
        } = self.plan;
        for (i, to) in to.row_chunks(rows.size).enumerate() {
            let of_outer = offsets(outer, first[0] + i);
            for (j, to) in to.col_chunks(cols.size).enumerate() {
                let of_inner = offsets(inner, first[1] + j);
                let a = matrix(&self.a[of_outer[0] + of_inner[0]..], *rows, depth[0]);
                let b = matrix(&self.b[of_outer[1] + of_inner[1]..], depth[1], *cols);
                each(to, a, b);
            }
        }
    }

    fn on_one_thread(&self, first: [usize; 2], to: MatrixMut<'_, E>) {
        let Plan {
            rows, cols, depth, ..
        } = self.plan;
        if rows.size < FEW_ROWS && has_rows(depth[0]) && has_rows(depth[1]) {
            return self.each(first, to, |to, a, b| {
                dots_of_rows(to, self.into, a, b.transposed());
            });
        }
        if rows.size == 1 {
            return self.each(first, to, |to, a, b| {
                product(to, self.into, E::ONE, a, b, Threads::One);
            });
        }
        let mut left = (!has_rows(depth[0])).then(|| Panel::new(rows.size, depth[0].size));
        let mut right = (!has_rows(*cols)).then(|| Panel::new(depth[1].size, cols.size));
        self.each(first, to, |to, a, b| {
            let a = in_rows(a, &mut left);
            let b = in_rows(b, &mut right);
            add_product(to, self.into, a, b, Threads::One);
        });
    }
}

fn matrix<E>(x: &[E], rows: Step, cols: Step) -> Matrix<'_, E> {
    Matrix::strided(x, rows.size, cols.size, rows.stride, cols.stride)
}

/// Whether rows along this axis are contiguous.
fn has_rows(cols: Step) -> bool {
    cols.stride == 1 || cols.size == 1
}

/// The matrix, or a copy of it in the panel: one with contiguous rows.
fn in_rows<'a, E: Pooled>(x: Matrix<'a, E>, panel: &'a mut Option<Panel<E>>) -> Matrix<'a, E> {
    match panel {
        None => x,
        Some(panel) => {
            transpose(x.transposed(), panel.write());
            panel.read()
        }
    }
}

/// `to = a b` or `to += a b`, by all threads.
fn shared<E: Pooled>(to: MatrixMut<'_, E>, into: WriteMode, a: Matrix<'_, E>, b: Matrix<'_, E>) {
    let is_few = a.rows() < FEW_ROWS && !b.has_row_slices();
    if is_few && a.has_row_slices() && b.transposed().has_row_slices() {
        return multiply_rows(a, b.transposed(), into.into(), to);
    }
    if a.has_row_slices() {
        return multiply::multiply(to, into.into(), a, b);
    }
    if b.has_row_slices() {
        return outer_products(to, into, a.transposed(), b, &mut [], Dtype::Model);
    }
    let rows = copy(a);
    multiply::multiply(to, into.into(), rows.read(), b);
}
