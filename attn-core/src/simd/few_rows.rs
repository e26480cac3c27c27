//! Products of few rows with a matrix whose columns are contiguous: `x Wᵀ`, for weights `[out, in]`.
//!
//! `gemm` copies blocks of such a matrix to contiguous rows. With few rows, as a step of a recurrent network or a token of a session has,
//! this takes several times as long as the product. Here the matrix is read where it stands:
//!
//! ```text
//! to[i][j] = Σ_k a[i][k] b[j][k]      for a tile of rows `i` and columns `j`, with vectors along `k`
//! ```
//!
//! A vector that is loaded is a factor of several products, and the additions of a tile need not wait for each other.

use std::ops::Range;

use super::prefetch::prefetch_line;
use super::slice::{load_any, store_any};
use super::{Kernel, MAX_LANES, Matrix, MatrixMut, Real, Vector, WriteMode, run};

/// The numbers of `b` that all rows of `a` are multiplied with before the next ones are read: they stay in the second-level cache.
const BLOCK: usize = 32 * 1024;

/// The most rows of a tile, with 32 registers and with 16. A tile leaves some for the factors.
const ROWS: usize = 8;
const FEW_ROWS: usize = 4;

/// How many tiles ahead columns are prefetched if one tile has all rows: they come from memory then.
const AHEAD: usize = 2;

/// `to = a bᵀ`, or `to += a bᵀ`, on the calling thread, where the rows of `a` and of `b` are contiguous.
///
/// An element depends on its row of `a`, its row of `b` and the instruction set only.
///
/// # Panics
/// If the shapes do not fit, or a row is not contiguous.
#[track_caller]
pub fn dots_of_rows<E: Real>(
    to: MatrixMut<'_, E>,
    into: WriteMode,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
) {
    let [m, k, n] = [a.rows(), a.cols(), b.rows()];
    assert!(
        k == b.cols() && m == to.rows() && n == to.cols(),
        "the dots of ({m} x {k}) and ({n} x {}) into ({} x {})",
        b.cols(),
        to.rows(),
        to.cols()
    );
    run(Dots { to, into, a, b });
}

struct Dots<'a, E> {
    to: MatrixMut<'a, E>,
    into: WriteMode,
    a: Matrix<'a, E>,
    b: Matrix<'a, E>,
}

impl<E: Real> Kernel for Dots<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let [rows, cols] = [self.a.rows(), self.b.rows()];
        let block = (BLOCK / self.b.cols().max(1)).max(MAX_LANES);
        // The instruction sets with vectors of 32 bytes have 16 registers, the others 32.
        let are_few = size_of::<V>() == 32;
        let most = if are_few { FEW_ROWS } else { ROWS };
        for first in (0..cols).step_by(block) {
            let block = first..cols.min(first + block);
            let mut at = 0;
            while at < rows {
                // All tiles have about the same number of rows.
                let rest = rows - at;
                let some = rest.div_ceil(rest.div_ceil(most));
                let block = block.clone();
                match some {
                    1 => self.rows::<V, 1, 8>(at, block),
                    2 if are_few => self.rows::<V, 2, 4>(at, block),
                    3 if are_few => self.rows::<V, 3, 3>(at, block),
                    _ if are_few => self.rows::<V, 4, 2>(at, block),
                    2 => self.rows::<V, 2, 8>(at, block),
                    3 => self.rows::<V, 3, 8>(at, block),
                    4 => self.rows::<V, 4, 6>(at, block),
                    5 => self.rows::<V, 5, 4>(at, block),
                    6 => self.rows::<V, 6, 4>(at, block),
                    7 => self.rows::<V, 7, 3>(at, block),
                    _ => self.rows::<V, 8, 3>(at, block),
                }
                at += some;
            }
        }
    }
}

impl<E: Real> Dots<'_, E> {
    /// `R` rows of a block of columns, `C` at a time.
    #[inline(always)]
    fn rows<V: Vector<Element = E>, const R: usize, const C: usize>(
        &mut self,
        row: usize,
        block: Range<usize>,
    ) {
        // The tiles of the last rows prefetch the columns of the next block. If these are all rows, they prefetch those of a later tile.
        let ahead = match row {
            _ if row + R < self.a.rows() => None,
            0 => Some(AHEAD * C),
            _ => Some(block.len()),
        };
        let mut col = block.start;
        while col + C <= block.end {
            self.tile::<V, R, C>(row, col, ahead);
            col += C;
        }
        while col < block.end {
            self.tile::<V, R, 1>(row, col, ahead);
            col += 1;
        }
    }

    /// The tile at `row` and `col`, which prefetches the columns that stand so many ahead.
    #[inline(always)]
    fn tile<V: Vector<Element = E>, const R: usize, const C: usize>(
        &mut self,
        row: usize,
        col: usize,
        ahead: Option<usize>,
    ) {
        let depth = self.b.cols();
        let a: [&[E]; R] = std::array::from_fn(|r| &self.a.row(row + r)[..depth]);
        let b: [&[E]; C] = std::array::from_fn(|c| &self.b.row(col + c)[..depth]);
        let mut sums = [[V::zero(); C]; R];
        let whole = depth - depth % V::LANES;
        let ahead = ahead.map(|columns| columns * self.b.row_stride());
        for k in (0..whole).step_by(V::LANES) {
            if let Some(ahead) = ahead {
                for row in b {
                    prefetch_line(row.as_ptr().wrapping_add(ahead + k));
                }
            }
            // SAFETY: each row has `depth` numbers, and `k + LANES` is at most `whole`, which is at most `depth`.
            let load = |row: &[E]| V::load(unsafe { row.get_unchecked(k..k + V::LANES) });
            add_products(&mut sums, a.map(load), b.map(load));
        }
        if whole < depth {
            let load = |row: &[E]| load_any(&row[whole..]);
            add_products(&mut sums, a.map(load), b.map(load));
        }
        let mut added = [[E::ZERO; C]; R];
        add_lanes(sums.as_flattened(), added.as_flattened_mut());
        for (r, added) in added.iter().enumerate() {
            let to = &mut self.to.row_mut(row + r)[col..col + C];
            match self.into {
                WriteMode::Overwrite => to.copy_from_slice(added),
                WriteMode::Add => to.iter_mut().zip(added).for_each(|(to, x)| *to += *x),
            }
        }
    }
}

#[inline(always)]
fn add_products<V: Vector, const R: usize, const C: usize>(
    sums: &mut [[V; C]; R],
    a: [V; R],
    b: [V; C],
) {
    for r in 0..R {
        for c in 0..C {
            sums[r][c] = a[r].mul_add(b[c], sums[r][c]);
        }
    }
}

/// The sum of the lanes of each vector, in the order of [`Vector::reduce_sum`]. As many vectors as there are lanes are added at once.
#[inline(always)]
pub(crate) fn add_lanes<V: Vector>(vectors: &[V], to: &mut [V::Element]) {
    for (vectors, to) in vectors.chunks(V::LANES).zip(to.chunks_mut(V::LANES)) {
        if vectors.len() <= 2 {
            for (vector, to) in vectors.iter().zip(to) {
                *to = vector.reduce_sum();
            }
            continue;
        }
        let mut all = [V::zero(); MAX_LANES];
        all[..vectors.len()].copy_from_slice(vectors);
        let mut half = V::LANES / 2;
        while half > 0 {
            for i in 0..half {
                let (low, high) = all[i].interleave(all[i + half]);
                all[i] = low + high;
            }
            half /= 2;
        }
        store_any(all[0], to);
    }
}
