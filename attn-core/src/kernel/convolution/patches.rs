//! Patches in matrices: copied from an input, and added to the gradient of an input.
//!
//! A matrix has the patches of one group for a range of outputs. With the channels last it is `[outputs, places * channels]`, since the
//! channels of a place are neighbours in memory. With the channels first it is `[channels * places, outputs]`.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Convolution, Slide};
use crate::kernel::lanes::for_lanes;
use crate::kernel::{Matrix, MatrixMut, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, MAX_LANES, Vector, run, transpose_square};

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

    /// Some rows of the patches of a range of the outputs of all images, with the channels first, from the row `first` on.
    pub(super) fn copy_columns<E: Real>(
        &self,
        x: &[E],
        group: usize,
        columns: Range<usize>,
        first: usize,
        to: MatrixMut<'_, E>,
    ) {
        let width = &self.axes[1];
        // A line of a window that moves by one place is copied as it stands.
        if width.kernel < WIDE || width.dilation != 1 || width.stride == 1 {
            return self.copy_runs(x, group, columns, first, to);
        }
        for (index, to) in to.col_chunks(SOME_STARTS).enumerate() {
            let start = columns.start + index * SOME_STARTS;
            let columns = start..start + to.cols();
            match self.starts(group, &columns) {
                None => self.copy_runs(x, group, columns, first, to),
                Some(starts) => run(CopySquares {
                    of: self,
                    x,
                    starts: &starts,
                    first,
                    to,
                }),
            }
        }
    }

    /// Where the windows of a range of the outputs of all images start in the first channel of a group: if none of them reads the zeros around its
    /// image.
    fn starts(
        &self,
        group: usize,
        columns: &Range<usize>,
    ) -> Option<SmallVec<[usize; SOME_STARTS]>> {
        let [height, width] = &self.axes;
        let starts = columns.clone().map(|column| {
            let (image, output) = (column / self.outputs(), column % self.outputs());
            let (line, column) = (output / width.output, output % width.output);
            height.source(line, height.kernel.checked_sub(1)?)?;
            width.source(column, width.kernel - 1)?;
            let (h, w) = (height.source(line, 0)?, width.source(column, 0)?);
            let channel = image * self.input + group * self.input_of_group();
            Some((channel * height.input + h) * width.input + w)
        });
        starts.collect()
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
    pub(super) fn lines(
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

/// From this many places of a line of a window on, squares of these are transposed.
const WIDE: usize = 8;
/// The patches whose starts are known at a time.
const SOME_STARTS: usize = 64;

/// Copies rows of patches whose lines are many numbers side by side, from the row `first` on: the squares of some of these lines, transposed.
struct CopySquares<'a, E> {
    of: &'a Convolution,
    x: &'a [E],
    /// The start of each patch in the first channel.
    starts: &'a [usize],
    first: usize,
    to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for CopySquares<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let width = &self.of.axes[1];
        let end = self.first + self.to.rows();
        let mut next = self.first;
        while next < end {
            let [channel, k_h, k_w] = self.of.place_of(next);
            let h = channel * self.of.axes[0].input + k_h * self.of.axes[0].dilation;
            let count = (width.kernel - k_w).min(end - next).min(V::LANES);
            let offset = h * width.input + k_w;
            for (index, starts) in self.starts.chunks(V::LANES).enumerate() {
                let place = [next - self.first, index * V::LANES];
                self.square::<V>(starts, offset, count, place);
            }
            next += count;
        }
    }
}

impl<E: Real> CopySquares<'_, E> {
    /// `count` numbers of some patches.
    #[inline(always)]
    fn square<V: Vector<Element = E>>(
        &mut self,
        starts: &[usize],
        offset: usize,
        count: usize,
        [row, col]: [usize; 2],
    ) {
        let mut square = [V::zero(); MAX_LANES];
        // The bounds are constants, so that the vectors stay in registers.
        for (i, vector) in square.iter_mut().take(V::LANES).enumerate() {
            if let Some(start) = starts.get(i) {
                *vector = load_any(&self.x[start + offset..][..count]);
            }
        }
        transpose_square(&mut square);
        for (i, vector) in square.into_iter().take(V::LANES).enumerate() {
            if i < count {
                let to = &mut self.to.row_mut(row + i)[col..col + starts.len()];
                store_any(vector, to);
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
