//! Attention layers and networks, declared in a macro. The compiler checks their shapes. They are trained on the tensors of [`dfdx`],
//! on the CPU, in `f32` or `f64`. There is no GPU backend.
//!
//! ```
//! use attn::prelude::*;
//!
//! attention! {
//!     /// Eight causal heads.
//!     pub struct SelfAttention<heads = 8, d_model = 64, mask = causal>;
//! }
//!
//! let dev = AutoDevice::default();
//! let layer = dev.build_module::<SelfAttention, f32>();
//! let x: Tensor<(usize, usize, Const<64>), f32, _> = dev.sample_normal_like(&(2, 10, Const));
//! let (y, weights) = layer.forward_with_weights(x);
//! assert_eq!(y.shape().concrete(), [2, 10, 64]);
//! assert_eq!(weights.shape().concrete(), [2, 8, 10, 10]); // [batch, heads, query, key]
//! ```
//!
//! - [`attention!`] declares a layer. Its page lists every key. A wrong spec is a compile error at its token.
//! - [`model!`] declares a whole network of such layers and others, and infers all shapes.
//! - The declared type is both builder and module. It may be part of dfdx's tuples, and of `Residual` if it takes one tensor. Its
//!   parameters have names (`q_proj.weight`). dfdx's optimizers train it. `checkpoint::save` and `checkpoint::load` save and load it.
//! - The macro takes the derivative. A layer is one operation on dfdx's tape, with a forward and a backward function over slices, which
//!   never store the matrix of scores. Code that is generic over the device requires [`Backend`].
//! - A wrong shape is a compile error in the layer's words: "`SelfAttention` takes [batch, seq, 64] or [seq, 64], not ..".
//! - An error that only the running program can find, such as two batch sizes that differ, is a typed [`Error`] of the `try_` methods.
//! - [`nn`] has other modules, each one operation on the tape: [`nn::Linear`], [`nn::LayerNorm`], [`nn::FeedForward`],
//!   [`nn::Embedding`], .. [`ops`] has the same as functions.
//! - [`train`] trains. `model.trainer(..)` of a model with a function `loss` takes whole steps: see [`train::Trainer`] and
//!   [training](crate::model!#training). For other losses there are optimizers, gradient clipping and accumulation. [`train::Fit`] is the
//!   loop around the steps, with evaluations, checkpoints and records.
//! - [`backward`] is a backward pass from a given gradient of a tensor.
//! - [`batches`] makes batches of tokens for training: blocks of a text or of a file, padding, packing.
//! - [`testing`] checks the derivatives of a layer or a model, and compares it with another one.
//! - [`generate`] has sessions of a causal model: tokens one by one, sampling, beam search, streams of text.
//! - [`maps`] are the attention weights of a model, `attention_maps(x)`. [`values`] are the results of its operations, and the first NaN.
//! - [`memory`] measures the memory of a training step. `activation_bytes(..)` of a layer or a model is the same number as a constant.
//! - [`Facts`] is the trait of `PARAMS`, `CONSTANTS`, `flops` and `summary`, for generic code.
//! - `text` has characters, bytes and byte pairs as tokens.
//! - `checkpoint` saves weights and the state of training. A killed process leaves a complete checkpoint. `checkpoint::layout` reads and
//!   writes files of PyTorch and Hugging Face. `examples/zoo` of the repository has networks that people know, with their checkpoints.
//! - [`onnx`] writes a declared model as an ONNX file for other runtimes, with `model.export_onnx(path)`.
//! - `viz` records training, with progress and a report, and draws attention maps, as pages, SVG, or in the terminal.
//! - [`when_rustc_says`] explains errors that come from rustc and not from the macros.
//!
//! # Debug builds
//!
//! Kernels without optimisation run about 90 times slower. Two lines in your program's `Cargo.toml` optimise them in debug builds, while
//! your own code still compiles quickly:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! # Threads
//!
//! Forward and backward passes, optimizers and sessions run on the threads of the current `rayon` pool. By default this is the global pool,
//! with one thread per logical core. The environment variable `RAYON_NUM_THREADS` sets another number, as `torch.set_num_threads` does in
//! PyTorch; so does `rayon::ThreadPoolBuilder::build_global` before the first pass. `pool.install(|| ..)` runs a pass in your own pool.
//!
//! Layers, models and functions of this crate compute the same bits for any number of threads. [`generate`](crate::generate#serving) shows
//! how several threads use one model.
//!
//! # A layer in a model
//!
//! ```
//! use attn::prelude::*;
//!
//! attention! {
//!     struct Causal<heads = 4, d_model = 32, mask = causal, dropout = 0.1>;
//! }
//!
//! type Block = (
//!     Residual<(LayerNorm1D<32>, Causal)>,
//!     Residual<(LayerNorm1D<32>, Linear<32, 128>, FastGeLU, Linear<128, 32>)>,
//! );
//! type Model = (Embedding<65, 32>, Repeated<Block, 2>, Linear<32, 65>);
//!
//! let dev = AutoDevice::default();
//! let mut model = dev.build_module::<Model, f32>();
//! let tokens: Tensor<Rank2<1, 6>, usize, _> = dev.zeros();
//! let logits = model.forward_mut(tokens.traced(model.alloc_grads()));
//! let gradients = logits.square().mean().backward();
//! assert_eq!(gradients.get(&model.1[0].0.0.1.q_proj.weight).shape().concrete(), [32, 32]);
//! ```
//!
//! # Data for masks
//!
//! `padding` and `document` masks read data of the call. The declaration decides which inputs `forward` accepts.
//!
//! ```
//! use attn::prelude::*;
//!
//! attention! {
//!     struct Encoder<heads = 2, d_model = 16, mask = padding>;
//! }
//!
//! let dev = AutoDevice::default();
//! let encoder = dev.build_module::<Encoder, f32>();
//! let x: Tensor<Rank3<2, 5, 16>, f32, _> = dev.sample_normal();
//! let valid_lens: Tensor<Rank1<2>, usize, _> = dev.tensor([5, 3]);
//! let y = encoder.forward((x, valid_lens));
//! ```
//!
//! Other data of a mask or a bias (ids of documents, distances in a graph, lengths of prefixes) are `data` of a body; see [`attention!`].
//!
//! # Custom scores and masks
//!
//! A body in place of the `;` defines scores and masks that no key covers. The macro differentiates it, checks that indices are in bounds
//! of the learned tensors, and finds the tiles that a mask leaves empty.
//!
//! ```
//! use attn::prelude::*;
//!
//! attention! {
//!     struct Recent<heads = 2, d_model = 16> {
//!         /// The decay of each head with the distance.
//!         param slope: [heads] = alibi_slopes;
//!         fn score(score, h, q_idx, kv_idx) { score - slope[h] * (q_idx - kv_idx) as f32 }
//!         fn mask(q_idx, kv_idx) { kv_idx <= q_idx && q_idx - kv_idx < 256 }
//!     }
//! }
//!
//! let dev = AutoDevice::default();
//! let layer = dev.build_module::<Recent, f32>();
//! let x: Tensor<Rank3<2, 5, 16>, f32, _> = dev.sample_normal();
//! let gradients = layer.forward(x.leaky_trace()).sum().backward();
//! assert_eq!(layer.slope.weight.array(), [0.0625, 0.00390625]);
//! assert!(gradients.get(&layer.slope.weight).array() != [0.0; 2]);
//! ```
//!
//! # Attention at run time
//!
//! Where queries, keys and values are there already, and the mask is known when the program runs, [`ops::attend`] is PyTorch's
//! `scaled_dot_product_attention`, and [`ops::Attend`] has its options and those of `flex_attention`: masks and score functions are
//! closures or tensors. They run on the same kernels. A function of a score computes with [`ops::Dual`] numbers, which carry the derivative.
//!
//! ```
//! use attn::{ops::Attend, prelude::*};
//!
//! let dev = AutoDevice::default();
//! let q: Tensor<Rank4<2, 4, 5, 8>, f32, _> = dev.sample_normal();
//! let k: Tensor<Rank4<2, 2, 5, 8>, f32, _> = dev.sample_normal();
//! let v: Tensor<Rank4<2, 2, 5, 3>, f32, _> = dev.sample_normal();
//! let (y, weights) = Attend::new()
//!     .lengths(vec![5, 3])
//!     .mask_by(|at| at.kv_idx <= at.q_idx)
//!     .score_by(|score, _| 30.0 * (score / 30.0).tanh())
//!     .forward_with_weights(q.leaky_trace(), k.clone(), v);
//! assert_eq!(weights.array()[1][0][4][3], 0.0);
//! assert!(y.sum().backward().get(&k).array() != k.array());
//! ```

