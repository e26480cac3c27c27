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
use crate::simd::{Kernel, MAX_LANES, Vector, prefetch, run, transpose_square};

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

    /// The same, from runs of numbers.
    fn copy_runs<E: Real>(
        &self,
        x: &[E],
        group: usize,
        columns: Range<usize>,
        first: usize,
        to: MatrixMut<'_, E>,
    ) {
        run(CopyRuns {
            of: self,
            x,
            runs: &self.runs(group, columns),
            first,
            to,
        });
    }

    /// The runs of a range of the outputs of all images.
    fn runs(&self, group: usize, columns: Range<usize>) -> Runs {
        let [height, width] = &self.axes;
        let all = self.outputs();
        let mut lines: SmallVec<[_; 16]> = SmallVec::new();
        let mut next = columns.start;
        while next < columns.end {
            let (image, start) = (next / all, next % all);
            let outputs = start..all.min(start + columns.end - next);
            let channel = image * self.input + group * self.input_of_group();
            let at = next - columns.start;
            next += outputs.len();
            let of_image = self.lines(outputs);
            lines.extend(
                of_image.map(|(line, columns, start)| (channel, line, columns, at + start)),
            );
        }
        let inside = (0..width.kernel).flat_map(|k_w| {
            let lines = lines.iter();
            lines.map(move |(_, _, columns, _)| width.inside(columns, k_w))
        });
        let inside: SmallVec<[_; 64]> = inside.collect();
        let mut runs = Runs {
            stride: width.stride,
            len: columns.len(),
            ..Runs::default()
        };
        for k_h in 0..height.kernel {
            for inside in inside.chunks(lines.len().max(1)) {
                for ((channel, line, columns, at), inside) in lines.iter().zip(inside) {
                    if let (Some(h), Some((w, some))) = (height.source(*line, k_h), inside) {
                        let from = (channel * height.input + h) * width.input + w;
                        runs.push(from, at + some.start - columns.start, some.len());
                    }
                }
                runs.end_place();
            }
        }
        runs
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

/// From this many places of a line of a window on, squares of these are transposed.
const WIDE: usize = 8;
/// The patches whose starts are known at a time.
const SOME_STARTS: usize = 64;

/// How many channels ahead numbers are asked for. Their lines are short and far apart, so that the processor would wait for each of them.
const AHEAD: usize = 8;

/// Numbers of a row of patches that stand in one line of an image, in its first channel, or zeros.
#[derive(Clone, Copy)]
struct Run {
    from: Option<usize>,
    to: usize,
    len: usize,
}

/// The runs of each place of a window, which are all numbers of its rows.
#[derive(Default)]
struct Runs {
    all: SmallVec<[Run; 64]>,
    /// Where those of each place end.
    ends: SmallVec<[usize; 16]>,
    /// The distance of two numbers of a run in its line.
    stride: usize,
    /// The numbers of a row.
    len: usize,
}

impl Runs {
    /// Adds numbers of a line to the last place, and zeros before them. Lines without zeros between them are one run.
    fn push(&mut self, from: usize, to: usize, len: usize) {
        self.push_zeros(to);
        let stride = self.stride;
        if let Some(last) = self.of_last_place().last_mut()
            && last
                .from
                .is_some_and(|start| start + last.len * stride == from)
        {
            last.len += len;
            return;
        }
        let from = Some(from);
        self.all.push(Run { from, to, len });
    }

    /// Adds zeros up to this number of a row.
    fn push_zeros(&mut self, end: usize) {
        let last = self.of_last_place().last();
        let to = last.map_or(0, |last| last.to + last.len);
        if to < end {
            let len = end - to;
            self.all.push(Run {
                from: None,
                to,
                len,
            });
        }
    }

    fn of_last_place(&mut self) -> &mut [Run] {
        let start = self.ends.last().copied().unwrap_or_default();
        &mut self.all[start..]
    }

    fn end_place(&mut self) {
        self.push_zeros(self.len);
        self.ends.push(self.all.len());
    }

    fn of(&self, place: usize) -> &[Run] {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.all[start..self.ends[place]]
    }
}

/// Copies rows of patches of a group of channels, from the row `first` on.
struct CopyRuns<'a, E> {
    of: &'a Convolution,
    x: &'a [E],
    runs: &'a Runs,
    first: usize,
    to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for CopyRuns<'_, E> {
    type Element = E;
    type Output = ();

    /// The rows of one place after the other: those of all channels have the same runs.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let places = self.of.places();
        for first in 0..places.min(self.to.rows()) {
            let row = self.first + first;
            let is_first_of_line = (row % places).is_multiple_of(self.of.axes[1].kernel);
            let start = row / places * self.of.inputs();
            for run in self.runs.of(row % places) {
                match run.from {
                    None => self.fill::<V>(run, first),
                    Some(from) if is_first_of_line => {
                        self.copy_run::<V, true>(run, start + from, first);
                    }
                    Some(from) => self.copy_run::<V, false>(run, start + from, first),
                }
            }
        }
    }
}

