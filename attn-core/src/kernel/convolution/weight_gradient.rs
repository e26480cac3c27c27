//! `dW = Σ dyᵀ patches`, a matrix of patches after the other, and `db = Σ dy`.

use super::{Channels, Convolution};
use crate::kernel::fold::add_column_sums;
use crate::kernel::multiply::{Start, multiply};
use crate::kernel::outer_products::outer_products;
use crate::kernel::panel::Panel;
use crate::kernel::parallel::{for_each, rows_per_task};
use crate::kernel::{Buffer, Dtype, Matrix, MatrixMut, Pooled};
use crate::simd::WriteMode;
use crate::simd::call::sum;

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

/// With the channels first: `[channels, outputs]` times `[outputs, patch]`, image by image.
fn columns<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    let channels = of.output_of_group();
    let (patch, all) = (of.patch(), of.outputs());
    let some = some(of);
    let mut panel = Panel::new(patch, some.min(all));
    let images = d_y.chunks(all * of.output).enumerate();
    for (image, d_y) in images {
        let d_y = Matrix::new(d_y, of.output, all);
        for first in (0..all).step_by(some) {
            let outputs = first..all.min(first + some);
            for (group, d_w) in d_w.chunks_mut(channels * patch).enumerate() {
                let rows = rows_per_task(outputs.len());
                let parts = panel.reshape(patch, outputs.len()).row_chunks(rows);
                for_each(
                    parts.enumerate(),
                    |(index, to): (usize, MatrixMut<'_, E>)| {
                        let columns = image * all + outputs.start..image * all + outputs.end;
                        of.copy_columns(x, group, columns, index * rows, to);
                    },
                );
                let d_y = d_y.part(group * channels..(group + 1) * channels, outputs.clone());
                let to = MatrixMut::new(d_w, channels, patch);
                multiply(to, Start::Accumulate, d_y, panel.read().transposed());
            }
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
