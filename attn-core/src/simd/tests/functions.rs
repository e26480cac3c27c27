use std::ops::RangeInclusive;
use std::thread;

use super::{Function, noise};
use crate::simd::call::{ExpOfNonpositive, ExpOfWeight, MapInPlace};
use crate::simd::{Isa, Kernel, Vector, math, slice};

/// The bound of `math`, in units in the last place.
const ULPS_F64: f64 = 4.0;

fn ulps_promised_f32(function: Function) -> f64 {
    match function {
        // Where the result is just above a power of two, the errors of exponential, sum and quotient count double.
        Function::Sigmoid => 2.5,
        // The roundings of `e`, of `e + 2` and of their quotient are each up to one where the result is just below a power of
        // two.
        Function::Tanh => 3.0,
        Function::Floor => 0.0,
        _ => 2.0,
    }
}

/// The references in `f64` have an error of up to one themselves.
const ULPS_REFERENCE: f64 = 1.0;

/// The distance of `got` from `want`, in units in the last place of `want` as an `f32`; infinite where only one is NaN.
pub(super) fn ulps_f32(got: f32, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    // Infinity counts as the next number.
    let next = f64::from(f32::MAX) + f64::from(f32::MAX) / 16_777_215.0;
    let got = f64::from(got).clamp(-next, next);
    let want = want.clamp(-next, next);
    let exponent = ((want.abs().to_bits() >> 52) as i64 - 1023).clamp(-126, 127);
    // Times 2^(23 - exponent).
    (got - want).abs() * f64::from_bits(((1023 + 23 - exponent) as u64) << 52)
}

/// The number of `f64`s between the two.
pub(super) fn ulps_f64(got: f64, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    let order = |x: f64| {
        let magnitude = (x.to_bits() & !(1 << 63)) as i64;
        if x.is_sign_negative() {
            -magnitude
        } else {
            magnitude
        }
    };
    order(got).abs_diff(order(want)) as f64
}

/// The largest error, per instruction set, over the numbers whose bits are in `bits` and a multiple of `stride`.
fn worst_f32(
    function: Function,
    isas: &[Isa],
    bits: RangeInclusive<u32>,
    stride: usize,
) -> Vec<(f64, f32)> {
    const CHUNK: usize = 4096;
    let mut worst = vec![(0.0, 0.0); isas.len()];
    let mut bits = bits.step_by(stride);
    loop {
        let x: Vec<f32> = bits.by_ref().take(CHUNK).map(f32::from_bits).collect();
        if x.is_empty() {
            return worst;
        }
        let want: Vec<f64> = x
            .iter()
            .map(|&x| function.reference(f64::from(x), f64::from(f32::MIN_POSITIVE)))
            .collect();
        for (isa, worst) in isas.iter().zip(&mut worst) {
            let mut got = x.clone();
            function.run(*isa, &mut got);
            for ((&got, &want), &x) in got.iter().zip(&want).zip(&x) {
                let error = ulps_f32(got, want);
                if error > worst.0 {
                    *worst = (error, x);
                }
            }
        }
    }
}

#[test]
fn f32_is_within_the_promised_ulps_over_a_sample_of_all() {
    let isas: Vec<Isa> = Isa::available().collect();
    for function in Function::ALL {
        for (isa, (error, at)) in isas
            .iter()
            .zip(worst_f32(function, &isas, 0..=u32::MAX, 16_411))
        {
            println!("{function:?} on {isa}: {error:.3} ulp at {at:e}");
            assert!(
                error <= ulps_promised_f32(function),
                "{function:?} on {isa}: {error} ulp at {at:e}"
            );
        }
    }
}

#[test]
fn f32_is_within_the_promised_ulps_at_critical_points() {
    // From 2^-16 to 2^7, where the functions are curved.
    let isas: Vec<Isa> = Isa::available().collect();
    for function in Function::ALL {
        for sign in [0, 1 << 31] {
            let range = (sign | 0.000_015_f32.to_bits())..=(sign | 128.0_f32.to_bits());
            for (isa, (error, at)) in isas.iter().zip(worst_f32(function, &isas, range, 1_021)) {
                assert!(
                    error <= ulps_promised_f32(function),
                    "{function:?} on {isa}: {error} ulp at {at:e}"
                );
            }
        }
    }
}

