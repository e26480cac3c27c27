//! With the channels first: vectors are along the places of a line.
//!
//! A channel of an image is copied with the zeros around it, so that each window reads its numbers without a test. Columns that are a stride apart stand
//! side by side there, so that vectors are loaded, whatever the stride is.

use std::{array, ops::Range};

use smallvec::SmallVec;

use super::super::forward::fill_rows;
use super::super::{Convolution, Slide, Start};
use crate::kernel::parallel::for_each;
use crate::kernel::{Buffer, MatrixMut, Pooled, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, MAX_LANES, Vector, WriteMode, run};

/// The vectors of outputs, or the places of a window, that are summed at a time: as many multiply-adds as a core has under way.
const SUMS: usize = 8;

/// The products that are summed one after another, about.
const SUMMED: usize = 1024;

pub(super) fn forward<E: Pooled>(
    x: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    y: &mut [E],
) {
    let [inputs, outputs, places] = [of.inputs(), of.outputs(), of.places()];
    let padded = PaddedLayout::new(&of.axes);
    for_each(
        y.chunks_mut(outputs).enumerate(),
        |(index, y): (usize, &mut [E])| {
            let (image, channel) = (index / of.output, index % of.output);
            let from = image * of.input + channel / of.multiplier();
            begin(start, channel, y);
            run(AddWindows {
                layout: &padded,
                x: &padded.copy(&x[from * inputs..][..inputs]),
                w: &w[channel * places..][..places],
                to: y,
            });
        },
    );
}

pub(super) fn input_gradient<E: Pooled>(
    d_y: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    d_x: &mut [E],
) {
    let [inputs, outputs, places] = [of.inputs(), of.outputs(), of.places()];
    // If windows move by one place, the gradient is a convolution with the weights in the other order.
    let mirrored = of.mirrored_axes().map(|axes| {
        let mut padded = PaddedLayout::new(&axes);
        padded.places.reverse();
        padded
    });
    for_each(
        d_x.chunks_mut(inputs).enumerate(),
        |(index, d_x): (usize, &mut [E])| {
            let (image, channel) = (index / of.input, index % of.input);
            begin(start, channel, d_x);
            for output in channel * of.multiplier()..(channel + 1) * of.multiplier() {
                let d_y = &d_y[(image * of.output + output) * outputs..][..outputs];
                let w = &w[output * places..][..places];
                match &mirrored {
                    Some(layout) => run(AddWindows {
                        layout,
                        x: &layout.copy(d_y),
                        w,
                        to: d_x,
                    }),
                    None => run(Scatter {
                        of,
                        d_y,
                        w,
                        to: d_x,
                    }),
                }
            }
        },
    );
}

pub(super) fn add_weight_gradient<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    let [inputs, outputs, places] = [of.inputs(), of.outputs(), of.places()];
    let padded = PaddedLayout::new(&of.axes);
    for_each(
        d_w.chunks_mut(places).enumerate(),
        |(channel, d_w): (usize, &mut [E])| {
            let mut totals: SmallVec<[f64; 64]> = SmallVec::from_elem(0.0, places);
            for image in 0..of.images {
                let from = image * of.input + channel / of.multiplier();
                run(AddProducts {
                    layout: &padded,
                    x: &padded.copy(&x[from * inputs..][..inputs]),
                    d_y: &d_y[(image * of.output + channel) * outputs..][..outputs],
                    totals: &mut totals,
                });
            }
            for (d_w, total) in d_w.iter_mut().zip(totals) {
                *d_w += E::of_f64(total);
            }
        },
    );
}

/// Writes the initial value of a channel, to which products are added: a bias, zeros, or nothing where numbers stand already.
fn begin<E: Pooled>(start: Start<'_, E>, channel: usize, to: &mut [E]) {
    let start = start.of_cols(channel..channel + 1);
    let len = to.len();
    if fill_rows(start, &mut MatrixMut::new(to, 1, len)) == WriteMode::Overwrite {
        to.fill(E::ZERO);
    }
}

impl Convolution {
    /// The channels of the output in a group.
    fn multiplier(&self) -> usize {
        self.output_of_group()
    }
}

