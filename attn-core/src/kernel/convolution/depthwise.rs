//! Convolutions with a group for each channel of the input. A group has one channel of the input and `multiplier` channels of the output, so
//! its products have a depth of 1: here vectors are along the channels, or along the places where the channels are the first axis.

use smallvec::SmallVec;

use super::forward::fill_rows;
use super::{Channels, Convolution, Start};
use crate::kernel::fold::{add_column_sums, rows_per_sum};
use crate::kernel::parallel::{for_each, rows_per_task};
use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled, Real};
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, WriteMode, call, run};

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
    let lengths = [of.outputs(), of.inputs()];
    match of.layout {
        Channels::Last => gather_rows(Direction::Forward, (x, w), of, start, lengths, y),
        Channels::First => {
            let to = y.chunks_mut(lengths[0]).enumerate();
            for_each(to, |(index, y): (usize, &mut [E])| {
                let (image, channel) = (index / of.output, index % of.output);
                begin(start, channel, y);
                let from = image * of.input + channel / of.multiplier();
                let x = &x[from * lengths[1]..][..lengths[1]];
                let w = &w[channel * of.places()..][..of.places()];
                of.for_each_run(|place, run| {
                    let (y, x) = (&mut y[run.output..][..run.len], &x[run.input..]);
                    match run.stride {
                        1 => call::axpy(w[place], &x[..run.len], y),
                        stride => {
                            let x = x.iter().step_by(stride);
                            y.iter_mut().zip(x).for_each(|(y, x)| *y += w[place] * *x);
                        }
                    }
                });
            });
        }
    }
}

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
    let lengths = [of.inputs(), of.outputs()];
    match of.layout {
        Channels::Last => gather_rows(Direction::Backward, (d_y, w), of, start, lengths, d_x),
        Channels::First => {
            let to = d_x.chunks_mut(lengths[0]).enumerate();
            for_each(to, |(index, d_x): (usize, &mut [E])| {
                let (image, channel) = (index / of.input, index % of.input);
                begin(start, channel, d_x);
                for output in channel * of.multiplier()..(channel + 1) * of.multiplier() {
                    let from = (image * of.output + output) * lengths[1];
                    let d_y = &d_y[from..][..lengths[1]];
                    let w = &w[output * of.places()..][..of.places()];
                    of.for_each_run(|place, run| {
                        let (d_y, d_x) = (&d_y[run.output..][..run.len], &mut d_x[run.input..]);
                        match run.stride {
                            1 => call::axpy(w[place], d_y, &mut d_x[..run.len]),
                            stride => {
                                let d_x = d_x.iter_mut().step_by(stride);
                                d_x.zip(d_y).for_each(|(x, y)| *x += w[place] * *y);
                            }
                        }
                    });
                }
            });
        }
    }
}

pub(super) fn add_weight_gradient<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
    if d_y.is_empty() || d_w.is_empty() {
        return;
    }
    let [inputs, outputs] = [of.inputs(), of.outputs()];
    match of.layout {
        Channels::Last => add_products_of_rows(x, d_y, of, d_w),
        Channels::First => {
            let to = d_w.chunks_mut(of.places()).enumerate();
            for_each(to, |(channel, d_w): (usize, &mut [E])| {
                for image in 0..of.images {
                    let from = image * of.input + channel / of.multiplier();
                    let x = &x[from * inputs..][..inputs];
                    let d_y = &d_y[(image * of.output + channel) * outputs..][..outputs];
                    of.for_each_run(|place, run| {
                        let (d_y, x) = (&d_y[run.output..][..run.len], &x[run.input..]);
                        d_w[place] += match run.stride {
                            1 => call::dot(d_y, &x[..run.len]),
                            stride => dot_strided(d_y, x, stride),
                        };
                    });
                }
            });
        }
    }
}

/// The sum of the products of `y` and every `stride`-th number of `x`, from the first on. Those of a block are gathered.
fn dot_strided<E: Pooled>(y: &[E], x: &[E], stride: usize) -> E {
    const BLOCK: usize = 64;
    let mut gathered = [E::ZERO; BLOCK];
    let mut sum = E::ZERO;
    for (y, x) in y.chunks(BLOCK).zip(x.chunks(BLOCK * stride)) {
        let to = &mut gathered[..y.len()];
        for (to, x) in to.iter_mut().zip(x.iter().step_by(stride)) {
            *to = *x;
        }
        sum += call::dot(y, to);
    }
    sum
}

/// Writes the initial value of a channel, to which products are added: a bias, zeros, or nothing where numbers stand already.
fn begin<E: Pooled>(start: Start<'_, E>, channel: usize, to: &mut [E]) {
    let start = start.of_cols(channel..channel + 1);
    let len = to.len();
    if fill_rows(start, &mut MatrixMut::new(to, 1, len)) == WriteMode::Overwrite {
        to.fill(E::ZERO);
    }
}

/// Outputs and inputs of one place of a window, which are next to each other.
struct Run {
    output: usize,
    input: usize,
    len: usize,
    /// The distance of two inputs.
    stride: usize,
}

impl Convolution {
    /// The channels of the output in a group.
    fn multiplier(&self) -> usize {
        self.output_of_group()
    }

    /// The runs of every place of a window, in one channel of an image.
    fn for_each_run(&self, mut body: impl FnMut(usize, Run)) {
        let [height, width] = &self.axes;
        for place in 0..self.places() {
            let (k_h, k_w) = (place / width.kernel, place % width.kernel);
            let columns = width.around(&(0..width.input), k_w);
            let Some(first) = width
                .source(columns.start, k_w)
                .filter(|_| !columns.is_empty())
            else {
                continue;
            };
            for line in 0..height.output {
                if let Some(h) = height.source(line, k_h) {
                    body(
                        place,
                        Run {
                            output: line * width.output + columns.start,
                            input: h * width.input + first,
                            len: columns.len(),
                            stride: width.stride,
                        },
                    );
                }
            }
        }
    }

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

/// With the channels last: each row of the result is a sum of rows of `from`, times rows of the weights.
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

/// With the channels last: `d_w[o, place] += Σ d_y[row, o] x[source of row, channel of o]`, in chunks of rows that are added up in their order.
fn add_products_of_rows<E: Pooled>(x: &[E], d_y: &[E], of: &Convolution, d_w: &mut [E]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_products_are_those_of_every_second_number() {
        for len in [0_usize, 1, 63, 64, 65, 200] {
            let y: Vec<f64> = (0..len).map(|i| i as f64 + 1.0).collect();
            // There is none behind the last one.
            let x: Vec<f64> = (0..(2 * len).saturating_sub(1))
                .map(|i| if i % 2 == 0 { 3.0 } else { f64::NAN })
                .collect();
            let expected = (3 * len * (len + 1) / 2) as f64;
            assert_eq!(dot_strided(&y, &x, 2), expected, "{len}");
        }
    }

    /// One sum of so many has an error of 2e-3 of it. Sums of blocks have less than 2e-4.
    #[test]
    fn strided_products_are_added_in_blocks() {
        const LEN: usize = 1 << 18;
        let found = dot_strided(&vec![0.1_f32; LEN], &vec![1.0; 2 * LEN], 2);
        let expected = f64::from(0.1_f32) * LEN as f64;
        let error = (f64::from(found) - expected).abs() / expected;
        assert!(error < 1e-3, "{error}");
    }
}
