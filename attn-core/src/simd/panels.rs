//! The right side of a product, in the order in which the [microkernel](super::tiles) reads it: a panel has at most [`panel_columns`] columns, and
//! the numbers of a depth stand side by side, `[depth, columns]`. Whoever packs them decides where they come from: a matrix with any strides, or an
//! image whose patches are nowhere a matrix. The columns of a matrix with contiguous rows need not be copied ([`Panels::in_place`]).

use std::ops::Range;

use super::prefetch::prefetch_rows;
use super::slice::{load_any, store_any};
use super::{Kernel, Matrix, Real, Vector, run};

/// The most columns of a panel: four of the widest vectors.
pub const fn panel_columns<E>() -> usize {
    4 * vector_columns::<E>()
}

/// The columns of the widest vector. A panel may have few of them in use, and takes little time then.
pub const fn vector_columns<E>() -> usize {
    64 / size_of::<E>()
}

/// How many rows ahead [`pack_rows`] prefetches.
const ROWS_AHEAD: usize = 8;

/// Copies a matrix whose rows are contiguous to panels of `width` columns. Those behind the last one are zeros, as any number may be subnormal, which
/// is slow.
///
/// # Panics
/// If the panels have another size.
#[track_caller]
pub(crate) fn pack_rows<E: Real>(x: Matrix<'_, E>, width: usize, panels: &mut [E]) {
    let size = x.cols().div_ceil(width) * width * x.rows();
    assert_eq!(
        panels.len(),
        size,
        "the size of panels of {width} for {x:?}"
    );
    run(PackRows { x, width, panels });
}

struct PackRows<'a, E> {
    x: Matrix<'a, E>,
    width: usize,
    panels: &'a mut [E],
}

impl<E: Real> Kernel for PackRows<'_, E> {
    type Element = E;
    type Output = ();

    /// Neighbouring panels are written together, so that several cache lines of a row are read at a time.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, width, panels } = self;
        let panel = x.rows() * width;
        let some = panel_columns::<E>().next_multiple_of(width);
        for first in (0..x.cols()).step_by(some) {
            let columns = first..x.cols().min(first + some);
            for row in 0..x.rows() {
                prefetch_rows(x, row + ROWS_AHEAD..row + ROWS_AHEAD + 1, columns.clone());
                let numbers = x.row(row)[columns.clone()].chunks(width);
                for (index, numbers) in numbers.enumerate() {
                    let to = (first / width + index) * panel + row * width;
                    let (to, rest) = panels[to..to + width].split_at_mut(numbers.len());
                    for at in (0..numbers.len()).step_by(V::LANES) {
                        store_any(load_any::<V>(&numbers[at..]), &mut to[at..]);
                    }
                    rest.fill(E::ZERO);
                }
            }
        }
    }
}

/// The panels of the right side of a product: `[panels, depth, columns]`, packed or in a matrix. A number may be a [`Pair`](super::Pair) of two
/// depths.
#[derive(Clone, Copy, Debug)]
pub struct Panels<'a, E> {
    numbers: &'a [E],
    pub(super) depth: usize,
    /// The columns of a panel.
    width: usize,
    /// The distance between neighbouring depths.
    pub(super) stride: usize,
    /// The distance between neighbouring panels.
    panel_stride: usize,
}

/// A panel: at each depth, its columns are contiguous.
#[derive(Clone, Copy)]
pub(super) struct Panel<'a, E> {
    pub(super) numbers: &'a [E],
    pub(super) stride: usize,
}

impl<'a, E> Panels<'a, E> {
    /// Panels of this depth and so many columns.
    ///
    /// # Panics
    /// If the last one is not whole.
    #[track_caller]
    pub fn new(numbers: &'a [E], depth: usize, width: usize) -> Self {
        let panel = width * depth;
        assert!(
            panel == 0 || numbers.len().is_multiple_of(panel),
            "{} numbers in panels of {depth} x {width}",
            numbers.len()
        );
        Self {
            numbers,
            depth,
            // Without columns there are no panels either.
            width: width.max(1),
            stride: width,
            panel_stride: panel,
        }
    }

    /// The columns of a panel.
    pub fn width(self) -> usize {
        self.width
    }

    /// The panels from this one on.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn behind(self, panel: usize) -> Self {
        Self {
            numbers: &self.numbers[panel * self.panel_stride..],
            ..self
        }
    }

    /// Some of the depths.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn depths(self, range: Range<usize>) -> Self {
        assert!(
            range.end <= self.depth,
            "depths {range:?} of {}",
            self.depth
        );
        let first = self.numbers.len().min(range.start * self.stride);
        Self {
            numbers: &self.numbers[first..],
            depth: range.len(),
            ..self
        }
    }

    /// The columns of a matrix, where they stand. `None` if the last vector is not whole, or the rows are not contiguous.
    pub fn in_place(x: Matrix<'a, E>) -> Option<Self> {
        Self::in_place_with_columns(x, panel_columns::<E>())
    }

    /// [`in_place`](Self::in_place), in panels of so many columns.
    pub fn in_place_with_columns(x: Matrix<'a, E>, width: usize) -> Option<Self> {
        let is_whole = x.cols().is_multiple_of(vector_columns::<E>());
        (is_whole && x.has_row_slices()).then(|| Self {
            numbers: x.numbers(),
            depth: x.rows(),
            width,
            stride: x.strides().0,
            panel_stride: width,
        })
    }

    /// The numbers of the first columns: those of a panel at a depth side by side.
    pub(super) fn column_slices(self, count: usize) -> impl Iterator<Item = &'a [E]> {
        let width = self.width;
        let panels = (0..count).step_by(width).enumerate();
        panels.flat_map(move |(index, first)| {
            let panel = self.panel(index);
            let count = width.min(count - first);
            (0..self.depth).map(move |k| &panel.numbers[k * panel.stride..][..count])
        })
    }

    pub(super) fn panel(&self, index: usize) -> Panel<'a, E> {
        Panel {
            // Without depths there are no numbers.
            numbers: self
                .numbers
                .get(index * self.panel_stride..)
                .unwrap_or_default(),
            stride: self.stride,
        }
    }
}