#[doc = concat!("Declares an attention layer: a struct whose generics are the spec.\n\n", include_str!("attention.md"))]
#[doc = "# Keys\n"]
#[doc = attn_macros::key_table!()]
#[doc(alias(
    "MultiheadAttention",
    "MultiHeadAttention",
    "CausalSelfAttention",
    "self_attention",
    "cross_attention"
))]
#[doc(alias(
    "scaled_dot_product_attention",
    "sdpa",
    "FlashAttention",
    "flash_attn",
    "is_causal",
    "attn_mask"
))]
#[doc(alias(
    "FlexAttention",
    "flex_attention",
    "score_mod",
    "mask_mod",
    "create_block_mask"
))]
#[doc(alias(
    "causal",
    "sliding_window",
    "dilated_sliding_window",
    "prefix_lm",
    "chunked",
    "padding",
    "document"
))]
#[doc(alias(
    "neighborhood",
    "natten",
    "local",
    "window",
    "swin",
    "same_row",
    "same_col",
    "same_frame",
    "axial"
))]
#[doc(alias("attention_mask", "key_padding_mask", "document_id", "local_attention"))]
#[doc(alias(
    "GQA",
    "MQA",
    "grouped_query_attention",
    "multi_query_attention",
    "num_key_value_heads",
    "enable_gqa"
))]
#[doc(alias(
    "rope",
    "rotary",
    "RotaryEmbedding",
    "alibi",
    "rel_pos_bias",
    "relative_position",
    "relative_attention_bias"
))]
#[doc(alias("scaled_dot", "dot", "additive", "bilinear", "Bahdanau", "Luong"))]
#[doc(alias(
    "softmax",
    "softmax1",
    "sink",
    "sigmoid",
    "relu",
    "sparsemax",
    "entmax15",
    "logit_softcapping"
))]
#[doc(alias(
    "kv_heads",
    "softcap",
    "qk_norm",
    "qk_layernorm",
    "talking_heads",
    "TalkingHeadAttn"
))]
#[macro_export]
#[cfg(not(rust_analyzer))]
macro_rules! attention {
    ($($spec:tt)*) => {
        $crate::__private::attention! { [$crate] $($spec)* }
    };
}

