//! Transforms of queries, keys and values before attention: a bias is added, a norm divides by the length, a rotation encodes the
//! position.
//!
//! Each acts on one vector of one head. With `x` after the bias, `u = x / r`, `r = sqrt(mean(x²) + ε)`, and the rotation `R` of a
//! position,
//!
//! ```text
//! y = R (gain * u)
//! e = Rᵀ dy        t = gain * e        dx = (t - u mean(t u)) / r        dgain = Σ u * e
//! ```
//!
//! The Euclidean norm has sums in place of means, and no gain. Zhang and Sennrich, "Root mean square layer normalization" (2019);
//! Henry et al., "Query-key normalization for transformers" (2020); Su et al., "RoFormer" (2021), equation 34, with the halves
//! paired as in GPT-NeoX and Llama, or neighbours as in GPT-J.
//!
//! Attention transforms vectors as it loads them. [`head_transform`] and [`one_head_transform`] are for callers outside of it.

use super::{HeadTransform, Norm, Rope};
use crate::kernel::compiled::compiled;
use crate::kernel::fold::{add_column_sums, rows_per_sum};
use crate::kernel::lanes::for_lanes;
use crate::kernel::norm::Gain;
use crate::kernel::{Buffer, Pooled, parallel};
use crate::simd::slice::{dot, load_any, store_any};
use crate::simd::transpose_here;
use crate::simd::{Kernel, Matrix, MatrixMut, Real, Vector, WriteMode, prefetch, run};

/// How many rows ahead memory is asked for: about as many as are loaded in the time that a row takes to come from the other core's cache.
const AHEAD: usize = 8;

/// The number of rows that are transposed at a time: they are still in the first-level cache after the transform.
const STRIP: usize = 64;

compiled! {
    HeadTransforms:

    /// Transforms the vectors of every head. Row `r` has the place `r % len` in its sequence.
    ///
    /// `x`, `to`: `[batch * len, heads * width]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn head_transform<E>(
        transform: &HeadTransform<'_, E>,
        batch: usize,
        len: usize,
        heads: usize,
        x: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
    ) {
        let vectors = Vectors::new(transform, [batch, len, heads], x);
        assert_eq!(shape(x), (to.rows(), to.cols()), "vectors of another shape");
        if vectors.width == 0 {
            return;
        }
        let chunk = parallel::rows_per_task(x.cols());
        let tasks = to.row_chunks(chunk).enumerate();
        parallel::for_each(tasks, |(task, to)| {
            let first = task * chunk;
            run(Forward { vectors, first, to });
        });
    }

    /// The same for the vectors of one head, of one sequence.
    ///
    /// `x`: `[len, heads * width]`; `to`: `[len, width]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    pub fn one_head_transform<E>(
        transform: &HeadTransform<'_, E>,
        head: usize,
        x: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
    ) {
        let width = to.cols();
        let x = x.some_cols(head * width..(head + 1) * width);
        assert_eq!(shape(x), (to.rows(), width), "vectors of another shape");
        let transform = transform.of_head(head, width);
        let vectors = Vectors::new(&transform, [1, x.rows(), 1], x);
        run(Forward { vectors, first: 0, to });
    }

    /// The derivative of [`head_transform`], from `d`, the gradient of the transformed vectors. It overwrites `to`, the gradient of `x`,
    /// and `d_gain`, the gradient of the gain of [`Norm::Rms`], if there is one.
    ///
    /// `x`, `d`, `to`: `[batch * len, heads * width]`; `d_gain`: `[width]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[allow(
        clippy::too_many_arguments,
        reason = "those of the forward function, and where its derivative comes from and goes"
    )]
    pub fn head_transform_backward<E>(
        transform: &HeadTransform<'_, E>,
        batch: usize,
        len: usize,
        heads: usize,
        x: Matrix<'_, E>,
        d: Matrix<'_, E>,
        to: MatrixMut<'_, E>,
        d_gain: Option<&mut [E]>,
    ) {
        let mut d_gain = d_gain;
        let vectors = Vectors::new(transform, [batch, len, heads], x);
        assert_eq!(shape(x), (to.rows(), to.cols()), "vectors of another shape");
        assert_eq!(shape(x), shape(d), "derivatives of another shape");
        if let Some(d_gain) = &mut d_gain {
            d_gain.fill(E::ZERO);
        }
        let width = vectors.width;
        if width == 0 {
            return;
        }
        // The gradient of the gain is a sum over all vectors: every chunk of rows has its own sum, and these are added in order.
        let chunk = rows_per_sum(x.cols());
        let chunks = x.rows().div_ceil(chunk);
        let mut sums = Buffer::zeros(chunks * width);
        let tasks = to.row_chunks(chunk).zip(sums.chunks_mut(width));
        parallel::for_each(tasks.enumerate(), |(task, (to, d_gain))| {
            let first = task * chunk;
            run(Backward {
                vectors,
                first,
                d,
                to,
                d_gain,
            });
        });
        if let Some(d_gain) = d_gain {
            add_column_sums(Matrix::new(&sums, chunks, width), d_gain);
        }
    }
}

