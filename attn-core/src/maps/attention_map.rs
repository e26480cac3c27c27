//! The weights of one attention.

use crate::{entry::AttentionWeights, kernel::attention::MaskBlocks};

/// A shape that does not fit the weights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// The number of weights differs from that of the shape.
    #[error("a map of {shape:?} has {expected} weights, found {found}")]
    Weights {
        /// `[batch, heads, query, key]`
        shape: [usize; 4],
        /// The number of weights of a map of this shape.
        expected: usize,
        /// The actual number.
        found: usize,
    },

    /// No memory can hold the product of the nonzero sizes.
    #[error("a map of {shape:?} is larger than any memory")]
    TooLarge {
        /// `[batch, heads, query, key]`
        shape: [usize; 4],
    },
}

/// The attention weights of one attention of a model, for every sequence and head.
///
/// ```
/// use attn::maps::AttentionMap;
///
/// // One sequence, two heads, two queries, three keys.
/// let weights = vec![
///     1.0, 0.0, 0.0, 0.5, 0.5, 0.0, // the first head
///     0.2, 0.3, 0.5, 1.0, 0.0, 0.0, // the second one
/// ];
/// let map = AttentionMap::new("blocks.0.attention", [1, 2, 2, 3], weights);
/// assert_eq!(map.row(0, 1, 0), [0.2, 0.3, 0.5]);
/// // A query that halves its attention has an entropy of one bit.
/// assert_eq!(map.entropy(0, 0, 1), 1.0);
/// assert_eq!(map.mean_entropy(0), 0.5);
/// ```
#[doc(alias("need_weights", "output_attentions"))]
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMap {
    name: String,
    shape: [usize; 4],
    weights: Vec<f32>,
    blocks: Option<MaskBlocks>,
}

impl AttentionMap {
    /// A map of these weights, `[batch, heads, query, key]`, row-major.
    ///
    /// # Panics
    /// Where [`try_new`](AttentionMap::try_new) returns an error.
    #[track_caller]
    pub fn new(name: impl Into<String>, shape: [usize; 4], weights: Vec<f32>) -> Self {
        Self::try_new(name, shape, weights).unwrap_or_else(|error| panic!("{error}"))
    }

    /// [`new`](AttentionMap::new) for a shape from an unchecked source.
    ///
    /// ```
    /// use attn::maps::AttentionMap;
    ///
    /// let error = AttentionMap::try_new("mine", [1, 2, 2, 3], vec![0.5; 11]).unwrap_err();
    /// assert_eq!(error.to_string(), "a map of [1, 2, 2, 3] has 12 weights, found 11");
    /// ```
    ///
    /// # Errors
    /// [`MapError`].
    pub fn try_new(
        name: impl Into<String>,
        shape: [usize; 4],
        weights: Vec<f32>,
    ) -> Result<Self, MapError> {
        // A size of 0 must not hide an overflow of the others.
        let most = shape.iter().try_fold(1, |product: usize, &size| {
            let product = product.checked_mul(size.max(1))?;
            (product <= isize::MAX as usize).then_some(product)
        });
        if most.is_none() {
            return Err(MapError::TooLarge { shape });
        }
        let expected = shape.iter().product();
        let found = weights.len();
        if found != expected {
            return Err(MapError::Weights {
                shape,
                expected,
                found,
            });
        }
        Ok(Self {
            name: name.into(),
            shape,
            weights,
            blocks: None,
        })
    }

    /// A map of the weights that a layer returned, `[batch, heads, query, key]` or `[heads, query, key]`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, maps::AttentionMap};
    ///
    /// // As from `layer.forward_with_weights(x)`.
    /// let weights: Tensor<Rank3<1, 2, 2>, f32, _> = Cpu::default().tensor([[[1.0, 0.0], [0.5, 0.5]]]);
    /// let map = AttentionMap::of("my layer", &weights);
    /// assert_eq!(map.shape(), [1, 1, 2, 2]);
    /// assert_eq!(map.row(0, 0, 1), [0.5, 0.5]);
    /// ```
    pub fn of(name: impl Into<String>, weights: &impl AttentionWeights) -> Self {
        let (shape, weights) = weights.to_host();
        Self::new(name, shape, weights)
    }

    /// The same map with the blocks of the mask: `mask_blocks(queries, keys)` of a declared layer.
    pub fn with_mask_blocks(self, blocks: MaskBlocks) -> Self {
        let blocks = Some(blocks);
        Self { blocks, ..self }
    }

    /// The path of the attention in its model: `blocks.3.attention`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `[batch, heads, query, key]`
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// The number of sequences.
    pub fn batch(&self) -> usize {
        self.shape[0]
    }

    /// The number of heads.
    pub fn heads(&self) -> usize {
        self.shape[1]
    }

    /// The number of queries of a sequence.
    pub fn queries(&self) -> usize {
        self.shape[2]
    }

    /// The number of keys of a sequence.
    pub fn keys(&self) -> usize {
        self.shape[3]
    }

    /// All weights, `[batch, heads, query, key]`.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// The blocks of the mask, as if the data of the call hid no pair.
    pub fn mask_blocks(&self) -> Option<&MaskBlocks> {
        self.blocks.as_ref()
    }

    /// The weights of one head in one sequence, `[query, key]`.
    ///
    /// # Panics
    /// If there is no such sequence or head.
    pub fn head(&self, batch: usize, head: usize) -> &[f32] {
        let [batches, heads, queries, keys] = self.shape;
        assert!(
            batch < batches && head < heads,
            "there is no head {head} of sequence {batch}: `{}` has {heads} of {batches}",
            self.name
        );
        let size = queries * keys;
        &self.weights[(batch * heads + head) * size..][..size]
    }