#[test]
#[ignore = "eight minutes on two cores, in release mode: all 2^32 numbers, six functions, every instruction set"]
fn f32_is_within_the_promised_ulps_over_all() {
    let isas: Vec<Isa> = Isa::available().collect();
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(16) as u32;
    for function in Function::ALL {
        let share = u32::MAX / threads;
        let parts: Vec<Vec<(f64, f32)>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|i| {
                    let end = if i + 1 == threads {
                        u32::MAX
                    } else {
                        (i + 1) * share - 1
                    };
                    let isas = &isas;
                    scope.spawn(move || worst_f32(function, isas, i * share..=end, 1))
                })
                .collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("no panic in a worker"))
                .collect()
        });
        for (i, isa) in isas.iter().enumerate() {
            let (error, at) = parts
                .iter()
                .map(|part| part[i])
                .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
            println!("{function:?} on {isa}: {error:.3} ulp at {at:e}");
            assert!(
                error <= ulps_promised_f32(function),
                "{function:?} on {isa}: {error} ulp at {at:e}"
            );
        }
    }
}

/// Arguments of every magnitude, and many of those where the function is curved.
fn samples_f64() -> Vec<f64> {
    let mut x = Vec::new();
    for (i, value) in noise(60_000).into_iter().enumerate() {
        x.push(value * [0.3, 1.0, 2.0, 6.0, 25.0, 750.0][i % 6]);
    }
    for exponent in -1074..1024 {
        for m in [1.0, 1.1, 1.37, 1.999_999_9] {
            let power = 2.0_f64.powi(exponent.max(-1022)) * 2.0_f64.powi((exponent + 1022).min(0));
            x.extend([m * power, -m * power]);
        }
    }
    x
}

#[test]
fn f64_is_within_four_ulps_of_the_reference() {
    let x = samples_f64();
    for function in Function::ALL {
        for isa in Isa::available() {
            let mut got = x.clone();
            function.run(isa, &mut got);
            let (error, at) = x
                .iter()
                .zip(&got)
                .map(|(&x, &got)| (ulps_f64(got, function.reference(x, f64::MIN_POSITIVE)), x))
                .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
            println!("{function:?} on {isa}: {error} ulp at {at:e}");
            assert!(
                error <= ULPS_F64 + ULPS_REFERENCE,
                "{function:?} on {isa}: {error} ulp at {at:e}"
            );
        }
    }
}

