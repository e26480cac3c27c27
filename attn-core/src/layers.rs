//! Operations on slices, forward and backward, for emitted code.
//!
//! An operation of [`ops`](crate::ops) is one of these on the tape. A declared model has many of them in one operation. The
//! caller passes the buffer of the result, and a [`GradTarget`](crate::fused::GradTarget) for each gradient.

pub use crate::ops::{
    CrossEntropyOptions,
    buffer::slices::Constants,
    concat::slices::{concat, concat_along, concat_along_backward, concat_backward},
    convolution::{
        Channels,
        slices::{Convolve, least_windows, length_of_windows},
    },
    cross_entropy::{
        Reduction as LossReduction,
        slices::{CrossEntropy, cross_entropy_footprint},
    },
    cumsum::slices::{cumsum, cumsum_backward},
    einsum::slices::{Contraction, einsum, einsum_backward},
    elementwise::{elementwise, elementwise_backward},
    embedding::slices::Table,
    expand::slices::{expand, expand_backward, expand_footprint, expanded_axes},
    feed_forward::slices::{FeedForward, Hidden, HiddenLayer, feed_forward_footprint},
    float::slices::float,
    gather::{
        Along,
        slices::{Indexing, gather, gather_backward, scatter_add, scatter_add_backward},
    },
    grouped_linear::{
        Groups,
        slices::{ByGroup, Routing},
    },
    l2_norm::slices::{l2_norm, l2_norm_along, l2_norm_along_backward, l2_norm_backward},
    linear_cross_entropy::slices::{KeptLoss, LinearCrossEntropy, linear_cross_entropy_footprint},
    max_pool::slices::{max_pool, max_pool_backward},
    mean_pool::slices::{mean_pool, mean_pool_backward},
    norm::group_slices::{GroupNorm, group_norm_footprint},
    norm::slices::{Norm, norm_footprint},
    one_hot::slices::one_hot,
    pad::slices::{pad, pad_backward},
    param::slices::Param,
    permute::slices::{permute, permute_backward},
    rank::slices::{arange, top_k},
    reduce::slices::{Reduction, reduce, reduce_backward},
    rope::slices::{Positions, rope, rope_backward},
    sinusoidal_position::slices::{sinusoidal_position, sinusoids},
    slice::slices::{slice, slice_backward},
    softmax::slices::{
        softmax, softmax_along, softmax_along_backward, softmax_backward, softmax_where,
        softmax_where_backward,
    },
    stack::slices::stack,
    windows::slices::{count_windows, windows, windows_backward},
};

pub use crate::kernel::dropout::Dropout;
