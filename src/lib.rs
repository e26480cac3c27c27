//! placeholder
#![allow(missing_docs)]

#[macro_export]
macro_rules! attention {
    ($($spec:tt)*) => {
        $crate::__private::attention! { [$crate] $($spec)* }
    };
}

pub use attn_core::{Error, data, nn};
pub use dfdx;

#[doc(hidden)]
pub mod __private {
    pub use attn_core::{
        Element, Error, composed::*, data::*, entry::*, fit::{ContextFits, XFits}, init, nn::Weight, sizes::*, unwrap,
    };
    pub use attn_macros::attention;
    pub use core::{clone::Clone, fmt::Debug};
    pub use dfdx::{
        nn::{
            BuildOnDevice, Module, ModuleMut, ModuleVisitor, TensorCollection, TensorOptions,
            modules::{Linear, UnbiasedLinear},
        },
        shapes::{Const, Dim, Dtype, Shape},
        tensor::{AutoDevice, NoneTape, Storage, Tape, Tensor},
        tensor_ops::Device,
    };

    pub mod traits {
        pub use dfdx::{
            nn::{ModuleVisitor as _, TensorCollection as _},
            shapes::{Dim as _, HasShape as _},
            tensor::{RandomU64 as _, WithEmptyTape as _},
        };
    }
    pub mod keys {
        attn_macros::key_items!();
    }
}