/// The expansion in an editor, with names for completion and hover.
#[macro_export]
#[cfg(rust_analyzer)]
macro_rules! attention {
    ($($spec:tt)*) => {
        $crate::__private::attention! { [editor $crate] $($spec)* }
    };
}

#[doc = concat!("Declares a network: layers, and how values flow through them.\n\n", include_str!("model.md"))]
#[doc = "# Operations\n"]
#[doc = attn_macros::operation_table!()]
#[doc = "\n# Keys of `attend`\n\nTheir values are those of [`attention!`](crate::attention#keys).\n"]
#[doc = attn_macros::attend_key_table!()]
#[doc(alias(
    "Module",
    "Sequential",
    "nn_module",
    "GPT",
    "GPTConfig",
    "Block",
    "Transformer"
))]
#[doc(alias(
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TransformerDecoder",
    "TransformerDecoderLayer"
))]
#[doc(alias(
    "weight_tying",
    "tie_word_embeddings",
    "ModuleList",
    "summary",
    "torchinfo"
))]
#[macro_export]
#[cfg(not(rust_analyzer))]
macro_rules! model {
    ($($model:tt)*) => {
        $crate::__private::model! { [$crate] $($model)* }
    };
}

/// The expansion in an editor, with names for completion and hover.
#[macro_export]
#[cfg(rust_analyzer)]
macro_rules! model {
    ($($model:tt)*) => {
        $crate::__private::model! { [editor $crate] $($model)* }
    };
}

#[doc = include_str!("when_rustc_says.md")]
pub mod when_rustc_says {}

#[cfg(feature = "safetensors")]
pub use attn_core::checkpoint;
#[cfg(feature = "text")]
pub use attn_core::text;
#[cfg(feature = "viz")]
pub use attn_core::viz;
pub use attn_core::{
    Adapted, Backend, Constant, Element, Error, Facts, Lora, backward, batches,
    entry::Composed,
    kernel::attention::{Coverage, MaskBlocks},
    memory, nn, onnx, ops, testing, train, try_backward,
};

