//! Dispatch: an algorithm runs with the widest vectors of the machine.

use super::isa::{self, Isa};
use super::scalar;
use super::vector::{Gemm, Kernel, Real, Vector};

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// Runs `kernel` with [`Isa::current`].
#[inline]
pub fn run<K: Kernel>(kernel: K) -> K::Output {
    Isa::current().run(kernel)
}

impl Isa {
    /// Runs `kernel` with this instruction set.
    ///
    /// # Panics
    /// If the machine lacks it.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        K::Element::run_on(self, kernel)
    }
}

macro_rules! real {
    ($element:ident, $scalar:ident, $avx2:ident, $avx512:ident, $neon:ident, $gemm:ident) => {
        impl Real for $element {
            const ZERO: Self = 0.0;
            const HALF: Self = 0.5;
            const ONE: Self = 1.0;
            const TWO: Self = 2.0;
            const INFINITY: Self = $element::INFINITY;
            const NAN: Self = $element::NAN;
            const MIN_POSITIVE: Self = $element::MIN_POSITIVE;
            const INDICES: [Self; 16] = [
                0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0,
                15.0,
            ];

            #[inline(always)]
            fn of_f64(value: f64) -> Self {
                value as Self
            }

            #[inline(always)]
            fn of_f32(value: f32) -> Self {
                value.into()
            }

            #[inline(always)]
            fn nearest_f32(self) -> f32 {
                self as f32
            }

            #[inline]
            fn run_on<K: Kernel<Element = Self>>(isa: Isa, kernel: K) -> K::Output {
                isa.assert_available();
                match isa {
                    Isa::Scalar => run_scalar::<scalar::$scalar, K>(kernel),
                    // SAFETY: the line above has checked the machine.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 => unsafe { run_avx2::<avx2::$avx2, K>(kernel) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 | Isa::Amx => unsafe { run_avx512::<avx512::$avx512, K>(kernel) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => unsafe { run_neon::<neon::$neon, K>(kernel) },
                    #[allow(
                        unreachable_patterns,
                        reason = "none is left where a target knows them all"
                    )]
                    _ => isa::absent(isa),
                }
            }

            #[inline]
            fn gemm() -> Gemm<Self> {
                $gemm::gemm::$element::get_gemm_fn()
            }
        }
    };
}

real!(f32, F32x8, F32x8, F32x16, F32x4, gemm_f32);
real!(f64, F64x4, F64x4, F64x8, F64x2, gemm_f64);

// The wrappers are not inlined, as their callers lack the features. The kernel is inlined into them.

fn run_scalar<V: Vector, K: Kernel<Element = V::Element>>(kernel: K) -> K::Output {
    kernel.run::<V>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn run_avx2<V: Vector, K: Kernel<Element = V::Element>>(kernel: K) -> K::Output {
    kernel.run::<V>()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
fn run_avx512<V: Vector, K: Kernel<Element = V::Element>>(kernel: K) -> K::Output {
    kernel.run::<V>()
}

#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
fn run_neon<V: Vector, K: Kernel<Element = V::Element>>(kernel: K) -> K::Output {
    kernel.run::<V>()
}
