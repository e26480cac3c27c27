//! The form in which a layer runs: fused or composed.

use dfdx::tensor::{Cpu, Storage, Tensor};
use dfdx::tensor_ops::Device;

use crate::{Element, kernel::parallel};

/// From this count on, two threads copy numbers faster than one.
const MANY: usize = 8 * parallel::SMALL;

/// A device that layers run on.
///
/// On [`Cpu`], the only such device, a layer is one operation on the tape, over slices: the fused form. On any other device, it is a
/// chain of dfdx's operations: the composed form, which has the same results.
///
/// ```
/// use attn::{dfdx::prelude::*, Backend};
///
/// fn runs_fused<D: Backend<f32>>(_: &D) -> bool {
///     D::FUSED
/// }
/// assert!(runs_fused(&Cpu::default()));
/// ```
#[diagnostic::on_unimplemented(
    message = "layers do not run on `{Self}` in `{E}`",
    label = "the device of a layer",
    note = "a layer runs on the `Cpu`, in `f32` or `f64`"
)]
pub trait Backend<E: Element>: Device<E> + Host<E> {
    /// Whether layers run fused.
    const FUSED: bool;

    /// Copies contiguous tensors to slices, on several threads if they are large.
    #[doc(hidden)]
    fn read(tensors: Vec<(&Tensor<(usize,), E, Self>, &mut [E])>) {
        for (tensor, to) in tensors {
            tensor.copy_into(to);
        }
    }
}

/// A [`Backend`] whose gradients can be accessed. Code with this bound alone compiles faster, as a [`Device`] has a hundred
/// supertraits.
pub trait Host<E: Element>: Storage<E> + Send + Sync {
    /// The numbers in a storage. Only called if layers run fused.
    #[doc(hidden)]
    fn host(storage: &mut <Self as Storage<E>>::Vec) -> &mut Vec<E>;
}

macro_rules! on_cpu {
    ($($element:ty),*) => {
        $(
            impl Host<$element> for Cpu {
                fn host(storage: &mut <Self as Storage<$element>>::Vec) -> &mut Vec<$element> {
                    storage
                }
            }

            impl Backend<$element> for Cpu {
                const FUSED: bool = true;

                fn read(tensors: Vec<(&Tensor<(usize,), $element, Self>, &mut [$element])>) {
                    let copy = |(tensor, to): (&Tensor<_, _, _>, &mut [$element])| tensor.copy_into(to);
                    if tensors.iter().map(|(_, to)| to.len()).sum::<usize>() < MANY {
                        tensors.into_iter().for_each(copy);
                    } else {
                        parallel::for_each(tensors, copy);
                    }
                }
            }
        )*
    };
}

on_cpu!(f32, f64);
