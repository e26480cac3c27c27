//! Operations on tensors, each of which is one operation on the tape.
//!
//! dfdx composes a layer norm of about ten operations. Each of them reads and writes memory, and is on the tape. Here, a layer norm is one
//! operation on slices with an explicit derivative: see [`kernel`](crate::kernel).
//!
//! | | |
//! | --- | --- |
//! | [`linear`] | `x Wᵀ + b` |
//! | [`conv1d`], [`conv2d`] | convolutions over one or two axes |
//! | [`conv_transpose1d`], [`conv_transpose2d`] | transposed ones |
//! | [`grouped_linear`](fn@grouped_linear) | such a map for each group of rows: a mixture of experts |
//! | [`feed_forward`], [`gated_feed_forward`] | two such maps, and a nonlinearity between them |
//! | [`layer_norm`], [`rms_norm`], [`normalize`], [`l2_norm`] | normalisation of the last axis |
//! | [`group_norm`] | normalisation of groups of channels |
//! | [`l2_norm_along`] | normalisation of any axis |
//! | [`gelu`], [`gelu_tanh`], [`relu`], [`relu_squared`], [`silu`], [`sigmoid`], [`tanh`] | elementwise functions |
//! | [`swiglu`], [`geglu`], [`geglu_tanh`], [`reglu`] | one half of the last axis gates the other |
//! | [`embedding`] | rows of a table |
//! | [`dropout`] | random elements become 0 |
//! | [`add`], [`sub`], [`mul`] | of two tensors, which may be the same |
//! | [`scale`], [`shift`] | by a number |
//! | [`softmax`], [`softmax_along`] | softmax of the last axis, or of any axis |
//! | [`sum`], [`mean`], [`max`], [`min`], [`variance`], [`logsumexp`] | reductions of any axis |
//! | [`sum_where`], [`mean_where`], [`max_where`], [`min_where`], [`variance_where`], [`logsumexp_where`], [`softmax_where`] | the same of some numbers along an axis |
//! | [`cumsum`](fn@cumsum) | sums along an axis up to each place |
//! | [`argmax`], [`top_k`] | indices of the largest numbers |
//! | [`one_hot`](fn@one_hot) | ids as vectors with one 1 |
//! | [`float`](fn@float) | ids, lengths and marks as floats |
//! | [`expand`], [`broadcast`] | a tensor repeated along axes of size 1, and along new axes |
//! | [`concat`](fn@concat), [`concat_along`] | concatenation along the last axis, or any other |
//! | [`stack`](fn@stack) | values along a new axis |
//! | [`slice`](fn@slice), [`select`] | a range of an axis, one index of it |
//! | [`einsum`](fn@einsum) | products over any axes: of matrices, of vectors, in batches |
//! | [`gather`](fn@gather) | the numbers at indices of an axis |
//! | [`scatter_add`] | sums by their indices along an axis |
//! | [`permute`](fn@permute) | the axes in another order |
//! | [`reshape`](fn@reshape) | the same numbers in another shape |
//! | [`rearrange`] | axes that are split, put in another order and merged |
//! | [`pad`], [`shift_along`] | an axis with numbers at its ends, a tensor moved along an axis |
//! | [`windows`](fn@windows) | sliding windows along an axis |
//! | [`detach`](fn@detach) | the same numbers without a gradient |
//! | [`mean_pool`], [`mean_pool_padded`] | the mean over a sequence, with or without padding |
//! | [`max_pool`], [`max_pool_padded`] | the maximum over a sequence, with or without padding |
//! | [`sinusoidal_position`] | sinusoidal position embeddings |
//! | [`rope`](fn@rope), [`rope_at`] | rotary position embeddings |
//! | [`attend`](fn@attend), [`Attend`] | attention of queries to keys and values, with masks and score functions of the running program |
//! | [`masked_softmax`] | softmax of the valid numbers of the last axis |
//! | [`cross_entropy`], [`cross_entropy_per_target`] | the loss of a classifier |
//! | [`linear_cross_entropy`], [`linear_cross_entropy_per_target`] | an affine map and the loss of its results, without a tensor of these |
//!
//! Each has a fallible version with the prefix `try_`, whose errors are the panics of the other. An operation applies to the last axis,
//! unless it names another. Up to three axes of any size, including 0, may precede it. Inputs may be broadcast or permuted views, and two inputs may be the same
//! tensor.
//!
//! The layers in [`nn`](crate::nn) are these operations with parameters. A device that is not [`FUSED`](crate::Backend::FUSED)
//! uses the equivalent functions of [`composed`].

