//! Vectors as arrays in plain Rust, for machines without the extensions and for sanitizers.
//!
//! Compilers turn the loops over lanes into the vectors of the target's baseline (SSE2 on x86-64). So the code must not call the
//! maths library: no fused multiply-add, no `round`.

use std::array::from_fn;

use super::vector::{mask_operators, operators};
use super::{Mask, Real, Vector};

/// A boolean per lane.
#[derive(Clone, Copy)]
pub(super) struct Bools<const N: usize>([bool; N]);

impl<const N: usize> Bools<N> {
    #[inline(always)]
    fn op_and(self, other: Self) -> Self {
        Self(from_fn(|i| self.0[i] & other.0[i]))
    }

    #[inline(always)]
    fn op_or(self, other: Self) -> Self {
        Self(from_fn(|i| self.0[i] | other.0[i]))
    }

    #[inline(always)]
    fn op_not(self) -> Self {
        Self(from_fn(|i| !self.0[i]))
    }
}

mask_operators!(Bools<8>);
mask_operators!(Bools<4>);

impl<const N: usize> Mask for Bools<N>
where
    Self: std::ops::BitAnd<Output = Self>
        + std::ops::BitOr<Output = Self>
        + std::ops::Not<Output = Self>,
{
    #[inline(always)]
    fn any(self) -> bool {
        self.0.iter().any(|&lane| lane)
    }

    #[inline(always)]
    fn all(self) -> bool {
        self.0.iter().all(|&lane| lane)
    }
}