/// Where the numbers of a channel stand with the zeros around them: `[lines, remainders of the column by the stride, columns]`.
struct PaddedLayout {
    axes: [Slide; 2],
    /// The lines that windows read, with those of zeros above and below the image.
    lines: usize,
    /// The columns of a line that have one remainder, and the zeros behind them that the last vector reads.
    columns: usize,
    /// For each place of a window, how far its number is behind that of the first place.
    places: SmallVec<[usize; 64]>,
}

impl PaddedLayout {
    /// The layout for windows along these axes, of which there must be one.
    fn new(axes: &[Slide; 2]) -> Self {
        let [height, width] = *axes;
        let last_place = |axis: Slide| axis.kernel.saturating_sub(1) * axis.dilation;
        let columns = width.output + last_place(width) / width.stride + MAX_LANES;
        let line = width.stride * columns;
        let places = (0..height.kernel).flat_map(|k_h| {
            (0..width.kernel).map(move |k_w| {
                let column = k_w * width.dilation;
                k_h * height.dilation * line
                    + column % width.stride * columns
                    + column / width.stride
            })
        });
        Self {
            axes: *axes,
            lines: (height.output - 1) * height.stride + last_place(height) + 1,
            columns,
            places: places.collect(),
        }
    }

    /// The numbers of a line.
    fn line(&self) -> usize {
        self.axes[1].stride * self.columns
    }

    /// The lines of windows, and the windows of a line.
    fn windows(&self) -> [usize; 2] {
        let [height, width] = &self.axes;
        [height.output, width.output]
    }

    /// The first number of a window.
    #[inline(always)]
    fn start(&self, line: usize, column: usize) -> usize {
        line * self.axes[0].stride * self.line() + column
    }

    /// Copies an image. What no window reads is left out.
    fn copy<E: Pooled>(&self, x: &[E]) -> Buffer<E> {
        let [height, width] = &self.axes;
        let mut to = Buffer::zeros(self.lines * self.line());
        if x.is_empty() {
            return to;
        }
        let lines = to.chunks_mut(self.line()).skip(height.before);
        for (to, x) in lines.zip(x.chunks(width.input)) {
            for remainder in 0..width.stride {
                // The first column with this remainder that is a number of the image.
                let first = width
                    .before
                    .saturating_sub(remainder)
                    .div_ceil(width.stride);
                let Some(from) = (first * width.stride + remainder).checked_sub(width.before)
                else {
                    continue;
                };
                let to = &mut to[remainder * self.columns..][..self.columns];
                let (Some(to), Some(x)) = (to.get_mut(first..), x.get(from..)) else {
                    continue;
                };
                match width.stride {
                    1 => {
                        let len = to.len().min(x.len());
                        to[..len].copy_from_slice(&x[..len]);
                    }
                    stride => {
                        let x = x.iter().step_by(stride);
                        to.iter_mut().zip(x).for_each(|(to, x)| *to = *x);
                    }
                }
            }
        }
        to
    }
}

/// Adds the sum of each window to its output.
struct AddWindows<'a, E> {
    layout: &'a PaddedLayout,
    x: &'a [E],
    w: &'a [E],
    to: &'a mut [E],
}

impl<E: Real> Kernel for AddWindows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let [lines, columns] = self.layout.windows();
        let all = lines * columns.div_ceil(V::LANES);
        let mut next = 0;
        while next < all {
            next += match all - next {
                SUMS.. => self.tile::<V, SUMS>(next),
                4.. => self.tile::<V, 4>(next),
                2.. => self.tile::<V, 2>(next),
                _ => self.tile::<V, 1>(next),
            };
        }
    }
}