pub(crate) mod activation;
pub(crate) mod arithmetic;
mod attend;
pub(crate) mod buffer;
pub(crate) mod concat;
pub(crate) mod convolution;
pub(crate) mod cross_entropy;
pub(crate) mod cumsum;
pub(crate) mod detach;
pub(crate) mod dropout;
pub(crate) mod einsum;
pub(crate) mod elementwise;
pub(crate) mod embedding;
pub(crate) mod expand;
pub(crate) mod feed_forward;
pub(crate) mod float;
pub(crate) mod gate;
pub(crate) mod gather;
pub(crate) mod grouped_linear;
pub(crate) mod l2_norm;
pub(crate) mod learned_position;
pub(crate) mod linear;
pub(crate) mod linear_cross_entropy;
mod masked_softmax;
pub(crate) mod max_pool;
pub(crate) mod mean_pool;
pub(crate) mod norm;
pub(crate) mod one_hot;
pub(crate) mod pad;
pub(crate) mod param;
pub(crate) mod permute;
pub(crate) mod rank;
pub(crate) mod rearrange;
pub(crate) mod reduce;
mod reshape;
pub(crate) mod rope;
mod shape;
pub(crate) mod sinusoidal_position;
pub(crate) mod slice;
pub(crate) mod softmax;
pub(crate) mod stack;
mod twins;
pub(crate) mod windows;

pub use crate::data::Selection;
pub use crate::kernel::{
    activation::Activation as ActivationKernel,
    attention::{RopeScaling, Rotary},
    cross_entropy::Options as CrossEntropyOptions,
};
pub use crate::simd::Vector;
pub use activation::{
    Activation, Gelu, GeluTanh, Relu, ReluSquared, Sigmoid, Silu, Tanh, activate, gelu, gelu_tanh,
    relu, relu_squared, sigmoid, silu, tanh, try_activate, try_gelu, try_gelu_tanh, try_relu,
    try_relu_squared, try_sigmoid, try_silu, try_tanh,
};
pub use arithmetic::{
    add, mul, scale, shift, sub, try_add, try_mul, try_scale, try_shift, try_sub,
};
pub use attend::{Attend, AttendNormalizer, Dual, Pair, PairShape, attend, try_attend};
pub use concat::{concat, concat_along, try_concat, try_concat_along};
pub use convolution::{
    Channels, Convolves, Window, conv_transpose1d, conv_transpose2d, conv1d, conv2d,
    try_conv_transpose1d, try_conv_transpose2d, try_conv1d, try_conv2d,
};
pub use cross_entropy::{
    cross_entropy, cross_entropy_per_target, try_cross_entropy, try_cross_entropy_per_target,
};
pub use cumsum::{cumsum, try_cumsum};
pub use detach::{detach, try_detach};
pub use dropout::{dropout, try_dropout};
pub use einsum::{einsum, try_einsum};
pub use embedding::{embedding, try_embedding};
pub use expand::{broadcast, expand, try_broadcast, try_expand};
pub use feed_forward::{
    GatedMaps, UngatedMaps, feed_forward, gated_feed_forward, try_feed_forward,
    try_gated_feed_forward,
};
pub use float::{Discrete, float, try_float};
pub use gate::{
    gate, geglu, geglu_tanh, reglu, swiglu, try_gate, try_geglu, try_geglu_tanh, try_reglu,
    try_swiglu,
};
pub use gather::{gather, scatter_add, try_gather, try_scatter_add};
pub use grouped_linear::{GroupedAffine, grouped_linear, try_grouped_linear};
pub use l2_norm::{l2_norm, l2_norm_along, try_l2_norm, try_l2_norm_along};
pub(crate) use linear::visit_linear;
pub use linear::{Affine, linear, try_linear};
pub use linear_cross_entropy::{
    linear_cross_entropy, linear_cross_entropy_per_target, try_linear_cross_entropy,
    try_linear_cross_entropy_per_target,
};
pub use masked_softmax::{Valid, masked_softmax, try_masked_softmax};
pub use max_pool::{max_pool, max_pool_padded, try_max_pool, try_max_pool_padded};
pub use mean_pool::{mean_pool, mean_pool_padded, try_mean_pool, try_mean_pool_padded};
pub use norm::{
    Gain, GroupNormalization, GroupNormalizes, NormKind, Normalization, Normalizes, group_norm,
    layer_norm, normalize, rms_norm, try_group_norm, try_layer_norm, try_normalize, try_rms_norm,
};
pub use one_hot::{one_hot, try_one_hot};
pub use pad::{pad, shift_along, try_pad, try_shift_along};
pub use permute::{permute, try_permute};
pub use rank::{argmax, top_k, try_argmax, try_top_k};
pub use rearrange::{rearrange, try_rearrange};
pub use reduce::{
    logsumexp, logsumexp_where, max, max_where, mean, mean_where, min, min_where, sum, sum_where,
    try_logsumexp, try_logsumexp_where, try_max, try_max_where, try_mean, try_mean_where, try_min,
    try_min_where, try_sum, try_sum_where, try_variance, try_variance_where, variance,
    variance_where,
};
pub use reshape::{reshape, try_reshape};
pub use rope::{rope, rope_at, try_rope, try_rope_at};
pub use shape::{Append, EndsIn, LastAxis};
pub use sinusoidal_position::{sinusoidal_position, try_sinusoidal_position};
pub use slice::{select, slice, try_select, try_slice};
pub use softmax::{
    softmax, softmax_along, softmax_where, try_softmax, try_softmax_along, try_softmax_where,
};
pub use stack::{stack, try_stack};
pub use windows::{try_windows, windows};

