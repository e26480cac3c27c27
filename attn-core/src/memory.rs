//! The memory of activations: how much there is, and how much there was at most.
//!
//! Counted are the arrays that operations of the tape compute on the way, at their exact sizes: values, what layers keep for
//! the derivative, gradients of values, temporary ones; and the results of operations until the backward pass is through them,
//! with their gradients while it is in them. What does not are parameters and their gradients, the copies of them and of inputs that
//! an operation works with, lists of indices, and the scratch memory of kernels: tiles, and in the derivative of an attention the
//! queries of the sequences that threads work on at a time. A pool of buffers rounds lengths up, and keeps memory for the next step,
//! unless [`keep_at_most`] says that it should not: that does not count either.
//!
//! The most that a step of a model takes is known before the program runs: `activation_bytes` of a struct of `model!` or
//! `attention!`.
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

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static IDLE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The bytes of activations of this process, now.
///
/// PyTorch: `torch.cuda.memory_allocated()`.
#[doc(alias = "memory_allocated")]
pub fn allocated() -> usize {
    NOW.load(Relaxed)
}

/// The most bytes of activations that there were at a time, since the program started or since [`reset_peak`].
///
/// PyTorch: `torch.cuda.max_memory_allocated()`.
#[doc(alias = "max_memory_allocated")]
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Forgets what there was: [`peak`] is what there is now.
///
/// PyTorch: `torch.cuda.reset_peak_memory_stats()`.
#[doc(alias = "reset_peak_memory_stats")]
pub fn reset_peak() {
    PEAK.store(allocated(), Relaxed);
}

/// How many bytes of free memory stay in the pool: in that of `f32`, and as many in that of `f64`. A program begins without a limit.
/// Then a training step finds the memory of the step before, and what is free and what is in use are together at most twice as much as
/// was ever in use at a time. With 0, all memory goes back to the system when its last reader is done: slower, and never more than is
/// in use. What is kept already goes with the next buffer that is given back.
///
/// PyTorch: `PYTORCH_NO_CUDA_MEMORY_CACHING=1` is `keep_at_most(0)`.
#[doc(alias("PYTORCH_NO_CUDA_MEMORY_CACHING", "empty_cache"))]
pub fn keep_at_most(bytes: usize) {
    IDLE.store(bytes, Relaxed);
}

/// The limit of [`keep_at_most`].
pub(crate) fn kept_at_most() -> usize {
    IDLE.load(Relaxed)
}

/// Whether the system has so many bytes; it has not if they cannot be counted. They are asked for once, beforehand: a process that asks
/// for them in vain while it makes a vector of them ends.
pub(crate) fn there_is_memory(bytes: Option<usize>) -> bool {
    let mut all = Vec::<u8>::new();
    let there_is = bytes.is_some_and(|bytes| all.try_reserve_exact(bytes).is_ok());
    // Memory that nobody looks at is not asked for.
    std::hint::black_box(&all);
    there_is
}

/// Bytes that count until this is dropped.
#[derive(Debug)]
pub(crate) struct AllocationGuard(usize);

impl AllocationGuard {
    /// So many numbers.
    pub(crate) fn of<E>(numbers: usize) -> Self {
        let bytes = numbers * size_of::<E>();
        let before = NOW.fetch_add(bytes, Relaxed);
        PEAK.fetch_max(before + bytes, Relaxed);
        Self(bytes)
    }
}

impl Drop for AllocationGuard {
    fn drop(&mut self) {
        NOW.fetch_sub(self.0, Relaxed);
    }
}
