//! `dx`: a convolution of `dy`, or the patches of `dy W`, added up.
//!
//! If windows move by one place, and the product of that convolution is [packed](Convolution::is_packed), it is the faster one: the weights are mirrored, and nothing is written
//! but the result. Otherwise a thread has a region of an image, and computes all patches that reach into it.

use std::ops::Range;

use super::forward::{fill_rows, forward};
use super::patches::{AddPatches, Region};
use super::{Channels, Convolution, Start};
use crate::kernel::panel::Panel;
use crate::kernel::parallel::for_each;
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::simd::{Threads, WriteMode, product};

pub(super) fn input_gradient<E: Pooled>(
    d_y: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    d_x: &mut [E],
) {
    if d_x.is_empty() {
        return;
    }
    if let Some(mirrored) = of.mirrored() {
        return forward(d_y, &of.mirrored_weights(w), &mirrored, start, d_x);
    }
    match of.layout {
        Channels::Last => rows(d_y, w, of, start, d_x),
        Channels::First => columns(d_y, w, of, start, d_x),
    }
}

/// With the channels last: `[outputs, channels]` times `[channels, patch]`.
fn rows<E: Pooled>(d_y: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, d_x: &mut [E]) {
    let w = of.places_first(w);
    let w = Matrix::new(&w, of.output, of.patch());
    let [inputs, outputs] = [of.input_of_group(), of.output_of_group()];
    let some = of.inputs_at_once();
    let images = d_x.chunks_mut(of.inputs() * of.input).enumerate();
    let regions = images.flat_map(|(image, d_x)| {
        let regions = d_x.chunks_mut(some * of.input).enumerate();
        regions.map(move |(index, d_x)| (image, index * some, d_x))
    });
    let all = of.images * of.outputs();
    let d_y = Matrix::new(d_y, all, of.output);
    for_each(regions, |(image, first, d_x): (usize, usize, &mut [E])| {
        let count = d_x.len() / of.input;
        let region = Region::of(of, first, count);
        let d_y = d_y.some_rows(image * of.outputs()..(image + 1) * of.outputs());
        let mut d_x = MatrixMut::new(d_x, count, of.input);
        if start.write(d_x.reborrow()) == WriteMode::Overwrite {
            d_x.as_mut_slice().fill(E::ZERO);
        }
        for (group, mut to) in d_x.col_chunks(inputs.max(1)).enumerate() {
            let of_group = group * outputs..(group + 1) * outputs;
            let w = w.some_rows(of_group.clone());
            for (outputs, mut panel) in of.tiles(of.outputs_around(&region)) {
                let d_y = d_y.part(outputs.clone(), of_group.clone());
                let to_panel = panel.reshape(outputs.len(), of.patch());
                product(to_panel, WriteMode::Overwrite, E::ONE, d_y, w, Threads::One);
                AddPatches {
                    of,
                    patches: panel.read(),
                    outputs,
                    region: &region,
                    to: to.reborrow(),
                }
                .add();
            }
        }
    });
}

/// With the channels first: `[patch, channels]` times `[channels, outputs]`, for each image.
fn columns<E: Pooled>(d_y: &[E], w: &[E], of: &Convolution, start: Start<'_, E>, d_x: &mut [E]) {
    let w = Matrix::new(w, of.output, of.patch());
    let [inputs, outputs] = [of.input_of_group(), of.output_of_group()];
    let some = of.inputs_at_once();
    let of_image = of.outputs() * of.output;
    let images = d_x.chunks_mut(of.inputs() * of.input).enumerate();
    let regions = images.flat_map(|(image, d_x)| {
        let d_y = &d_y[image * of_image..][..of_image];
        let d_y = Matrix::new(d_y, of.output, of.outputs());
        let d_x = MatrixMut::new(d_x, of.input, of.inputs());
        d_x.col_chunks(some)
            .enumerate()
            .map(move |tile| (d_y, tile))
    });
    for_each(regions, |(d_y, (index, mut d_x))| {
        let region = Region::of(of, index * some, d_x.cols());
        if let Start::Zero = start {
            d_x.fill(E::ZERO);
        }
        fill_rows(start, &mut d_x);
        for (group, mut to) in d_x.row_chunks(inputs.max(1)).enumerate() {
            let of_group = group * outputs..(group + 1) * outputs;
            let w = w.some_rows(of_group.clone()).transposed();
            for (outputs, mut panel) in of.tiles(of.outputs_around(&region)) {
                let d_y = d_y.part(of_group.clone(), outputs.clone());
                let to_panel = panel.reshape(of.patch(), outputs.len());
                product(to_panel, WriteMode::Overwrite, E::ONE, w, d_y, Threads::One);
                AddPatches {
                    of,
                    patches: panel.read(),
                    outputs,
                    region: &region,
                    to: to.reborrow(),
                }
                .add();
            }
        }
    });
}

