use super::functions::{ulps_f32, ulps_f64};
use super::noise;
use crate::simd::call::MapInPlace;
use crate::simd::slice::Map;
use crate::simd::{Isa, Real, Vector, math};

/// `x^n`
#[derive(Clone, Copy)]
struct Whole(i32);

impl<E: Real> Map<E> for Whole {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        math::powi(x, self.0)
    }
}

/// `x^y`
#[derive(Clone, Copy)]
struct Power(f64);

impl<E: Real> Map<E> for Power {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        math::pow(x, E::of_f64(self.0))
    }
}

fn mapped<E: Real>(isa: Isa, x: &[E], f: impl Map<E>) -> Vec<E> {
    let mut x = x.to_vec();
    isa.run(MapInPlace(&mut x[..], f));
    x
}

/// Numbers of many magnitudes.
fn bases() -> Vec<f32> {
    let numbers = noise(4000).into_iter().enumerate();
    let bases = numbers.map(|(i, x)| x * 10f64.powi(i as i32 % 11 - 5));
    bases.map(|x| x as f32).collect()
}

/// Whether a result is a normal number, with a margin.
fn is_normal(result: f64) -> bool {
    (1e-37..1e37).contains(&result.abs())
}

/// The largest error of `f` as a part of `bound(x)`, in units in the last place of `f32` and of `f64`.
fn worst(
    isa: Isa,
    f: impl Map<f32> + Map<f64> + Copy,
    y: f64,
    bound: impl Fn(f64) -> f64,
) -> [f64; 2] {
    let x32 = bases();
    let x64: Vec<f64> = x32.iter().map(|&x| f64::from(x)).collect();
    let found32 = mapped(isa, &x32, f);
    let found64 = mapped(isa, &x64, f);
    let mut worst = [0.0_f64; 2];
    for (i, &x) in x64.iter().enumerate() {
        // The exponent is rounded to each type.
        let wanted = [x.powf(f64::from(y as f32)), x.powf(y)];
        if is_normal(wanted[0]) {
            let errors = [
                ulps_f32(found32[i], wanted[0]),
                ulps_f64(found64[i], wanted[1]),
            ];
            for (worst, error) in worst.iter_mut().zip(errors) {
                *worst = worst.max(error / bound(x));
            }
        }
    }
    worst
}

#[test]
fn integer_powers_are_within_an_ulp_per_factor() {
    for isa in Isa::available() {
        for n in -64..=64 {
            let bound = f64::from(n).abs().max(1.0);
            let errors = worst(isa, Whole(n), f64::from(n), |_| bound);
            assert!(
                errors.iter().all(|&error| error <= 1.0),
                "{errors:?} of {bound} ulp at {n} on {isa}"
            );
        }
    }
}

#[test]
fn powers_have_errors_of_as_many_ulps_as_the_exponent_of_e() {
    for isa in Isa::available() {
        for y in [
            -7.25, -2.5, -0.5, -0.1, 0.01, 0.5, 0.75, 1.5, 3.3, 64.5, 99.0,
        ] {
            // The error of the logarithm is multiplied by the exponent, and so is that of the product.
            let bound = |x: f64| 4.0 + 2.0 * (y * x.ln()).abs();
            let errors = worst(isa, Power(y), y, bound);
            assert!(
                errors.iter().all(|&error| error <= 1.0),
                "{errors:?} of the bound at {y} on {isa}"
            );
        }
    }
}

#[test]
fn small_integer_exponents_are_computed_by_products() {
    const TWO: [f64; 1] = [-2.0];
    for isa in Isa::available() {
        for (y, wanted) in [(3.0, -8.0), (-2.0, 0.25), (64.0, 2f64.powi(64)), (0.0, 1.0)] {
            assert_eq!(mapped(isa, &TWO, Power(y)), [wanted], "{y} on {isa}");
        }
        for y in [0.5, -1.5, 65.0, -65.0] {
            assert!(mapped(isa, &TWO, Power(y))[0].is_nan(), "{y} on {isa}");
        }
    }
}

#[test]
fn powers_of_special_numbers_are_those_of_the_standard_library() {
    const X: [f64; 7] = [
        0.0,
        1.0,
        f64::INFINITY,
        f64::NAN,
        1e-310,
        -0.0,
        f64::NEG_INFINITY,
    ];
    let check = |isa, found: Vec<f64>, y: f64, x: &[f64]| {
        for (&x, found) in x.iter().zip(found) {
            let wanted = x.powf(y);
            let same = found == wanted || (found.is_nan() && wanted.is_nan());
            let near = ulps_f64(found, wanted) < 2000.0;
            assert!(same || near, "{x}^{y} on {isa}: {found}, not {wanted}");
            assert_eq!(
                found.is_sign_negative(),
                wanted.is_sign_negative(),
                "{x}^{y} on {isa}"
            );
        }
    };
    for isa in Isa::available() {
        for n in [0, 1, 2, 3, -1, -2, -3] {
            check(isa, mapped(isa, &X, Whole(n)), f64::from(n), &X);
        }
        for y in [0.5, -0.5, 1.7, -1.7, 70.0, -70.0] {
            // Without -0 and -∞: they have no power with a fractional exponent.
            check(isa, mapped(isa, &X[..5], Power(y)), y, &X[..5]);
        }
        assert_eq!(
            mapped(isa, &[2.0, -1.0], Whole(i32::MIN)),
            [0.0, 1.0],
            "{isa}"
        );
    }
}

/// `x % y`
#[derive(Clone, Copy)]
struct Remainder(f64);

impl<E: Real> Map<E> for Remainder {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        math::rem(x, V::splat(E::of_f64(self.0)))
    }
}

#[test]
fn remainders_are_exact() {
    let mut x = bases();
    x.extend([0.0, -0.0, 1e30, f32::INFINITY, f32::NAN]);
    for isa in Isa::available() {
        for divisor in [0.75, -3.0, 1e-3, 0.0] {
            let found = mapped(isa, &x, Remainder(divisor));
            for (&x, found) in x.iter().zip(found) {
                let wanted = x % divisor as f32;
                let same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
                assert!(same, "{x} % {divisor} on {isa}: {found}, not {wanted}");
            }
        }
    }
}
