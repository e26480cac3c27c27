//! Additive scores: a small network of a query and a key, instead of their product.
//!
//! ```text
//! s[i, j] = Σ_n w[n] tanh(x)          x = q[i, n] + k[n, j]
//! dq[i, n] = Σ_j ds[i, j] w[n] tanh'(x)
//! dk[n, j] = Σ_i ds[i, j] w[n] tanh'(x)
//! dw[n] = Σ_ij ds[i, j] tanh(x)
//! ```
//!
//! Bahdanau et al., "Neural machine translation by jointly learning to align and translate" (2015), A.1.2. The array of `tanh(x)`
//! is never stored. The exponential of a sum is a product of exponentials, so
//!
//! ```text
//! u = 1 / (e^2q e^2k + 1)             tanh(x) = 1 - 2 u          tanh'(x) = 4 (u - u²)
//! ```
//!
//! take one exponential per number of a query or a key, and one division per pair. The error of `tanh(x)` is up to two units in
//! the last place of 1, not of its own value: as if `q` and `k`, around 1, had that error. Where a power would overflow, it is
//! NaN, and `u` is computed from `x`.

use crate::kernel::lanes::for_lanes;
use crate::kernel::{Buffer, Pooled};
use crate::simd::slice::{axpy, load_any, store_any, sum};
use crate::simd::transpose_here;
use crate::simd::{Mask, Matrix, MatrixMut, Real, Vector, WriteMode, math};

/// For numbers up to this, a product of two powers is neither infinite nor subnormal, in `f32` as well.
const FAR: f64 = 20.0;

/// The scores of a tile.
///
/// `q`: `[queries, width]`, `kt`: `[width, keys]`, `w`: `[width]`, `to`: `[queries, keys]`.
#[inline(always)]
pub(super) fn scores<V: Vector<Element: Pooled>>(
    q: Matrix<'_, V::Element>,
    kt: Matrix<'_, V::Element>,
    w: &[V::Element],
    to: &mut MatrixMut<'_, V::Element>,
) {
    let width = w.len();
    assert_shapes(q, kt, width, (to.rows(), to.cols()));
    let mut q_powers = Buffer::uninit(q.rows() * width);
    for i in 0..q.rows() {
        powers::<V>(q.row(i), &mut q_powers[i * width..][..width]);
    }
    let mut k_powers = Buffer::uninit(width * V::LANES);
    // A vector holds one coordinate of several keys, and the sum over the coordinates stays in a register.
    for at in (0..kt.cols()).step_by(V::LANES) {
        let k = kt.some_cols(at..kt.cols().min(at + V::LANES));
        for (n, powers) in k_powers.chunks_exact_mut(V::LANES).enumerate() {
            power(load_any::<V>(k.row(n))).store(powers);
        }
        for i in 0..q.rows() {
            let powers = (&q_powers[i * width..][..width], &k_powers[..]);
            let mut sum = score::<V, false>(q.row(i), k, powers, w);
            if is_nan(sum) {
                sum = score::<V, true>(q.row(i), k, powers, w);
            }
            store_any(sum, &mut to.row_mut(i)[at..]);
        }
    }
}

/// The scores of a query and a vector of keys. Without `FAR`, a score with a far coordinate is NaN. The others have the same
/// bits.
#[inline(always)]
fn score<V: Vector, const FAR: bool>(
    q: &[V::Element],
    k: Matrix<'_, V::Element>,
    (q_powers, k_powers): (&[V::Element], &[V::Element]),
    w: &[V::Element],
) -> V {
    let one = V::splat(Real::ONE);
    let minus_two = V::splat(-V::Element::TWO);
    let mut sum = V::zero();
    let powers = q_powers.iter().zip(k_powers.chunks_exact(V::LANES));
    for (n, ((&q_power, k_power), &w)) in powers.zip(w).enumerate() {
        let mut u = complement(V::splat(q_power) * V::load(k_power));
        if FAR {
            u = complement_of_far(u, V::splat(q[n]) + load_any(k.row(n)));
        }
        sum = u.mul_add(minus_two, one).mul_add(V::splat(w), sum);
    }
    sum
}

