//! `y = patches Wᵀ + b`, a matrix of patches at a time.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Channels, Convolution, MANY_PATCHES, Start};
use crate::kernel::multiply::copy;
use crate::kernel::packed::{Columns, Sharing, for_each_panel, multiply_packed};
use crate::kernel::panel::Panel;
use crate::kernel::parallel::for_each;
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Initial, Threads, WriteMode, product};

pub(super) fn forward<E: Pooled>(
    x: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    y: &mut [E],
) {
    if y.is_empty() {
        return;
    }
    match of.layout {
        Channels::Last => rows(x, w, of, start, y),
        Channels::First => columns(x, w, of, start, y),
    }
}

/// With the channels last: `[outputs, patch]` times `[patch, channels]`.
fn rows<E: Pooled>(x: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, y: &mut [E]) {
    let w = of.places_first(w);
    let w = Matrix::new(&w, of.output, of.patch());
    let channels = of.output_of_group();
    let weights = (0..of.groups).map(|group| {
        let some = group * channels..(group + 1) * channels;
        copy(w.some_rows(some).transposed())
    });
    let weights: Vec<Panel<E>> = weights.collect();
    let some = of.patches_at_once(of.outputs());
    let tiles = y.chunks_mut(some * of.output).enumerate();
    for_each(tiles, |(index, y): (usize, &mut [E])| {
        let count = y.len() / of.output;
        let outputs = index * some..index * some + count;
        let mut y = MatrixMut::new(y, count, of.output);
        let into = start.write(y.reborrow());
        let mut panel = Panel::new(count, of.patch());
        for (group, (to, w)) in y.col_chunks(channels).zip(&weights).enumerate() {
            let patches = match of.rows_in_place(x, &outputs) {
                Some(patches) => patches,
                None => {
                    of.copy_rows(x, group, outputs.clone(), panel.write());
                    panel.read()
                }
            };
            product(to, into, E::ONE, patches, w.read(), Threads::One);
        }
    });
}

/// With the channels first: `[channels, patch]` times `[patch, outputs]`. The outputs of small images are in one matrix.
fn columns<E: Pooled>(x: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, y: &mut [E]) {
    let w = Matrix::new(w, of.output, of.patch());
    if of.is_packed() {
        return packed_columns(x, w, of, start, y);
    }
    for_each(tiles(of, y), |tile: Tile<'_, E>| {
        let Tile { places, mut y } = tile;
        if let [y] = &mut y[..] {
            return product_of_columns(x, w, of, start, &places, y.reborrow());
        }
        let count = y.iter().map(MatrixMut::cols).sum();
        let mut sums = Panel::new(of.output, count);
        if let Start::Accumulate = start {
            for_each_part(&mut y, sums.write(), |y, sums| sums.copy_from_slice(y));
        }
        product_of_columns(x, w, of, start, &places, sums.write());
        for_each_part(&mut y, sums.write(), |y, sums| y.copy_from_slice(sums));
    });
}

/// With the channels first, from patches that are packed where they stand: one product for each group, of the outputs of all images.
fn packed_columns<E: Pooled>(
    x: &[E],
    w: Matrix<'_, E>,
    of: &Convolution,
    start: Start<'_, E>,
    y: &mut [E],
) {
    let channels = of.output_of_group();
    let images = y.chunks_mut(of.outputs() * of.output);
    let mut images: Vec<_> = images
        .map(|y| MatrixMut::new(y, of.output, of.outputs()).row_chunks(channels))
        .collect();
    for group in 0..of.groups {
        let some = group * channels..(group + 1) * channels;
        let rows = w.some_rows(some.clone());
        let initial = match start {
            Start::Zero => Initial::Zero,
            Start::Accumulate => Initial::Old,
            Start::Row(bias) => Initial::OfRows(&bias[some]),
        };
        let to = images.iter_mut().filter_map(Iterator::next);
        multiply_packed(to, initial, rows, &Patches { x, of, group });
    }
}

/// The patches of a group, with the channels first: a column for each output of each image.
struct Patches<'a, E> {
    x: &'a [E],
    of: &'a Convolution,
    group: usize,
}

