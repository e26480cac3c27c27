//! Results whose numbers are sums of their own: all axes of the result are axes of both operands.

use super::plan::{Direction, Pointwise, count, offsets};
use crate::kernel::lanes::for_lanes;
use crate::kernel::parallel::{FEW_MULTIPLICATIONS, SMALL, for_each};
use crate::kernel::{MatrixMut, Pooled, Real};
use crate::simd::call::dot;
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, WriteMode, run};

/// The numbers of the result that stay in the first-level cache, while products are added to them.
const AT_ONCE: usize = 1024;

/// The sums of a plan.
pub(super) fn multiply<E: Pooled>(
    plan: &Pointwise,
    a: &[E],
    b: &[E],
    to: &mut [E],
    into: WriteMode,
) {
    let terms = count(&plan.depth);
    match plan.direction {
        Direction::Result(len) => {
            let rows = to.len() / len;
            let width = AT_ONCE.min(len);
            let height = FEW_MULTIPLICATIONS.div_ceil(width * terms).min(rows);
            let parts = MatrixMut::new(to, rows, len).row_chunks(height).enumerate();
            let parts = parts.flat_map(|(i, to)| {
                let parts = to.col_chunks(width).enumerate();
                parts.map(move |(j, to)| (i * height, j * width, to))
            });
            for_each(parts, |(row, col, to)| {
                run(Sums {
                    plan,
                    len,
                    a,
                    b,
                    row,
                    col,
                    to,
                    into,
                });
            });
        }
        Direction::Depth => {
            let some = FEW_MULTIPLICATIONS.div_ceil(terms);
            for_each(to.chunks_mut(some).enumerate(), |(i, to)| {
                for (place, to) in to.iter_mut().enumerate() {
                    let [of_a, of_b] = offsets(&plan.of_result, i * some + place);
                    let sum = dots(&a[of_a..][..terms], &b[of_b..][..terms]);
                    *to = match into {
                        WriteMode::Overwrite => sum,
                        WriteMode::Add => *to + sum,
                    };
                }
            });
        }
    }
}

/// A dot product, as a sum of those of blocks.
fn dots<E: Pooled>(a: &[E], b: &[E]) -> E {
    let blocks = a.chunks(SMALL).zip(b.chunks(SMALL));
    blocks.fold(E::ZERO, |sum, (a, b)| sum + dot(a, b))
}

/// A rectangle of the result, whose rows are contiguous in both operands.
struct Sums<'a, E> {
    plan: &'a Pointwise,
    /// The numbers of a whole row.
    len: usize,
    a: &'a [E],
    b: &'a [E],
    row: usize,
    col: usize,
    to: MatrixMut<'a, E>,
    into: WriteMode,
}

impl<E: Real> Kernel for Sums<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let terms = count(&self.plan.depth);
        for i in 0..self.to.rows() {
            let first = (self.row + i) * self.len + self.col;
            let [of_a, of_b] = offsets(&self.plan.of_result, first);
            let to = self.to.row_mut(i);
            if self.into == WriteMode::Overwrite {
                to.fill(E::ZERO);
            }
            for term in 0..terms {
                let [a_term, b_term] = offsets(&self.plan.depth, term);
                let a = &self.a[of_a + a_term..];
                let b = &self.b[of_b + b_term..];
                for_lanes!(V, to.len(), [a, b], [to], {
                    store_any(load_any::<V>(a).mul_add(load_any(b), load_any(to)), to);
                });
            }
        }
    }
}