/// The vectors of a matrix, of all sequences and heads.
#[derive(Clone, Copy)]
struct Vectors<'a, E> {
    transform: &'a HeadTransform<'a, E>,
    x: Matrix<'a, E>,
    len: usize,
    width: usize,
}

impl<'a, E: Pooled> Vectors<'a, E> {
    fn new(
        transform: &'a HeadTransform<'a, E>,
        [batch, len, heads]: [usize; 3],
        x: Matrix<'a, E>,
    ) -> Self {
        let width = x.cols() / heads.max(1);
        assert!(
            x.rows() == batch * len && x.cols() == heads * width,
            "{x:?} of {batch} sequences of {len} and {heads} heads"
        );
        Self {
            transform,
            x,
            len,
            width,
        }
    }
}

fn shape<E>(x: Matrix<'_, E>) -> (usize, usize) {
    (x.rows(), x.cols())
}

/// [`head_transform`] for a range of rows: `to` has row `first` and the following ones.
struct Forward<'a, E> {
    vectors: Vectors<'a, E>,
    first: usize,
    to: MatrixMut<'a, E>,
}

impl<E: Pooled> Kernel for Forward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Vectors {
            transform,
            x,
            len,
            width,
        } = self.vectors;
        for row in 0..self.to.rows() {
            let position = transform.place(self.first + row, len);
            let x = x.row(self.first + row).chunks(width);
            let heads = x.zip(self.to.row_mut(row).chunks_mut(width));
            for (head, (x, to)) in heads.enumerate() {
                load_row::<V>(&transform.of_head(head, width), x, position, to);
            }
        }
    }
}

/// [`head_transform_backward`] for a range of rows.
struct Backward<'a, E> {
    vectors: Vectors<'a, E>,
    first: usize,
    d: Matrix<'a, E>,
    to: MatrixMut<'a, E>,
    d_gain: &'a mut [E],
}

impl<E: Pooled> Kernel for Backward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let Vectors {
            transform,
            x,
            len,
            width,
        } = self.vectors;
        let mut biased = Buffer::uninit(width);
        for row in 0..self.to.rows() {
            let position = transform.place(self.first + row, len);
            let x = x.row(self.first + row).chunks(width);
            let d = self.d.row(self.first + row).chunks(width);
            let heads = x.zip(d).zip(self.to.row_mut(row).chunks_mut(width));
            for (head, ((x, d), to)) in heads.enumerate() {
                let transform = transform.of_head(head, width);
                let d_gain = Some(&mut *self.d_gain);
                backward_row::<V>(&transform, x, position, d, to, d_gain, &mut biased);
            }
        }
    }
}

/// Transforms the rows of one head, the first of which has the position `first`.
///
/// `x`, `to`: `[len, width]`.
#[inline(always)]
pub(super) fn load_rows<V: Vector>(
    transform: &HeadTransform<'_, V::Element>,
    x: Matrix<'_, V::Element>,
    first: usize,
    to: &mut MatrixMut<'_, V::Element>,
) {
    assert_eq!(shape(x), (to.rows(), to.cols()), "rows of another shape");
    for row in 0..x.rows() {
        prefetch_ahead(x, row);
        load_row::<V>(transform, x.row(row), first + row, to.row_mut(row));
    }
}