impl<E: Pooled> Columns<E> for Patches<'_, E> {
    /// Copying patches takes longer than sharing cache lines.
    const SHARING: Sharing = Sharing {
        panels_of_a_thread: 1,
        ..Sharing::packed::<E>()
    };

    fn pack(&self, columns: Range<usize>, depths: Range<usize>, width: usize, panels: &mut [E]) {
        let Self { x, of, group } = *self;
        for_each_panel(columns, depths.len(), width, panels, |columns, to| {
            of.copy_columns(x, group, columns, depths.start, to);
        });
    }
}

/// The outputs of a product: a part of one image, or several images.
struct Tile<'a, E> {
    /// The image and its outputs.
    places: SmallVec<[(usize, Range<usize>); 4]>,
    /// `[channels, outputs]`
    y: SmallVec<[MatrixMut<'a, E>; 4]>,
}

impl<E> Tile<'_, E> {
    fn new() -> Self {
        Self {
            places: SmallVec::new(),
            y: SmallVec::new(),
        }
    }
}

/// The outputs of each product. An image with few outputs may end within a tile: a product of a few columns is slow.
fn tiles<'a, E: Pooled>(of: &Convolution, y: &'a mut [E]) -> Vec<Tile<'a, E>> {
    let all = of.outputs();
    let some = of.patches_at_once(all);
    let mut tiles = Vec::new();
    let mut last = Tile::new();
    let mut space = some;
    for (image, y) in y.chunks_mut(all * of.output).enumerate() {
        let mut rest = MatrixMut::new(y, of.output, all);
        let mut next = 0;
        while next < all {
            let outputs = next..all.min(next + space);
            (next, space) = (outputs.end, space - outputs.len());
            let (y, others) = rest.split_cols(outputs.len());
            rest = others;
            last.y.push(y);
            last.places.push((image, outputs));
            let ends = next == all && (all >= MANY_PATCHES || image + 1 == of.images);
            if space == 0 || ends {
                tiles.push(std::mem::replace(&mut last, Tile::new()));
                space = some;
            }
        }
    }
    tiles
}

/// The product for the outputs of some images, side by side: `[channels, outputs]`.
fn product_of_columns<E: Pooled>(
    x: &[E],
    w: Matrix<'_, E>,
    of: &Convolution,
    start: Start<'_, E>,
    places: &[(usize, Range<usize>)],
    mut to: MatrixMut<'_, E>,
) {
    let channels = of.output_of_group();
    let of_image = of.inputs() * of.input;
    let image_of = |image: usize| &x[image * of_image..][..of_image];
    let into = fill_rows(start, &mut to);
    let mut panel = Panel::new(of.patch(), to.cols());
    for (group, to) in to.row_chunks(channels).enumerate() {
        let in_place = match places {
            [(image, outputs)] => of.columns_in_place(image_of(*image), outputs),
            _ => None,
        };
        let patches = match in_place {
            Some(patches) => patches,
            None => {
                let mut rest = panel.write();
                for (image, outputs) in places {
                    let (to, others) = rest.split_cols(outputs.len());
                    rest = others;
                    let first = image * of.outputs();
                    let columns = first + outputs.start..first + outputs.end;
                    of.copy_columns(x, group, columns, 0, to);
                }
                panel.read()
            }
        };
        let w = w.some_rows(group * channels..(group + 1) * channels);
        product(to, into, E::ONE, w, patches, Threads::One);
    }
}

/// `body(row of a part, the same of all parts)`, for parts that are side by side in `all`.
fn for_each_part<E: Pooled>(
    parts: &mut [MatrixMut<'_, E>],
    mut all: MatrixMut<'_, E>,
    body: impl Fn(&mut [E], &mut [E]),
) {
    for row in 0..all.rows() {
        let mut rest = all.row_mut(row);
        for part in &mut *parts {
            let (row_of_all, others) = rest.split_at_mut(part.cols());
            rest = others;
            body(part.row_mut(row), row_of_all);
        }
    }
}

/// [`Start::write`] where the channels are rows.
pub(super) fn fill_rows<E: Pooled>(start: Start<'_, E>, to: &mut MatrixMut<'_, E>) -> WriteMode {
    match start {
        Start::Row(bias) => {
            for (row, bias) in bias.iter().enumerate() {
                to.row_mut(row).fill(*bias);
            }
            WriteMode::Add
        }
        other => other.write(to.reborrow()),
    }
}
