//! The maximum along an axis, and its derivative: the first of several equal maxima gets the gradient.
//!
//! NaN is larger than any number. PyTorch: `torch.max(x, 1)`.

use super::axis::{Axis, Counted, for_each_part, for_each_task, for_some_columns};
use super::compiled::compiled;
use super::fold::fold_rows;
use super::{Buffer, Matrix, MatrixMut, Real};
use crate::simd::slice::{Itself, Join, Max, load_any};
use crate::simd::{Kernel, Mask, Vector, run};

compiled! {
    Maxima:

    /// `to[o, i]` is the largest `x[o, l, i]` of the `l` that are `counted`, and 0 if there are none. The others are not read.
    ///
    /// # Panics
    /// If the lengths do not fit, or a count is beyond the axis.
    #[track_caller]
    pub fn forward<E>(x: &[E], axis: Axis, counted: Counted<'_>, to: &mut [E]) {
        axis.assert_lengths(x.len(), to.len());
        axis.assert_counted(counted);
        for_each_part(axis, axis.inner, to, |o, to| {
            let any = counted.count(axis, o) > 0;
            to.fill(if any { Max::start() } else { E::ZERO });
            for run in counted.runs(axis, o) {
                fold_rows::<Max, Itself, E>(&x[axis.part(o, run)], None, to);
            }
        });
    }

    /// Adds the derivative of [`forward`], or that of the minimum, to `d_x`. `y` is the result.
    ///
    /// # Panics
    /// As [`forward`].
    #[track_caller]
    pub fn backward<E>(
        x: &[E],
        axis: Axis,
        counted: Counted<'_>,
        y: &[E],
        d_y: &[E],
        d_x: &mut [E],
    ) {
        axis.assert_lengths(x.len(), y.len());
        axis.assert_lengths(d_x.len(), d_y.len());
        axis.assert_counted(counted);
        if axis.inner == 1 && axis.len > 0 && matches!(counted, Counted::All) {
            return for_each_task(axis, axis.len, d_x, |rows, d_x| {
                let x = &x[rows.start * axis.len..rows.end * axis.len];
                run(RowSlopes { x, y: &y[rows.clone()], d_y: &d_y[rows], d_x });
            });
        }
        for_each_part(axis, axis.len * axis.inner, d_x, |o, d_x| {
            let x = &x[axis.block(o)];
            let mut places = counted.runs(axis, o).flatten();
            if axis.inner == 1 {
                if let Some(l) = places.find(|&l| is_extreme(x[l], y[o])) {
                    d_x[l] += d_y[o];
                }
                return;
            }
            for_some_columns(MatrixMut::new(d_x, axis.len, axis.inner), |cols, d_x| {
                let row = o * axis.inner + cols.start..o * axis.inner + cols.end;
                // Gradients that have not been added yet.
                let mut rest = Buffer::uninit(d_x.cols());
                rest.copy_from_slice(&d_y[row.clone()]);
                run(Backward {
                    x: Matrix::new(x, axis.len, axis.inner).some_cols(cols),
                    places: counted.runs(axis, o).flatten(),
                    y: &y[row],
                    rest: &mut rest,
                    d_x,
                });
            });
        });
    }
}

/// Whether `x` is the maximum or minimum `y`, which may be NaN.
#[inline(always)]
fn is_extreme<E: Real>(x: E, y: E) -> bool {
    let is_nan = |x: E| x.partial_cmp(&x).is_none();
    x == y || (is_nan(x) && is_nan(y))
}

/// The derivative for rows, of which none is empty.
struct RowSlopes<'a, E> {
    x: &'a [E],
    y: &'a [E],
    d_y: &'a [E],
    d_x: &'a mut [E],
}

impl<E: Real> Kernel for RowSlopes<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let width = self.x.len() / self.y.len().max(1);
        let rows = self.x.chunks_exact(width.max(1));
        let rows = rows.zip(self.d_x.chunks_exact_mut(width.max(1)));
        for ((x, d_x), (&y, &d_y)) in rows.zip(self.y.iter().zip(self.d_y)) {
            if let Some(l) = first::<V>(x, y) {
                d_x[l] += d_y;
            }
        }
    }
}

/// The place of the first number that [is](is_extreme) the maximum or minimum `y` of a row.
#[inline(always)]
fn first<V: Vector>(x: &[V::Element], y: V::Element) -> Option<usize> {
    let is_it = |x: &V::Element| is_extreme(*x, y);
    // Several vectors at a time: the end of the search is not foreseen by a processor, and costs as much as all of their comparisons.
    let some = 4 * V::LANES;
    let number = V::splat(y);
    if number.ne(number).any() {
        return x.iter().position(is_it);
    }
    let mut start = 0;
    for block in x.chunks_exact(some) {
        let mut found = V::load(block).eq(number);
        for x in block[V::LANES..].chunks_exact(V::LANES) {
            found = found | V::load(x).eq(number);
        }
        if found.any() {
            break;
        }
        start += some;
    }
    for x in x[start..].chunks(V::LANES) {
        if load_any::<V>(x).eq(number).any() {
            return x.iter().position(is_it).map(|l| start + l);
        }
        start += V::LANES;
    }
    None
}

