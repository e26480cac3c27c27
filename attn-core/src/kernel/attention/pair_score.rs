//! A score modification that is put together at run time: a function of every pair, and a tensor that is added.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::pair_mask::PairTensor;
use super::{PairSink, ScoreSums, Sizes, SumLens, TileOrigin, TileScore};
use crate::kernel::{Matrix, MatrixMut};

/// A function of a score and of its place.
pub trait PairFunction<E>: Send + Sync {
    /// Modifies the scores of query `at.q` and the keys from `at.k` on.
    fn apply(&self, at: TileOrigin, scores: &mut [E]);

    /// Multiplies `d` by the slopes of the function at these scores.
    fn differentiate(&self, at: TileOrigin, scores: &[E], d: &mut [E]);
}

/// `function(score) + bias`. What is not there changes nothing.
pub struct PairScore<'a, E: Clone> {
    /// The function.
    pub function: Option<&'a dyn PairFunction<E>>,
    /// The tensor that is added.
    pub bias: Option<PairTensor<'a, E>>,
    /// Its gradient, before that is summed over the axes that are repeated.
    pub d_bias: Option<PairGradients<'a, E>>,
}

/// The gradients of numbers of every pair.
pub struct PairGradients<'a, E> {
    batch: usize,
    heads: usize,
    key: usize,
    /// `[query, key]` for every head of every sequence, for every number. Two tasks may write the gradients of one head, but never the same.
    each: Vec<Mutex<&'a mut [E]>>,
}

impl<'a, E> PairGradients<'a, E> {
    /// `d`: zeros, `[numbers, batch, heads, query, key]`.
    pub fn new(d: &'a mut [E], sizes: Sizes) -> Self {
        let Sizes {
            batch,
            heads,
            query,
            key,
            ..
        } = sizes;
        let each = d.chunks_mut((query * key).max(1)).map(Mutex::new);
        Self {
            batch,
            heads,
            key,
            each: each.collect(),
        }
    }

    fn head(&self, number: usize, at: TileOrigin) -> MutexGuard<'_, &'a mut [E]> {
        let head = &self.each[(number * self.batch + at.b) * self.heads + at.h];
        head.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_tile(&self, at: TileOrigin, d: Matrix<'_, E>)
    where
        E: Copy,
    {
        let mut head = self.head(0, at);
        for row in 0..d.rows() {
            let d = d.row(row);
            head[(at.q + row) * self.key + at.k..][..d.len()].copy_from_slice(d);
        }
    }
}

impl<E: Copy + Send> PairSink<E> for PairGradients<'_, E> {
    fn write(&self, number: usize, at: TileOrigin, d: &[E]) {
        let start = at.q * self.key + at.k;
        self.head(number, at)[start..start + d.len()].copy_from_slice(d);
    }
}

impl<E: Clone> fmt::Debug for PairScore<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PairScore")
            .field("has_function", &self.function.is_some())
            .field("has_bias", &self.bias.is_some())
            .finish()
    }
}

impl<E> fmt::Debug for PairGradients<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PairGradients({} heads)", self.each.len())
    }
}

/// The element types that there are score modifications of.
pub trait PairScores<E: Clone> {
    /// The score as kernels call it.
    fn tile_score<'s>(score: &'s PairScore<'_, E>) -> &'s dyn TileScore<E>;
}

// The implementation is not generic over `E`: another crate might implement `Score` for an element type of its own.
macro_rules! score {
    ($($E:ty)*) => {$(
        impl TileScore<$E> for PairScore<'_, $E> {
            fn apply(&self, at: TileOrigin, scores: &mut MatrixMut<'_, $E>) {
                for row in 0..scores.rows() {
                    let at = at.later(row, 0);
                    let scores = scores.row_mut(row);
                    if let Some(function) = self.function {
                        function.apply(at, scores);
                    }
                    if let Some(bias) = &self.bias {
                        bias.zip(at, scores, |bias, score| *score += bias);
                    }
                }
            }

            fn backward(
                &self,
                at: TileOrigin,
                scores: Matrix<'_, $E>,
                d: &mut MatrixMut<'_, $E>,
                _: Option<ScoreSums<'_, $E>>,
            ) {
                if let Some(d_bias) = &self.d_bias {
                    d_bias.write_tile(at, d.as_ref());
                }
                let Some(function) = self.function else {
                    return;
                };
                for row in 0..d.rows() {
                    function.differentiate(at.later(row, 0), scores.row(row), d.row_mut(row));
                }
            }

            fn sums(&self) -> SumLens {
                SumLens::default()
            }
        }

        impl PairScores<$E> for $E {
            fn tile_score<'s>(score: &'s PairScore<'_, $E>) -> &'s dyn TileScore<$E> {
                score
            }
        }
    )*};
}

score!(f32 f64);
