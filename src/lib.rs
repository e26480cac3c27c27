//! Declare attention in a macro, get its shapes checked by the compiler, train it with [`dfdx`].
//!
//! ```
//! use attn::{attention, dfdx::prelude::*};
//!
//! attention! {
//!     /// Eight heads that look back.
//!     pub struct SelfAttention<heads = 8, d_model = 64, mask = causal>;
//! }
//!
//! let dev = AutoDevice::default();
//! let layer = dev.build_module::<SelfAttention, f32>();
//! let x: Tensor<(usize, usize, Const<64>), f32, _> = dev.sample_normal_like(&(2, 10, Const));
//! let (y, weights) = layer.forward_with_weights(x);
//! assert_eq!(y.shape().concrete(), [2, 10, 64]);
//! assert_eq!(weights.shape().concrete(), [2, 8, 10, 10]); // [batch, heads, query, key]
//! # use dfdx::shapes::{HasShape, Shape};
//! ```
//!
//! - [`attention!`] declares a layer. Its page lists every key. A wrong spec is a compile error at its token.
//! - [`model!`] declares a whole network of such layers and others, with shapes inferred through all of it.
//! - The declared type is both builder and module: it stands in dfdx's tuples, and in `Residual` if it takes one tensor; its
//!   parameters are named (`q_proj.weight`), dfdx's optimizers train it, and `checkpoint::save` and `checkpoint::load` write and read it.
//! - The macro takes the derivative: a layer is one operation on dfdx's tape, a forward and a backward function over slices, in
//!   which scores never stand in memory. Code that is generic over the device asks for [`Backend`].
//! - A wrong shape is a compile error in the layer's words: "`SelfAttention` takes [batch, seq, 64] or [seq, 64], not ..".
//! - [`nn`] has the layers to put beside it, each one operation of the tape: [`nn::Linear`], [`nn::LayerNorm`],
//!   [`nn::FeedForward`], [`nn::Embedding`], ..; [`ops`] has them as functions, and [`train`] what changes parameters between steps.
//! - `attention_maps(x)` of a model says what each of its attentions looks at: [`maps`].
//! - `activation_bytes(..)` of a layer or a model is the memory that a training step takes beside parameters, exact, as a constant;
//!   [`memory`] is what it took.
//! - [`Facts`] is what is known of a layer or a model without running it, for generic code: `PARAMS`, `flops`, `summary`.
//! - `text` has characters, bytes and byte pairs as tokens.
//! - `checkpoint` keeps weights and the state of training on the disk, whole whenever the process is killed; `checkpoint::layout`
//!   reads and writes files of PyTorch and Hugging Face.
//! - `viz` shows what heads look at, in a page, as SVG or in the terminal, and how training went.
//! - An error in which rustc speaks, and not the macros, has an explanation: [`when_rustc_says`].
//! - What only the running program can know, such as two batch sizes that differ, is a typed [`Error`] of the `try_` methods.
//!
//! # Debug builds
//!
//! Kernels that are compiled without optimisation run some 90 times slower. Two lines of your program's `Cargo.toml` have them optimised in
//! debug builds, while your own code still compiles quickly:
//!
//! ```toml
//! [profile.dev.package."*"]
//! opt-level = 3
//! ```
//!
//! # A layer in a model
//!
//! ```
//! use attn::{attention, dfdx::prelude::*};
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
//! # use dfdx::shapes::{HasShape, Shape};
//! ```
//!
//! # Data for masks
//!
//! `padding` and `document` masks take data at the call; the declaration changes what `forward` accepts.
//!
//! ```
//! use attn::{attention, dfdx::prelude::*};
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
//! What else a mask or a bias depends on, ids of documents, distances in a graph, lengths of prefixes, is declared as `data` in a body;
//! see [`attention!`].
//!
//! # Functions of the score and of the place
//!
//! A body in place of the `;` says what no key does. The macro differentiates it, keeps the indices inside of the learned
//! tensors, and sees which tiles a mask empties.
//!
//! ```
//! use attn::{attention, dfdx::prelude::*};
//!
//! attention! {
//!     struct Recent<heads = 2, d_model = 16> {
//!         /// How fast a head forgets.
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