/// Data of a call: valid lengths for `padding`, ids for `document`, and the `data` of a body.
///
/// A layer accepts types that implement [`Padding`](data::Padding) or [`Documents`](data::Documents) for its shape, `(B, Q, K)` for
/// batched input and `(Q, K)` for unbatched, or [`Data`](data::Data) for the declared shape. Data are read and checked once per call,
/// before any tensor is made.
pub mod data {
    pub use attn_core::data::{Data, Documents, LengthsPerQuery, Padding, PositionIds};
}

pub mod generate {
    #![doc = include_str!("generate.md")]

    pub use attn_core::{
        generate::{
            Acceptance, Beam, BeamSearch, CacheMemory, Choice, Choices, Dtype, GenerateError,
            Generated, GeneratedBatch, InexactRow, Sampler, Sampling, SamplingError, Session,
            SessionError, Sessions, Speculative, Unconstrained, WeightFormat, WeightReport,
        },
        kernel::Matrix,
    };

    #[cfg(feature = "text")]
    pub use attn_core::generate::Written;
}

/// Attention weights of a model: one [`AttentionMap`](maps::AttentionMap) per attention.
///
/// `attention_maps(x)` of a declared model returns the maps in the order of execution. It keeps all weights, so its memory
/// grows with the square of the lengths. `attn::viz` (feature `viz`) draws them.
pub mod maps {
    pub use attn_core::maps::{AttentionMap, MapError};
}

/// The values inside of a model, and the first of them that is not finite.
///
/// `values(x)` of a declared model returns the result of each of its operations. PyTorch has a hook for each module instead,
/// `register_forward_hook`. `first_non_finite(x, loss)` names the operation that computes NaN or an infinity, forward or backward, as
/// `torch.autograd.detect_anomaly` does for the backward pass. See [looking inside](crate::model!#looking-inside).
pub mod values {
    pub use attn_core::values::{Backpropagate, NonFinite, Pass, Value, Values};
}

/// The imports of a program that declares and trains layers, in one line: `use attn::prelude::*;`.
///
/// It has the macros, [`Error`], the traits for generic code ([`Backend`], [`Element`], [`Facts`]), and all of
/// [dfdx's prelude](dfdx::prelude). A program may import both preludes, since their common names are the same items.
///
/// The layers of [`nn`] and the functions of [`ops`] are not in it, because dfdx has some of the same names. Import them by name,
/// `use attn::nn::Linear;`. Such an import shadows a name of a `*` import.
///
/// ```
/// use attn::{nn::Linear, prelude::*};
///
/// attention! {
///     struct Causal<heads = 2, d_model = 8, mask = causal>;
/// }
///
/// fn loss<E: Element, D: Backend<E>>(y: Tensor<Rank3<2, 5, 4>, E, D>) -> Tensor<Rank0, E, D> {
///     y.square().mean()
/// }
///
/// let dev = AutoDevice::default();
/// let model = dev.build_module::<(Causal, Linear<8, 4>), f32>();
/// let x: Tensor<Rank3<2, 5, 8>, f32, _> = dev.sample_normal();
/// assert!(loss(model.forward(x)).array() > 0.0);
/// ```
pub mod prelude {
    #[doc(no_inline)]
    pub use crate::{Backend, Element, Error, Facts, attention, dfdx::prelude::*, model};
}

/// The crate `dfdx`: tensors, tape and optimizers. With its prelude from here, `backward` on a tensor without a tape is an error with an
/// explanation.
pub mod dfdx {
    pub use ::dfdx::*;

    /// dfdx's prelude.
    pub mod prelude {
        #[doc(no_inline)]
        pub use ::dfdx::prelude::*;
        #[doc(hidden)]
        pub use attn_core::traced::BackwardOfUntraced as _;
    }
}
/// rustc's messages use these short paths, also for names from a glob import.
#[doc(no_inline)]
pub use ::dfdx::{shapes::Const, tensor::Tensor};

/// The items that expansions refer to. They are not stable, and not for users.
#[doc(hidden)]
pub mod __private {
    /// The whole runtime crate, for the examples of its documentation.
    pub use attn_core as runtime;