impl<E: Real> CopyRuns<'_, E> {
    /// Writes zeros to all rows of a place, of which the row `first` is the first one.
    #[inline(always)]
    fn fill<V: Vector<Element = E>>(&mut self, run: &Run, first: usize) {
        for row in (first..self.to.rows()).step_by(self.of.places()) {
            let to = &mut self.to.row_mut(row)[run.to..][..run.len];
            for_lanes!(V, to.len(), [], [to], store_any(V::zero(), to));
        }
    }

    /// Copies a run to all rows of a place, of which the row `first` is the first one, from the number `start` of the image on. It may ask for
    /// numbers of later channels, `P`.
    #[inline(always)]
    fn copy_run<V: Vector<Element = E>, const P: bool>(
        &mut self,
        run: &Run,
        start: usize,
        first: usize,
    ) {
        let stride = self.of.axes[1].stride;
        match (stride, run.len.div_ceil(V::LANES)) {
            (1, 1) => self.copy_vectors::<V, P, 1>(run, start, first),
            (1, 2) => self.copy_vectors::<V, P, 2>(run, start, first),
            (1, 3) => self.copy_vectors::<V, P, 3>(run, start, first),
            (1, 4) => self.copy_vectors::<V, P, 4>(run, start, first),
            _ => self.for_each_row::<P>(run, start, first, |x, to| {
                every_nth::<V>(x, stride, to);
            }),
        }
    }

    /// The same for a run of `N` vectors.
    #[inline(always)]
    fn copy_vectors<V: Vector<Element = E>, const P: bool, const N: usize>(
        &mut self,
        run: &Run,
        start: usize,
        first: usize,
    ) {
        let whole = (N - 1) * V::LANES;
        self.for_each_row::<P>(run, start, first, |x, to| {
            let (x, rest) = x[..to.len()].split_at(whole);
            let (to, rest_of_to) = to.split_at_mut(whole);
            for (x, to) in x.chunks_exact(V::LANES).zip(to.chunks_exact_mut(V::LANES)) {
                V::load(x).store(to);
            }
            store_any(load_any::<V>(rest), rest_of_to);
        });
    }

    /// `copy(numbers from the run on, the run in its row)`
    #[inline(always)]
    fn for_each_row<const P: bool>(
        &mut self,
        run: &Run,
        start: usize,
        first: usize,
        copy: impl Fn(&[E], &mut [E]),
    ) {
        let of_channel = self.of.inputs();
        let mut at = start;
        for row in (first..self.to.rows()).step_by(self.of.places()) {
            if P {
                let soon = at + AHEAD * of_channel;
                let soon = self.x.get(soon..soon + run.len * self.of.axes[1].stride);
                soon.into_iter().for_each(prefetch);
            }
            copy(
                &self.x[at..],
                &mut self.to.row_mut(row)[run.to..][..run.len],
            );
            at += of_channel;
        }
    }
}

/// `to[i] = x[i * stride]`
#[inline(always)]
fn every_nth<V: Vector>(x: &[V::Element], stride: usize, to: &mut [V::Element]) {
    match stride {
        1 => for_lanes!(V, to.len(), [x], [to], store_any(load_any::<V>(x), to)),
        2 => {
            // Plain Rust: the compiler makes vectors of a constant number of numbers.
            let (some, rest) = to.as_chunks_mut::<16>();
            let count = some.len().min(x.len() / 32);
            let (pairs, x) = x.split_at(32 * count);
            for (to, x) in some.iter_mut().zip(pairs.as_chunks::<32>().0) {
                *to = std::array::from_fn(|i| x[2 * i]);
            }
            let some = some[count..].as_flattened_mut();
            for (to, x) in some.iter_mut().chain(rest).zip(x.iter().step_by(2)) {
                *to = *x;
            }
        }
        stride => {
            for (to, x) in to.iter_mut().zip(x.iter().step_by(stride)) {
                *to = *x;
            }
        }
    }
}

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
