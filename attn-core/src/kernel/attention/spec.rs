//! The parameters of an attention: sizes, transforms of heads, similarity, normalizer, dropout.

use super::on_tiles::{TileMask, TileScore};
use crate::simd::{Matrix, MatrixMut};

/// The sizes of a call. Query head `h` reads key head `h / (heads / kv_heads)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of sequences.
    pub batch: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Queries of a sequence.
    pub query: usize,
    /// Keys of a sequence.
    pub key: usize,
    /// The width of a query and a key, per head.
    pub width: usize,
    /// The width of a value, per head.
    pub value_width: usize,
}

impl Sizes {
    /// Queries of all sequences.
    pub fn queries(&self) -> usize {
        self.batch * self.query
    }

    /// Keys of all sequences.
    pub fn keys(&self) -> usize {
        self.batch * self.key
    }
}

/// From scores to weights, over the keys that a query attends to; the others have weight 0. So have those whose products
/// would be subnormal: of exponentials, below 2^-80 (`f32`) and 2^-900 (`f64`) of the largest so far, the sink or the 1 among them,
/// and in the derivative of their sum; where the score function gives the weight, below 2^-100 and 2^-950.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Normalizer<'a, E> {
    /// `s`: what the score function gives is the weight.
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

/// Dropout of weights: [`Philox4x32`](crate::random::Philox4x32) of this key, at the counter
/// `[k / 4, q, h, b]`, word `k % 4`.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability that a weight becomes 0.
    pub p: f64,
    /// Chooses which.
    pub seed: u64,
}

/// The transform of a query, a key or a value, row by row, as a tile of them is loaded.
#[derive(Clone, Copy, Debug)]
pub struct HeadTransform<'a, E> {
    /// The bias that the projection did not add: a number for every column, all heads side by side.
    pub bias: Option<&'a [E]>,
    /// Its length is taken out.
    pub norm: Option<Norm<'a, E>>,
    /// Its pairs of coordinates are rotated by its position.
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

    /// The same for the vectors of one head, which are so wide.
    #[inline(always)]
    pub(super) fn of_head(&self, head: usize, width: usize) -> Self {
        let bias = self.bias.map(|bias| &bias[head * width..][..width]);
        Self { bias, ..*self }
    }
}

impl<E> HeadTransform<'_, E> {
    /// Whether vectors are left as they are.
    pub(super) fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.norm.is_none() && self.rope.is_none()
    }
}

impl<E> Default for HeadTransform<'_, E> {
    /// No transform.
    fn default() -> Self {
        let bias = None;
        let norm = None;
        let rope = None;
        Self { bias, norm, rope }
    }
}

/// How the length of a vector is taken out.
#[derive(Clone, Copy, Debug)]
pub enum Norm<'a, E> {
    /// `x / sqrt(mean(x²) + 1e-6) * gain`, with a gain of the width.
    Rms(&'a [E]),
    /// `x / sqrt(Σ x² + 1e-6)`
    L2,
}

/// The angles of a rotary embedding: `(x[i], x[i + width / 2])` of position `p` is rotated by the angle whose cosine and
/// sine stand in row `p`, column `i`.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a, E> {
    /// `[positions, width / 2]`
    pub cos: Matrix<'a, E>,
    /// `[positions, width / 2]`
    pub sin: Matrix<'a, E>,
}

/// How a query and a key make a score.
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

/// Attention of one call: all but the tensors.
///
/// Queries are a matrix of `batch * query` rows and `heads * width` columns, keys of `batch * key` rows and
/// `kv_heads * width` columns, values of `kv_heads * value_width`, the output of `heads * value_width`: what a projection
/// writes, with the heads side by side.
#[derive(Clone, Copy)]
pub struct Attention<'a, E> {
    /// The sizes.
    pub sizes: Sizes,
    /// The transform of queries as they are loaded.
    pub query: HeadTransform<'a, E>,
    /// The transform of keys as they are loaded.
    pub key: HeadTransform<'a, E>,
    /// The transform of values as they are loaded: only a bias may be added, for the derivative knows no other.
    pub value: HeadTransform<'a, E>,
    /// How they make a score.
    pub similarity: Similarity<'a, E>,
    /// The score modification, if there is one.
    pub score: Option<&'a dyn TileScore<E>>,
    /// Which keys a query attends to.
    pub mask: &'a dyn TileMask<E>,
    /// From scores to weights.
    pub normalizer: Normalizer<'a, E>,
    /// Which weights are dropped.
    pub dropout: Option<Dropout>,
}

/// The results of the backward pass. All of them are overwritten; one that is `None` is not computed.
#[derive(Debug)]
pub struct Gradients<'a, E> {
    /// The gradient of the queries.
    pub q: MatrixMut<'a, E>,
    /// The gradient of the keys.
    pub k: MatrixMut<'a, E>,
    /// The gradient of the values.
    pub v: MatrixMut<'a, E>,
    /// The gradients of the parameters that the bias terms are computed from.
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

/// The gradients that [`Score::add_gradient`](super::Score::add_gradient) has added up over all places.
#[derive(Debug)]
pub struct ScoreGradients<'a, E> {
    /// `[heads, SumLens::per_head]`
    pub per_head: MatrixMut<'a, E>,
    /// `[SumLens::shared]`
    pub shared: &'a mut [E],
}
