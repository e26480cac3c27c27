//! Patches with the channels first, copied in runs: numbers of a row that are a stride apart in the image.

use std::ops::Range;

use smallvec::SmallVec;

use super::Convolution;
use crate::kernel::lanes::for_lanes;
use crate::kernel::{MatrixMut, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, prefetch, run};

impl Convolution {
    /// [`copy_columns`](Self::copy_columns), in runs.
    pub(super) fn copy_runs<E: Real>(
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
}

/// How many channels ahead numbers are asked for. Their lines are short and far apart, so that the processor would wait for each of them.
const AHEAD: usize = 8;

/// Numbers of a row of patches that are a stride apart in the first channel of an image, or zeros.
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
    /// The distance of two numbers of a run in the image.
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
