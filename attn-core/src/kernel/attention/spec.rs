//! The parameters of an attention: sizes, transforms of heads, similarity, normalizer, dropout.

use super::heads::Heads;
use super::tile_traits::{TileMask, TileScore};
use crate::kernel::Dtype;
use crate::kernel::norm::Gain;
use crate::random::Seed;
use crate::simd::{Matrix, MatrixMut};

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

/// From scores to weights, over the keys that a query attends to; the others have weight 0. So have those whose products
/// would be subnormal: of exponentials, below 2^-80 (`f32`) and 2^-900 (`f64`) of the largest so far, the sink or the 1 among them,
/// and in the derivative of their sum; where the score function gives the weight, below 2^-100 and 2^-950.
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
/// `[k / 4, q, h, first + b]`, word `k % 4`.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    /// The probability that a weight is dropped.
    pub p: f64,
    /// The seed of the generator.
    pub seed: u64,
    /// The number of the first sequence: those before it are in other parts of the batch.
    pub first: usize,
}

impl Dropout {
    /// Dropout of so many sequences, which are a part of a batch.
    pub fn new(p: f64, seed: Seed, batch: usize) -> Self {
        Self {
            p,
            seed: seed.key,
            first: seed.part.before(batch),
        }
    }
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

impl<E: Copy> Attention<'_, E> {
    /// The same for sequence `b`: its vectors begin at the first place.
    pub(super) fn of_sequence(&self, b: usize) -> Self {
        Self {
            query: self.query.of_sequence(b, self.sizes.query),
            key: self.key.of_sequence(b, self.sizes.key),
            ..*self
        }
    }
}

impl<'a, E: Copy> HeadTransform<'a, E> {
    /// The same for vectors of which the first has this position.
    pub fn from(&self, first: usize) -> Self {
        let rope = self.rope.map(|rope| rope.from(first));
        Self { rope, ..*self }
    }

    /// The same for the vectors of sequence `b`, of sequences of `len` vectors.
    pub(super) fn of_sequence(&self, b: usize, len: usize) -> Self {
        let rope = self.rope.map(|rope| Rope {
            rows: rope.rows.map(|rows| &rows[b * len..][..len]),
            ..rope
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
    /// The place of row `row`, of sequences of `len` rows, by which its position is found.
    pub(super) fn place(&self, row: usize, len: usize) -> usize {
        let has_rows = self.rope.as_ref().is_some_and(|rope| rope.rows.is_some());
        if has_rows { row } else { row % len }
    }

    /// Whether vectors are unchanged.
    pub(super) fn is_nothing(&self) -> bool {
        self.bias.is_none() && self.is_shift()
    }

    /// Whether at most a bias is added: then the gradient of the vectors is that of the transformed ones.
    pub(super) fn is_shift(&self) -> bool {
        self.norm.is_none() && self.rope.is_none()
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

/// The norm of vectors of a head.
#[derive(Clone, Copy, Debug)]
pub enum Norm<'a, E> {
    /// `x / sqrt(mean(x²) + epsilon) * gain`, with a gain of the width.
    Rms {
        /// The factor.
        gain: Gain<&'a [E]>,
        /// It keeps a vector of zeros finite.
        epsilon: f64,
    },
    /// `x / sqrt(Σ x² + epsilon)`
    L2 {
        /// It keeps a vector of zeros finite.
        epsilon: f64,
    },
}

/// The angles of a rotary embedding: pair `i` of a vector is rotated by the angle with the cosine and sine of its row, column `i`. With
/// fewer pairs than a vector has, its last coordinates stay.
#[derive(Clone, Copy, Debug)]
pub struct Rope<'a, E> {
    /// `[positions, pairs]`
    pub cos: Matrix<'a, E>,
    /// `[positions, pairs]`
    pub sin: Matrix<'a, E>,
    /// Whether pair `i` is `(x[2 i], x[2 i + 1])`, and not `(x[i], x[i + pairs])`.
    pub interleaved: bool,
    /// The row of every vector, `[batch * len]`; without them it is the place of the vector in its sequence.
    pub rows: Option<&'a [usize]>,
}

impl<'a, E: Copy> Rope<'a, E> {
    /// The same for vectors of which the first has this place.
    fn from(self, first: usize) -> Self {
        let Self { cos, sin, rows, .. } = self;
        match rows {
            Some(rows) => Self {
                rows: Some(&rows[first..]),
                ..self
            },
            None => Self {
                cos: cos.some_rows(first..cos.rows()),
                sin: sin.some_rows(first..sin.rows()),
                ..self
            },
        }
    }

    /// The cosines and sines of the vector at a place of its sequence.
    #[inline(always)]
    pub(super) fn at(&self, place: usize) -> [&'a [E]; 2] {
        let row = self.rows.map_or(place, |rows| rows[place]);
        [self.cos.row(row), self.sin.row(row)]
    }
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

/// Heads that talk to each other: a score or a weight becomes a sum over those of all heads. Without matrices they do not.
///
/// The mask is then the same for all heads.
#[derive(Clone, Copy)]
pub struct TalkingHeads<'a, E> {
    /// `score[g] = Σ scores[g, h] score[h]`, after the score modification and before the mask: `[heads, heads]`.
    pub scores: Option<Matrix<'a, E>>,
    /// With [`Normalizer::Identity`], the function from a mixed score to its weight. It has no bias terms.
    pub weigh: Option<&'a dyn TileScore<E>>,
    /// `weight[g] = Σ weights[g, h] weight[h]`, before dropout: `[heads, heads]`.
    pub weights: Option<Matrix<'a, E>>,
}

impl<E> TalkingHeads<'_, E> {
    /// Whether they do.
    pub(super) fn is_any(&self) -> bool {
        self.scores.is_some() || self.weights.is_some()
    }
}

impl<E> Default for TalkingHeads<'_, E> {
    /// Every head for itself.
    fn default() -> Self {
        Self {
            scores: None,
            weigh: None,
            weights: None,
        }
    }
}

/// The parameters of an attention call, without its tensors.
///
/// Queries are a matrix of `batch * query` rows and `heads * width` columns, keys of `batch * key` rows and `kv_heads * width`
/// columns, values of `kv_heads * value_width` columns, the output of `heads * value_width`. This is the layout of a projection's
/// output: the heads are side by side. Each of them may have another [layout](super::HeadLayout).
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
    /// The matrices by which heads talk to each other, if they do.
    pub talking: TalkingHeads<'a, E>,
    /// The dropout of weights.
    pub dropout: Option<Dropout>,
    /// The numbers that the products of queries, keys, values, weights and their gradients multiply. Where heads talk to each other, or the similarity
    /// is additive, they are always those of the model.
    pub dtype: Dtype,
}

