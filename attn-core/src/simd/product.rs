//! The product of matrices, by the `gemm` crate.

use super::{Matrix, MatrixMut, Real};

/// What becomes of the numbers that are there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Into {
    /// They are overwritten, and never read.
    Overwrite,
    /// The product is added to them.
    Add,
}

/// Who computes a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// The calling thread.
    One,
    /// The threads of the current rayon pool, if the product is large enough to share. The bits are the same.
    All,
}

/// `to = scale * a b`, or `to += scale * a b`.
///
/// An element is summed in an order that the shapes alone decide, and not the number of threads. It depends on its row of `a`
/// and its column of `b`, and of all other rows and columns only on whether there are any: a single row, or column, is summed
/// in another order.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn product<E: Real>(
    mut to: MatrixMut<'_, E>,
    into: Into,
    scale: E,
    a: Matrix<'_, E>,
    b: Matrix<'_, E>,
    threads: Threads,
) {
    let (m, k, n) = (a.rows(), a.cols(), b.cols());
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
        if into == Into::Overwrite {
            (0..m).for_each(|row| to.row_mut(row).fill(E::ZERO));
        }
        return;
    }
    let parallelism = match threads {
        Threads::One => gemm::Parallelism::None,
        Threads::All => gemm::Parallelism::Rayon(0),
    };
    let ((a_rows, a_cols), (b_rows, b_cols)) = (a.strides(), b.strides());
    let signed = |stride: usize| stride as isize;
    // SAFETY: a view holds the elements of all its rows and columns, and the shapes were compared above. `to` is
    // borrowed exclusively, so it overlaps neither `a` nor `b`.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to.as_mut_ptr(),
            1,
            signed(to.row_stride()),
            into == Into::Add,
            a.as_ptr(),
            signed(a_cols),
            signed(a_rows),
            b.as_ptr(),
            signed(b_cols),
            signed(b_rows),
            E::ONE,
            scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}
