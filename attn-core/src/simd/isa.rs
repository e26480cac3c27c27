//! The instruction sets, and which of them the machine has.

use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set.
///
/// A process uses the widest one of its machine, or the one that the environment variable `ATTN_SIMD` names: `scalar`,
/// `avx2`, `avx512`, `amx` or `neon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// Plain Rust, eight `f32` or four `f64` at a time, with whatever the compilation target has anyway.
    Scalar,
    /// AVX2 and FMA: eight `f32` or four `f64`.
    Avx2,
    /// AVX-512 F, BW, DQ and VL: sixteen `f32` or eight `f64`.
    Avx512,
    /// AVX-512, and AMX with INT8 and BF16 for products of numbers that are rounded to bf16 and of bytes.
    Amx,
    /// NEON: four `f32` or two `f64`.
    Neon,
}

impl Isa {
    /// All instruction sets. Of two that a machine has, the wider one comes later.
    pub const ALL: [Self; 5] = [
        Self::Scalar,
        Self::Avx2,
        Self::Avx512,
        Self::Amx,
        Self::Neon,
    ];

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
            #[cfg(target_arch = "x86_64")]
            Self::Amx => Self::Avx512.is_available() && super::amx::is_available(),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(
                unreachable_patterns,
                reason = "none is left where a target knows them all"
            )]
            _ => false,
        }
    }

    /// Whether its vectors are those of AVX-512.
    #[inline]
    pub fn has_avx512(self) -> bool {
        matches!(self, Self::Avx512 | Self::Amx)
    }

    /// The one in use. Read from the machine and `ATTN_SIMD` once per process.
    ///
    /// # Panics
    /// Where `ATTN_SIMD` names no instruction set, or one that the machine lacks.
    #[inline]
    pub fn current() -> Self {
        #[cfg(test)]
        if let Some(isa) = forced::OF_THREAD.get() {
            return isa;
        }
        match CURRENT.load(Ordering::Relaxed) {
            UNKNOWN => Self::detect(),
            index => Self::ALL[usize::from(index)],
        }
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
    pub(super) fn assert_available(self) {
        if !self.is_available() {
            absent(self);
        }
    }
}

/// Index into [`Isa::ALL`] of the current one.
static CURRENT: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = u8::MAX;

#[cold]
pub(super) fn absent(isa: Isa) -> ! {
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
            Self::Amx => "amx",
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
            .ok_or_else(|| {
                format!("expected `scalar`, `avx2`, `avx512`, `amx` or `neon`, found `{name}`")
            })
    }
}

/// Instruction sets of single threads, for tests of code that chooses by itself. Other tests run at the same time, so the current one of the process must not change.
#[cfg(test)]
mod forced {
    use super::Isa;
    use rayon::{ThreadPool, ThreadPoolBuilder};
    use std::cell::Cell;

    thread_local! {
        pub(super) static OF_THREAD: Cell<Option<Isa>> = const { Cell::new(None) };
    }

    impl Isa {
        /// Runs `body` on threads that use this one.
        ///
        /// # Panics
        /// Where the machine lacks it.
        pub(crate) fn force<T: Send>(self, body: impl FnOnce() -> T + Send) -> T {
            self.pool(rayon::current_num_threads()).install(body)
        }

        /// So many threads that use this one.
        ///
        /// # Panics
        /// Where the machine lacks it.
        pub(crate) fn pool(self, threads: usize) -> ThreadPool {
            self.assert_available();
            let pool = ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.start_handler(move |_| OF_THREAD.set(Some(self)));
            pool.build().expect("a pool of threads")
        }
    }
}
