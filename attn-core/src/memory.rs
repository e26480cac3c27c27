//! The memory of activations: current and peak.
//!
//! These are counted, at their exact sizes:
//!
//! - the arrays that operations on the tape compute: values, saved values, gradients of values, temporaries;
//! - the results of operations until the backward pass has processed them, and their gradients while it computes them.
//!
//! These are not counted: parameters and their gradients, an operation's copies of them and of inputs, lists of indices that a model does
//! not compute, and scratch
//! memory of kernels: tiles, and in the derivative of an attention the queries of the sequences in progress. A pool of buffers
//! rounds lengths up and keeps memory for the next step, unless [`keep_at_most`] limits it. That is not counted, either.
//!
//! The peak of a training step is known before the program runs: `activation_bytes` of a struct of `model!` or `attention!`.
//!
//! ```
//! use attn::{attention, dfdx::prelude::*, memory};
//!
//! attention! {
//!     struct Layer<heads = 2, d_model = 8, mask = causal>;
//! }
//!
//! let dev = Cpu::default();
//! let layer = dev.build_module::<Layer, f32>();
//! let x: Tensor<(usize, usize, Const<8>), f32, _> = dev.sample_normal_like(&(3, 5, Const));
//! memory::reset_peak();
//! let loss = layer.forward(x.leaky_trace()).square().mean();
//! assert!(memory::allocated() > 0); // what the derivative reads
//! loss.backward();
//! assert_eq!(memory::peak(), Layer::activation_bytes(3, 5, 5));
//! assert_eq!(memory::allocated(), 0);
//! ```

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static TOTAL: AtomicU64 = AtomicU64::new(0);
static IDLE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The current bytes of activations of this process.
///
/// PyTorch: `torch.cuda.memory_allocated()`.
#[doc(alias = "memory_allocated")]
pub fn allocated() -> usize {
    NOW.load(Relaxed)
}

/// The bytes of all activations that this process has had so far, one after the other: it only grows. Work that is left out, as the derivative of
/// [frozen](crate::train::Trainer::freeze) blocks, takes none.
///
/// PyTorch: `torch.cuda.memory_stats()["allocated_bytes.all.allocated"]`.
#[doc(alias = "memory_stats")]
pub fn total() -> u64 {
    TOTAL.load(Relaxed)
}

/// The peak bytes of activations since the program started, or since [`reset_peak`].
///
/// PyTorch: `torch.cuda.max_memory_allocated()`.
#[doc(alias = "max_memory_allocated")]
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Resets [`peak`] to the current bytes.
///
/// PyTorch: `torch.cuda.reset_peak_memory_stats()`.
#[doc(alias = "reset_peak_memory_stats")]
pub fn reset_peak() {
    PEAK.store(allocated(), Relaxed);
}

/// Limits the bytes of free memory in the pool: in that of `f32`, and as many in that of `f64`. There is no limit at the start of
/// a program. Then a training step reuses the memory of the step before, and free and used memory together are at most twice the
/// peak of used memory. With 0, all memory goes back to the system after its last reader: that is slower, and the process holds
/// no free memory but some 200 KiB for each thread that multiplies numbers in bf16. Free memory beyond a new limit is released when the next buffer is
/// returned. Without a limit each thread that runs kernels keeps up
/// to 32 scratch buffers for itself, of at most 16,384 numbers; it releases them with the first buffer that it returns under a limit.
///
/// PyTorch: `PYTORCH_NO_CUDA_MEMORY_CACHING=1` is `keep_at_most(0)`.
#[doc(alias("PYTORCH_NO_CUDA_MEMORY_CACHING", "empty_cache"))]
pub fn keep_at_most(bytes: usize) {
    IDLE.store(bytes, Relaxed);
}

/// The limit of [`keep_at_most`].
pub(crate) fn max_idle_bytes() -> usize {
    IDLE.load(Relaxed)
}

/// Whether the system has this many bytes; `false` if the number overflowed. They are allocated once, beforehand: a failed
/// allocation of a vector aborts the process.
pub(crate) fn can_allocate(bytes: Option<usize>) -> bool {
    let mut all = Vec::<u8>::new();
    let there_is = bytes.is_some_and(|bytes| all.try_reserve_exact(bytes).is_ok());
    // An unused allocation would be optimised away.
    std::hint::black_box(&all);
    there_is
}

thread_local! {
    /// The bytes of the share of work that this thread runs, if it runs one.
    static SHARE: Cell<Option<Share>> = const { Cell::new(None) };
}

/// The bytes of a share of work, and their peak.
#[derive(Clone, Copy, Default)]
struct Share {
    now: usize,
    most: usize,
}

/// Runs a share of work, which gives back all the memory that it takes, and returns the peak of the bytes of that. They are counted by
/// [`at_once`]: how many shares run at a time depends on the threads, and their common peak on when each of them reaches its own.
pub(crate) fn of_share(body: impl FnOnce()) -> usize {
    /// The count of the share around this one, which goes on when it ends.
    struct Outer(Option<Share>);

    impl Drop for Outer {
        fn drop(&mut self) {
            SHARE.set(self.0);
        }
    }

    let _outer = Outer(SHARE.replace(Some(Share::default())));
    body();
    SHARE.get().map_or(0, |share| share.most)
}

/// Whether this thread runs a share of work.
pub(crate) fn is_in_share() -> bool {
    SHARE.get().is_some()
}

/// Counts bytes as if they had been there at once for a moment.
pub(crate) fn at_once(bytes: usize) {
    match SHARE.get() {
        Some(Share { now, most }) => SHARE.set(Some(Share {
            now,
            most: most.max(now + bytes),
        })),
        None => {
            PEAK.fetch_max(allocated() + bytes, Relaxed);
        }
    }
}

/// Bytes that are counted until this is dropped.
#[derive(Debug)]
pub(crate) struct AllocationGuard(usize);

impl AllocationGuard {
    /// Counts this many numbers.
    pub(crate) fn of<E>(numbers: usize) -> Self {
        let bytes = numbers * size_of::<E>();
        TOTAL.fetch_add(bytes as u64, Relaxed);
        match SHARE.get() {
            Some(Share { now, most }) => {
                let now = now + bytes;
                let most = most.max(now);
                SHARE.set(Some(Share { now, most }));
            }
            None => {
                let before = NOW.fetch_add(bytes, Relaxed);
                PEAK.fetch_max(before + bytes, Relaxed);
            }
        }
        Self(bytes)
    }
}

impl Drop for AllocationGuard {
    fn drop(&mut self) {
        match SHARE.get() {
            Some(Share { now, most }) => {
                let now = now - self.0;
                SHARE.set(Some(Share { now, most }));
            }
            None => {
                NOW.fetch_sub(self.0, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_counts_its_own_peak() {
        let peak = of_share(|| {
            let first = AllocationGuard::of::<f32>(3);
            drop(AllocationGuard::of::<f64>(5));
            let inner = of_share(|| drop(AllocationGuard::of::<f32>(100)));
            assert_eq!(inner, 400, "that of a share in it is not its own");
            at_once(20);
            drop(first);
            drop(AllocationGuard::of::<f32>(4));
        });
        assert_eq!(peak, 12 + 40);
        assert_eq!(SHARE.get().map(|share| share.now), None);
    }
}