struct Backward<'a, E, P> {
    x: Matrix<'a, E>,
    places: P,
    y: &'a [E],
    rest: &'a mut [E],
    d_x: MatrixMut<'a, E>,
}

impl<E: Real, P: Iterator<Item = usize>> Kernel for Backward<'_, E, P> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for l in self.places {
            let x = self.x.row(l);
            let d_x = self.d_x.row_mut(l);
            for (((d_x, &x), &y), rest) in d_x.iter_mut().zip(x).zip(self.y).zip(&mut *self.rest) {
                let is_it = is_extreme(x, y);
                *d_x += if is_it { *rest } else { E::ZERO };
                *rest = if is_it { E::ZERO } else { *rest };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const SIZES: [[usize; 3]; 8] = [
        [1, 1, 1],
        [3, 5, 7],
        [1, 700, 1],
        [2, 130, 65],
        [5, 1, 4],
        [0, 3, 2],
        [3, 0, 2],
        [3, 2, 0],
    ];

    fn axis([outer, len, inner]: [usize; 3]) -> Axis {
        Axis { outer, len, inner }
    }

    /// The position of the maximum of each column, by the definition: the first of several.
    fn places(x: &[f32], axis: Axis, marks: &[bool]) -> Vec<Option<usize>> {
        let mut places = Vec::new();
        for o in 0..axis.outer {
            for i in 0..axis.inner {
                let at = |l: usize| (o * axis.len + l) * axis.inner + i;
                let marked = (0..axis.len).filter(|l| marks[o * axis.len + l]).map(at);
                places.push(marked.reduce(|a, b| if x[b] > x[a] { b } else { a }));
            }
        }
        places
    }

    #[test]
    fn the_first_of_equal_maxima_gets_the_gradient() {
        on_every_isa(|isa| {
            for axis in SIZES.map(axis) {
                // Few distinct numbers, so that many are equal.
                let x = noise::<f32>(axis.elements(), 1);
                let x: Vec<f32> = x.iter().map(|x| (4.0 * x).round()).collect();
                let counts: Vec<_> = (0..axis.outer).map(|o| o * 7 % (axis.len + 1)).collect();
                let marks: Vec<_> = (0..axis.outer * axis.len)
                    .map(|place| place * place % 7 < 3)
                    .collect();
                for counted in [
                    Counted::All,
                    Counted::First(&counts),
                    Counted::Where(&marks),
                ] {
                    let what = format!("{axis:?}, {counted:?} on {isa}");
                    let places = places(&x, axis, &counted.marks(axis));
                    let mut y = vec![f32::NAN; axis.outer * axis.inner];
                    forward(&x, axis, counted, &mut y);
                    let want = places.iter().map(|place| place.map_or(0.0, |at| x[at]));
                    assert_eq!(y, want.collect::<Vec<_>>(), "{what}");

                    let d_y = noise::<f32>(y.len(), 2);
                    let mut d_x = vec![1.0; x.len()];
                    backward(&x, axis, counted, &y, &d_y, &mut d_x);
                    let mut want = vec![1.0; x.len()];
                    for (place, d_y) in places.iter().zip(&d_y) {
                        if let Some(place) = place {
                            want[*place] += d_y;
                        }
                    }
                    assert_eq!(d_x, want, "{what}");
                }
            }
        });
    }

    #[test]
    fn nan_is_the_maximum_and_elements_that_are_not_counted_are_not_read() {
        let nan = f32::NAN;
        let inf = f32::INFINITY;
        let axis = axis([1, 4, 2]);
        let x = [1.0, -inf, nan, -inf, nan, -inf, inf, nan];
        let mut y = [0.0; 2];
        forward(&x, axis, Counted::First(&[3]), &mut y);
        assert!(y[0].is_nan());
        assert_eq!(y[1], -inf);
        let mut d_x = [0.0; 8];
        backward(&x, axis, Counted::First(&[3]), &y, &[1.0, 2.0], &mut d_x);
        assert_eq!(d_x, [0.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let axis = axis([90, 41, 33]);
        let x = noise::<f32>(axis.elements(), 1);
        same_for_all_threads(|| {
            let mut y = vec![0.0; axis.outer * axis.inner];
            forward(&x, axis, Counted::All, &mut y);
            let mut d_x = vec![0.0; axis.elements()];
            backward(&x, axis, Counted::All, &y, &y, &mut d_x);
            d_x
        });
    }
}
