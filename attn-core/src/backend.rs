//! Which lowering a layer runs in.

use dfdx::tensor::{Cpu, Storage};
use dfdx::tensor_ops::Device;

use crate::Element;

/// A device that layers run on.
///
/// On [`Cpu`] a layer is one operation of the tape, on slices: the fused lowering. On another device it would be a chain
/// of dfdx's operations, the composed one, which means the same.
///
/// ```
/// use attn_core::Backend;
/// use dfdx::prelude::*;
///
/// fn runs_fused<D: Backend<f32>>(_: &D) -> bool {
///     D::FUSED
/// }
/// assert!(runs_fused(&Cpu::default()));
/// ```
pub trait Backend<E: Element>: Device<E> {
    /// Whether layers run fused.
    const FUSED: bool;

    /// The numbers in a storage, where [`FUSED`](Self::FUSED); elsewhere never called.
    #[doc(hidden)]
    fn host(storage: &mut <Self as Storage<E>>::Vec) -> &mut Vec<E>;
}

macro_rules! on_cpu {
    ($($element:ty),*) => {
        $(
            impl Backend<$element> for Cpu {
                const FUSED: bool = true;

                fn host(storage: &mut <Self as Storage<$element>>::Vec) -> &mut Vec<$element> {
                    storage
                }
            }
        )*
    };
}

on_cpu!(f32, f64);
