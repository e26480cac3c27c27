//! The element types of layers.

use dfdx::dtypes::Dtype;
use num_traits::Float;

use rand_distr::uniform::SampleUniform;

use crate::kernel::Kernels;

/// The element type of a layer: `f32` or `f64`.
///
/// It is one bound in place of the four that dfdx's layers need. The half types are not supported: dfdx's optimizers keep their
/// moments in the type of the parameter, and half precision is not enough for moments.
///
/// ```
/// use attn::Element;
///
/// fn halve<E: Element>(x: E) -> E {
///     x * E::of(0.5)
/// }
/// assert_eq!(halve(3.0_f32), 1.5);
/// ```
#[diagnostic::on_unimplemented(
    message = "a layer cannot be made of `{Self}`",
    label = "the numbers of a layer",
    note = "a layer is made of `f32` or `f64`"
)]
pub trait Element: Dtype + Float + Kernels + SampleUniform + sealed::Sealed {
    /// The element nearest to `value`.
    fn of(value: f64) -> Self;
}

impl Element for f32 {
    #[inline]
    fn of(value: f64) -> Self {
        value as Self
    }
}

impl Element for f64 {
    #[inline]
    fn of(value: f64) -> Self {
        value
    }
}

mod sealed {
    /// Only `f32` and `f64` are elements.
    pub trait Sealed: Sized {
        /// Appends numbers as bytes, the least significant one first.
        fn write_bytes(numbers: &[Self], to: &mut Vec<u8>);

        /// Calls `put` with each of `to` and the number that stands there in the bytes.
        fn read_bytes(bytes: &[u8], to: &mut [Self], put: impl Fn(&mut Self, Self));
    }

    macro_rules! sealed {
        ($($E:ident),*) => {$(
            impl Sealed for $E {
                fn write_bytes(numbers: &[Self], to: &mut Vec<u8>) {
                    let start = to.len();
                    to.resize(start + size_of_val(numbers), 0);
                    let (places, _) = to[start..].as_chunks_mut();
                    for (place, number) in places.iter_mut().zip(numbers) {
                        *place = number.to_le_bytes();
                    }
                }

                #[inline]
                fn read_bytes(bytes: &[u8], to: &mut [Self], put: impl Fn(&mut Self, Self)) {
                    let (numbers, _) = bytes.as_chunks();
                    for (to, number) in to.iter_mut().zip(numbers) {
                        put(to, $E::from_le_bytes(*number));
                    }
                }
            }
        )*};
    }

    sealed!(f32, f64);
}