macro_rules! edges {
    ($name:ident, $element:ident, exp: [$tiny:literal, $huge:literal], floor: $half:literal) => {
        #[test]
        fn $name() {
            const INF: $element = $element::INFINITY;
            const NAN: $element = $element::NAN;
            const MIN: $element = $element::MIN_POSITIVE;
            let subnormal = $element::from_bits(1);
            let bits = |x: $element| {
                if x.is_nan() {
                    NAN.to_bits()
                } else {
                    x.to_bits()
                }
            };
            let cases = [
                (Function::Exp, -INF, 0.0),
                (Function::Exp, $element::MIN, 0.0),
                (Function::Exp, -1e4, 0.0),
                (Function::Exp, $tiny, 0.0),
                (Function::Exp, -0.0, 1.0),
                (Function::Exp, 0.0, 1.0),
                (Function::Exp, subnormal, 1.0),
                (Function::Exp, -MIN, 1.0),
                (Function::Exp, $huge, INF),
                (Function::Exp, 1e4, INF),
                (Function::Exp, INF, INF),
                (Function::Exp, NAN, NAN),
                (Function::Ln, -INF, NAN),
                (Function::Ln, -1.0, NAN),
                (Function::Ln, -subnormal, NAN),
                (Function::Ln, -0.0, -INF),
                (Function::Ln, 0.0, -INF),
                (Function::Ln, 1.0, 0.0),
                (Function::Ln, INF, INF),
                (Function::Ln, NAN, NAN),
                (Function::Tanh, -INF, -1.0),
                (Function::Tanh, -1e4, -1.0),
                (Function::Tanh, 25.0, 1.0),
                (Function::Tanh, INF, 1.0),
                (Function::Tanh, -0.0, -0.0),
                (Function::Tanh, 0.0, 0.0),
                (Function::Tanh, subnormal, subnormal),
                (Function::Tanh, -MIN, -MIN),
                (Function::Tanh, NAN, NAN),
                (Function::Erf, -INF, -1.0),
                (Function::Erf, -1e4, -1.0),
                (Function::Erf, 6.0, 1.0),
                (Function::Erf, INF, 1.0),
                (Function::Erf, -0.0, -0.0),
                (Function::Erf, 0.0, 0.0),
                (Function::Erf, subnormal, subnormal),
                (Function::Erf, NAN, NAN),
                (Function::Sigmoid, -INF, 0.0),
                (Function::Sigmoid, -1e4, 0.0),
                (Function::Sigmoid, -0.0, 0.5),
                (Function::Sigmoid, 0.0, 0.5),
                (Function::Sigmoid, 1e4, 1.0),
                (Function::Sigmoid, INF, 1.0),
                (Function::Sigmoid, NAN, NAN),
                (Function::Floor, -INF, -INF),
                (Function::Floor, $element::MIN, $element::MIN),
                (Function::Floor, -2.5, -3.0),
                (Function::Floor, -1.0, -1.0),
                (Function::Floor, -subnormal, -1.0),
                (Function::Floor, -0.0, -0.0),
                (Function::Floor, 0.0, 0.0),
                (Function::Floor, subnormal, 0.0),
                (Function::Floor, 1.0 - $element::EPSILON, 0.0),
                (Function::Floor, 1.5, 1.0),
                (Function::Floor, 2.0, 2.0),
                (Function::Floor, 2.5, 2.0),
                // The last number with a fraction of a half, and the first whose neighbours are integers.
                (Function::Floor, $half, $half - 0.5),
                (Function::Floor, $half + 0.5, $half + 0.5),
                (Function::Floor, INF, INF),
                (Function::Floor, NAN, NAN),
            ];
            for isa in Isa::available() {
                for (function, x, want) in cases {
                    let got = function.of(isa, x);
                    assert_eq!(
                        bits(got),
                        bits(want),
                        "{function:?}({x:e}) on {isa}: {got:e}, not {want:e}"
                    );
                }
            }
        }
    };
}

edges!(edges_are_exact_f32, f32, exp: [-87.337, 88.723], floor: 8_388_607.5);
edges!(edges_are_exact_f64, f64, exp: [-708.4, 709.79], floor: 4_503_599_627_370_495.5);

#[test]
fn exp_reaches_the_smallest_and_largest_results() {
    for isa in Isa::available() {
        let of32 = |x: f32| Function::Exp.of(isa, x);
        let of64 = |x: f64| Function::Exp.of(isa, x);
        assert!(
            of32(-87.336_54).is_normal() && of32(-87.336_55) == 0.0,
            "{isa}"
        );
        assert!(of64(-708.396_418_532_264_1).is_normal(), "{isa}");
        assert_eq!(of64(-708.396_418_532_264_2), 0.0, "{isa}");
        assert!(of32(88.72).is_finite(), "{isa}");
        assert!(of64(709.78).is_finite(), "{isa}");
    }
}

