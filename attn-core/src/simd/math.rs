//! Elementary functions over vectors, written once for both types and every instruction set.
//!
//! The table has the largest errors found, in units in the last place (scalar form, other forms): of `f32` over all 2^32 numbers,
//! of `f64` over 4,000 arguments each, against 160 bits. The tests allow 2 for `f32` (2.5 for `sigmoid`, 3 for `tanh`), and 4 for
//! `f64`.
//!
//! | function | `f32` | `f64` |
//! | --- | --- | --- |
//! | [`exp`] | 0.99, 1.02 | 0.87, 0.94 |
//! | [`ln`] | 0.85, 0.85 | 0.73, 0.69 |
//! | [`tanh`] | 2.67, 2.61 | 2.10, 2.10 |
//! | [`erf`] | 1.32, 1.00 | 1.02, 0.98 |
//! | [`sigmoid`] | 2.41, 2.41 | 1.71, 1.71 |
//!
//! For zeros, infinities, NaN and subnormal arguments the results are those of the standard library. Results of [`exp`] and
//! [`sigmoid`] are normal numbers or 0, as a processor may take a hundred times as long for subnormal ones.

use super::tables::Tables;
use super::{MAX_LANES, Real, Vector};

/// `x / y`, as the product of `x` with two factors that are functions of `y`: for many quotients by one number. It is off by up to 1.5 units in
/// the last place. Where the quotient does not overflow, this does not either, although the reciprocal of `y` may.
#[inline(always)]
pub fn quotient<V: Vector>(x: V, y: V) -> V {
    // With this power of two, `y` and its reciprocal are normal. A product of `x` with it is beyond all numbers only if the quotient is, too.
    let up = V::Element::of_f64((1_u64 << 54) as f64);
    let small = V::Element::MIN_POSITIVE * V::Element::of_f64((1_u64 << 26) as f64);
    let size = y.abs();
    let one = V::splat(Real::ONE);
    let down = V::select(
        V::splat(V::Element::ONE / small).lt(size),
        V::splat(V::Element::ONE / up),
        one,
    );
    let scale = V::select(size.lt(V::splat(small)), V::splat(up), down);
    (x * scale) * (one / (y * scale))
}

/// `e^x`. 0 where it would be subnormal, below -87.3 (`f32`) and -708.4 (`f64`); exactly 1 at 0.
#[inline(always)]
pub fn exp<V: Vector>(x: V) -> V {
    let min = constant::<V>(Tables::EXP_MIN);
    // NaN is preserved: each bound returns its argument where that is NaN.
    let (p, n) = exp_m1_and_exponent(constant::<V>(Tables::EXP_MAX).min(min.max(x)));
    V::select(x.lt(min), V::zero(), (p + constant(Real::ONE)).scale(n))
}

/// [`exp`] for `x ≤ 0`, a quarter faster than that on AVX2. For a positive `x` the result is undefined.
#[inline(always)]
pub fn exp_of_nonpositive<V: Vector>(x: V) -> V {
    exp_from(Tables::EXP_MIN, x)
}

/// `e^x` for `x ≤ 0`, as a weight among others of which the largest is about 1. The bits are those of [`exp`], except that
/// results below 2^-80 (`f32`) and 2^-900 (`f64`) are 0. Such weights do not change a sum of numbers of similar size, but their
/// products with small numbers are subnormal. For a positive `x` the result is undefined.
#[inline(always)]
pub fn exp_of_weight<V: Vector>(x: V) -> V {
    exp_from(Tables::EXP_MIN_WEIGHT, x)
}

/// `e^x` for `x ≤ 0`, and 0 below `min`, where it is still a normal number.
#[inline(always)]
fn exp_from<V: Vector>(min: V::Element, x: V) -> V {
    let min = V::splat(min);
    let (p, n) = exp_m1_and_exponent(min.max(x));
    let e = p + constant(Real::ONE);
    V::select(x.lt(min), V::zero(), e.scale_normal(n))
}

