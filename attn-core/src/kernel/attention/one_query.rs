//! The products of one query with keys and values, which read each number where it stands.

use crate::kernel::{Matrix, Pooled, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, MAX_LANES, Vector, add_lanes, prefetch, run, widened};

/// The vectors whose sums are in registers at a time.
const VECTORS: usize = 4;

/// The rows that are multiplied at a time.
const ROWS: usize = 8;

/// How many rows ahead are prefetched. In a matrix of all heads, the rows of a head are short pieces far apart, of which the processor foresees little; in a
/// page of a session they are contiguous.
const AHEAD: usize = 16;

/// Prefetches a row that is read soon.
#[inline(always)]
fn prefetch_ahead<N>(rows: Matrix<'_, N>, row: usize) {
    if row + AHEAD < rows.rows() {
        prefetch(rows.row(row + AHEAD));
    }
}

/// How a key or a value is stored: a number of the model, or one in bf16.
pub(super) trait Stored<E: Real>: Copy + Sync {
    /// A vector of numbers. Panics if there are fewer.
    fn load<V: Vector<Element = E>>(from: &[Self]) -> V;

    /// A vector of fewer numbers than lanes, and zeros.
    fn load_partial<V: Vector<Element = E>>(from: &[Self]) -> V;
}

impl<E: Real> Stored<E> for E {
    #[inline(always)]
    fn load<V: Vector<Element = E>>(from: &[E]) -> V {
        V::load(from)
    }

    #[inline(always)]
    fn load_partial<V: Vector<Element = E>>(from: &[E]) -> V {
        load_any(from)
    }
}

impl<E: Real> Stored<E> for u16 {
    #[inline(always)]
    fn load<V: Vector<Element = E>>(from: &[u16]) -> V {
        let mut numbers = [E::ZERO; MAX_LANES];
        for (to, from) in numbers.iter_mut().zip(&from[..V::LANES]) {
            *to = E::of_f32(widened(*from));
        }
        V::load(&numbers)
    }

    #[inline(always)]
    fn load_partial<V: Vector<Element = E>>(from: &[u16]) -> V {
        let mut numbers = [0; MAX_LANES];
        numbers[..from.len()].copy_from_slice(from);
        Self::load(&numbers)
    }
}

/// `to[j] = scale Σ q[i] rows[j][i]`
pub(super) fn dots<E: Pooled>(scale: E, q: &[E], rows: Matrix<'_, impl Stored<E>>, to: &mut [E]) {
    run(Dots { scale, q, rows, to });
}

/// `to += Σ weights[j] rows[j]`, in the order of the rows.
pub(super) fn add_weighted<E: Pooled>(
    weights: &[E],
    rows: Matrix<'_, impl Stored<E>>,
    to: &mut [E],
) {
    run(AddWeighted { weights, rows, to });
}

struct Dots<'a, E, N> {
    scale: E,
    q: &'a [E],
    rows: Matrix<'a, N>,
    to: &'a mut [E],
}

impl<E: Real, N: Stored<E>> Kernel for Dots<'_, E, N> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        for (group, to) in self.to.chunks_mut(ROWS).enumerate() {
            let last = ROWS * group + to.len() - 1;
            // Behind the last row there is that one again. A loop, since a closure may be left as a function.
            let mut rows = [&[][..]; ROWS];
            for (n, place) in rows.iter_mut().enumerate() {
                let row = (ROWS * group + n).min(last);
                prefetch_ahead(self.rows, row);
                *place = &self.rows.row(row)[..self.q.len()];
            }
            let mut sums = [V::zero(); ROWS];
            let vectors = self.q.chunks_exact(V::LANES);
            let tail = vectors.remainder();
            for (at, q) in vectors.enumerate() {
                let q = V::load(q);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = q.mul_add(N::load(&row[at * V::LANES..]), *sum);
                }
            }
            if !tail.is_empty() {
                let q = load_any::<V>(tail);
                for (sum, row) in sums.iter_mut().zip(rows) {
                    *sum = q.mul_add(N::load_partial(&row[row.len() - tail.len()..]), *sum);
                }
            }
            let mut added = [E::ZERO; ROWS];
            add_lanes(&sums, &mut added);
            for (to, sum) in to.iter_mut().zip(added) {
                *to = sum * self.scale;
            }
        }
    }
}

