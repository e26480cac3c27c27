//! Attention without a matrix of scores: tiles of scores, an online softmax, and the derivative from the same tiles.
//!
//! Dao et al., "FlashAttention" (2022), and Dao, "FlashAttention-2" (2023), on a CPU.

mod additive;
mod backward;
mod bands;
mod decode;
mod dropout_mask;
mod entry;
mod forward;
mod head_major;
mod head_transform;
mod heads;
mod key_block;
mod key_numbers;
mod key_panels;
mod layout;
mod load;
mod mask_blocks;
mod masked_weights;
mod one_query;
mod paged;
mod pair_mask;
mod pair_score;
mod pair_traits;
mod per_head;
mod plan;
mod queries;
mod rope;
mod rotary;
mod rotation;
mod rounded;
mod scores;
mod softmax_state;
mod sparse;
mod spec;
mod sums;
mod talking;
mod tile_operands;
mod tile_traits;
mod weight_rows;
mod weights;

#[cfg(test)]
mod tests;

pub use decode::{DecodeKernels, Positions, decode};
pub use entry::AttentionKernels;
pub use head_transform::{
    HeadTransforms, head_transform, head_transform_backward, one_head_transform,
};
pub use heads::{HeadLayout, Heads};
pub use key_numbers::{KeyNumbers, PAGE_NUMBERS, PagedNumbers};
pub use mask_blocks::{MaskBlocks, mask_density};
pub use paged::{KeySource, PAGE_ROWS, Page, Paged, PagedRows};
pub use pair_mask::{Attends, PairMask, PairTensor};
pub use pair_score::{PairFunction, PairGradients, PairScore, PairScores};
pub use pair_traits::{
    Coverage, Everything, MAX_BIAS_TERMS, Mask, PairSink, Score, ScoreSums, SumLens, TileOrigin,
};
pub use per_head::{PerHead, per_head_linear, per_head_linear_backward};
pub use rope::{Angles, AnglesAt, angles, angles_at, with_angles_at};
pub use rotary::{RopeScaling, Rotary};
pub use rotation::{Rotations, rotate_rows};
pub use spec::{
    Attention, Dropout, Gradients, HeadTransform, Norm, Normalizer, OutputGradients, Outputs, Rope,
    ScoreGradients, Similarity, Sizes, TalkingHeads, WeightGradients,
};
pub use tile_traits::{TileMask, TileScore};