/// Whether `|x|` is less than 2^-100 (`f32`) or 2^-950 (`f64`): see [`exp_of_weight`].
#[inline(always)]
pub fn is_negligible<V: Vector>(x: V) -> V::Mask {
    x.abs().lt(constant(Tables::NEGLIGIBLE))
}

/// `(p, n)` with `e^x = (1 + p) 2^n` and |p| ≤ √2 - 1.
#[inline(always)]
fn exp_m1_and_exponent<V: Vector>(x: V) -> (V, V) {
    // x = n ln 2 + r, so e^x = 2^n e^r.
    let n = (x * constant(Tables::LOG2_E)).round();
    let r = n.mul_add(-constant::<V>(Tables::LN_2_HIGH), x);
    let r = n.mul_add(-constant::<V>(Tables::LN_2_LOW), r);
    ((r * r).mul_add(polynomial(r, Tables::EXP), r), n)
}

/// The natural logarithm: -∞ at both zeros, NaN for negative numbers.
#[inline(always)]
pub fn ln<V: Vector>(x: V) -> V {
    // x = 2^e (1 + f), with 1 + f between √½ and √2.
    let subnormal = x.lt(constant(Real::MIN_POSITIVE));
    let lifted = V::select(subnormal, x * constant(Tables::LN_LIFT), x);
    let (m, e) = lifted.split_exponent();
    let e = V::select(subnormal, e - constant(Tables::LN_LIFT_EXPONENT), e);
    let f = m - constant(Real::ONE);
    // ln(1 + f) = 2 s + s R with s = f / (2 + f). Since 2 s = f - s f, and s f is nearly f²/2, small terms are added first, and f
    // last (fdlibm, `e_log.c`).
    let s = f / (f + constant(Real::TWO));
    let w = s * s;
    let rest = w * polynomial(w, Tables::LN);
    let half_square = f * f * constant(Real::HALF);
    let low = s.mul_add(half_square + rest, e * constant(Tables::LN_2_LOW));
    let result = e.mul_add(constant(Tables::LN_2_HIGH), f - (half_square - low));

    let zero = V::zero();
    let infinity = constant::<V>(Real::INFINITY);
    let special = V::select(
        x.lt(zero),
        constant(Real::NAN),
        V::select(x.eq(zero), -infinity, x),
    );
    V::select(zero.lt(x) & x.lt(infinity), result, special)
}

/// The hyperbolic tangent: ±1 exactly from ±9.02 (`f32`) and ±19.1 (`f64`) on.
#[inline(always)]
pub fn tanh<V: Vector>(x: V) -> V {
    // tanh |x| = e / (e + 2) with e = e^2|x| - 1. In e, 2^n - 1 is exact and the rest is small, so that there is no cancellation.
    let a = constant::<V>(Tables::TANH_MAX).min(x.abs());
    let (p, n) = exp_m1_and_exponent(a + a);
    let one = constant::<V>(Real::ONE);
    let power = one.scale_normal(n);
    let e = p.mul_add(power, power - one);
    (e / (e + constant(Real::TWO))).copysign(x)
}

/// The error function: ±1 exactly from ±3.92 (`f32`) and ±5.93 (`f64`) on.
#[inline(always)]
pub fn erf<V: Vector>(x: V) -> V {
    let a = x.abs();
    let small = a.mul_add(polynomial(a * a, Tables::ERF_SMALL), a);
    let one = constant::<V>(Real::ONE);
    // The powers of x - 1 vanish where 1 - erf is large, and so do their rounding errors.
    let u = constant::<V>(Tables::ERF_MAX).min(a) - one;
    let large = one - exp(polynomial(u, Tables::ERF_LARGE));
    V::select(a.lt(one), small, large).copysign(x)
}

