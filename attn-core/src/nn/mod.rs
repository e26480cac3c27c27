//! Parameters and layers.
//!
//! Layers for a model around attention. A type is its own builder, as a declared layer is: `Linear<8, 4>` is a name in a
//! `type Model = (..)`, and the built layer is `Linear<8, 4, E, D>`. They work in dfdx's tuples, `Residual` and `Repeated`, and train,
//! save and load as dfdx's layers do, under PyTorch's names. Each layer is one operation on the tape; the operations are functions in
//! [`ops`](crate::ops).
//!
//! | | | dfdx's |
//! | --- | --- | --- |
//! | [`Linear`], [`UnbiasedLinear`] | an affine map | of the same names |
//! | [`Conv1d`], [`Conv2d`], [`ConvTranspose1d`], [`ConvTranspose2d`] | convolutions; without a bias they are `Unbiased..` | of the same names |
//! | [`GroupedLinear`], [`UnbiasedGroupedLinear`] | an affine map for each group, such as an expert | |
//! | [`FeedForward`], [`UnbiasedFeedForward`], [`GatedFeedForward`], [`BiasedGatedFeedForward`] | two or three of them, and a nonlinearity | |
//! | [`LayerNorm`], [`RmsNorm`], [`GroupNorm`] | norms; without gain or bias they are `Unbiased..`, `Ungained..` and `Plain..`, with the gain `1 + weight` `OnePlus..` | `LayerNorm1D` |
//! | [`Embedding`], [`LearnedPosition`] | a vector per token, a vector per position | `Embedding` |
//! | [`Gelu`], [`GeluTanh`], [`Relu`], [`ReluSquared`], [`Silu`], [`Sigmoid`], [`Tanh`] | nonlinearities | `AccurateGeLU`, `FastGeLU`, `ReLU`, .. |
//! | [`SwiGlu`], [`GeGlu`], [`ReGlu`] | gates | |
//! | [`Weight`] | a learned tensor | |
//! | [`Dropout`] | | `Dropout` |
//! | [`Residual`] | a sum with the input | `Residual` |
//!
//! If dfdx's prelude is imported with a `*`, import these by name, which takes precedence.
//!
//! ```
//! use attn::{dfdx::nn::{DeviceBuildExt, Module, builders::Repeated}, nn::{Embedding, FeedForward, LayerNorm, Residual, UnbiasedLinear}};
//! use attn::dfdx::tensor::{Cpu, Tensor, ZerosTensor};
//! use attn::dfdx::shapes::{Rank2, Rank3};
//!
//! type Block = Residual<(LayerNorm<8>, FeedForward<8, 32>)>;
//! type Model = (Embedding<65, 8>, Repeated<Block, 2>, LayerNorm<8>, UnbiasedLinear<8, 65>);
//!
//! let dev = Cpu::default();
//! let model = dev.build_module::<Model, f32>();
//! let ids: Tensor<Rank2<2, 5>, usize, _> = dev.zeros();
//! let logits: Tensor<Rank3<2, 5, 65>, f32, _> = model.forward(ids);
//! ```

mod residual;

pub use residual::Residual;

// Each module is defined beside its operation.
pub use crate::ops::{
    activation::{Gelu, GeluTanh, Relu, ReluSquared, Sigmoid, Silu, Tanh},
    convolution::{
        Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Slide, Slides, UnbiasedConv1d,
        UnbiasedConv2d, UnbiasedConvTranspose1d, UnbiasedConvTranspose2d,
    },
    dropout::Dropout,
    embedding::Embedding,
    feed_forward::{BiasedGatedFeedForward, FeedForward, GatedFeedForward, UnbiasedFeedForward},
    gate::{GeGlu, ReGlu, SwiGlu},
    grouped_linear::{GroupedLinear, UnbiasedGroupedLinear},
    learned_position::{LearnedPosition, Sequence},
    linear::{Linear, UnbiasedLinear},
    norm::{
        GroupNorm, LayerNorm, OnePlusGroupNorm, OnePlusLayerNorm, OnePlusRmsNorm, PlainGroupNorm,
        PlainLayerNorm, PlainRmsNorm, RmsNorm, UnbiasedGroupNorm, UnbiasedLayerNorm,
        UnbiasedOnePlusGroupNorm, UnbiasedOnePlusLayerNorm, UngainedGroupNorm, UngainedLayerNorm,
    },
    param::Weight,
};
