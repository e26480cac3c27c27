//! Dispatch: an algorithm runs with the widest vectors of the machine.

use std::fmt::{Debug, Display, Formatter};
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use super::product::Gemm;
use super::tables::Tables;
use super::{Vector, scalar};

#[cfg(target_arch = "aarch64")]
use super::neon;
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// An algorithm over vectors: a struct with its arguments and its code.
pub trait Kernel {
    /// The element type of its vectors.
    type Element: Real;
    /// The type of its result.
    type Output;

    /// The algorithm. Mark it `#[inline(always)]`, and everything that it calls with `V`. The instruction set is enabled for the
    /// function that this is inlined into. Code that is not inlined calls a function per instruction.
    fn run<V: Vector<Element = Self::Element>>(self) -> Self::Output;
}

/// Runs `kernel` with [`Isa::current`].
#[inline]
pub fn run<K: Kernel>(kernel: K) -> K::Output {
    Isa::current().run(kernel)
}

/// An instruction set.
///
/// A process uses the widest one of its machine, or the one that the environment variable `ATTN_SIMD` names: `scalar`,
/// `avx2`, `avx512` or `neon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, eight `f32` or four `f64` at a time, with the default features of the compilation target.
    Scalar,
    /// AVX2 and FMA: eight `f32` or four `f64`.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: sixteen `f32` or eight `f64`.
    Avx512,
    /// NEON: four `f32` or two `f64`.
    Neon,
}

impl Isa {
    /// All instruction sets. Of two that a machine has, the wider one comes later.
    pub const ALL: [Self; 4] = [Self::Scalar, Self::Avx2, Self::Avx512, Self::Neon];

    /// The instruction sets of this machine.
    pub fn available() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// Whether this machine has it.
    #[inline]
    pub fn is_available(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && Self::Avx2.is_available()
            }
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(
                unreachable_patterns,
                reason = "none is left where a target knows them all"
            )]
            _ => false,
        }
    }

    /// The instruction set in use. The machine and `ATTN_SIMD` are read once per process.
    ///
    /// # Panics
    /// If `ATTN_SIMD` names no instruction set, or one that the machine lacks.
    #[inline]
    pub fn current() -> Self {
        match CURRENT.load(Ordering::Relaxed) {
            UNKNOWN => Self::detect(),
            index => Self::ALL[usize::from(index)],
        }
    }

    /// Runs `kernel` with this instruction set.
    ///
    /// # Panics
    /// If the machine lacks it.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        K::Element::run_on(self, kernel)
    }

    /// Makes this instruction set the current one of all threads while `body` runs: for tests of code that chooses it itself.
    /// Concurrent calls wait for each other. Calls must not be nested.
    ///
    /// # Panics
    /// If the machine lacks it.
    pub fn force<T>(self, body: impl FnOnce() -> T) -> T {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

        struct Restore(u8);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.store(self.0, Ordering::Relaxed);
            }
        }

        self.assert_available();
        // A panic of another test does not affect the state: `Restore` has reset it.
        let _serial = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let _restore = Restore(CURRENT.swap(self as u8, Ordering::Relaxed));
        body()
    }

    #[cold]
    fn detect() -> Self {
        let isa = match std::env::var("ATTN_SIMD") {
            Ok(name) if !name.is_empty() => name
                .parse()
                .unwrap_or_else(|error| panic!("ATTN_SIMD: {error}")),
            _ => Self::available().last().unwrap_or(Self::Scalar),
        };
        isa.assert_available();
        CURRENT.store(isa as u8, Ordering::Relaxed);
        isa
    }

    #[inline]
    fn assert_available(self) {
        if !self.is_available() {
            absent(self);
        }
    }
}

/// The index of the current one in [`Isa::ALL`].
static CURRENT: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = u8::MAX;

#[cold]
fn absent(isa: Isa) -> ! {
    let available: Vec<String> = Isa::available().map(|isa| isa.to_string()).collect();
    panic!(
        "this machine lacks the instruction set `{isa}`; it has: {}",
        available.join(", ")
    )
}

impl Display for Isa {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Scalar => "scalar",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        })
    }
}

impl FromStr for Isa {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|isa| isa.to_string() == name)
            .ok_or_else(|| format!("expected `scalar`, `avx2`, `avx512` or `neon`, found `{name}`"))
    }
}

/// The element types of vectors: `f32` and `f64`.
pub trait Real:
    Tables
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Into<f64>
{
    /// 0
    const ZERO: Self;
    /// ½
    const HALF: Self;
    /// 1
    const ONE: Self;
    /// 2
    const TWO: Self;
    /// Infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The smallest positive normal number.
    const MIN_POSITIVE: Self;
    /// 0, 1, .., 15
    const INDICES: [Self; 16];

    /// The number nearest to `value`.
    fn of_f64(value: f64) -> Self;

    /// Runs `kernel` with the vectors of `isa`; see [`Isa::run`].
    #[doc(hidden)]
    fn run_on<K: Kernel<Element = Self>>(isa: Isa, kernel: K) -> K::Output;

    /// The matrix product of this machine.
    #[doc(hidden)]
    fn gemm() -> Gemm<Self>;
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
                    Isa::Avx512 => unsafe { run_avx512::<avx512::$avx512, K>(kernel) },
                    // SAFETY: as above.
                    #[cfg(target_arch = "aarch64")]
                    Isa::Neon => unsafe { run_neon::<neon::$neon, K>(kernel) },
                    #[allow(
                        unreachable_patterns,
                        reason = "none is left where a target knows them all"
                    )]
                    _ => absent(isa),
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
