//! `y = patches Wᵀ + b`, a matrix of patches at a time.

use super::{Channels, Convolution, Start};
use crate::kernel::multiply::{Start as StartOfProduct, copy};
use crate::kernel::panel::Panel;
use crate::kernel::parallel::for_each;
use crate::kernel::{Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode, product};

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
        let into = match start {
            Start::Bias(bias) => StartOfProduct::Row(bias).write(y.reborrow()),
            Start::Zero => WriteMode::Overwrite,
            Start::Accumulate => WriteMode::Add,
        };
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

/// With the channels first: `[channels, patch]` times `[patch, outputs]`, for each image.
fn columns<E: Pooled>(x: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, y: &mut [E]) {
    let w = Matrix::new(w, of.output, of.patch());
    let channels = of.output_of_group();
    let some = of.patches_at_once(of.outputs());
    let of_image = of.inputs() * of.input;
    let images = y.chunks_mut(of.outputs() * of.output).enumerate();
    let tiles = images.flat_map(|(image, y)| {
        let x = &x[image * of_image..][..of_image];
        let y = MatrixMut::new(y, of.output, of.outputs());
        y.col_chunks(some).enumerate().map(move |tile| (x, tile))
    });
    for_each(tiles, |(x, (index, mut y))| {
        let count = y.cols();
        let outputs = index * some..index * some + count;
        let into = fill_rows(start, &mut y);
        let mut panel = Panel::new(of.patch(), count);
        for (group, to) in y.row_chunks(channels).enumerate() {
            let patches = match of.columns_in_place(x, &outputs) {
                Some(patches) => patches,
                None => {
                    of.copy_columns(x, group, outputs.clone(), 0, panel.write());
                    panel.read()
                }
            };
            let w = w.some_rows(group * channels..(group + 1) * channels);
            product(to, into, E::ONE, w, patches, Threads::One);
        }
    });
}

/// Writes the bias of each row.
pub(super) fn fill_rows<E: Pooled>(start: Start<'_, E>, to: &mut MatrixMut<'_, E>) -> WriteMode {
    match start {
        Start::Bias(bias) => {
            for (row, bias) in bias.iter().enumerate() {
                to.row_mut(row).fill(*bias);
            }
            WriteMode::Add
        }
        Start::Zero => WriteMode::Overwrite,
        Start::Accumulate => WriteMode::Add,
    }
}
