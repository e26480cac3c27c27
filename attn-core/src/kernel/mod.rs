//! Kernels: slices in, slices out. They do not depend on dfdx, layers or tapes.
//!
//! Every operation has a forward function and a function for its derivative. Both are generic over [`Real`] (`f32` and `f64`),
//! vectorised by [`simd`](crate::simd), and shared between the threads of the current rayon pool by a [fixed
//! partition](parallel): the result has the same bits for any number of threads.
//!
//! Matrices are row-major views: [`Matrix`] to read and [`MatrixMut`] to write. Scratch memory comes from a [`pool`].

pub mod activation;
pub mod arithmetic;
pub mod attention;
pub mod axis;
mod column_sums;
mod compiled;
pub mod concat;
pub mod cross_entropy;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
mod index;
pub mod l2_norm;
mod lanes;
pub mod linear;
pub mod max;
mod multiply;
pub mod norm;
pub mod optim;
mod outer_products;
mod panel;
pub mod parallel;
pub mod pool;
pub mod sinusoid;
pub mod softmax;
pub mod sum;
#[cfg(test)]
mod testing;
mod transpose;

pub use crate::simd::{Matrix, MatrixMut, Real};
pub use index::OutOfRange;
pub use pool::{Buffer, Pooled};

/// Panics unless the matrix has this number of rows and columns.
#[track_caller]
fn assert_same_shape<E>(x: Matrix<'_, E>, rows: usize, cols: usize) {
    assert!(
        x.rows() == rows && x.cols() == cols,
        "({} x {}) and ({rows} x {cols}) differ",
        x.rows(),
        x.cols()
    );
}