/// The most outputs for each input. The convolution packs a number for each place and output, the other way writes and adds one for each place and input:
/// by counting, not by measurement, a number that is written and added costs as much as two that are packed.
const MOST_OUTPUTS: usize = 2;

/// The input channels whose weights are mirrored at a time.
const MIRRORED: usize = 16;

impl Convolution {
    /// The convolution of `dy` that is `dx`, if it is the faster way.
    pub(super) fn mirrored(&self) -> Option<Self> {
        let mirrored = Self {
            input: self.output,
            output: self.input,
            axes: self.mirrored_axes()?,
            ..*self
        };
        let is_faster = self.layout == Channels::First
            && self.output <= MOST_OUTPUTS * self.input
            && mirrored.is_packed();
        is_faster.then_some(mirrored)
    }

    /// `[out, in, places]` as `[in, out, places]` for each group, with the places from the last to the first.
    fn mirrored_weights<E: Pooled>(&self, w: &[E]) -> Buffer<E> {
        let [inputs, outputs] = [self.input_of_group(), self.output_of_group()];
        let places = self.places();
        let mut to = Buffer::uninit(w.len());
        let groups = to.chunks_mut(inputs * outputs * places).enumerate();
        let tasks = groups.flat_map(|(group, to)| {
            let some = to.chunks_mut(MIRRORED * outputs * places).enumerate();
            some.map(move |(index, to)| (group, index * MIRRORED, to))
        });
        for_each(tasks, |(group, first, to): (usize, usize, &mut [E])| {
            for output in 0..outputs {
                let w = &w[(group * outputs + output) * self.patch()..][first * places..];
                for (to, w) in to.chunks_mut(outputs * places).zip(w.chunks(places)) {
                    let to = &mut to[output * places..][..places];
                    to.iter_mut().rev().zip(w).for_each(|(to, w)| *to = *w);
                }
            }
        });
        to
    }

    /// The number of places of a region: whole lines, or a part of the only one.
    fn inputs_at_once(&self) -> usize {
        let width = self.axes[1].input;
        let outputs = self.patches_at_once(self.outputs()).max(1);
        // The number of inputs that these outputs read.
        let some = (outputs * self.inputs()).div_ceil(self.outputs().max(1));
        let all = self.inputs().max(1);
        match self.axes[0].input {
            1 => some.clamp(1, all),
            _ => (some.div_ceil(width) * width).clamp(width, all),
        }
    }

    /// The outputs whose patches reach into a region, and others between them.
    fn outputs_around(&self, region: &Region) -> Range<usize> {
        let [height, width] = &self.axes;
        let lines = height.around_any(&region.lines);
        if lines.is_empty() {
            return 0..0;
        }
        match lines.len() {
            1 => {
                let columns = width.around_any(&region.columns);
                let start = lines.start * width.output;
                start + columns.start..start + columns.end.max(columns.start)
            }
            _ => lines.start * width.output..lines.end * width.output,
        }
    }

    /// Parts of a range of outputs, each with memory for its patches.
    fn tiles<E: Pooled>(
        &self,
        outputs: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Panel<E>)> + use<E> {
        let some =
            (super::PANEL / self.patch().max(1)).clamp(super::FEW_PATCHES, super::MANY_PATCHES);
        let patch = self.patch();
        let is_last = self.layout == Channels::Last;
        outputs.clone().step_by(some).map(move |first| {
            let tile = first..outputs.end.min(first + some);
            let panel = match is_last {
                true => Panel::new(tile.len(), patch),
                false => Panel::new(patch, tile.len()),
            };
            (tile, panel)
        })
    }
}
