//! With the channels last: vectors are along the channels.

use smallvec::SmallVec;

use super::super::{Convolution, Start};
use crate::kernel::fold::{add_column_sums, rows_per_sum};
use crate::kernel::parallel::{for_each, rows_per_task};
use crate::kernel::{Buffer, Matrix, Pooled, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

pub(super) fn forward<E: Pooled>(
    x: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    y: &mut [E],
) {
    let lengths = [of.outputs(), of.inputs()];
    gather_rows(Direction::Forward, (x, w), of, start, lengths, y);
}

pub(super) fn input_gradient<E: Pooled>(
    d_y: &[E],
    w: &[E],
    of: &Convolution,
    start: Start<'_, E>,
    d_x: &mut [E],
) {
    let lengths = [of.inputs(), of.outputs()];
    gather_rows(Direction::Backward, (d_y, w), of, start, lengths, d_x);
}

impl Convolution {
    /// `[out, places]` as `[places, out]`.
    fn places_outside<E: Pooled>(&self, w: &[E]) -> Buffer<E> {
        let mut to = Buffer::uninit(w.len());
        let places = self.places();
        for (place, to) in to.chunks_mut(self.output).enumerate() {
            let w = w[place..].iter().step_by(places);
            to.iter_mut().zip(w).for_each(|(to, w)| *to = *w);
        }
        to
    }

    /// The inputs of an output, each with its place in the window.
    fn inputs_of(&self, output: usize, mut body: impl FnMut(usize, usize)) {
        let [height, width] = &self.axes;
        let (line, column) = (output / width.output, output % width.output);
        for k_h in 0..height.kernel {
            let Some(h) = height.source(line, k_h) else {
                continue;
            };
            for k_w in 0..width.kernel {
                if let Some(w) = width.source(column, k_w) {
                    body(h * width.input + w, k_h * width.kernel + k_w);
                }
            }
        }
    }

    /// The outputs that read an input, each with its place in the window.
    fn outputs_of(&self, input: usize, mut body: impl FnMut(usize, usize)) {
        let [height, width] = &self.axes;
        let (line, column) = (input / width.input, input % width.input);
        for k_h in 0..height.kernel {
            let Some(h) = height.around(&(line..line + 1), k_h).next() else {
                continue;
            };
            for k_w in 0..width.kernel {
                if let Some(w) = width.around(&(column..column + 1), k_w).next() {
                    body(h * width.output + w, k_h * width.kernel + k_w);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    /// Sums of inputs.
    Forward,
    /// Sums of gradients of outputs.
    Backward,
}

/// Each row of the result is a sum of rows of `from`, times rows of the weights.
fn gather_rows<E: Pooled>(
    direction: Direction,
    (from, w): (&[E], &[E]),
    of: &Convolution,
    start: Start<'_, E>,
    [to_of_image, from_of_image]: [usize; 2],
    to: &mut [E],
) {
    let w = of.places_outside(w);
    let widths = match direction {
        Direction::Forward => [of.output, of.input],
        Direction::Backward => [of.input, of.output],
    };
    let rows = rows_per_task(of.output);
    let tiles = to.chunks_mut(rows * widths[0]).enumerate();
    for_each(tiles, |(index, to): (usize, &mut [E])| {
        run(Gather {
            direction,
            of,
            from,
            w: &w,
            start,
            first: index * rows,
            widths,
            to_of_image,
            from_of_image,
            to,
        });
    });
}

struct Gather<'a, E> {
    direction: Direction,
    of: &'a Convolution,
    from: &'a [E],
    /// `[places, out]`
    w: &'a [E],
    start: Start<'a, E>,
    /// The first row of the result.
    first: usize,
    /// The channels of the result, and those of `from`.
    widths: [usize; 2],
    to_of_image: usize,
    from_of_image: usize,
    to: &'a mut [E],
}

impl<E: Real> Kernel for Gather<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let [to_width, from_width] = self.widths;
        let multiplier = self.of.output / self.of.input;
        let mut terms: SmallVec<[(&[E], &[E]); 32]> = SmallVec::new();
        for (row, to) in self.to.chunks_mut(to_width).enumerate() {
            let row = self.first + row;
            let (image, place) = (row / self.to_of_image, row % self.to_of_image);
            terms.clear();
            let term = |index: usize, place: usize| {
                let from = (image * self.from_of_image + index) * from_width;
                let w = place * self.of.output;
                terms.push((
                    &self.from[from..from + from_width],
                    &self.w[w..w + self.of.output],
                ));
            };
            match self.direction {
                Direction::Forward => self.of.inputs_of(place, term),
                Direction::Backward => self.of.outputs_of(place, term),
            }
            match multiplier {
                1 => sum_of_rows::<V>(&terms, self.start, to),
                _ => sum_of_parts(self.direction, multiplier, &terms, self.start, to),
            }
        }
    }
}

#[inline(always)]
fn sum_of_rows<V: Vector>(
    terms: &[(&[V::Element], &[V::Element])],
    start: Start<'_, V::Element>,
    to: &mut [V::Element],
) {
    let whole = to.len() / (BLOCK * V::LANES) * (BLOCK * V::LANES);
    for first in (0..whole).step_by(BLOCK * V::LANES) {
        let block = first..first + BLOCK * V::LANES;
        let to = &mut to[block.clone()];
        let mut sums = [V::zero(); BLOCK];
        match start {
            Start::Row(bias) => load_block(&bias[block.clone()], &mut sums),
            Start::Zero => {}
            Start::Accumulate => load_block(to, &mut sums),
        }
        for (x, w) in terms {
            let (x, w) = (&x[block.clone()], &w[block.clone()]);
            for i in 0..BLOCK {
                let (x, w) = (V::load(&x[i * V::LANES..]), V::load(&w[i * V::LANES..]));
                sums[i] = x.mul_add(w, sums[i]);
            }
        }
        for (sum, to) in sums.into_iter().zip(to.chunks_exact_mut(V::LANES)) {
            sum.store(to);
        }
    }
    let len = to.len();
    for first in (whole..len).step_by(V::LANES) {
        let lanes = first..len.min(first + V::LANES);
        let to = &mut to[lanes.clone()];
        let mut sum: V = match start {
            Start::Row(bias) => load_any(&bias[lanes.clone()]),
            Start::Zero => V::zero(),
            Start::Accumulate => load_any(to),
        };
        for (x, w) in terms {
            sum = load_any::<V>(&x[lanes.clone()]).mul_add(load_any(&w[lanes.clone()]), sum);
        }
        store_any(sum, to);
    }
}

/// The vectors of a row that are computed at a time.
const BLOCK: usize = 4;

#[inline(always)]
fn load_block<V: Vector>(from: &[V::Element], to: &mut [V; BLOCK]) {
    for (to, from) in to.iter_mut().zip(from.chunks_exact(V::LANES)) {
        *to = V::load(from);
    }
}

/// The same with several channels of the output for one of the input.
#[inline(always)]
fn sum_of_parts<E: Real>(
    direction: Direction,
    multiplier: usize,
    terms: &[(&[E], &[E])],
    start: Start<'_, E>,
    to: &mut [E],
) {
    match start {
        Start::Row(bias) => to.copy_from_slice(bias),
        Start::Zero => to.fill(E::ZERO),
        Start::Accumulate => {}
    }
    for (x, w) in terms {
        match direction {
            Direction::Forward => {
                let parts = to.chunks_mut(multiplier).zip(w.chunks(multiplier)).zip(*x);
                for ((to, w), x) in parts {
                    to.iter_mut().zip(w).for_each(|(to, w)| *to += *x * *w);
                }
            }
            Direction::Backward => {
                let parts = x.chunks(multiplier).zip(w.chunks(multiplier));
                for (to, (d, w)) in to.iter_mut().zip(parts) {
                    d.iter().zip(w).for_each(|(d, w)| *to += *d * *w);
                }
            }
        }
    }
}

/// `d_w[o, place] += Σ d_y[row, o] x[source of row, channel of o]`, in chunks of rows that are added up in their order.
pub(super) fn add_weight_gradient<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    let numbers = d_w.len();
    let all = of.images * of.outputs();
    let some = rows_per_sum(of.output);
    let chunks = all.div_ceil(some);
    let mut partial = Buffer::zeros(chunks * numbers);
    for_each(
        partial.chunks_mut(numbers).enumerate(),
        |(index, to): (usize, &mut [E])| {
            run(Products {
                of,
                x,
                d_y,
                rows: index * some..all.min((index + 1) * some),
                to,
            });
        },
    );
    let mut sums = Buffer::zeros(numbers);
    add_column_sums(Matrix::new(&partial, chunks, numbers), &mut sums);
    for (place, sums) in sums.chunks(of.output).enumerate() {
        let to = d_w[place..].iter_mut().step_by(of.places());
        to.zip(sums).for_each(|(to, sum)| *to += *sum);
    }
}

struct Products<'a, E> {
    of: &'a Convolution,
    x: &'a [E],
    d_y: &'a [E],
    rows: std::ops::Range<usize>,
    /// `[places, out]`
    to: &'a mut [E],
}

