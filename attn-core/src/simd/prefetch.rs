//! Hints to the caches.

use super::Matrix;

/// The bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Asks for numbers that are read soon, where the processor has an instruction for that. Nothing else changes.
///
/// A processor foresees reads of neighbours by itself. Short pieces far apart it does not, and then waits for each of them.
#[inline(always)]
pub(crate) fn prefetch<E>(numbers: &[E]) {
    for piece in numbers.chunks((LINE / size_of::<E>()).max(1)) {
        prefetch_line(piece.as_ptr());
    }
}

/// [`prefetch`] of the cache line at an address, which may be no memory of the program.
#[inline(always)]
pub(super) fn prefetch_line<E>(at: *const E) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has the instruction, which reads no memory that the program sees, and has no effect for an
    // address where there is none.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Memory that is read later, in pieces some distance apart.
#[derive(Clone, Copy)]
pub struct Upcoming {
    first: *const u8,
    pieces: usize,
    stride: usize,
    lines: usize,
}

impl Upcoming {
    /// The numbers of a matrix: its rows, or its columns if these are contiguous.
    pub fn matrix<N>(numbers: Matrix<'_, N>) -> Self {
        let pieces = match numbers.has_row_slices() {
            true => numbers,
            false => numbers.transposed(),
        };
        Self {
            first: pieces.as_ptr().cast(),
            pieces: pieces.rows(),
            stride: pieces.row_stride() * size_of::<N>(),
            lines: (pieces.cols() * size_of::<N>()).div_ceil(LINE),
        }
    }

    /// One of `count` equal parts.
    #[inline(always)]
    pub(super) fn share(self, index: usize, count: usize) -> Ahead {
        let pieces = self.pieces.div_ceil(count);
        let first = self.first.wrapping_add(index * pieces * self.stride);
        Ahead::new(first, self.stride, self.lines)
    }
}

/// Memory to prefetch line by line: pieces of so many lines, `stride` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    piece: *const u8,
    stride: usize,
    lines: usize,
    line: usize,
}

impl Ahead {
    #[inline(always)]
    pub(super) fn new(piece: *const u8, stride: usize, lines: usize) -> Self {
        Self {
            piece,
            stride,
            lines,
            line: 0,
        }
    }

    /// Prefetches the next line.
    #[inline(always)]
    pub(super) fn prefetch_next(&mut self) {
        prefetch_line(self.piece.wrapping_add(self.line * LINE));
        self.line += 1;
        if self.line >= self.lines {
            self.line = 0;
            self.piece = self.piece.wrapping_add(self.stride);
        }
    }
}
