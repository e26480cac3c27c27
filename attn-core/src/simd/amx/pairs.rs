//! Products of pairs of numbers in bf16 with tiles.

use std::cell::Cell;

use super::super::avx512::F32x16;
use super::super::tiles::{Place, Product};
use super::super::{Initial, Matrix, MatrixMut, Pair, transpose};
use super::{BLOCK, DotPairs, SIDE, Sides, Sums, TILES, Tiles};

thread_local! {
    /// The rows of a product whose columns are contiguous: memory that the next product on this thread uses again.
    static ROWS: Cell<Vec<f32>> = Cell::default();
}

/// The product of `f32`.
///
/// # Safety
/// The machine has tiles.
pub(in super::super) unsafe fn multiply(product: Product<'_, '_, f32, Pair, Pair>) {
    let rows = product.rows;
    if rows.has_row_slices() {
        // SAFETY: the caller's.
        return unsafe { blocks(product) };
    }
    let (count, depth) = (rows.rows(), rows.cols());
    let mut memory = ROWS.take();
    memory.resize((count * depth).max(memory.len()), 0.0);
    let copy = &mut memory[..count * depth];
    // SAFETY: both types allow all bits, and have the same alignment. A transpose moves bits.
    let bits = unsafe { rows.transposed().cast() };
    transpose(bits, MatrixMut::new(copy, count, depth));
    let copy = Pair::of_matrix(Matrix::new(copy, count, depth));
    // SAFETY: the caller's.
    unsafe { blocks(product.with_rows(copy)) };
    ROWS.set(memory);
}

/// The product with rows that are contiguous, block by block.
///
/// # Safety
/// The machine has tiles.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn blocks(mut product: Product<'_, '_, f32, Pair, Pair>) {
    let count = product.rows.rows();
    let (all, width) = (product.all, product.columns.width());
    let whole = count / BLOCK * BLOCK;
    let mut sums = Sums::new();
    for (rows, height) in [(0..whole, BLOCK), (whole..count, count - whole)] {
        if rows.is_empty() {
            continue;
        }
        // SAFETY: the caller's, and this thread has no other tiles: those of the rows before are gone.
        let mut tiles = unsafe { Tiles::of_rows(height) };
        for first in rows.step_by(height) {
            let rows = first..first + height;
            let mut ahead = product.next_ahead(rows.start, BLOCK);
            for (panel, first) in (0..all).step_by(width).enumerate() {
                let columns = first..all.min(first + width);
                for left in columns.clone().step_by(BLOCK) {
                    let place = Place {
                        rows: rows.clone(),
                        columns: left..columns.end.min(left + BLOCK),
                    };
                    product.prefetch_results::<BLOCK>(&place, size_of_val(&sums.0[0]));
                    if let Some((ahead, lines)) = &mut ahead {
                        let blocks = all.div_ceil(BLOCK);
                        (0..lines.div_ceil(blocks)).for_each(|_| ahead.prefetch_next());
                    }
                    let count = place.columns.len();
                    let memory = match count.is_multiple_of(SIDE) {
                        true => memory_of(&mut product, &place),
                        false => None,
                    };
                    let columns = count.div_ceil(SIDE);
                    let sides = sides(&product, &place, panel, columns);
                    let to = memory.unwrap_or_else(|| sums.memory());
                    // SAFETY: `sides` has checked that these numbers are there. The memory is that of the rows and the whole tiles of the place, or of a block.
                    unsafe { tiles.multiply::<DotPairs>(sides, columns, to) };
                    if memory.is_none() {
                        product.write::<F32x16, _, BLOCK, TILES>(&place, sums.vectors());
                    }
                }
            }
        }
    }
}

impl Sums<f32> {
    fn vectors(&self) -> &[[F32x16; TILES]; BLOCK] {
        const {
            assert!(
                size_of::<[F32x16; TILES]>() == size_of::<[f32; BLOCK]>()
                    && align_of::<F32x16>() <= align_of::<Self>()
            )
        };
        // SAFETY: a vector is its 16 numbers, and these begin where a vector may.
        unsafe { &*(&raw const self.0).cast() }
    }
}

/// The memory of a place, with the distance between its rows, if its sums are written there as they are: the place is in one piece, and nothing is added.
#[inline(always)]
fn memory_of(
    product: &mut Product<'_, '_, f32, Pair, Pair>,
    place: &Place,
) -> Option<(*mut f32, usize)> {
    if !matches!(product.initial, Initial::Zero) {
        return None;
    }
    let mut start = 0;
    for piece in &mut *product.to {
        let end = start + piece.cols();
        if start <= place.columns.start && place.columns.end <= end {
            let first = place.rows.start * piece.row_stride() + place.columns.start - start;
            return Some((piece.as_mut_ptr().wrapping_add(first), piece.row_stride()));
        }
        start = end;
    }
    None
}

/// The rows of a place, and so many tiles of its columns, which are in a panel.
///
/// # Panics
/// If there are fewer.
#[inline(always)]
fn sides(
    product: &Product<'_, '_, f32, Pair, Pair>,
    place: &Place,
    panel: usize,
    tiles: usize,
) -> Sides {
    let of_rows = product.rows.some_rows(place.rows.clone());
    let first = place.columns.start - panel * product.columns.width();
    let columns = product.columns.panel(panel);
    let lines = of_rows.cols();
    let last_line = lines.saturating_sub(1) * columns.stride;
    assert!(
        of_rows.has_row_slices()
            && (lines == 0 || last_line + first + tiles * SIDE <= columns.numbers.len()),
        "{tiles} tiles of columns within a panel, and contiguous rows"
    );
    let column = |tile: usize| {
        columns
            .numbers
            .as_ptr()
            .wrapping_add(first + tile * SIDE)
            .cast()
    };
    Sides {
        rows: of_rows.as_ptr().cast(),
        row_stride: size_of::<Pair>() * of_rows.row_stride(),
        columns: [0, 1].map(column),
        line_stride: size_of::<Pair>() * columns.stride,
        lines,
    }
}
