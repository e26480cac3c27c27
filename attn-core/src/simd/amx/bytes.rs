//! Products of bytes with tiles.

use std::arch::x86_64::_mm512_load_si512;

use super::super::bytes::{BYTE_COLUMNS, ByteLine, Product};
use super::{BLOCK, DotBytes, SIDE, Sides, Sums, TILES, Tiles};

/// The products of rows with panels. A row of bytes is two rows of a tile: its high bytes, and its low ones.
///
/// # Safety
/// The machine has tiles. There are `2 R depths` bytes of rows and `C depths` lines.
#[target_feature(enable = "avx512f")]
pub(in super::super) unsafe fn multiply<const R: usize, const C: usize>(mut of: Product<'_, R, C>) {
    const { assert!(2 * R <= BLOCK && SIDE == BYTE_COLUMNS) }
    let depths = of.depths;
    let mut sums = Sums::new();
    // SAFETY: the caller's, and this thread has no other tiles.
    let mut tiles = unsafe { Tiles::of_rows(2 * R) };
    for first in (0..C).step_by(TILES) {
        let count = TILES.min(C - first);
        let panel = |tile: usize| {
            of.lines
                .as_ptr()
                .wrapping_add((first + tile) * depths)
                .cast()
        };
        let sides = Sides {
            rows: of.bytes.as_ptr().cast(),
            row_stride: 4 * depths,
            columns: [0, 1].map(panel),
            line_stride: size_of::<ByteLine>(),
            lines: depths,
        };
        // SAFETY: the caller's: `2 R` rows of `depths` times 4 bytes, and `depths` lines of each of these panels.
        unsafe { tiles.multiply::<DotBytes>(sides, count, sums.memory()) };
        for tile in 0..count {
            for r in 0..R {
                // SAFETY: a row has 16 sums of each tile.
                let both = [2 * r, 2 * r + 1].map(|row| unsafe {
                    _mm512_load_si512(sums.0[row].as_ptr().add(tile * SIDE).cast())
                });
                of.write_sums(r, first + tile, both);
            }
        }
    }
}