/// Checks that `$map` has the bits of `exp` where that is `$min` or more, and is 0 below; for the arguments `$x`, which include
/// the numbers just below `$edge`.
macro_rules! exp_down_to {
    ($isa:ident, $number:ty, $map:expr, $min:expr, $edge:expr) => {
        let mut x: Vec<$number> = (0..200_000)
            .map(|i| i as $number * $edge / 150_000.0)
            .collect();
        x.extend([-0.0, <$number>::MIN, <$number>::NEG_INFINITY]);
        let edge: $number = $edge;
        x.extend((-4..=4).map(|by| <$number>::from_bits(edge.to_bits().wrapping_add_signed(by))));
        let mut exp = x.clone();
        let mut got = x.clone();
        Function::Exp.run($isa, &mut exp);
        $isa.run(MapInPlace(&mut got[..], $map));
        for ((x, exp), got) in x.iter().zip(exp).zip(got) {
            let want = if exp < $min { 0.0 } else { exp };
            assert_eq!(got.to_bits(), want.to_bits(), "{x:e} on {}", $isa);
        }
        let mut nan = [<$number>::NAN];
        $isa.run(MapInPlace(&mut nan[..], $map));
        assert!(nan[0].is_nan(), "{}", $isa);
    };
}

#[test]
fn exp_of_nonpositive_agrees_with_exp() {
    for isa in Isa::available() {
        exp_down_to!(isa, f32, ExpOfNonpositive, 0.0, -87.336_54);
        exp_down_to!(isa, f64, ExpOfNonpositive, 0.0, -708.396_418_532_264_1);
    }
}

#[test]
fn exp_of_weight_agrees_with_exp_except_for_negligible_results() {
    for isa in Isa::available() {
        exp_down_to!(isa, f32, ExpOfWeight, 2.0_f32.powi(-80), -55.451_77);
        exp_down_to!(
            isa,
            f64,
            ExpOfWeight,
            2.0_f64.powi(-900),
            -623.832_462_503_950_8
        );
    }
}

#[test]
fn results_do_not_depend_on_the_lane() {
    let x64: Vec<f64> = noise(200).iter().map(|x| x * 8.0).collect();
    let x32: Vec<f32> = x64.iter().map(|&x| x as f32).collect();
    for isa in Isa::available() {
        for function in Function::ALL {
            let mut whole64 = x64.clone();
            let mut whole32 = x32.clone();
            function.run(isa, &mut whole64);
            function.run(isa, &mut whole32);
            for start in 0..40 {
                for len in [1, 2, 3, 5, 8, 13, 21, 100] {
                    let mut part64 = x64[start..start + len].to_vec();
                    let mut part32 = x32[start..start + len].to_vec();
                    function.run(isa, &mut part64);
                    function.run(isa, &mut part32);
                    let same64 = part64
                        .iter()
                        .zip(&whole64[start..])
                        .all(|(a, b)| a.to_bits() == b.to_bits());
                    let same32 = part32
                        .iter()
                        .zip(&whole32[start..])
                        .all(|(a, b)| a.to_bits() == b.to_bits());
                    assert!(
                        same64 && same32,
                        "{function:?} on {isa}, {start}..{}",
                        start + len
                    );
                }
            }
        }
    }
}

/// `x = quotient(x, y)`
struct Quotients<'a>(&'a mut [f32], &'a [f32]);

impl Kernel for Quotients<'_> {
    type Element = f32;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        slice::zip_in_place::<V>(self.0, self.1, Quotient);
    }
}

struct Quotient;

impl slice::Zip<f32> for Quotient {
    #[inline(always)]
    fn apply<V: Vector<Element = f32>>(&self, x: V, y: V) -> V {
        math::quotient(x, y)
    }
}

/// Also where a number or the reciprocal of one is subnormal, or infinite.
#[test]
fn quotients_are_finite_where_they_can_be() {
    let exponents = (-149..=127).map(|exponent| 2f64.powi(exponent));
    let sizes = exponents.flat_map(|power| [power, 1.3 * power, 1.9 * power]);
    let special = [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let numbers: Vec<f32> = sizes.map(|x| x as f32).chain(special).collect();
    for isa in Isa::available() {
        for &y in &numbers {
            let mut found = numbers.clone();
            isa.run(Quotients(&mut found, &vec![y; numbers.len()]));
            for (&x, &found) in numbers.iter().zip(&found) {
                let want = f64::from(x) / f64::from(y);
                let ulps = ulps_f32(found, want);
                assert!(
                    ulps <= 2.0,
                    "{x:e} / {y:e}: {found:e} on {isa}, off by {ulps}"
                );
            }
        }
    }
}