/// The logistic function `1 / (1 + e^-x)`, without overflow on either side. Subnormal results are 0, as in [`exp`].
#[inline(always)]
pub fn sigmoid<V: Vector>(x: V) -> V {
    let one = constant::<V>(Real::ONE);
    let e = exp_of_nonpositive(-x.abs());
    V::select(x.ge(V::zero()), one, e) / (one + e)
}

/// The largest integer that is at most `x`. It is exact.
#[inline(always)]
pub fn floor<V: Vector>(x: V) -> V {
    let nearest = x.round();
    let below = nearest - constant(Real::ONE);
    V::select(x.lt(nearest), below, nearest)
}

/// The remainder of `x / y`, with the sign of `x`. It is exact. It is computed lane by lane, since quotients may be larger than
/// any integer of the type.
#[inline(always)]
pub fn rem<V: Vector>(x: V, y: V) -> V {
    lane_by_lane(x, y, |x, y| x % y)
}

/// The sine of `x`, computed lane by lane in `f64`: the reduction of a large argument needs more digits than a vector has.
#[inline(always)]
pub fn sin<V: Vector>(x: V) -> V {
    lane_by_lane(x, V::zero(), |x, _| x.sin())
}

/// The cosine of `x`, computed as [`sin`].
#[inline(always)]
pub fn cos<V: Vector>(x: V) -> V {
    lane_by_lane(x, V::zero(), |x, _| x.cos())
}

/// A function of the standard library, which takes one number at a time.
#[inline(always)]
fn lane_by_lane<V: Vector>(x: V, y: V, function: impl Fn(f64, f64) -> f64) -> V {
    let mut results = [V::Element::ZERO; MAX_LANES];
    let mut others = [V::Element::ZERO; MAX_LANES];
    x.store(&mut results);
    y.store(&mut others);
    for (x, y) in results.iter_mut().zip(others).take(V::LANES) {
        *x = Real::of_f64(function((*x).into(), y.into()));
    }
    V::load(&results)
}

/// `x^n`, by repeated squaring. It is 1 for `n` = 0 and any `x`. Where `x^-n` overflows, it is 0 even if a subnormal number is
/// nearer.
///
/// The largest error found is 0.77 `n` units in the last place in `f32`, for `n` up to 64: 38 units.
#[inline(always)]
pub fn powi<V: Vector>(x: V, n: i32) -> V {
    let one = constant::<V>(Real::ONE);
    let mut power = one;
    let mut square = x;
    let mut bits = n.unsigned_abs();
    while bits > 0 {
        if bits % 2 == 1 {
            power *= square;
        }
        square *= square;
        bits /= 2;
    }
    if n < 0 { one / power } else { power }
}

/// `x^y` for a finite `y`: [`powi`] for integers up to ±64, otherwise `e^(y ln x)`, which is NaN for `x` < 0.
///
/// The largest error found for the latter is 1.7 `(2 + |y ln x|)` units in the last place in `f32`: a few for moderate results,
/// and 125 close to overflow.
#[inline(always)]
pub fn pow<V: Vector>(x: V, y: V::Element) -> V {
    let y: f64 = y.into();
    let n = y as i32;
    if f64::from(n) == y && n.unsigned_abs() <= 64 {
        return powi(x, n);
    }
    exp(V::splat(Real::of_f64(y)) * ln(x))
}

/// `c[0] + c[1] x + c[2] x² + ..`, by Horner's rule.
#[inline(always)]
pub fn polynomial<V: Vector>(x: V, coefficients: &[V::Element]) -> V {
    let mut sum = V::zero();
    if let Some((&last, rest)) = coefficients.split_last() {
        sum = V::splat(last);
        for &c in rest.iter().rev() {
            sum = sum.mul_add(x, V::splat(c));
        }
    }
    sum
}

/// A constant of the element type in every lane.
#[inline(always)]
fn constant<V: Vector>(value: V::Element) -> V {
    V::splat(value)
}
