//! Patches in matrices: copied from an input, and added to the gradient of an input.
//!
//! A matrix has the patches of one group for a range of outputs. With the channels last it is `[outputs, places * channels]`, since the
//! channels of a place are neighbours in memory. With the channels first it is `[channels * places, outputs]`.

use std::ops::Range;

use super::{Convolution, Slide};
use crate::kernel::lanes::for_lanes;
use crate::kernel::transpose::transpose;
use crate::kernel::{Matrix, MatrixMut, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

impl Convolution {
    /// The patches of a range of the outputs of all images, with the channels last.
    pub(super) fn copy_rows<E: Real>(
        &self,
        x: &[E],
        group: usize,
        outputs: Range<usize>,
        mut to: MatrixMut<'_, E>,
    ) {
        let channels = self.input_of_group();
        let [height, width] = &self.axes;
        let of_image = self.inputs() * self.input;
        for (row, output) in outputs.enumerate() {
            let (image, output) = (output / self.outputs(), output % self.outputs());
            let x = &x[image * of_image..][..of_image];
            let (h, w) = (output / width.output, output % width.output);
            let to = to.row_mut(row);
            let mut places = to.chunks_exact_mut(channels.max(1));
            for k_h in 0..height.kernel {
                let line = height.source(h, k_h);
                for k_w in 0..width.kernel {
                    let Some(to) = places.next() else { return };
                    match line.zip(width.source(w, k_w)) {
                        None => to.fill(E::ZERO),
                        Some((h, w)) => {
                            let from = (h * width.input + w) * self.input + group * channels;
                            to.copy_from_slice(&x[from..from + channels]);
                        }
                    }
                }
            }
        }
    }

    /// The patches of a range of outputs of one image, where they stand in it, with the channels last: if a patch is one piece of memory, and
    /// so many numbers lie from each to the next.
    pub(super) fn rows_in_place<'a, E: Real>(
        &self,
        x: &'a [E],
        outputs: &Range<usize>,
    ) -> Option<Matrix<'a, E>> {
        let [height, width] = &self.axes;
        let is_piece = self.groups == 1 && (width.dilation == 1 || width.kernel == 1);
        if !is_piece || *height != Slide::NONE || outputs.is_empty() {
            return None;
        }
        let (image, first) = (outputs.start / width.output, outputs.start % width.output);
        let last = first + outputs.len() - 1;
        let start = (first * width.stride).checked_sub(width.before)?;
        let end = (last * width.stride).checked_sub(width.before)? + width.kernel;
        if last >= width.output || end > width.input {
            return None;
        }
        let start = (image * width.input + start) * self.input;
        let from = &x[start..];
        let stride = width.stride * self.input;
        Some(Matrix::strided(
            from,
            outputs.len(),
            self.patch(),
            stride,
            1,
        ))
    }

    /// Some rows of the patches of a range of outputs of one image, with the channels first, from the row `first` on.
    pub(super) fn copy_columns<E: Real>(
        &self,
        x: &[E],
        group: usize,
        outputs: Range<usize>,
        first: usize,
        to: MatrixMut<'_, E>,
    ) {
        let places = self.axes[1].kernel;
        let end = first + to.rows();
        let (mut next, mut rest) = (first, to);
        while next < end {
            // The rows of one line of a window.
            let [channel, k_h, k_w] = self.place_of(next);
            let count = (places - k_w).min(end - next);
            let (mut to, others) = rest.split_rows(count);
            (next, rest) = (next + count, others);
            let channel = group * self.input_of_group() + channel;
            let x = &x[channel * self.inputs()..][..self.inputs()];
            for (h, columns, at) in self.lines(outputs.clone()) {
                let (_, to) = to.reborrow().split_cols(at);
                let (to, _) = to.split_cols(columns.len());
                let line = self.axes[0].source(h, k_h);
                let line = line.map(|h| &x[h * self.axes[1].input..][..self.axes[1].input]);
                self.axes[1].copy_line(line, columns, k_w..k_w + count, to);
            }
        }
    }

    /// The same where they stand in the image: if each is one number of each channel.
    pub(super) fn columns_in_place<'a, E: Real>(
        &self,
        x: &'a [E],
        outputs: &Range<usize>,
    ) -> Option<Matrix<'a, E>> {
        let is_itself = self.axes.iter().all(|axis| {
            axis.kernel == 1 && axis.stride == 1 && axis.before == 0 && axis.output == axis.input
        });
        let x = || Matrix::new(x, self.input, self.inputs());
        (self.groups == 1 && is_itself).then(|| x().some_cols(outputs.clone()))
    }

    /// The channel in a group and the place in a window of a row of patches with the channels first.
    fn place_of(&self, row: usize) -> [usize; 3] {
        let width = self.axes[1].kernel;
        let place = row % self.places();
        [row / self.places(), place / width, place % width]
    }

    /// The lines of a range of outputs of one image: which, their columns, and how many outputs are before them.
    fn lines(
        &self,
        outputs: Range<usize>,
    ) -> impl Iterator<Item = (usize, Range<usize>, usize)> + use<> {
        let width = self.axes[1].output;
        let mut next = outputs.start;
        std::iter::from_fn(move || {
            (next < outputs.end).then(|| {
                let (line, start) = (next / width, next % width);
                let len = (width - start).min(outputs.end - next);
                let at = next - outputs.start;
                next += len;
                (line, start..start + len, at)
            })
        })
    }
}

