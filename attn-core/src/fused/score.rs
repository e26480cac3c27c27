//! The gradients of a score function's parameters.

use std::ops::Range;

use super::{Array, accumulate};
use crate::Element;
use crate::kernel::attention::{ScoreGradients, Sizes, SumLens};
use crate::kernel::{Buffer, Matrix, Real};

/// The sums that the backward pass of an attention computes for its score function: some per head, some over all heads, some per head of
/// every sequence, and the gradients of pairs.
///
/// ```
/// use attn::__private::runtime::{fused::ScoreGradient, kernel::attention::{Sizes, SumLens}};
///
/// let sizes = Sizes { batch: 1, heads: 2, kv_heads: 2, query: 1, key: 2, width: 4, value_width: 4 };
/// let lens = SumLens { per_head: 3, shared: 1, per_sequence: 1, pairs: 1 };
/// let mut sums = ScoreGradient::<f32>::uninit(sizes, lens);
/// let mut kernel = sums.as_mut();
/// kernel.per_head.row_mut(0).copy_from_slice(&[1.0, 2.0, 3.0]);
/// kernel.per_head.row_mut(1).copy_from_slice(&[4.0, 5.0, 6.0]);
/// kernel.shared[0] = 7.0;
/// kernel.per_sequence.row_mut(0)[0] = 8.0;
/// kernel.per_sequence.row_mut(1)[0] = 9.0;
/// kernel.pairs.copy_from_slice(&[1.0, 2.0, 3.0, 4.0]);
///
/// // A parameter of two numbers per head, and one that all heads share.
/// let (mut slopes, mut width) = ([0.0; 4], [1.0]);
/// sums.add_per_head(1..3, &mut slopes);
/// sums.add_shared(0..1, &mut width);
/// assert_eq!((slopes, width), ([2.0, 3.0, 5.0, 6.0], [8.0]));
///
/// // A value with a number for every head of a sequence, and one with a number for every key.
/// let (mut of_heads, mut of_keys) = ([0.0; 2], [0.0; 2]);
/// sums.add_per_sequence(0..1, |_, h, _| h as usize, &mut of_heads);
/// sums.add_pairs(0, |_, _, _, kv_idx| (kv_idx as usize, 0.5), &mut of_keys);
/// assert_eq!((of_heads, of_keys), ([8.0, 9.0], [2.0, 3.0]));
/// sums.add_pair_rows(0, |_, _, _| 0, &mut of_keys);
/// assert_eq!(of_keys, [6.0, 9.0]);
/// ```
pub struct ScoreGradient<E: Element> {
    sizes: Sizes,
    per_head: Array<E>,
    shared: Buffer<E>,
    per_sequence: Array<E>,
    pairs: Array<E>,
}

impl<E: Element> ScoreGradient<E> {
    /// Uninitialised sums.
    pub fn uninit(sizes: Sizes, lens: SumLens) -> Self {
        let Sizes {
            batch,
            heads,
            query,
            key,
            ..
        } = sizes;
        Self {
            sizes,
            per_head: Array::uninit(heads, [lens.per_head]),
            shared: Buffer::counted(lens.shared),
            per_sequence: Array::uninit(batch * heads, [lens.per_sequence]),
            // The kernel writes those of the pairs that it visits.
            pairs: Array::zeros(lens.pairs * batch * heads, [query * key]),
        }
    }

    /// The sums for the kernel to write.
    pub fn as_mut(&mut self) -> ScoreGradients<'_, E> {
        ScoreGradients {
            per_head: self.per_head.view_mut(),
            shared: &mut self.shared,
            per_sequence: self.per_sequence.view_mut(),
            pairs: self.pairs.as_mut_slice(),
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

    /// Adds a range of the sums of every head of every sequence to the gradient of a value. `place(b, h, i)` is the place of number `i` of
    /// the range.
    pub fn add_per_sequence(
        &self,
        range: Range<usize>,
        place: impl Fn(i64, i64, i64) -> usize,
        gradient: &mut [E],
    ) {
        let sums = self.per_sequence.view().some_cols(range);
        for (row, [b, h]) in places([self.sizes.batch, self.sizes.heads]).enumerate() {
            for (i, &d) in sums.row(row).iter().enumerate() {
                gradient[place(b, h, i as i64)] += d;
            }
        }
    }

    /// Adds the gradients of a number of all pairs to that of a value, where those of a query stand side by side from `start(b, h, q_idx)`
    /// on.
    pub fn add_pair_rows(
        &self,
        number: usize,
        start: impl Fn(i64, i64, i64) -> usize,
        gradient: &mut [E],
    ) {
        for ([b, h, q_idx], d) in self.rows_of_pairs(number) {
            accumulate(&mut gradient[start(b, h, q_idx)..][..d.len()], d);
        }
    }

    /// The gradients of a number of all pairs, by sequence, head and query.
    fn rows_of_pairs(&self, number: usize) -> impl Iterator<Item = ([i64; 3], &[E])> {
        let Sizes {
            batch,
            heads,
            query,
            key,
            ..
        } = self.sizes;
        let len = batch * heads * query * key;
        let d = &self.pairs.as_slice()[number * len..][..len];
        places([batch, heads, query]).zip(d.chunks(key.max(1)))
    }

    /// Adds the gradients of a number of all pairs to that of a value. A pair `(b, h, q_idx, kv_idx)` reads its element `read(..).0`, with
    /// the derivative `read(..).1`. That of a gradient of 0 may be NaN.
    pub fn add_pairs(
        &self,
        number: usize,
        read: impl Fn(i64, i64, i64, i64) -> (usize, f64),
        gradient: &mut [E],
    ) {
        for ([b, h, q_idx], d) in self.rows_of_pairs(number) {
            for (kv_idx, &d) in (0..).zip(d) {
                if d != E::zero() {
                    let (place, factor) = read(b, h, q_idx, kv_idx);
                    gradient[place] += d * E::of(factor);
                }
            }
        }
    }
}

/// All places along axes of these sizes, row-major.
fn places<const N: usize>(sizes: [usize; N]) -> impl Iterator<Item = [i64; N]> {
    let count = sizes.iter().product::<usize>();
    (0..count as i64).map(move |index| unflatten(index, sizes))
}

/// The index along every axis of the element that is number `index`, row-major.
///
/// ```
/// use attn::__private::runtime::fused::unflatten;
///
/// assert_eq!(unflatten(7, [2, 5]), [1, 2]);
/// ```
pub fn unflatten<const N: usize>(mut index: i64, sizes: [usize; N]) -> [i64; N] {
    let mut at = [0; N];
    for (at, size) in at.iter_mut().zip(sizes).rev() {
        *at = index % size as i64;
        index /= size as i64;
    }
    at
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