/// The results of the forward pass. A matrix is an output without weights.
#[derive(Debug)]
pub struct Outputs<'a, E> {
    /// The output.
    pub out: Heads<MatrixMut<'a, E>>,
    /// The weights, if they are a result, `[batch, heads, query, key]`: after dropout, and exactly 0 where the mask hides a key.
    pub weights: Option<&'a mut [E]>,
}

impl<'a, E, M: Into<Heads<MatrixMut<'a, E>>>> From<M> for Outputs<'a, E> {
    fn from(out: M) -> Self {
        let out = out.into();
        let weights = None;
        Self { out, weights }
    }
}

/// The gradients of the results of the forward pass. A matrix is the gradient of an output which alone was used.
#[derive(Clone, Copy, Debug)]
pub struct OutputGradients<'a, E> {
    /// The gradient of the output.
    pub out: Heads<Matrix<'a, E>>,
    /// The gradient of `lse`, `[batch, heads, query]`.
    pub lse: Option<&'a [E]>,
    /// The gradient of the weights.
    pub weights: Option<WeightGradients<'a, E>>,
}

/// The weights that the forward pass wrote, and their gradients, both `[batch, heads, query, key]`.
#[derive(Clone, Copy, Debug)]
pub struct WeightGradients<'a, E> {
    /// The weights.
    pub weights: &'a [E],
    /// Their gradients. Those of masked pairs have no effect, even if they are NaN.
    pub d: &'a [E],
}

impl<'a, E, M: Into<Heads<Matrix<'a, E>>>> From<M> for OutputGradients<'a, E> {
    fn from(out: M) -> Self {
        let out = out.into();
        let lse = None;
        let weights = None;
        Self { out, lse, weights }
    }
}

/// The results of the backward pass. All of them are overwritten; one that is `None` is not computed. The gradients of queries, keys and
/// values stand as these do.
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
    /// The gradient of [`TalkingHeads::scores`].
    pub mix_scores: Option<MatrixMut<'a, E>>,
    /// The gradient of [`TalkingHeads::weights`].
    pub mix_weights: Option<MatrixMut<'a, E>>,
}

/// The gradients that [`Score::add_gradient`](super::Score::add_gradient) has added up over all places.
#[derive(Debug)]
pub struct ScoreGradients<'a, E> {
    /// `[heads, SumLens::per_head]`
    pub per_head: MatrixMut<'a, E>,
    /// `[SumLens::shared]`
    pub shared: &'a mut [E],
    /// `[batch * heads, SumLens::per_sequence]`
    pub per_sequence: MatrixMut<'a, E>,
    /// Zeros, `[SumLens::pairs, batch, heads, query, key]`.
    pub pairs: &'a mut [E],
}