/// [`load_rows`], transposed: `x` is `[len, width]`, `to` is `[width, len]`.
#[inline(always)]
pub(super) fn load_columns<V: Vector<Element: Pooled>>(
    transform: &HeadTransform<'_, V::Element>,
    x: Matrix<'_, V::Element>,
    first: usize,
    to: &mut MatrixMut<'_, V::Element>,
) {
    assert_eq!(
        shape(x.transposed()),
        (to.rows(), to.cols()),
        "columns of another shape"
    );
    if transform.is_nothing() {
        return transpose_here::<V>(x, to, WriteMode::Overwrite);
    }
    let width = x.cols();
    let mut memory = Buffer::uninit(STRIP * width);
    let mut rest = to.reborrow();
    for start in (0..x.rows()).step_by(STRIP) {
        let rows = x.some_rows(start..x.rows().min(start + STRIP));
        let (mut columns, others) = rest.split_cols(rows.rows());
        rest = others;
        let memory = &mut memory[..rows.rows() * width];
        let mut transformed = MatrixMut::new(memory, rows.rows(), width);
        load_rows::<V>(transform, rows, first + start, &mut transformed);
        transpose_here::<V>(transformed.as_ref(), &mut columns, WriteMode::Overwrite);
    }
}

/// The derivative of [`load_rows`]: writes the gradient of the rows `x`, from `d`, the gradient of the transformed rows, and adds
/// the gradient of the gain to `d_gain`.
///
/// A row whose gradient is 0 is not read: it may be padding, and NaN. `x`, `d`, `to`: `[len, width]`.
#[inline(always)]
pub(super) fn backward_rows<V: Vector<Element: Pooled>>(
    transform: &HeadTransform<'_, V::Element>,
    x: Matrix<'_, V::Element>,
    first: usize,
    d: Matrix<'_, V::Element>,
    to: &mut MatrixMut<'_, V::Element>,
    mut d_gain: Option<&mut [V::Element]>,
) {
    assert_eq!(shape(x), (to.rows(), to.cols()), "rows of another shape");
    assert_eq!(shape(x), shape(d), "derivatives of another shape");
    let mut biased = Buffer::uninit(x.cols());
    for row in 0..x.rows() {
        let x = x.row(row);
        let d = d.row(row);
        let to = to.row_mut(row);
        let d_gain = d_gain.as_deref_mut();
        backward_row::<V>(transform, x, first + row, d, to, d_gain, &mut biased);
    }
}

/// Asks for a row of a head that is loaded some rows behind this one. The rows of a head are short pieces far apart.
#[inline(always)]
pub(super) fn prefetch_ahead<E>(x: Matrix<'_, E>, row: usize) {
    if row + AHEAD < x.rows() {
        prefetch(x.row(row + AHEAD));
    }
}

/// Transforms one row of one head.
#[inline(always)]
pub(super) fn load_row<V: Vector>(
    transform: &HeadTransform<'_, V::Element>,
    x: &[V::Element],
    position: usize,
    to: &mut [V::Element],
) {
    add_bias::<V>(transform, x, to);
    if let Some(norm) = &transform.norm {
        normalize::<V>(norm, to);
    }
    if let Some(rope) = &transform.rope {
        rotate::<V>(rope, position, V::Element::ONE, to);
    }
}

/// The derivative of [`load_row`], as in [`backward_rows`]. `biased` is scratch for one row.
#[inline(always)]
pub(super) fn backward_row<V: Vector>(
    transform: &HeadTransform<'_, V::Element>,
    x: &[V::Element],
    position: usize,
    d: &[V::Element],
    to: &mut [V::Element],
    d_gain: Option<&mut [V::Element]>,
    biased: &mut [V::Element],
) {
    to.copy_from_slice(d);
    if d.iter().all(|&d| d == V::Element::ZERO) {
        return;
    }
    if let Some(rope) = &transform.rope {
        rotate::<V>(rope, position, -V::Element::ONE, to);
    }
    if let Some(norm) = &transform.norm {
        add_bias::<V>(transform, x, biased);
        normalize_backward::<V>(norm, biased, to, d_gain);
    }
}

/// `to = x + bias`
#[inline(always)]
fn add_bias<V: Vector>(
    transform: &HeadTransform<'_, V::Element>,
    x: &[V::Element],
    to: &mut [V::Element],
) {
    match transform.bias {
        None => to.copy_from_slice(x),
        Some(bias) => for_lanes!(V, x.len(), [x, bias], [to], {
            store_any(load_any::<V>(x) + load_any(bias), to)
        }),
    }
}