    /// The weights of one query over the keys.
    ///
    /// # Panics
    /// If there is no such sequence, head or query.
    pub fn row(&self, batch: usize, head: usize, query: usize) -> &[f32] {
        assert!(
            query < self.queries(),
            "there is no query {query}: `{}` has {}",
            self.name,
            self.queries()
        );
        &self.head(batch, head)[query * self.keys()..][..self.keys()]
    }

    /// The entropy of a query's weights in bits: `-Σ w log₂ w`, where the weights are divided by their sum if that is not 1. It
    /// is 0 if the query attends to one key or none, `log₂ n` if it attends to `n` keys equally, NaN if a weight is not finite.
    ///
    /// # Panics
    /// If there is no such sequence, head or query.
    pub fn entropy(&self, batch: usize, head: usize, query: usize) -> f64 {
        let row = self.row(batch, head, query);
        let weights = || row.iter().map(|weight| f64::from(*weight));
        let sum: f64 = weights().sum();
        if !sum.is_finite() {
            return f64::NAN;
        }
        let terms = weights().filter(|weight| *weight > 0.0).map(|weight| {
            let share = weight / sum;
            -share * share.log2()
        });
        // The sum of no terms is -0.
        terms.sum::<f64>().max(0.0)
    }

    /// The mean [`entropy`](Self::entropy) of a head over all sequences and queries, in bits, or 0 if there is no query.
    ///
    /// # Panics
    /// If there is no such head.
    pub fn mean_entropy(&self, head: usize) -> f64 {
        let [batches, _, queries, _] = self.shape;
        let all = (0..batches).flat_map(|batch| (0..queries).map(move |query| (batch, query)));
        let sum: f64 = all
            .map(|(batch, query)| self.entropy(batch, head, query))
            .sum();
        sum / (batches * queries).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(shape: [usize; 4], weights: &[f32]) -> AttentionMap {
        AttentionMap::new("some", shape, weights.to_vec())
    }

    #[test]
    fn rows_and_heads_are_row_major() {
        let shape = [2, 3, 4, 5];
        let weights: Vec<f32> = (0..120).map(|i| i as f32).collect();
        let map = map(shape, &weights);
        for (b, h, q, k) in [(0, 0, 0, 0), (1, 2, 3, 4), (1, 0, 2, 3), (0, 2, 1, 0)] {
            let expected = (((b * 3 + h) * 4 + q) * 5 + k) as f32;
            assert_eq!(map.row(b, h, q)[k], expected);
            assert_eq!(map.head(b, h)[q * 5 + k], expected);
        }
    }

    #[test]
    fn entropy_counts_keys_in_bits() {
        let rows = [
            0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0,
        ];
        let map = map([1, 1, 3, 4], &rows);
        let entropies: Vec<_> = (0..3).map(|query| map.entropy(0, 0, query)).collect();
        assert_eq!(entropies, [2.0, 0.0, 0.0]);
        assert!(entropies.iter().all(|bits| bits.is_sign_positive()));
        assert_eq!(map.mean_entropy(0), 2.0 / 3.0);
    }

    #[test]
    fn entropy_divides_weights_by_their_sum() {
        // Weights as from a sigmoid.
        let even = map([1, 1, 1, 2], &[0.75, 0.75]);
        assert_eq!(even.entropy(0, 0, 0), 1.0);
        let odd = map([1, 1, 1, 2], &[0.25, 0.75]);
        let expected = 2.0 - 0.75 * 3.0_f64.log2();
        assert!((odd.entropy(0, 0, 0) - expected).abs() < 1e-15);
    }

    #[test]
    fn the_entropy_of_no_weights_is_0() {
        assert_eq!(map([0, 1, 3, 3], &[]).mean_entropy(0), 0.0);
        assert_eq!(map([2, 1, 0, 3], &[]).mean_entropy(0), 0.0);
        assert_eq!(map([2, 1, 3, 0], &[]).mean_entropy(0), 0.0);
    }

    #[test]
    #[should_panic(expected = "a map of [1, 2, 3, 4] has 24 weights, found 23")]
    fn a_shape_with_another_number_of_weights_panics() {
        map([1, 2, 3, 4], &[0.0; 23]);
    }

    #[test]
    #[should_panic(expected = "is larger than any memory")]
    fn a_shape_whose_product_overflows_panics() {
        map([1 << 62, 4, 1, 1], &[]);
    }

    #[test]
    #[should_panic(expected = "is larger than any memory")]
    fn an_overflow_beside_an_axis_of_0_panics() {
        map([usize::MAX, 1, 1, 0], &[]);
    }

    #[test]
    #[should_panic(expected = "there is no head 2 of sequence 0: `some` has 2 of 1")]
    fn a_missing_head_panics() {
        map([1, 2, 1, 1], &[0.0; 2]).head(0, 2);
    }

    #[test]
    fn the_entropy_of_weights_that_are_not_finite_is_nan() {
        for weight in [f32::NAN, f32::INFINITY] {
            let map = AttentionMap::new("a", [1, 1, 2, 2], vec![weight, 0.5, 0.5, 0.5]);
            assert!(map.entropy(0, 0, 0).is_nan() && map.mean_entropy(0).is_nan());
            assert_eq!(map.entropy(0, 0, 1), 1.0);
        }
    }
}