/// The operations of [`ops`](self) with dfdx's operations, as a readable reference.
///
/// They run on devices that are not [`FUSED`](crate::Backend::FUSED), and the tests compare the others with them. Their indices must be
/// in bounds.
pub mod composed {
    pub use super::{
        arithmetic::composed::{add, mul, scale, shift, sub},
        concat::composed::{concat, concat_along},
        cross_entropy::composed::{cross_entropy, cross_entropy_per_target},
        cumsum::composed::cumsum,
        dropout::composed::dropout,
        einsum::composed::einsum,
        embedding::composed::embedding,
        expand::composed::{broadcast, expand},
        feed_forward::composed::{feed_forward, gated_feed_forward},
        gate::composed::gate,
        gather::composed::{gather, scatter_add},
        l2_norm::composed::{l2_norm, l2_norm_along},
        linear::composed::linear,
        max_pool::composed::max_pool,
        mean_pool::composed::mean_pool,
        norm::composed::{layer_norm, normalize, rms_norm},
        norm::group_composed::group_norm,
        pad::composed::{pad, shift_along},
        permute::composed::permute,
        rearrange::composed::rearrange,
        reduce::composed::{logsumexp, max, mean, min, sum, variance},
        reshape::composed::reshape,
        rope::composed::rope,
        sinusoidal_position::composed::sinusoidal_position,
        slice::composed::{select, slice},
        softmax::composed::{softmax, softmax_along},
        stack::composed::stack,
        windows::composed::windows,
    };
}

use dfdx::shapes::Shape;

use crate::{Error, entry::check_sizes};

/// Checks that a tensor of this shape can exist: a broadcast tensor may have more elements than fit the memory.
pub(crate) fn check_shape<Dev>(
    operation: &'static str,
    shape: &impl Shape,
) -> Result<(), Error<Dev>> {
    const AXES: [&str; 6] = ["axis 0", "axis 1", "axis 2", "axis 3", "axis 4", "axis 5"];
    let sizes: Vec<_> = AXES.into_iter().zip(shape.concrete()).collect();
    check_sizes(operation, &sizes)
}