/// `gain * x / r`, in place.
#[inline(always)]
fn normalize<V: Vector>(norm: &Norm<'_, V::Element>, x: &mut [V::Element]) {
    let (inverse, _) = inverse_and_share::<V>(norm, x);
    let inverse = V::splat(inverse);
    match norm {
        Norm::L2 { .. }
        | Norm::Rms {
            gain: Gain::One, ..
        } => {
            for_lanes!(V, x.len(), [], [x], store_any(inverse * load_any(x), x))
        }
        Norm::Rms {
            gain: Gain::Factor(gain),
            ..
        } => for_lanes!(V, x.len(), [gain], [x], {
            store_any(inverse * load_any(x) * load_any(gain), x)
        }),
        Norm::Rms {
            gain: Gain::OnePlus(gain),
            ..
        } => for_lanes!(V, x.len(), [gain], [x], {
            let x_hat = inverse * load_any(x);
            store_any(x_hat.mul_add(load_any(gain), x_hat), x)
        }),
    }
}

/// Turns `e` into `dx`, in place.
#[inline(always)]
fn normalize_backward<V: Vector>(
    norm: &Norm<'_, V::Element>,
    x: &[V::Element],
    e: &mut [V::Element],
    d_gain: Option<&mut [V::Element]>,
) {
    let (scale, share) = inverse_and_share::<V>(norm, x);
    let inverse = V::splat(scale);
    if let Norm::Rms {
        gain: gain @ (Gain::Factor(of) | Gain::OnePlus(of)),
        ..
    } = norm
    {
        if let Some(d_gain) = d_gain {
            for_lanes!(V, x.len(), [x, e], [d_gain], {
                let u = inverse * load_any(x);
                store_any(u.mul_add(load_any(e), load_any(d_gain)), d_gain);
            });
        }
        let offset = V::splat(match gain {
            Gain::OnePlus(_) => V::Element::ONE,
            _ => V::Element::ZERO,
        });
        for_lanes!(V, x.len(), [of], [e], {
            store_any((offset + load_any(of)) * load_any(e), e);
        });
    }
    let t = e;
    let along = V::splat(-(dot::<V>(x, t) * scale * share * scale));
    for_lanes!(V, x.len(), [x], [t], {
        store_any(inverse * along.mul_add(load_any(x), load_any(t)), t);
    });
}

/// `1 / r`, and the factor that turns a sum over a vector into the mean or the sum of the norm.
#[inline(always)]
fn inverse_and_share<V: Vector>(
    norm: &Norm<'_, V::Element>,
    x: &[V::Element],
) -> (V::Element, V::Element) {
    let (share, epsilon) = match norm {
        Norm::L2 { epsilon } => (V::Element::ONE, epsilon),
        Norm::Rms { gain, epsilon } => {
            let fits = gain.learned().is_none_or(|gain| gain.len() == x.len());
            assert!(fits, "a gain of another width");
            let share = V::Element::ONE / V::Element::of_f64(x.len() as f64);
            (share, epsilon)
        }
    };
    let square = dot::<V>(x, x) * share + V::Element::of_f64(*epsilon);
    let inverse = V::splat(V::Element::ONE) / V::splat(square).sqrt();
    (inverse.reduce_max(), share)
}

/// Rotates the pairs by the angles of a position, or back for the direction -1.
#[inline(always)]
pub(super) fn rotate<V: Vector>(
    rope: &Rope<'_, V::Element>,
    position: usize,
    direction: V::Element,
    x: &mut [V::Element],
) {
    let [cos, sin] = rope.at(position);
    assert!(2 * cos.len() <= x.len(), "angles of another width");
    let x = &mut x[..2 * cos.len()];
    if rope.interleaved {
        return rotate_neighbours(cos, sin, direction, x);
    }
    let direction = V::splat(direction);
    let (left, right) = x.split_at_mut(cos.len());
    for_lanes!(V, cos.len(), [cos, sin], [left, right], {
        let cos = load_any::<V>(cos);
        let sin = direction * load_any(sin);
        let x1 = load_any::<V>(left);
        let x2 = load_any::<V>(right);
        store_any(x1.mul_add(cos, -(x2 * sin)), left);
        store_any(x2.mul_add(cos, x1 * sin), right);
    });
}

/// [`rotate`] of the pairs `(x[2 i], x[2 i + 1])`.
#[inline(always)]
fn rotate_neighbours<E: Real>(cos: &[E], sin: &[E], direction: E, x: &mut [E]) {
    // The compiler makes vectors of it: they have no operation here that separates neighbours.
    let (pairs, _) = x.as_chunks_mut::<2>();
    for (pair, (&cos, &sin)) in pairs.iter_mut().zip(cos.iter().zip(sin)) {
        let [x1, x2] = *pair;
        let sin = direction * sin;
        *pair = [x1 * cos - x2 * sin, x2 * cos + x1 * sin];
    }
}

#[cfg(test)]
mod tests;