struct AddWeighted<'a, E, N> {
    weights: &'a [E],
    rows: Matrix<'a, N>,
    to: &'a mut [E],
}

impl<E: Real, N: Stored<E>> Kernel for AddWeighted<'_, E, N> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let step = VECTORS * V::LANES;
        for (at, to) in self.to.chunks_mut(step).enumerate() {
            let first = at * step;
            let mut sums = [V::zero(); VECTORS];
            for (sum, to) in sums.iter_mut().zip(to.chunks(V::LANES)) {
                *sum = load_any(to);
            }
            for (row, weight) in self.weights.iter().enumerate() {
                prefetch_ahead(self.rows, row);
                let row = &self.rows.row(row)[first..first + to.len()];
                let weight = V::splat(*weight);
                if let Some(row) = row.get(..step) {
                    for (n, sum) in sums.iter_mut().enumerate() {
                        *sum = weight.mul_add(N::load(&row[n * V::LANES..]), *sum);
                    }
                    continue;
                }
                for (sum, row) in sums.iter_mut().zip(row.chunks(V::LANES)) {
                    *sum = weight.mul_add(N::load_partial(row), *sum);
                }
            }
            for (sum, to) in sums.into_iter().zip(to.chunks_mut(V::LANES)) {
                store_any(sum, to);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::MatrixMut;
    use crate::kernel::testing::{noise, on_every_isa};
    use crate::simd::Bf16Rows as _;

    /// Checks products with these numbers as they are stored. The sums have at most 131 terms of at most 1, each added with an error of about 6e-8.
    fn check(stored: Matrix<'_, impl Stored<f32>>, numbers: Matrix<'_, f32>, isa: &str) {
        let [rows, width] = [numbers.rows(), numbers.cols()];
        let [q, weights, start] =
            [(width, 2), (rows, 3), (width, 4)].map(|(len, seed)| noise(len, seed));
        let mut scores = vec![f32::NAN; rows];
        dots(0.3, &q, stored, &mut scores);
        for (row, score) in scores.iter().enumerate() {
            let products = numbers.row(row).iter().zip(&q).map(|(k, q)| k * q);
            let want = products.sum::<f32>() * 0.3;
            assert!((score - want).abs() < 1e-5, "{rows} x {width}, {isa}");
        }
        let mut sums = start.clone();
        add_weighted(&weights, stored, &mut sums);
        for (col, sum) in sums.iter().enumerate() {
            let terms = weights.iter().enumerate();
            let terms = terms.map(|(row, weight)| weight * numbers.row(row)[col]);
            let want = start[col] + terms.sum::<f32>();
            assert!((sum - want).abs() < 1e-5, "{rows} x {width}, {isa}");
        }
    }

    /// Widths around vectors and groups of them, of rows that stand apart.
    #[test]
    fn products_of_one_query_are_those_of_the_numbers() {
        for [rows, width] in [[0, 5], [3, 1], [7, 16], [8, 17], [5, 33], [9, 64], [4, 131]] {
            let numbers = noise::<f32>(rows * (width + 3), 1);
            let numbers = Matrix::new(&numbers, rows, width + 3).some_cols(1..width + 1);
            on_every_isa(|isa| {
                check(numbers, numbers, &isa.to_string());
                let mut rounded = vec![0; rows * width];
                f32::round_rows(numbers, MatrixMut::new(&mut rounded, rows, width));
                let rounded = Matrix::new(&rounded, rows, width);
                let mut wide = vec![0.0_f32; rows * width];
                f32::widen_rows(rounded, MatrixMut::new(&mut wide, rows, width));
                check(rounded, Matrix::new(&wide, rows, width), &isa.to_string());
            });
        }
    }
}