/// The derivative of [`scores`]: adds to the gradients of its arguments, from `d`, the gradient of the scores.
///
/// A pair with `d = 0` adds nothing. It may be masked, and NaN. The shapes are those of [`scores`].
#[inline(always)]
pub(super) fn gradients<V: Vector<Element: Pooled>>(
    q: Matrix<'_, V::Element>,
    kt: Matrix<'_, V::Element>,
    w: &[V::Element],
    d: Matrix<'_, V::Element>,
    d_q: &mut MatrixMut<'_, V::Element>,
    d_kt: &mut MatrixMut<'_, V::Element>,
    d_w: &mut [V::Element],
) {
    let width = w.len();
    let len = kt.cols();
    assert_shapes(q, kt, width, (d.rows(), d.cols()));
    assert!(
        (d_q.rows(), d_q.cols()) == (q.rows(), width)
            && (d_kt.rows(), d_kt.cols()) == (width, len)
            && d_w.len() == width,
        "derivatives of other shapes: {d_q:?} and {d_kt:?} with {} weights",
        d_w.len()
    );
    if len == 0 {
        return;
    }
    let d_sum = (0..d.rows()).fold(V::zero(), |all, i| all + V::splat(sum::<V>(d.row(i))));
    let mut keys = Buffer::zeros(len * KEY * V::LANES);
    let mut h_kt = Buffer::uninit(V::LANES * len);
    // A vector holds several coordinates of one key: no sum crosses lanes, and a pair with `d = 0` is skipped.
    for at in (0..width).step_by(V::LANES) {
        let some = at..width.min(at + V::LANES);
        let far = load_keys::<V>(kt.some_rows(some.clone()), &mut keys);
        // Σ ds u
        let mut du = V::zero();
        for i in 0..q.rows() {
            let (h_q, du_q) = query::<V>(&q.row(i)[some.clone()], far, &mut keys, d.row(i));
            du += du_q;
            let d_q = &mut d_q.row_mut(i)[some.clone()];
            let w = V::splat(Real::of_f64(4.0)) * load_any(&w[some.clone()]);
            store_any(w.mul_add(h_q, load_any(d_q)), d_q);
        }
        let d_w = &mut d_w[some.clone()];
        store_any(load_any::<V>(d_w) + d_sum - (du + du), d_w);

        let h = Matrix::strided(&keys[2 * V::LANES..], len, some.len(), KEY * V::LANES, 1);
        let mut to = MatrixMut::strided(&mut h_kt, some.len(), len, len);
        transpose_here::<V>(h, &mut to, WriteMode::Overwrite);
        for (n, h) in some.zip(h_kt.chunks(len)) {
            axpy::<V>(V::Element::of_f64(4.0) * w[n], h, d_kt.row_mut(n));
        }
    }
}

/// The vectors of a key in the backward pass: its coordinates `k`, the powers `e^2k`, and the sums `Σ_i h`, where
/// `h = ds (u - u²)`.
const KEY: usize = 3;

/// Starts the backward pass of a range of coordinates, `[coordinates, keys]`. Returns whether any is far.
#[inline(always)]
fn load_keys<V: Vector>(kt: Matrix<'_, V::Element>, keys: &mut [V::Element]) -> bool {
    let mut k = MatrixMut::strided(keys, kt.cols(), kt.rows(), KEY * V::LANES);
    transpose_here::<V>(kt, &mut k, WriteMode::Overwrite);
    let mut far = false;
    for key in keys.chunks_exact_mut(KEY * V::LANES) {
        let power = power(V::load(key));
        far |= is_nan(power);
        power.store(&mut key[V::LANES..]);
        V::zero().store(&mut key[2 * V::LANES..]);
    }
    far
}

/// Adds the part of a query to the sums of the keys. Returns the sums of the query, `Σ_j h` and `Σ_j ds u`.
#[inline(always)]
fn query<V: Vector>(
    q: &[V::Element],
    far: bool,
    keys: &mut [V::Element],
    d: &[V::Element],
) -> (V, V) {
    let q = load_any::<V>(q);
    let power = power(q);
    if far || is_nan(power) {
        pairs::<V, true>(q, power, keys, d)
    } else {
        pairs::<V, false>(q, power, keys, d)
    }
}

#[inline(always)]
fn pairs<V: Vector, const FAR: bool>(
    q: V,
    q_power: V,
    keys: &mut [V::Element],
    d: &[V::Element],
) -> (V, V) {
    let mut h_q = V::zero();
    let mut du = V::zero();
    for (key, &d) in keys.chunks_exact_mut(KEY * V::LANES).zip(d) {
        if d == Real::ZERO {
            continue;
        }
        let d = V::splat(d);
        let mut u = complement(q_power * V::load(&key[V::LANES..]));
        if FAR {
            u = complement_of_far(u, q + V::load(key));
        }
        du = d.mul_add(u, du);
        let h = d * u.mul_add(-u, u);
        h_q += h;
        let h_k = &mut key[2 * V::LANES..];
        (V::load(h_k) + h).store(h_k);
    }
    (h_q, du)
}

