use super::{lengths, noise};
use crate::simd::call::{Axpy, Dot, Max, Scale, Sum};
use crate::simd::slice::{Map, Zip};
use crate::simd::{Isa, Kernel, Real, Vector, slice};

macro_rules! against_loops {
    ($name:ident, $element:ident) => {
        mod $name {
            use super::*;

            fn data(len: usize) -> (Vec<$element>, Vec<$element>) {
                let both: Vec<$element> =
                    noise(2 * len).into_iter().map(|x| x as $element).collect();
                (both[..len].to_vec(), both[len..].to_vec())
            }

            /// The error of a sum of `len` terms of at most 1, in any order, is less than an epsilon per addition and unit of
            /// magnitude.
            fn tolerance(len: usize) -> f64 {
                len as f64 * (len as f64).sqrt() * f64::from($element::EPSILON)
            }

            #[test]
            fn sum_dot_and_max_agree_with_naive_loops() {
                for isa in Isa::available() {
                    for len in lengths() {
                        let (x, y) = data(len);
                        let sum: f64 = x.iter().map(|&x| f64::from(x)).sum();
                        let dot: f64 = x
                            .iter()
                            .zip(&y)
                            .map(|(&x, &y)| f64::from(x) * f64::from(y))
                            .sum();
                        let max = x.iter().copied().fold(-$element::INFINITY, $element::max);
                        let near = |a: $element, b: f64| (f64::from(a) - b).abs() <= tolerance(len);
                        assert!(near(isa.run(Sum(&x)), sum), "sum of {len} on {isa}");
                        assert!(near(isa.run(Dot(&x, &y)), dot), "dot of {len} on {isa}");
                        assert_eq!(isa.run(Max(&x)), max, "max of {len} on {isa}");
                    }
                }
            }

            #[test]
            fn sums_of_small_integers_are_exact() {
                for isa in Isa::available() {
                    for len in lengths() {
                        let x: Vec<$element> =
                            (0..len).map(|i| (i % 17) as $element - 3.0).collect();
                        assert_eq!(
                            isa.run(Sum(&x)),
                            x.iter().sum::<$element>(),
                            "{len} on {isa}"
                        );
                        let dot = x.iter().map(|x| x * x).sum::<$element>();
                        assert_eq!(isa.run(Dot(&x, &x)), dot, "{len} on {isa}");
                    }
                }
            }

            #[test]
            fn max_is_found_at_any_index_and_ignores_nan() {
                for isa in Isa::available() {
                    for len in 1..140 {
                        for at in 0..len {
                            let mut x = vec![-2.0; len];
                            x[(at + 1) % len] = $element::NAN;
                            x[at] = -1.0;
                            assert_eq!(isa.run(Max(&x)), -1.0, "{at} of {len} on {isa}");
                        }
                    }
                    assert_eq!(isa.run(Max(&[$element::NAN])), -$element::INFINITY, "{isa}");
                }
            }

            #[test]
            fn axpy_and_scale_update_every_element() {
                for isa in Isa::available() {
                    for len in lengths() {
                        let (x, y) = data(len);
                        let mut got = y.clone();
                        isa.run(Axpy(0.3, &x, &mut got));
                        for i in 0..len {
                            // One rounding or two.
                            let want = 0.3 * x[i] + y[i];
                            assert!(
                                (got[i] - want).abs() <= $element::EPSILON,
                                "axpy of {len} on {isa}"
                            );
                        }
                        isa.run(Scale(0.7, &mut got[..]));
                        let mut twice = y.clone();
                        isa.run(Axpy(0.3, &x, &mut twice));
                        assert!(
                            got.iter().zip(&twice).all(|(&a, &b)| a == b * 0.7),
                            "scale of {len} on {isa}"
                        );
                    }
                }
            }

            #[test]
            fn maps_write_only_their_slice() {
                for isa in Isa::available() {
                    for len in lengths() {
                        let (x, y) = data(len + 2);
                        let mut got = y.clone();
                        isa.run(Square(&x[1..=len], &mut got[1..=len]));
                        assert_eq!((got[0], got[len + 1]), (y[0], y[len + 1]), "{len} on {isa}");
                        assert!((1..=len).all(|i| got[i] == x[i] * x[i]), "{len} on {isa}");
                    }
                }
            }
        }
    };
}

against_loops!(with_f32, f32);
against_loops!(with_f64, f64);

/// `to = from²`.
struct Square<'a, E>(&'a [E], &'a mut [E]);

impl<E: Real> Kernel for Square<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        slice::map::<V>(self.1, self.0, Times);
        slice::zip_in_place::<V>(self.1, self.0, Times);
    }
}

/// The number itself, and the product of two.
struct Times;

impl<E: Real> Map<E> for Times {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V) -> V {
        x
    }
}

impl<E: Real> Zip<E> for Times {
    #[inline(always)]
    fn apply<V: Vector<Element = E>>(&self, x: V, y: V) -> V {
        x * y
    }
}

#[test]
fn sums_have_the_same_bits_for_any_alignment() {
    let x: Vec<f32> = noise(300).into_iter().map(|x| x as f32).collect();
    for isa in Isa::available() {
        let want = isa.run(Sum(&x));
        for offset in 0..20 {
            let mut moved = vec![0.0; offset];
            moved.extend(&x);
            assert_eq!(
                isa.run(Sum(&moved[offset..])).to_bits(),
                want.to_bits(),
                "{isa}"
            );
        }
    }
}

#[test]
#[should_panic(expected = "lengths differ")]
fn dot_refuses_different_lengths() {
    crate::simd::call::dot(&[1.0_f32, 2.0], &[1.0]);
}
