//! Additive scores: a query and a key meet in a small network instead of a product.
//!
//! ```text
//! s[i, j] = Σ_n w[n] tanh(x)          x = q[i, n] + k[n, j]
//! dq[i, n] = Σ_j ds[i, j] w[n] tanh'(x)
//! dk[n, j] = Σ_i ds[i, j] w[n] tanh'(x)
//! dw[n] = Σ_ij ds[i, j] tanh(x)
//! ```
//!
//! Bahdanau et al., "Neural machine translation by jointly learning to align and translate" (2015), A.1.2. The array of
//! `tanh(x)` is never stored, and hardly computed: the exponential of a sum is a product of exponentials, so
//!
//! ```text
//! u = 1 / (e^2q e^2k + 1)             tanh(x) = 1 - 2 u          tanh'(x) = 4 (u - u²)
//! ```
//!
//! take an exponential for every number of a query or a key, and a division for every pair of them. The error of
//! `tanh(x)` so is up to two units in the last place of 1, not of itself: as if `q` and `k`, around 1, were that much off.
//! Where a power would overflow, its place is taken by NaN, and `u` is computed from `x`.

use crate::kernel::lanes::for_lanes;
use crate::kernel::transpose::transpose;
use crate::kernel::{Buffer, Pooled};
use crate::simd::slice::{axpy, load_any, store_any, sum};
use crate::simd::{Mask, Matrix, MatrixMut, Real, Vector, math};

/// Up to here a product of two powers is neither infinite nor subnormal, in `f32` either.
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
    let mut q_powers = Buffer::stale(q.rows() * width);
    for i in 0..q.rows() {
        powers::<V>(q.row(i), &mut q_powers[i * width..][..width]);
    }
    let mut k_powers = Buffer::stale(width * V::LANES);
    // A vector has one coordinate of many keys, and the sum over the coordinates stays in a register.
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

/// The scores of a query and a vector of keys. Where any is far they are NaN, unless `FAR`; the others have the same bits.
#[inline(always)]
fn score<V: Vector, const FAR: bool>(
    q: &[V::Element],
    k: Matrix<'_, V::Element>,
    (q_powers, k_powers): (&[V::Element], &[V::Element]),
    w: &[V::Element],
) -> V {
    let (one, minus_two) = (V::splat(Real::ONE), V::splat(-V::Element::TWO));
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

/// The derivative of [`scores`]: what `d`, that of the scores, adds to those of its arguments.
///
/// Where `d` is 0 a pair adds nothing, whatever it is: it may be masked, and NaN. The shapes are those of [`scores`].
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
    let (width, len) = (w.len(), kt.cols());
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
    let mut h_kt = Buffer::stale(V::LANES * len);
    // A vector has many coordinates of one key: no sum goes across lanes, and a pair that adds nothing is left out.
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
        transpose(h, MatrixMut::strided(&mut h_kt, some.len(), len, len));
        for (n, h) in some.zip(h_kt.chunks(len)) {
            axpy::<V>(V::Element::of_f64(4.0) * w[n], h, d_kt.row_mut(n));
        }
    }
}

/// The vectors of a key in the backward pass: its coordinates `k`, the powers `e^2k`, and the sums `Σ_i h`, where
/// `h = ds (u - u²)`.
const KEY: usize = 3;

/// Starts the backward pass of some coordinates `[coordinates, keys]`. Whether any is far.
#[inline(always)]
fn load_keys<V: Vector>(kt: Matrix<'_, V::Element>, keys: &mut [V::Element]) -> bool {
    let k = MatrixMut::strided(keys, kt.cols(), kt.rows(), KEY * V::LANES);
    transpose(kt, k);
    let mut far = false;
    for key in keys.chunks_exact_mut(KEY * V::LANES) {
        let power = power(V::load(key));
        far |= is_nan(power);
        power.store(&mut key[V::LANES..]);
        V::zero().store(&mut key[2 * V::LANES..]);
    }
    far
}

/// Adds the part of a query to the sums of the keys. Returns its own, `Σ_j h` and `Σ_j ds u`.
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
    let (mut h_q, mut du) = (V::zero(), V::zero());
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

/// `e^2x`, and NaN for an `x` that is far from 0.
#[inline(always)]
fn power<V: Vector>(x: V) -> V {
    let near = x.abs().le(V::splat(Real::of_f64(FAR)));
    V::select(near, math::exp(x + x), V::splat(Real::NAN))
}

#[inline(always)]
fn powers<V: Vector>(x: &[V::Element], to: &mut [V::Element]) {
    for_lanes!(V, x.len(), [x], [to], store_any(power::<V>(load_any(x)), to));
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