#[doc = concat!("Declares an attention layer: a struct whose generics are the spec.\n\n", include_str!("attention.md"))]
#[doc = "# Keys\n"]
#[doc = attn_macros::key_table!()]
#[macro_export]
#[cfg(not(rust_analyzer))]
macro_rules! attention {
    ($($spec:tt)*) => {
        $crate::__private::attention! { [$crate] $($spec)* }
    };
}

/// What stands in an editor instead: names, too, for completion and for what is shown of them.
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
#[macro_export]
#[cfg(not(rust_analyzer))]
macro_rules! model {
    ($($model:tt)*) => {
        $crate::__private::model! { [$crate] $($model)* }
    };
}

/// What stands in an editor instead, as of `attention!`.
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
    Backend, Element, Error, Facts,
    composed::Composed,
    data, generate,
    kernel::attention::{Coverage, MaskBlocks},
    maps, memory, nn, ops, train,
};
/// The tensors, the tape and the optimizers that the layers work with: the crate `dfdx`, whose `backward` on a tensor without a tape
/// is an error in words here.
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
/// With a short path in this crate, rustc's messages call them by it, also where they came in by a glob import.
#[doc(no_inline)]
pub use ::dfdx::{shapes::Const, tensor::Tensor};

/// What `attention!` expands to refers to this. Not for users, and not stable.
#[doc(hidden)]
pub mod __private {
    pub use core::{
        clone::Clone,
        default::Default,
        fmt::Debug,
        marker::{Copy, PhantomData},
        mem::drop,
        ops::Range,
    };
    pub use std::{string::String, sync::Arc, vec::Vec};

    pub use attn_core::{
        Backend, Element, Error, Facts, InitialField, LinearFields,
        composed::*,
        data::*,
        entry::*,
        fit::*,
        fused::{
            Entry::{Free, Repeat, Take, Use},
            *,
        },
        generate::{
            Cache, Decoding, InSession, NewTokens, Past, Remembers, Room, Session, Sessions,
            no_session,
        },
        init,
        kernel::{
            Matrix, MatrixMut,
            attention::{
                Angles, Attention, Coverage, Dropout, Everything, Gradients as AttentionGradients,
                Mask as Attends, MaskBlocks, Norm, Normalizer, Place, Prepare, Score as Modify,
                ScoreSums, Similarity, Sizes, SumLens, angles, mask_density, per_head_linear,
                per_head_linear_backward, prepare, prepare_backward,
            },
            axis::{Axis as AxisOf, Counted},
            parallel::inside,
        },
        maps::{AttentionMap, Attentions, Looked, attention_maps},
        model::{
            Batch, Built, InModel, OnSlices, Pass, Random, Row, Weighted, asserted, axis,
            check_axis, check_length, count, on, summary, summary_of, tapes_of_results,
        },
        nn::Weight,
        ops::Activation,
        simd::{Into, Vector, math},
        sizes::*,
        traced::Records,
        unwrap,
    };
    pub use attn_macros::{attention, model};

    /// The error of the device that types name by default.
    pub type AutoErr = <AutoDevice as HasErr>::Err;

    pub use ::dfdx::{
        nn::{
            BuildOnDevice, Module, ModuleMut, ModuleVisitor, TensorCollection, TensorOptions,
            modules::{Linear, UnbiasedLinear},
        },
        shapes::{Const, Dim, Dtype, HasShape, Shape},
        tensor::{
            AutoDevice, HasErr, NoneTape, PutTape, RandomU64, Storage, Tape, Tensor, WithEmptyTape,
        },
        tensor_ops::Device,
    };

    /// The traits whose methods the expansion calls.
    pub mod traits {
        pub use ::dfdx::{
            nn::{ModuleVisitor as _, TensorCollection as _},
            shapes::{Dim as _, HasShape as _},
            tensor::{PutTape as _, RandomU64 as _, WithEmptyTape as _},
        };

        pub use attn_core::{
            data::{Data as _, Documents as _, Padding as _},
            fit::{ContextFits as _, XFits as _},
            model::Weighted as _,
        };
    }

    /// What the expansion imports, whatever these names mean where it stands.
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
