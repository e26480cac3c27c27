//! The weights of one attention.

use crate::kernel::attention::MaskBlocks;

/// The weights with which one attention of a model looked from its queries at its keys, for every sequence and head.
///
/// ```
/// use attn_core::maps::AttentionMap;
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
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionMap {
    name: String,
    shape: [usize; 4],
    weights: Vec<f32>,
    blocks: Option<MaskBlocks>,
}

impl AttentionMap {
    /// A map of these weights, `[batch, heads, query, key]` in the order of memory.
    ///
    /// # Panics
    /// If there are more or fewer of them.
    pub fn new(name: impl Into<String>, shape: [usize; 4], weights: Vec<f32>) -> Self {
        let [batch, heads, queries, keys] = shape;
        assert_eq!(
            weights.len(),
            shape.iter().product::<usize>(),
            "[{batch}, {heads}, {queries}, {keys}] is not the shape of these weights"
        );
        Self {
            name: name.into(),
            shape,
            weights,
            blocks: None,
        }
    }

    /// The same with what the kernels make of the mask: `mask_blocks(queries, keys)` of a declared layer.
    pub fn with_mask_blocks(self, blocks: MaskBlocks) -> Self {
        let blocks = Some(blocks);
        Self { blocks, ..self }
    }

    /// Where the attention stands in its model: `blocks.3.attention`.
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

    /// What the kernels make of the mask, as if the data of the call let every pair through.
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

    /// With which weights one query looks at the keys.
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

    /// How evenly a query looks at its keys, in bits: `-Σ w log₂ w` of its weights, divided by their sum where that is not 1. 0 if it
    /// looks at one key or at none, `log₂ n` if at `n` keys alike.
    ///
    /// # Panics
    /// If there is no such sequence, head or query.
    pub fn entropy(&self, batch: usize, head: usize, query: usize) -> f64 {
        let row = self.row(batch, head, query);
        let weights = || row.iter().map(|weight| f64::from(*weight));
        let sum: f64 = weights().sum();
        let terms = weights().filter(|weight| *weight > 0.0).map(|weight| {
            let share = weight / sum;
            -share * share.log2()
        });
        // The sum of no terms is -0.
        terms.sum::<f64>().max(0.0)
    }

    /// The mean [`entropy`](Self::entropy) of a head over all sequences and queries, in bits; 0 if there is no query.
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
