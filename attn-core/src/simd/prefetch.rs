//! Hints to the caches.

/// The bytes of a cache line.
const LINE: usize = 64;

/// Asks for numbers that are read soon, where the processor has an instruction for that. Nothing else changes.
///
/// A processor foresees reads of neighbours by itself. Short pieces far apart it does not, and then waits for each of them.
#[inline(always)]
pub(crate) fn prefetch<E>(numbers: &[E]) {
    for piece in numbers.chunks((LINE / size_of::<E>()).max(1)) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every processor of this architecture has the instruction, which reads no memory that the program sees.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(piece.as_ptr().cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = piece;
    }
}
