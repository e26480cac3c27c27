//! The parameters of an attention: sizes, mask, score, head transforms, dropout.

use std::ops::Range;

use super::{TileMask, TileOrigin, TileScore};
use crate::simd::{Matrix, MatrixMut, Real, Vector};

/// The sizes of a call. Query head `h` reads key head `h / (heads / kv_heads)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of sequences.
    pub batch: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key and value heads. It divides `heads`.
    pub kv_heads: usize,
    /// The number of queries of a sequence.
    pub query: usize,
    /// The number of keys of a sequence.
    pub key: usize,
    /// The width of a query and a key, per head.
    pub width: usize,
    /// The width of a value, per head.
    pub value_width: usize,
}

impl Sizes {
    /// The number of queries of all sequences.
    pub fn queries(&self) -> usize {
        self.batch * self.query
    }

    /// The number of keys of all sequences.
    pub fn keys(&self) -> usize {
        self.batch * self.key
    }
}

/// The keys that a query attends to. The macro emits an implementation for every mask.
pub trait Mask: Sync {
    /// Whether query `q` of head `h` and sequence `b` attends to key `k`. Mark it `#[inline(always)]`.
    fn attends(&self, b: usize, h: usize, q: usize, k: usize) -> bool;

    /// The coverage of a rectangle, as far as it is known without the elements. [`Coverage::Partial`] is always correct. The
    /// ranges are never empty.
    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage;
}

/// The part of a rectangle of queries and keys that a mask lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// No pair attends: the rectangle need not be visited.
    Empty,
    /// Some pairs may attend.
    Partial,
    /// All pairs attend: the mask need not be evaluated.
    Full,
}

/// The mask of which all pairs attend.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl Mask for Everything {
    #[inline(always)]
    fn attends(&self, _: usize, _: usize, _: usize, _: usize) -> bool {
        true
    }

    fn coverage(&self, _: usize, _: usize, _: Range<usize>, _: Range<usize>) -> Coverage {
        Coverage::Full
    }
}

/// The maximum number of bias terms of a [`Score`].
pub const MOST_BIAS_TERMS: usize = 16;

/// A score modification: a function of the scaled product and of some numbers that depend on the position, its *bias terms*. The
/// macro emits the implementations. Mark every method `#[inline(always)]`.
///
/// A bias term is a part of a score that is no product of queries and keys: a position bias, a slope of the head, a distance. It
/// is evaluated for every pair of the visited tiles, also for masked ones. There it may have any value, but must not panic.
pub trait Score<E: Real>: Sync {
    /// The number of bias terms, at most [`MOST_BIAS_TERMS`].
    const PLANES: usize = 0;

    /// Writes a bias term for the query `at.q` and the keys from `at.k` on, one per element of `to`.
    fn bias_term(&self, _bias_term: usize, _at: TileOrigin, _to: &mut [E]) {}

    /// `len` numbers of a bias term that are stored already, as [`bias_term`](Self::bias_term) would write them. Then `bias_term`
    /// is not called.
    fn stored(&self, _bias_term: usize, _at: TileOrigin, _len: usize) -> Option<&[E]> {
        None
    }

    /// The modified score, from the scaled product and all bias terms.
    fn value<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V;

    /// The derivative of [`value`](Self::value) with respect to `score`.
    fn derivative<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V;

    /// Whether a bias term depends on a parameter.
    fn is_learned(&self, _bias_term: usize) -> bool {
        false
    }

    /// The derivative of [`value`](Self::value) with respect to a learned bias term.
    fn bias_term_derivative<V: Vector<Element = E>>(
        &self,
        _bias_term: usize,
        _: V,
        _bias_terms: &[V],
    ) -> V {
        V::zero()
    }

    /// Adds to the gradients of the parameters of a learned bias term. `d` is the gradient of the numbers that
    /// [`bias_term`](Self::bias_term) wrote. Where `d` is 0, its factor may be NaN, and the product must not be added.
    fn add_gradient(&self, _bias_term: usize, _at: TileOrigin, _d: &[E], _sums: ScoreSums<'_, E>) {}

    /// The number of gradients that [`add_gradient`](Self::add_gradient) adds to.
    fn sums(&self) -> SumLens {
        SumLens::default()
    }
}

/// The numbers of gradients that learned bias terms add to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumLens {
    /// The gradients that each query head has separately.
    pub per_head: usize,
    /// The gradients that all heads share.
    pub shared: usize,
}

/// Accumulators for the gradients of learned bias terms, with the lengths of [`SumLens`].
#[derive(Debug)]
pub struct ScoreSums<'a, E> {
    /// The accumulators of the query head.
    pub per_head: &'a mut [E],
    /// The accumulators of all heads.
    pub shared: &'a mut [E],
}

impl<E> ScoreSums<'_, E> {
    /// The same accumulators, for a shorter lifetime.
    #[inline(always)]
    pub fn reborrow(&mut self) -> ScoreSums<'_, E> {
        ScoreSums {
            per_head: self.per_head,
            shared: self.shared,
        }
    }
}

/// The function from scores to weights, over the keys that a query attends to. The other keys have the weight 0. Weights whose
/// products would be subnormal are 0, too. For exponentials these are below 2^-80 (`f32`) and 2^-900 (`f64`) of the largest so
/// far, where the sink or the 1 counts, and in the derivative of their sum. Where the score function computes the weight, they
/// are below 2^-100 and 2^-950.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Normalizer<'a, E> {
    /// `s`: the score is the weight.
    Identity,
    /// `exp(s) / Σ exp(s)`
    Softmax,
    /// `exp(s) / (1 + Σ exp(s))`
    Softmax1,
    /// `exp(s) / (exp(sink) + Σ exp(s))`, with a sink per query head: `[heads]`.
    Sink(&'a [E]),
    /// `max(s - τ, 0)`, with the `τ` for which the weights of a query have the sum 1.
    Sparsemax,
    /// `max(s / 2 - τ, 0)²`, with the `τ` for which the weights of a query have the sum 1.
    Entmax15,
}

