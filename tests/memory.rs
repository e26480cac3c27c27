//! The memory of a training step grows with the length of a sequence, not with its square: no matrix of scores is ever
//! there.

// An allocator that counts.
#![allow(unsafe_code)]

use attn::{attention, dfdx::prelude::*};
use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

attention! {
    struct Causal<heads = 8, d_model = 512, mask = causal>;
}

/// The system's allocator, with an eye on the sizes.
struct Counting;

/// Bytes that are allocated, the most that ever were, and the most that were asked for at once.
static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = layout.size();
        let now = NOW.fetch_add(size, Relaxed) + size;
        PEAK.fetch_max(now, Relaxed);
        LARGEST.fetch_max(size, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `alloc` with this layout, and so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What a forward and a backward pass over one sequence take.
#[derive(Debug)]
struct Memory {
    peak: usize,
    largest: usize,
}

fn memory(layer: &Causal<f32>, length: usize) -> Memory {
    let x: Tensor<(usize, usize, Const<512>), f32, _> =
        Cpu::default().sample_normal_like(&(1, length, Const));
    PEAK.store(NOW.load(Relaxed), Relaxed);
    LARGEST.store(0, Relaxed);
    let gradients = layer.forward(x.leaky_trace()).sum().backward();
    assert_eq!(gradients.get(&x).shape().concrete(), [1, length, 512]);
    Memory {
        peak: PEAK.load(Relaxed),
        largest: LARGEST.load(Relaxed),
    }
}

/// Asserts that eight times the length takes at most eight times the memory. Buffers are pooled in classes of sizes, each up to an
/// eighth larger than needed: that is the slack. What does not grow, the weights and their gradients, is left out of account.
fn assert_linear(length: usize) {
    let layer = Cpu::default().build_module::<Causal, f32>();
    let short = memory(&layer, length);
    let long = memory(&layer, 8 * length);
    assert!(8 * long.peak <= 9 * 8 * short.peak, "{short:?}, {long:?}");
    // The scores of one head. The largest array there is are queries, keys and values side by side.
    let scores = (8 * length).pow(2) * size_of::<f32>();
    assert!(
        long.largest < scores,
        "{long:?}, one matrix of scores: {scores}"
    );
}

#[test]
fn memory_is_linear_in_the_length() {
    assert_linear(512);
}

/// 92 MiB and 641 MiB, where the scores of one head would be 1 GiB. Three minutes, in an unoptimised build.
#[test]
#[ignore = "takes minutes in an unoptimised build"]
fn memory_is_linear_up_to_16384_tokens() {
    assert_linear(2048);
}