/// From this many places of a window on, squares of these are transposed.
const WIDE: usize = 8;

impl Slide {
    /// The numbers of a line that some windows read at some places: `[places, windows]`. Without a line they are zeros.
    fn copy_line<E: Real>(
        &self,
        line: Option<&[E]>,
        windows: Range<usize>,
        places: Range<usize>,
        mut to: MatrixMut<'_, E>,
    ) {
        let Some(line) = line else {
            (0..to.rows()).for_each(|row| to.row_mut(row).fill(E::ZERO));
            return;
        };
        let is_wide = places.len() >= WIDE && self.stride > 1 && self.dilation == 1;
        let ends = [
            self.source(windows.start, places.start),
            self.source(windows.end.saturating_sub(1), places.end.saturating_sub(1)),
        ];
        if let ([Some(start), Some(_)], true) = (ends, is_wide && !windows.is_empty()) {
            let (rows, cols) = (windows.len(), places.len());
            return transpose(
                Matrix::strided(&line[start..], rows, cols, self.stride, 1),
                to,
            );
        }
        for (index, place) in places.enumerate() {
            let row = to.row_mut(index);
            let mut inside = self.around(&(0..self.input), place);
            inside.end = inside.end.max(inside.start);
            let some = intersection(&windows, &inside);
            let (before, rest) = row.split_at_mut(some.start - windows.start);
            let (row, after) = rest.split_at_mut(some.len());
            before.fill(E::ZERO);
            after.fill(E::ZERO);
            let Some(from) = self.source(some.start, place).filter(|_| !some.is_empty()) else {
                continue;
            };
            let x = &line[from..];
            match self.stride {
                1 => row.copy_from_slice(&x[..row.len()]),
                stride => run(EveryNth { x, stride, to: row }),
            }
        }
    }
}

/// `to[i] = x[i * stride]`
struct EveryNth<'a, E> {
    x: &'a [E],
    stride: usize,
    to: &'a mut [E],
}

impl<E: Real> Kernel for EveryNth<'_, E> {
    type Element = E;
    type Output = ();

    // Plain Rust: the compiler vectorises a stride that it knows.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { x, stride, to } = self;
        match stride {
            2 => {
                let Some((last, to)) = to.split_last_mut() else {
                    return;
                };
                for (to, x) in to.iter_mut().zip(x.chunks_exact(2)) {
                    *to = x[0];
                }
                *last = x[2 * to.len()];
            }
            stride => {
                for (to, x) in to.iter_mut().zip(x.iter().step_by(stride)) {
                    *to = *x;
                }
            }
        }
    }
}

