//! Attention without a matrix of scores: tiles of them, an online softmax, and the derivative from the same tiles.
//!
//! Dao et al., "FlashAttention" (2022), and Dao, "FlashAttention-2" (2023), on a CPU.

mod spec;

pub use spec::{
    Attention, Coverage, Dropout, Everything, Gradients, Mask, Norm, Normalizer, Plain, Prepare, Rope, Score, Similarity,
    Sizes,
};