/// Dropout of weights. The random numbers are [`Philox4x32`](crate::random::Philox4x32) with this seed, at the counter
/// `[k / 4, q, h, b]`, word `k % 4`.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability that a weight is dropped.
    pub p: f64,
    /// The seed of the generator.
    pub seed: u64,
}

/// The transform of a query, a key or a value, applied row by row as a tile is loaded.
#[derive(Clone, Copy, Debug)]
pub struct HeadTransform<'a, E> {
    /// The bias of the projection, if it was not added: a number for every column, all heads side by side.
    pub bias: Option<&'a [E]>,
    /// The norm, if there is one.
    pub norm: Option<Norm<'a, E>>,
    /// The rotation of pairs of coordinates by the position, if there is one.
    pub rope: Option<Rope<'a, E>>,
}

impl<'a, E: Copy> HeadTransform<'a, E> {
    /// The same for vectors of which the first has this position.
    pub fn from(&self, first: usize) -> Self {
        let rope = self.rope.map(|Rope { cos, sin }| Rope {
            cos: cos.some_rows(first..cos.rows()),
            sin: sin.some_rows(first..sin.rows()),
        });
        Self { rope, ..*self }
    }

    /// The same for the vectors of one head, which have this width.
    #[inline(always)]
    pub(super) fn of_head(&self, head: usize, width: usize) -> Self {
        let bias = self.bias.map(|bias| &bias[head * width..][..width]);
        Self { bias, ..*self }
    }
}

impl<E> HeadTransform<'_, E> {
    /// Whether vectors are unchanged.
    pub(super) fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.norm.is_none() && self.rope.is_none()
    }
}

impl<E> Default for HeadTransform<'_, E> {
    /// The identity.
    fn default() -> Self {
        let bias = None;
        let norm = None;
        let rope = None;
        Self { bias, norm, rope }
    }
}

/// The norm of vectors of a head.
#[derive(Clone, Copy, Debug)]
pub enum Norm<'a, E> {
    /// `x / sqrt(mean(x²) + 1e-6) * gain`, with a gain of the width.
    Rms(&'a [E]),
    /// `x / sqrt(Σ x² + 1e-6)`
    L2,
}

/// The angles of a rotary embedding. `(x[i], x[i + width / 2])` at position `p` is rotated by the angle with the cosine and sine
/// of row `p`, column `i`.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a, E> {
    /// `[positions, width / 2]`
    pub cos: Matrix<'a, E>,
    /// `[positions, width / 2]`
    pub sin: Matrix<'a, E>,
}

/// The similarity of a query and a key.
#[derive(Clone, Copy, Debug)]
pub enum Similarity<'a, E> {
    /// `scale * (q · k)`
    Dot {
        /// The scale.
        scale: E,
    },
    /// `Σ w[h, n] tanh(q[n] + k[n])`, with a row of weights per query head: `[heads, width]`.
    Additive {
        /// The weights.
        w: Matrix<'a, E>,
    },
}

/// The parameters of an attention call, without its tensors.
///
/// Queries are a matrix of `batch * query` rows and `heads * width` columns, keys of `batch * key` rows and `kv_heads * width`
/// columns, values of `kv_heads * value_width` columns, the output of `heads * value_width`. This is the layout of a projection's
/// output: the heads are side by side.
#[derive(Clone, Copy)]
pub struct Attention<'a, E> {
    /// The sizes.
    pub sizes: Sizes,
    /// The transform of queries as they are loaded.
    pub query: HeadTransform<'a, E>,
    /// The transform of keys as they are loaded.
    pub key: HeadTransform<'a, E>,
    /// The transform of values as they are loaded. It may have a bias only, since the derivative supports no other.
    pub value: HeadTransform<'a, E>,
    /// The similarity of queries and keys.
    pub similarity: Similarity<'a, E>,
    /// The score modification, if there is one.
    pub score: Option<&'a dyn TileScore<E>>,
    /// The mask.
    pub mask: &'a dyn TileMask<E>,
    /// The normalizer.
    pub normalizer: Normalizer<'a, E>,
    /// The dropout of weights.
    pub dropout: Option<Dropout>,
}

/// The gradients of an attention. All are overwritten. A gradient that is `None` is not computed.
#[derive(Debug)]
pub struct Gradients<'a, E> {
    /// The gradient of the queries.
    pub q: MatrixMut<'a, E>,
    /// The gradient of the keys.
    pub k: MatrixMut<'a, E>,
    /// The gradient of the values.
    pub v: MatrixMut<'a, E>,
    /// The gradients of the parameters of the bias terms.
    pub score: Option<ScoreGradients<'a, E>>,
    /// The gradient of the gain of the queries' norm.
    pub query_gain: Option<&'a mut [E]>,
    /// The gradient of the gain of the keys' norm.
    pub key_gain: Option<&'a mut [E]>,
    /// The gradient of the weights of the additive similarity.
    pub w: Option<MatrixMut<'a, E>>,
    /// The gradient of the sinks.
    pub sink: Option<&'a mut [E]>,
}

/// The gradients that [`Score::add_gradient`] has accumulated over all pairs.
#[derive(Debug)]
pub struct ScoreGradients<'a, E> {
    /// `[heads, SumLens::per_head]`
    pub per_head: MatrixMut<'a, E>,
    /// `[SumLens::shared]`
    pub shared: &'a mut [E],
}
