//! Hints to the caches.

use std::ops::Range;

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

/// [`prefetch`] of some columns of some rows, whose numbers are contiguous.
#[inline(always)]
pub(crate) fn prefetch_rows<E>(x: Matrix<'_, E>, rows: Range<usize>, columns: Range<usize>) {
    let stride = x.row_stride();
    // Addresses that are no memory of the matrix have no effect, so nothing is checked.
    let first = rows.start.wrapping_mul(stride).wrapping_add(columns.start);
    let mut row = x.as_ptr().wrapping_add(first);
    for _ in rows {
        let end = row.wrapping_add(columns.len());
        let mut line = row;
        while line < end {
            prefetch_line(line);
            line = line.wrapping_byte_add(LINE);
        }
        row = row.wrapping_add(stride);
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

/// Memory to prefetch line by line: pieces of some lines each. The addresses may be no memory of the program.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// The next line.
    line: *const u8,
    /// The end of its piece.
    end: *const u8,
    /// The bytes of a piece.
    bytes: usize,
    /// The distance between neighbouring pieces in bytes.
    stride: usize,
}

impl Ahead {
    /// Pieces of so many bytes, from this one on, each `stride` bytes behind the one before.
    #[inline(always)]
    pub(super) fn new(piece: *const u8, bytes: usize, stride: usize) -> Self {
        Self {
            line: piece,
            end: piece.wrapping_add(bytes),
            bytes,
            stride,
        }
    }

    /// Prefetches the next line.
    #[inline(always)]
    pub(super) fn prefetch_next(&mut self) {
        prefetch_line(self.line);
        self.line = self.line.wrapping_add(LINE);
        if self.line >= self.end {
            self.end = self.end.wrapping_add(self.stride);
            self.line = self.end.wrapping_sub(self.bytes);
        }
    }
}
