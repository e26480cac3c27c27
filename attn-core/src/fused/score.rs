//! The gradients of a score function's parameters.

use std::ops::Range;

use super::{Array, accumulate};
use crate::Element;
use crate::kernel::attention::{ScoreGradients, SumLens};
use crate::kernel::{Buffer, Matrix, Real};

/// The sums that the backward pass of an attention computes for its score function: some per head, and some over all heads.
///
/// ```
/// use attn::__private::runtime::{fused::ScoreGradient, kernel::attention::SumLens};
///
/// let mut sums = ScoreGradient::<f32>::uninit(2, SumLens { per_head: 3, shared: 1 });
/// let mut kernel = sums.as_mut();
/// kernel.per_head.row_mut(0).copy_from_slice(&[1.0, 2.0, 3.0]);
/// kernel.per_head.row_mut(1).copy_from_slice(&[4.0, 5.0, 6.0]);
/// kernel.shared[0] = 7.0;
///
/// // A parameter of two numbers per head, and one that all heads share.
/// let (mut slopes, mut width) = ([0.0; 4], [1.0]);
/// sums.add_per_head(1..3, &mut slopes);
/// sums.add_shared(0..1, &mut width);
/// assert_eq!((slopes, width), ([2.0, 3.0, 5.0, 6.0], [8.0]));
/// ```
pub struct ScoreGradient<E: Element> {
    per_head: Array<E>,
    shared: Buffer<E>,
}

impl<E: Element> ScoreGradient<E> {
    /// Uninitialised sums.
    pub fn uninit(heads: usize, lens: SumLens) -> Self {
        Self {
            per_head: Array::uninit(heads, [lens.per_head]),
            shared: Buffer::counted(lens.shared),
        }
    }

    /// The sums for the kernel to write.
    pub fn as_mut(&mut self) -> ScoreGradients<'_, E> {
        ScoreGradients {
            per_head: self.per_head.view_mut(),
            shared: &mut self.shared,
        }
    }

    /// A range of the sums of every head.
    pub fn per_head(&self, range: Range<usize>) -> Matrix<'_, E> {
        self.per_head.view().some_cols(range)
    }

    /// Adds a range of the sums of every head to the gradient of a parameter, `[heads, range]`.
    pub fn add_per_head(&self, range: Range<usize>, gradient: &mut [E]) {
        let sums = self.per_head(range);
        for (h, gradient) in gradient.chunks_mut(sums.cols().max(1)).enumerate() {
            accumulate(gradient, sums.row(h));
        }
    }

    /// Adds a range of the sums over all heads to the gradient of a parameter.
    pub fn add_shared(&self, range: Range<usize>, gradient: &mut [E]) {
        accumulate(gradient, &self.shared[range]);
    }
}

/// The number of partial sums: the lanes of the widest vector.
const LANES: usize = 16;

/// `Σ d`: the gradient of a number that a whole row reads. The order of the additions depends on the length only.
///
/// ```
/// use attn::__private::runtime::fused::sum_of_gradients;
///
/// assert_eq!(sum_of_gradients(&[1.0; 37]), 37.0);
/// ```
#[inline(always)]
pub fn sum_of_gradients<E: Real>(d: &[E]) -> E {
    let mut sums = [E::ZERO; LANES];
    for d in d.chunks(LANES) {
        for (sum, &d) in sums.iter_mut().zip(d) {
            *sum += d;
        }
    }
    sums.into_iter().fold(E::ZERO, |total, sum| total + sum)
}
