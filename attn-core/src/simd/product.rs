//! Matrix products by `gemm`.
//!
//! The crates for its two real types are used directly: the crate `gemm` compiles complex numbers as well.

use gemm_common::Parallelism;

use super::{Matrix, MatrixMut, Real};

/// Whether a product is written over the numbers that are there, or added to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// The old numbers are overwritten, and never read.
    Overwrite,
    /// The result is added to the old numbers.
    Add,
}

/// The threads that compute a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    One,
    /// The threads of the current rayon pool, if the product is large enough to share. The bits are the same.
    All,
}

/// `to = scale * a b`, or `to += scale * a b`.
///
/// The order of summation depends on the shapes only, not on the number of threads. An element depends on no numbers but those of its row of `a` and
/// its column of `b`.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn product<E: Real>(
    mut to: MatrixMut<'_, E>,
    into: WriteMode,
    scale: E,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    threads: Threads,
) {
    let m = a.rows();
    let k = a.cols();
    let n = b.cols();
    assert!(
        k == b.rows() && m == to.rows() && n == to.cols(),
        "({m} x {k}) times ({} x {n}) into ({} x {})",
        b.rows(),
        to.rows(),
        to.cols()
    );
    if m == 0 || n == 0 {
        return;
    }
    if k == 0 {
        if into == WriteMode::Overwrite {
            (0..m).for_each(|row| to.row_mut(row).fill(E::ZERO));
        }
        return;
    }
    let parallelism = match threads {
        Threads::One => Parallelism::None,
        Threads::All => Parallelism::Rayon(0),
    };
    // The kernels store contiguous columns. A result with contiguous rows is computed transposed: `toᵀ = bᵀ aᵀ`.
    let row_stride = to.row_stride();
    let (left, right, to_cols, to_rows) = if row_stride > 1 {
        (b.transposed(), a.transposed(), row_stride, 1)
    } else {
        (a, b, 1, row_stride)
    };
    let (left_rows, left_cols) = left.strides();
    let (right_rows, right_cols) = right.strides();
    let signed = |stride: usize| stride as isize;
    let gemm = E::gemm();
    // SAFETY: a view holds the elements of all its rows and columns, and the shapes were compared above. `to` is borrowed
    // exclusively, so it overlaps neither `a` nor `b`.
    unsafe {
        gemm(
            left.rows(),
            right.cols(),
            k,
            to.as_mut_ptr(),
            signed(to_cols),
            signed(to_rows),
            into == WriteMode::Add,
            left.as_ptr(),
            signed(left_cols),
            signed(left_rows),
            right.as_ptr(),
            signed(right_cols),
            signed(right_rows),
            E::ONE,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}