fn intersection(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = b.start.clamp(a.start, a.end);
    start..b.end.clamp(start, a.end)
}

/// A rectangle of the places of an image, which is one piece of memory.
#[derive(Clone, Debug)]
pub(super) struct Region {
    pub(super) lines: Range<usize>,
    pub(super) columns: Range<usize>,
}

impl Region {
    /// The rectangle that has so many places from this one on.
    pub(super) fn of(of: &Convolution, start: usize, len: usize) -> Self {
        let width = of.axes[1].input;
        let (line, column) = (start / width, start % width);
        match len < width {
            true => Self {
                lines: line..line + 1,
                columns: column..column + len,
            },
            false => Self {
                lines: line..line + len / width,
                columns: 0..width,
            },
        }
    }

    /// The number of the first place.
    fn start(&self, of: &Convolution) -> usize {
        self.lines.start * of.axes[1].input + self.columns.start
    }
}

/// Adds patches of gradients, of a range of outputs of one image, to the gradient of a region.
pub(super) struct AddPatches<'a, E> {
    pub(super) of: &'a Convolution,
    pub(super) patches: Matrix<'a, E>,
    pub(super) outputs: Range<usize>,
    pub(super) region: &'a Region,
    /// `[places, channels]` with the channels last, `[channels, places]` with the channels first: the channels of a group.
    pub(super) to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for AddPatches<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        match self.of.layout {
            super::Channels::Last => self.rows::<V>(),
            super::Channels::First => self.columns::<V>(),
        }
    }
}

impl<E: Real> AddPatches<'_, E> {
    pub(super) fn add(self) {
        run(self);
    }

    #[inline(always)]
    fn rows<V: Vector<Element = E>>(mut self) {
        let [height, width] = &self.of.axes;
        let channels = self.of.input_of_group();
        let start = self.region.start(self.of);
        for (line, columns, at) in self.of.lines(self.outputs.clone()) {
            for k_h in 0..height.kernel {
                let source = height.source(line, k_h);
                let Some(h) = source.filter(|h| self.region.lines.contains(h)) else {
                    continue;
                };
                for k_w in 0..width.kernel {
                    let around = width.around(&self.region.columns, k_w);
                    let place = (k_h * width.kernel + k_w) * channels;
                    for column in intersection(&columns, &around) {
                        let Some(w) = width.source(column, k_w) else {
                            continue;
                        };
                        let from = self.patches.row(at + column - columns.start);
                        let from = &from[place..place + channels];
                        let to = self.to.row_mut(h * width.input + w - start);
                        add::<V>(from, to);
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn columns<V: Vector<Element = E>>(mut self) {
        let [height, width] = &self.of.axes;
        let start = self.region.start(self.of);
        for row in 0..self.patches.rows() {
            let [channel, k_h, k_w] = self.of.place_of(row);
            let from = self.patches.row(row);
            let to = self.to.row_mut(channel);
            let around = width.around(&self.region.columns, k_w);
            for (line, columns, at) in self.of.lines(self.outputs.clone()) {
                let source = height.source(line, k_h);
                let Some(h) = source.filter(|h| self.region.lines.contains(h)) else {
                    continue;
                };
                let some = intersection(&columns, &around);
                let Some(w) = width.source(some.start, k_w).filter(|_| !some.is_empty()) else {
                    continue;
                };
                let from = &from[at + some.start - columns.start..][..some.len()];
                let to = &mut to[h * width.input + w - start..];
                match width.stride {
                    1 => add::<V>(from, &mut to[..some.len()]),
                    stride => {
                        let to = to.iter_mut().step_by(stride);
                        to.zip(from).for_each(|(to, from)| *to += *from);
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn add<V: Vector>(from: &[V::Element], to: &mut [V::Element]) {
    for_lanes!(V, from.len(), [from], [to], {
        store_any(load_any::<V>(from) + load_any(to), to);
    });
}