impl<E: Real> AddWindows<'_, E> {
    /// Computes so many vectors of outputs.
    #[inline(always)]
    fn tile<V: Vector<Element = E>, const N: usize>(&mut self, first: usize) -> usize {
        let [_, columns] = self.layout.windows();
        let of_line = columns.div_ceil(V::LANES);
        let vectors: [[usize; 2]; N] = array::from_fn(|index| {
            let index = first + index;
            [index / of_line, index % of_line * V::LANES]
        });
        let starts = vectors.map(|[line, column]| self.layout.start(line, column));
        let outputs = vectors.map(|[line, column]| {
            let start = line * columns + column;
            start..start + V::LANES.min(columns - column)
        });
        let mut sums = [V::zero(); N];
        for (sum, outputs) in sums.iter_mut().zip(&outputs) {
            *sum = load_any(&self.to[outputs.clone()]);
        }
        for (place, w) in self.layout.places.iter().zip(self.w) {
            let w = V::splat(*w);
            for (sum, start) in sums.iter_mut().zip(starts) {
                *sum = V::load(&self.x[start + place..]).mul_add(w, *sum);
            }
        }
        for (sum, outputs) in sums.into_iter().zip(outputs) {
            store_any(sum, &mut self.to[outputs]);
        }
        N
    }
}

/// Adds, for each place of a window, the sum of the products of what it reads and the gradients of the outputs.
struct AddProducts<'a, E> {
    layout: &'a PaddedLayout,
    x: &'a [E],
    d_y: &'a [E],
    totals: &'a mut [f64],
}

impl<E: Real> Kernel for AddProducts<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let [lines, columns] = self.layout.windows();
        let some = (SUMMED / columns).max(1);
        for start in (0..lines).step_by(some) {
            let lines = start..lines.min(start + some);
            let mut next = 0;
            while next < self.totals.len() {
                next += match self.totals.len() - next {
                    SUMS.. => self.places::<V, SUMS>(lines.clone(), next),
                    4.. => self.places::<V, 4>(lines.clone(), next),
                    2.. => self.places::<V, 2>(lines.clone(), next),
                    _ => self.places::<V, 1>(lines.clone(), next),
                };
            }
        }
    }
}

impl<E: Real> AddProducts<'_, E> {
    /// Sums the products of so many places with some lines of outputs.
    #[inline(always)]
    fn places<V: Vector<Element = E>, const N: usize>(
        &mut self,
        lines: Range<usize>,
        first: usize,
    ) -> usize {
        let [_, columns] = self.layout.windows();
        let places: [usize; N] = array::from_fn(|index| self.layout.places[first + index]);
        let mut sums = [V::zero(); N];
        for line in lines {
            let d_y = &self.d_y[line * columns..][..columns];
            let start = self.layout.start(line, 0);
            let (whole, rest) = d_y.split_at(columns / V::LANES * V::LANES);
            for (index, d_y) in whole.chunks_exact(V::LANES).enumerate() {
                let d_y = V::load(d_y);
                let start = start + index * V::LANES;
                for (sum, place) in sums.iter_mut().zip(places) {
                    *sum = V::load(&self.x[start + place..]).mul_add(d_y, *sum);
                }
            }
            if !rest.is_empty() {
                let d_y: V = load_any(rest);
                let start = start + whole.len();
                for (sum, place) in sums.iter_mut().zip(places) {
                    // Numbers behind the last window may be NaN.
                    let x = &self.x[start + place..][..rest.len()];
                    *sum = load_any::<V>(x).mul_add(d_y, *sum);
                }
            }
        }
        for (total, sum) in self.totals[first..].iter_mut().zip(sums) {
            *total += sum.reduce_sum().into();
        }
        N
    }
}

/// Adds the products of the gradients of outputs and the weights to the inputs that the windows read.
struct Scatter<'a, E> {
    of: &'a Convolution,
    d_y: &'a [E],
    w: &'a [E],
    to: &'a mut [E],
}

impl<E: Real> Kernel for Scatter<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let [height, width] = &self.of.axes;
        for (place, w) in self.w.iter().enumerate() {
            let (k_h, k_w) = (place / width.kernel, place % width.kernel);
            let Some((first, columns)) = width.inside(&(0..width.output), k_w) else {
                continue;
            };
            for (line, d_y) in self.d_y.chunks_exact(width.output).enumerate() {
                if let Some(h) = height.source(line, k_h) {
                    let to = self.to[h * width.input + first..].iter_mut();
                    let to = to.step_by(width.stride);
                    to.zip(&d_y[columns.clone()])
                        .for_each(|(to, d)| *to += *w * *d);
                }
            }
        }
    }
}
