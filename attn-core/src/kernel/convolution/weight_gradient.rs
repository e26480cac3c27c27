//! `dW = Σ dyᵀ patches`, a matrix of patches after the other, and `db = Σ dy`.

use std::ops::Range;

use super::{Channels, Convolution};
use crate::kernel::fold::add_column_sums;
use crate::kernel::outer_products::outer_products;
use crate::kernel::packed::{Columns, Sharing, for_some_depths, multiply_packed};
use crate::kernel::panel::Panel;
use crate::kernel::parallel::{for_each, rows_per_task};
use crate::kernel::{Buffer, Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::{Initial, WriteMode, call::sum, transpose};

/// With fewer outputs in an image, the gradients of several images stand side by side, so that reading and writing the sums costs less than the products.
const FEW_DEPTHS: usize = 512;
/// The patches that are copied and transposed at a time: a part of a first-level cache.
const SOME_DEPTHS: usize = 64;

pub(super) fn add<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    if d_w.is_empty() || d_y.is_empty() {
        return;
    }
    match of.layout {
        Channels::Last => rows(x, d_y, of, d_w),
        Channels::First => columns(x, d_y, of, d_w),
    }
}

/// The number of patches that are copied at a time. The order of a sum depends on it, so it depends on shapes only.
fn some(of: &Convolution) -> usize {
    (2 * super::PANEL / of.patch().max(1)).clamp(super::FEW_PATCHES, 2 * super::MANY_PATCHES)
}

/// With the channels last: `[channels, outputs]` times `[outputs, patch]`.
fn rows<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    let all = of.images * of.outputs();
    let channels = of.output_of_group();
    let patch = of.patch();
    let d_y = Matrix::new(d_y, all, of.output);
    // `[out, places, in]`
    let mut sums = Buffer::zeros(d_w.len());
    let some = some(of);
    let mut panel = Panel::new(some.min(all), patch);
    for first in (0..all).step_by(some) {
        let outputs = first..all.min(first + some);
        for (group, sums) in sums.chunks_mut(channels * patch).enumerate() {
            let rows = rows_per_task(patch);
            let parts = panel.reshape(outputs.len(), patch).row_chunks(rows);
            for_each(
                parts.enumerate(),
                |(index, to): (usize, MatrixMut<'_, E>)| {
                    let first = first + index * rows;
                    of.copy_rows(x, group, first..first + to.rows(), to);
                },
            );
            let d_y = d_y.part(outputs.clone(), group * channels..(group + 1) * channels);
            let to = MatrixMut::new(sums, channels, patch);
            outer_products(to, WriteMode::Add, d_y, panel.read(), &mut [], Dtype::Model);
        }
    }
    let (channels, places) = (of.input_of_group(), of.places());
    for (to, sums) in d_w.chunks_mut(patch).zip(sums.chunks(patch)) {
        for (place, sums) in sums.chunks(channels).enumerate() {
            let to = to[place..].iter_mut().step_by(places);
            to.zip(sums).for_each(|(to, sum)| *to += *sum);
        }
    }
}

/// With the channels first: `[channels, outputs]` times `[outputs, patch]`, for some images at a time.
fn columns<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    let [channels, patch, outputs] = [of.output_of_group(), of.patch(), of.outputs()];
    let some = (FEW_DEPTHS / outputs).clamp(1, of.images);
    let mut side_by_side = (some > 1).then(|| Panel::new(of.output, some * outputs));
    let images = d_y.chunks(some * outputs * of.output);
    for (index, d_y) in images.enumerate() {
        let d_y = match &mut side_by_side {
            None => Matrix::new(d_y, of.output, outputs),
            Some(side_by_side) => {
                let count = d_y.len() / of.output;
                join(d_y, outputs, side_by_side.reshape(of.output, count));
                side_by_side.read()
            }
        };
        for (group, d_w) in d_w.chunks_mut(channels * patch).enumerate() {
            let patches = Patches {
                x,
                of,
                group,
                first: index * some * outputs,
            };
            let d_y = d_y.some_rows(group * channels..(group + 1) * channels);
            let to = MatrixMut::new(d_w, channels, patch);
            multiply_packed([to], Initial::Old, d_y, &patches);
        }
    }
}

/// `[images, channels, outputs]` as `[channels, images, outputs]`.
fn join<E: Pooled>(d_y: &[E], outputs: usize, to: MatrixMut<'_, E>) {
    let of_image = to.rows() * outputs;
    for (d_y, mut to) in d_y.chunks(of_image).zip(to.col_chunks(outputs)) {
        for (channel, d_y) in d_y.chunks(outputs).enumerate() {
            to.row_mut(channel).copy_from_slice(d_y);
        }
    }
}

/// `[outputs, patch]`, from the output `first` of all images on.
struct Patches<'a, E> {
    x: &'a [E],
    of: &'a Convolution,
    group: usize,
    first: usize,
}

impl<E: Pooled> Columns<E> for Patches<'_, E> {
    const SHARING: Sharing = Sharing {
        panels_of_a_thread: 1,
        ..Sharing::packed::<E>()
    };

    fn pack(&self, columns: Range<usize>, depths: Range<usize>, width: usize, panels: &mut [E]) {
        let mut copied = Panel::new(columns.len(), SOME_DEPTHS);
        for first in (0..depths.len()).step_by(SOME_DEPTHS) {
            let some = first..depths.len().min(first + SOME_DEPTHS);
            let start = self.first + depths.start;
            let outputs = start + some.start..start + some.end;
            let patches = copied.reshape(columns.len(), some.len());
            self.of
                .copy_columns(self.x, self.group, outputs, columns.start, patches);
            let all = columns.clone();
            for_some_depths(all, [depths.len(), width], some, panels, |of_panel, to| {
                let rows = of_panel.start - columns.start..of_panel.end - columns.start;
                transpose(copied.read().some_rows(rows), to);
            });
        }
    }
}

pub(super) fn add_sums<E: Pooled>(d: &[E], layout: Channels, images: usize, d_b: &mut [E]) {
    let channels = d_b.len();
    if d.is_empty() || channels == 0 {
        return;
    }
    let of_image = d.len() / images;
    assert_eq!(
        of_image / channels * channels * images,
        d.len(),
        "{channels} channels of {images} images"
    );
    match layout {
        Channels::Last => add_column_sums(Matrix::new(d, d.len() / channels, channels), d_b),
        Channels::First => {
            let each = of_image / channels;
            let sums: Vec<E> = d.chunks(each).map(sum).collect();
            add_column_sums(Matrix::new(&sums, images, channels), d_b);
        }
    }
}
