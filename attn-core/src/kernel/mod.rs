//! Kernels: slices in, slices out. They do not depend on dfdx, layers or tapes.
//!
//! Every operation has a forward function and a function for its derivative. Both are generic over [`Real`] (`f32` and `f64`),
//! vectorised by [`simd`](crate::simd), and shared between the threads of the current rayon pool by a [fixed
//! partition](parallel): the result has the same bits for any number of threads.
//!
//! Matrices are row-major views: [`Matrix`] to read and [`MatrixMut`] to write. Scratch memory comes from a [`pool`].

pub mod activation;
pub mod attention;
pub mod axis;
pub mod bf16;
mod compiled;
pub mod concat;
pub mod contraction;
pub mod convolution;
pub mod cross_entropy;
pub mod cumsum;
pub mod dropout;
pub mod elementwise;
pub mod embedding;
mod fold;
pub mod gather;
pub mod grouped_linear;
mod index;
pub mod l2_norm;
mod lanes;
pub mod linear;
pub mod linear_cross_entropy;
pub mod linear_parts;
pub mod loops;
pub mod max;
mod multiply;
pub mod norm;
pub mod optim;
mod outer_products;
mod packed;
pub mod packed_linear;
pub mod pad;
mod panel;
pub mod parallel;
pub mod permute;
pub mod pool;
pub mod quantized;
pub mod rank;
pub mod reduce;
mod rounded;
pub mod rounded_rows;
pub mod row_shares;
pub mod rows;
pub mod sinusoid;
pub mod softmax;
pub mod strips;
#[cfg(test)]
mod testing;
pub mod windows;

pub use crate::simd::{Matrix, MatrixMut, Real};
pub use index::OutOfRange;
pub use pool::{Buffer, Pooled};
pub use rounded::Dtype;
pub use rounded_rows::RoundedRows;

/// A number that there are kernels for.
pub trait Kernels:
    Pooled
    + attention::AttentionKernels<Self>
    + attention::DecodeKernels<Self>
    + attention::PairScores<Self>
    + attention::PerHead<Self>
    + attention::HeadTransforms<Self>
    + attention::Rotations<Self>
    + axis::Axes<Self>
    + bf16::Rounding<Self>
    + concat::Concat<Self>
    + contraction::Contractions<Self>
    + convolution::Convolutions<Self>
    + cross_entropy::CrossEntropy<Self>
    + cumsum::Cumsum<Self>
    + elementwise::Elementwise<Self>
    + gather::Gather<Self>
    + grouped_linear::GroupedLinear<Self>
    + embedding::Embedding<Self>
    + linear::Linear<Self>
    + linear_cross_entropy::LinearCrossEntropy<Self>
    + linear_parts::LinearParts<Self>
    + loops::Loops<Self>
    + loops::known::KnownLoops<Self>
    + l2_norm::L2Norm<Self>
    + l2_norm::L2NormAlong<Self>
    + max::Maxima<Self>
    + norm::Norms<Self>
    + optim::AdafactorStep<Self>
    + optim::AdamWStep<Self>
    + optim::LionStep<Self>
    + optim::MuonStep<Self>
    + optim::Norms<Self>
    + optim::ScheduleFreeStep<Self>
    + optim::SgdStep<Self>
    + packed_linear::PackedLinear<Self>
    + pad::Pad<Self>
    + permute::Permute<Self>
    + quantized::Quantized<Self>
    + rank::Ranks<Self>
    + reduce::Reductions<Self>
    + sinusoid::Sinusoid<Self>
    + softmax::Softmax<Self>
    + softmax::SoftmaxAlong<Self>
    + windows::Unfold<Self>
    + strips::Strips<Self>
    + softmax::SoftmaxWhere<Self>
{
}

impl Kernels for f32 {}
impl Kernels for f64 {}

impl<E: Copy> MatrixMut<'_, E> {
    /// Copies the rows of a matrix, each of which stands side by side.
    ///
    /// # Panics
    /// If the shapes differ.
    #[inline]
    #[track_caller]
    pub(crate) fn copy_from(&mut self, from: Matrix<'_, E>) {
        assert_same_shape(from, self.rows(), self.cols());
        (0..self.rows()).for_each(|row| self.row_mut(row).copy_from_slice(from.row(row)));
    }
}

/// Checks that a matrix has so many rows and columns.
#[track_caller]
fn assert_same_shape<E>(x: Matrix<'_, E>, rows: usize, cols: usize) {
    assert!(
        x.rows() == rows && x.cols() == cols,
        "({} x {}) and ({rows} x {cols}) differ",
        x.rows(),
        x.cols()
    );
}