impl<E: Real> Kernel for Products<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let of = self.of;
        let (width, multiplier) = (of.output, of.output / of.input);
        // Vectors are not used in closures, which the compiler need not inline.
        let mut terms: SmallVec<[[usize; 2]; 32]> = SmallVec::new();
        for row in self.rows {
            let d_y = &self.d_y[row * width..][..width];
            let (image, output) = (row / of.outputs(), row % of.outputs());
            terms.clear();
            of.inputs_of(output, |input, place| terms.push([input, place]));
            for [input, place] in &terms {
                let x = &self.x[(image * of.inputs() + input) * of.input..][..of.input];
                let to = &mut self.to[place * width..][..width];
                match multiplier {
                    1 => products::<V>(d_y, x, to),
                    _ => {
                        let parts = to.chunks_mut(multiplier).zip(d_y.chunks(multiplier));
                        for ((to, d_y), x) in parts.zip(x) {
                            to.iter_mut().zip(d_y).for_each(|(to, d)| *to += *d * *x);
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn products<V: Vector>(a: &[V::Element], b: &[V::Element], to: &mut [V::Element]) {
    let len = to.len();
    for first in (0..len).step_by(V::LANES) {
        let lanes = first..len.min(first + V::LANES);
        let to = &mut to[lanes.clone()];
        let sum = load_any::<V>(&a[lanes.clone()]).mul_add(load_any(&b[lanes]), load_any(to));
        store_any(sum, to);
    }
}