    pub use core::{
        clone::Clone,
        convert::AsRef,
        default::Default,
        fmt::Debug,
        marker::{Copy, PhantomData},
        mem::drop,
        ops::Range,
    };
    pub use std::{path::Path, string::String, sync::Arc, vec::Vec};

    pub use attn_core::{
        Adapted, Backend, Constant, Element, Error, Facts, InitialField, LinearFields, Lora,
        Numbered, NumberedRounds,
        composed::*,
        data::*,
        entry::*,
        fit::*,
        fused::{
            Entry::{Free, Repeat, Take, Use},
            *,
        },
        generate::{
            Cache, Capacity, ContextCache, ContextState, Decode, DecodeState, DecodeWithContext,
            KeyRows, ModelDecoder, NewTokens, Recent, SequenceState, SequenceStates, Session,
            Sessions, StateOfScan, no_session,
        },
        init,
        kernel::{
            Dtype as ProductDtype, Matrix, MatrixMut, Real, activation as activations,
            attention::{
                Angles, AnglesAt, Attention, Coverage, Dropout, Everything,
                Gradients as AttentionGradients, HeadTransform, KeyNumbers, Mask, MaskBlocks, Norm,
                Normalizer, RopeScaling, Rotary, Score, ScoreSums, Similarity, Sizes, SumLens,
                TalkingHeads, TileOrigin, WeightGradients, angles, angles_at, head_transform,
                head_transform_backward, mask_density, per_head_linear, per_head_linear_backward,
            },
            axis::{Axis, Counted},
            linear_parts::join_columns,
            loops::{
                InPlace, Loop, Rows, Write, column_sums, compute_here, known as loops, read,
                repeated, row_sums,
            },
            norm::Gain,
            parallel::run_pass,
            row_shares::{RowShare, RowShares},
            rows::assign,
            strips::{Slot as StripSlot, strips},
        },
        layers,
        maps::{AttentionMap, attention_maps},
        model::{
            Batch, Built, FusedBlock, FusedLayer, Outline, Pass, Random, Row, Seeds, Weighted,
            WithProjections, asserted, attended, axis, check_at_least, check_axis, check_ids_below,
            check_length, check_multiple, count, count_targets, num_elements, on,
            read_named_weights, read_weights, rows, summary, summary_of, tapes_of_results,
        },
        nn::{Linear, UnbiasedLinear, Weight},
        onnx::{OnnxError, Program, export},
        ops::Activation,
        project,
        random::{RandomU64, Seed},
        simd::{Vector, WriteMode, math, splat},
        sizes::*,
        traced::Records,
        train::{Algorithm, TrainBatch, Trainable, Trainer},
        unwrap,
        values::{Backpropagate, NonFinite, Values, first_non_finite, nan_of_input, record_values},
        visit_layer, visit_layers,
    };
    pub use attn_macros::{attention, model};

    pub use ::dfdx::shapes;

    /// The error type of the default device.
    pub type AutoErr = <AutoDevice as HasErr>::Err;

    pub use ::dfdx::{
        nn::{BuildOnDevice, Module, ModuleMut, ModuleVisitor, TensorCollection, TensorOptions},
        shapes::{Const, Dim, Dtype, HasShape, Shape},
        tensor::{
            AutoDevice, HasErr, NoneTape, OwnedTape, PutTape, Storage, Tape, Tensor, WithEmptyTape,
        },
        tensor_ops::Device,
    };

    /// The traits whose methods expansions call.
    pub mod traits {
        pub use ::dfdx::{
            nn::{ModuleVisitor as _, TensorCollection as _},
            shapes::{Dim as _, HasShape as _},
            tensor::{PutTape as _, WithEmptyTape as _},
        };

        pub use attn_core::{
            data::{Data as _, Documents as _, Padding as _, PositionIds as _},
            fit::{ContextFits as _, ValuesFits as _, XFits as _},
            model::Weighted as _,
        };
    }

    /// The imports of an expansion, so that it does not depend on the user's names.
    pub mod prelude {
        pub use core::{
            option::Option::{self, None, Some},
            result::Result::{self, Err, Ok},
        };
    }

    /// The names of the language, for editors.
    #[cfg(rust_analyzer)]
    pub mod keys {
        attn_macros::key_items!();
    }
}

/// The program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