macro_rules! array_vector {
    (
        $(#[$doc:meta])*
        $vector:ident: [$element:ident; $lanes:literal], bits: $bits:ident, mantissa: $mantissa:literal,
        bias: $bias:literal, integers: $integers:literal, sqrt_half: $sqrt_half:literal
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $vector([$element; $lanes]);

        impl $vector {
            #[inline(always)]
            fn map(self, f: impl Fn($element) -> $element) -> Self {
                Self(from_fn(|i| f(self.0[i])))
            }

            #[inline(always)]
            fn zip(self, other: Self, f: impl Fn($element, $element) -> $element) -> Self {
                Self(from_fn(|i| f(self.0[i], other.0[i])))
            }

            #[inline(always)]
            fn compare(self, other: Self, f: impl Fn(&$element, &$element) -> bool) -> Bools<$lanes> {
                Bools(from_fn(|i| f(&self.0[i], &other.0[i])))
            }

            #[inline(always)]
            fn reduce(self, f: impl Fn($element, $element) -> $element) -> $element {
                let mut lanes = self.0;
                let mut half = $lanes / 2;
                while half > 0 {
                    for i in 0..half {
                        lanes[i] = f(lanes[i], lanes[i + half]);
                    }
                    half /= 2;
                }
                lanes[0]
            }

            #[inline(always)]
            fn op_add(self, other: Self) -> Self {
                self.zip(other, |a, b| a + b)
            }

            #[inline(always)]
            fn op_sub(self, other: Self) -> Self {
                self.zip(other, |a, b| a - b)
            }

            #[inline(always)]
            fn op_mul(self, other: Self) -> Self {
                self.zip(other, |a, b| a * b)
            }

            #[inline(always)]
            fn op_div(self, other: Self) -> Self {
                self.zip(other, |a, b| a / b)
            }

            #[inline(always)]
            fn op_neg(self) -> Self {
                self.map(|a| -a)
            }
        }

        operators!($vector);

        impl Vector for $vector {
            type Element = $element;
            type Mask = Bools<$lanes>;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn splat(value: $element) -> Self {
                Self([value; $lanes])
            }

            #[inline(always)]
            fn load(from: &[$element]) -> Self {
                let from = &from[..$lanes];
                Self(from_fn(|i| from[i]))
            }

            #[inline(always)]
            fn load_partial(from: &[$element], fill: $element) -> Self {
                let mut lanes = [fill; $lanes];
                for (lane, &value) in lanes.iter_mut().zip(from) {
                    *lane = value;
                }
                Self(lanes)
            }

            #[inline(always)]
            fn store(self, to: &mut [$element]) {
                to[..$lanes].copy_from_slice(&self.0);
            }

            #[inline(always)]
            fn store_partial(self, to: &mut [$element]) {
                for (value, lane) in to.iter_mut().zip(self.0) {
                    *value = lane;
                }
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                Self(from_fn(|i| self.0[i] * factor.0[i] + addend.0[i]))
            }

            #[inline(always)]
            fn mul_add_once(self, factor: Self, addend: Self) -> Self {
                Self(from_fn(|i| {
                    let [x, y, z]: [f64; 3] = [self.0[i], factor.0[i], addend.0[i]].map(Into::into);
                    $element::of_f64(x * y + z)
                }))
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                self.zip(other, |a, b| if a < b { a } else { b })
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                self.zip(other, |a, b| if a > b { a } else { b })
            }

            #[inline(always)]
            fn abs(self) -> Self {
                self.map($element::abs)
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                self.zip(sign, $element::copysign)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                self.map($element::sqrt)
            }

            #[inline(always)]
            fn round(self) -> Self {
                // Adding the first number without a fraction rounds the fraction off. Larger numbers have none.
                self.map(|a| {
                    let rounded = (a.abs() + $integers) - $integers;
                    if a.abs() < $integers { rounded.copysign(a) } else { a }
                })
            }

            #[inline(always)]
            fn exp2_of_integer(self) -> Self {
                // The lowest bits of the sum are the biased exponent. The shift moves them into place and discards the rest.
                self.map(|a| $element::from_bits((a + ($integers + $bias)).to_bits() << $mantissa))
            }

            #[inline(always)]
            fn split_exponent(self) -> (Self, Self) {
                const ONE: $bits = (1.0 as $element).to_bits();
                // The exponent that puts the mantissa above √½, biased.
                let power = |a: $element| a.to_bits().wrapping_sub($sqrt_half).wrapping_add(ONE) >> $mantissa;
                let m = self.map(|a| {
                    $element::from_bits(a.to_bits().wrapping_sub((power(a) << $mantissa).wrapping_sub(ONE)))
                });
                let integers = ($integers as $element).to_bits();
                let e = self.map(|a| $element::from_bits(power(a) | integers) - ($integers + $bias));
                (m, e)
            }

            #[inline(always)]
            fn eq(self, other: Self) -> Self::Mask {
                self.compare(other, $element::eq)
            }

            #[inline(always)]
            fn lt(self, other: Self) -> Self::Mask {
                self.compare(other, $element::lt)
            }

            #[inline(always)]
            fn le(self, other: Self) -> Self::Mask {
                self.compare(other, $element::le)
            }

            #[inline(always)]
            fn select(mask: Self::Mask, yes: Self, no: Self) -> Self {
                Self(from_fn(|i| if mask.0[i] { yes.0[i] } else { no.0[i] }))
            }

            #[inline(always)]
            fn interleave(self, other: Self) -> (Self, Self) {
                let lane = |i: usize| if i % 2 == 0 { self.0[i / 2] } else { other.0[i / 2] };
                (Self(from_fn(lane)), Self(from_fn(|i| lane(i + $lanes))))
            }

            #[inline(always)]
            fn reduce_sum(self) -> $element {
                self.reduce(|a, b| a + b)
            }

            #[inline(always)]
            fn reduce_max(self) -> $element {
                self.reduce(|a, b| if a > b { a } else { b })
            }
        }
    };
}

array_vector! {
    /// Eight `f32`.
    F32x8: [f32; 8], bits: u32, mantissa: 23, bias: 127.0, integers: 8_388_608.0, sqrt_half: 0x3f35_04f3
}
array_vector! {
    /// Four `f64`.
    F64x4: [f64; 4], bits: u64, mantissa: 52, bias: 1023.0, integers: 4_503_599_627_370_496.0,
    sqrt_half: 0x3fe6_a09e_667f_3bcd
}