/// `u = 1 / (e^2x + 1)` of `e^2x`
#[inline(always)]
fn complement<V: Vector>(power: V) -> V {
    let one = V::splat(Real::ONE);
    one / (power + one)
}

/// `u`, computed from `x` where it is NaN.
#[inline(always)]
fn complement_of_far<V: Vector>(u: V, x: V) -> V {
    if is_nan(u) {
        V::select(u.ne(u), math::sigmoid(-(x + x)), u)
    } else {
        u
    }
}

/// `e^2x`, or NaN if `x` is far from 0.
#[inline(always)]
fn power<V: Vector>(x: V) -> V {
    let near = x.abs().le(V::splat(Real::of_f64(FAR)));
    V::select(near, math::exp(x + x), V::splat(Real::NAN))
}

#[inline(always)]
fn powers<V: Vector>(x: &[V::Element], to: &mut [V::Element]) {
    for_lanes!(
        V,
        x.len(),
        [x],
        [to],
        store_any(power::<V>(load_any(x)), to)
    );
}

/// Whether any lane is NaN.
#[inline(always)]
fn is_nan<V: Vector>(x: V) -> bool {
    x.ne(x).any()
}

fn assert_shapes<E>(q: Matrix<'_, E>, kt: Matrix<'_, E>, width: usize, tile: (usize, usize)) {
    assert!(
        (q.rows(), kt.cols()) == tile && q.cols() == width && kt.rows() == width,
        "additive scores of {q:?} and {kt:?}: {width} weights, a tile of {tile:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{Absolute, assert_close, noise, on_every_isa, slopes, wide};
    use crate::simd::{Kernel, run};

    /// Queries, width and keys.
    const SIZES: [[usize; 3]; 16] = [
        [0, 3, 2],
        [2, 0, 3],
        [2, 3, 0],
        [1, 1, 1],
        [2, 2, 2],
        [3, 1, 7],
        [1, 7, 8],
        [2, 8, 9],
        [3, 9, 15],
        [1, 15, 16],
        [2, 16, 17],
        [1, 17, 31],
        [2, 31, 33],
        [1, 33, 65],
        [2, 64, 63],
        [1, 129, 127],
    ];

    struct Scores<'a, E>(Matrix<'a, E>, Matrix<'a, E>, &'a [E], MatrixMut<'a, E>);

    impl<E: Pooled> Kernel for Scores<'_, E> {
        type Element = E;
        type Output = ();

        #[inline(always)]
        fn run<V: Vector<Element = E>>(mut self) {
            scores::<V>(self.0, self.1, self.2, &mut self.3);
        }
    }

    struct Gradients<'a, E> {
        q: Matrix<'a, E>,
        kt: Matrix<'a, E>,
        w: &'a [E],
        d: Matrix<'a, E>,
        d_q: MatrixMut<'a, E>,
        d_kt: MatrixMut<'a, E>,
        d_w: &'a mut [E],
    }

    impl<E: Pooled> Kernel for Gradients<'_, E> {
        type Element = E;
        type Output = ();

        #[inline(always)]
        fn run<V: Vector<Element = E>>(mut self) {
            let Self { q, kt, w, d, .. } = self;
            gradients::<V>(q, kt, w, d, &mut self.d_q, &mut self.d_kt, self.d_w);
        }
    }

    /// A tile with all inputs, row by row.
    #[derive(Clone)]
    struct Tile<E> {
        sizes: [usize; 3],
        q: Vec<E>,
        kt: Vec<E>,
        w: Vec<E>,
        d: Vec<E>,
    }

    impl<E: Pooled> Tile<E> {
        /// Numbers up to `size`.
        fn new(sizes: [usize; 3], size: f64) -> Self {
            let [queries, width, keys] = sizes;
            let numbers = |len, seed| -> Vec<E> {
                let scaled = noise::<E>(len, seed).into_iter();
                scaled.map(|x| x * E::of_f64(size)).collect()
            };
            Self {
                sizes,
                q: numbers(queries * width, 1),
                kt: numbers(width * keys, 2),
                w: noise(width, 3),
                d: noise(queries * keys, 4),
            }
        }

        fn arguments(&self) -> (Matrix<'_, E>, Matrix<'_, E>) {
            let [queries, width, keys] = self.sizes;
            (
                Matrix::new(&self.q, queries, width),
                Matrix::new(&self.kt, width, keys),
            )
        }

        /// The scores, written between other columns, which must not change.
        fn scores(&self) -> Vec<E> {
            let [queries, _, keys] = self.sizes;
            let (q, kt) = self.arguments();
            let mut wide = vec![E::TWO; queries * (keys + 3)];
            let to = MatrixMut::strided(&mut wide, queries, keys, keys + 3);
            run(Scores(q, kt, &self.w, to));
            assert!(wide.chunks(keys + 3).all(|row| row[keys..] == [E::TWO; 3]));
            wide.chunks(keys + 3)
                .flat_map(|row| row[..keys].to_vec())
                .collect()
        }

        /// The gradients of `q`, `kt` and `w`, added to ones.
        fn gradients(&self) -> [Vec<E>; 3] {
            let [queries, width, keys] = self.sizes;
            let (q, kt) = self.arguments();
            let ones = |len| vec![E::ONE; len];
            let mut d_q = ones(queries * width);
            let mut d_kt = ones(width * keys);
            let mut d_w = ones(width);
            run(Gradients {
                q,
                kt,
                w: &self.w,
                d: Matrix::new(&self.d, queries, keys),
                d_q: MatrixMut::new(&mut d_q, queries, width),
                d_kt: MatrixMut::new(&mut d_kt, width, keys),
                d_w: &mut d_w,
            });
            [d_q, d_kt, d_w]
        }
    }

    fn naive([queries, width, keys]: [usize; 3], q: &[f64], kt: &[f64], w: &[f64]) -> Vec<f64> {
        let score = |i: usize, j: usize| -> f64 {
            (0..width)
                .map(|n| w[n] * (q[i * width + n] + kt[n * keys + j]).tanh())
                .sum()
        };
        (0..queries)
            .flat_map(|i| (0..keys).map(move |j| score(i, j)))
            .collect()
    }

    fn check_scores<E: Pooled + Into<f64>>(sizes: [usize; 3], size: f64, epsilon: f64, what: &str) {
        let tile = Tile::<E>::new(sizes, size);
        let want = naive(sizes, &wide(&tile.q), &wide(&tile.kt), &wide(&tile.w));
        // Two units for each `tanh` with a weight below 1, and for each addition half a unit of a sum of at most 64.
        let tolerance = sizes[1] as f64 * 16.0 * epsilon;
        assert_close(
            format!("{sizes:?}, {what}"),
            &tile.scores(),
            &want,
            Absolute(tolerance),
        );
    }

    #[test]
    fn scores_are_weighted_sums_of_tanh() {
        on_every_isa(|isa| {
            for sizes in SIZES {
                for size in [0.01, 1.0, 15.0, 60.0] {
                    let what = format!("numbers up to {size} on {isa}");
                    check_scores::<f64>(sizes, size, f64::EPSILON, &what);
                    check_scores::<f32>(sizes, size, f64::from(f32::EPSILON), &what);
                }
            }
        });
    }

    /// The largest error of `tanh(q + k)` among random numbers up to `size`, in units of the last place of 1.
    fn worst_tanh<E: Pooled + Into<f64>>(size: f64, epsilon: f64) -> f64 {
        let mut tile = Tile::<E>::new([100, 1, 1000], size);
        tile.w = vec![E::ONE];
        let want = naive(tile.sizes, &wide(&tile.q), &wide(&tile.kt), &[1.0]);
        let errors = tile.scores().into_iter().zip(want).map(|(t, want)| {
            let t: f64 = t.into();
            assert!(t.abs() <= 1.0);
            (t - want).abs() / epsilon
        });
        errors.fold(0.0, f64::max)
    }

    #[test]
    fn the_tanh_has_an_error_of_at_most_two_ulps_of_1() {
        on_every_isa(|isa| {
            for size in [0.01, 0.3, 1.0, 3.0, 10.0, 25.0, 1e6] {
                let worst = worst_tanh::<f32>(size, f64::from(f32::EPSILON));
                assert!(worst <= 2.0, "f32: {worst}, up to {size}, on {isa}");
                let worst = worst_tanh::<f64>(size, f64::EPSILON);
                assert!(worst <= 2.0, "f64: {worst}, up to {size}, on {isa}");
            }
        });
    }

    #[test]
    fn large_arguments_have_their_tanh_and_do_not_change_others() {
        on_every_isa(|isa| {
            let near = Tile::<f32>::new([2, 2, 33], 1.0);
            let mut far = near.clone();
            // Key 4 and query 1 have a far first coordinate. Their sum is near 0.
            far.kt[4] = -100.0;
            far.q[2] = 100.25;
            let want = naive(far.sizes, &wide(&far.q), &wide(&far.kt), &wide(&far.w));
            assert_close(format!("{isa}"), &far.scores(), &want, Absolute(1e-6));
            far.q[2] = near.q[2];
            for key in [-100.0, f32::INFINITY, f32::NAN] {
                far.kt[4] = key;
                let found = far.scores();
                let alone = near.scores();
                for (at, (found, alone)) in found.iter().zip(&alone).enumerate() {
                    assert!(
                        found == alone || at % 33 == 4,
                        "[{at}] beside {key} on {isa}"
                    );
                }
                assert_eq!(found[4].is_nan(), key.is_nan(), "{key} on {isa}");
            }
        });
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        on_every_isa(|isa| {
            for sizes in SIZES.into_iter().take(14) {
                let tile = Tile::<f64>::new(sizes, 1.0);
                let loss = |q: &[f64], kt: &[f64], w: &[f64]| -> f64 {
                    let scores = naive(sizes, q, kt, w);
                    scores.iter().zip(&tile.d).map(|(s, d)| s * d).sum()
                };
                let want = [
                    slopes(&tile.q, |q| loss(q, &tile.kt, &tile.w)),
                    slopes(&tile.kt, |kt| loss(&tile.q, kt, &tile.w)),
                    slopes(&tile.w, |w| loss(&tile.q, &tile.kt, w)),
                ];
                for (found, want) in tile.gradients().iter().zip(want) {
                    let want: Vec<f64> = want.iter().map(|d| 1.0 + d).collect();
                    // Third derivatives are at most 2, times 65 keys and a step of 1e-10 / 6; the rest is rounding.
                    assert_close(format!("{sizes:?} on {isa}"), found, &want, Absolute(2e-8));
                }
            }
        });
    }

    /// The gradients of `q`, `kt` and `w`, by their formulas, added to ones.
    fn naive_gradients<E: Pooled + Into<f64>>(tile: &Tile<E>) -> [Vec<f64>; 3] {
        let [queries, width, keys] = tile.sizes;
        let q = wide(&tile.q);
        let kt = wide(&tile.kt);
        let w = wide(&tile.w);
        let d = wide(&tile.d);
        let ones = |len| vec![1.0; len];
        let mut d_q = ones(q.len());
        let mut d_kt = ones(kt.len());
        let mut d_w = ones(width);
        for (i, j) in (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j))) {
            for n in 0..width {
                let tanh = (q[i * width + n] + kt[n * keys + j]).tanh();
                let slope = d[i * keys + j] * w[n] * (1.0 - tanh * tanh);
                d_q[i * width + n] += slope;
                d_kt[n * keys + j] += slope;
                d_w[n] += d[i * keys + j] * tanh;
            }
        }
        [d_q, d_kt, d_w]
    }

    fn check_far_gradients<E: Pooled + Into<f64>>(tolerance: f64, what: &str) {
        // No query is far, then query 1 only, then most of them.
        for (size, query) in [(1.0, 0.5), (1.0, -30.25), (60.0, 0.5)] {
            let mut tile = Tile::<E>::new([5, 33, 65], size);
            tile.q[40] = E::of_f64(query);
            for (found, want) in tile.gradients().iter().zip(naive_gradients(&tile)) {
                assert_close(
                    format!("up to {size}, {query}, {what}"),
                    found,
                    &want,
                    Absolute(tolerance),
                );
            }
        }
    }

    #[test]
    fn large_arguments_have_their_derivative() {
        on_every_isa(|isa| {
            // Up to 325 summands below 1, each a few units in the last place off.
            check_far_gradients::<f64>(1e-12, &format!("f64 on {isa}"));
            check_far_gradients::<f32>(1e-4, &format!("f32 on {isa}"));
        });
    }

    #[test]
    fn pairs_with_gradient_0_may_have_any_value() {
        on_every_isa(|isa| {
            let mut clean = Tile::<f32>::new([5, 18, 35], 1.0);
            // Query 3 and key 7 have gradients of 0.
            clean.d[3 * 35..4 * 35].fill(0.0);
            (0..5).for_each(|i| clean.d[i * 35 + 7] = -0.0);
            for garbage in [f32::NAN, f32::INFINITY, 1e30] {
                let mut tile = clean.clone();
                tile.q[3 * 18..][..5].fill(garbage);
                (0..18).for_each(|n| tile.kt[n * 35 + 7] = garbage);
                assert_eq!(tile.gradients(), clean.gradients(), "{garbage} on {isa}");
            }
        });
    }
}
