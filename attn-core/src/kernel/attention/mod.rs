//! Attention without a matrix of scores: tiles of scores, an online softmax, and the derivative from the same tiles.
//!
//! Dao et al., "FlashAttention" (2022), and Dao, "FlashAttention-2" (2023), on a CPU.

mod absent;
mod additive;
mod backward;
mod by_head;
mod continued;
mod dropout_mask;
mod entry;
mod forward;
mod key_block;
mod layout;
mod load;
mod mask_blocks;
mod on_pairs;
mod on_tiles;
mod per_head;
mod plan;
mod prepare;
mod queries;
mod rope;
mod scores;
mod softmax_state;
mod sparse;
mod spec;
mod sums;
mod weights;

#[cfg(test)]
mod tests;

pub use continued::{Continues, Positions, decode};
pub use entry::Attends;
pub use mask_blocks::{MaskBlocks, mask_density};
pub use on_pairs::{
    Coverage, Everything, MOST_BIAS_TERMS, Mask, Score, ScoreSums, SumLens, TileOrigin,
};
pub use on_tiles::{TileMask, TileScore};
pub use per_head::{PerHead, per_head_linear, per_head_linear_backward};
pub use prepare::{HeadTransforms, prepare, prepare_backward};
pub use rope::{Angles, angles};
pub use spec::{
    Attention, Dropout, Gradients, HeadTransform, Norm, Normalizer, Rope, ScoreGradients,
    Similarity, Sizes,
};
