//! Vectors of 128 bits: NEON, which every `aarch64` target with a standard library has.
//!
//! SAFETY of every block here: the head of [the module](super) says why an instruction is only reached on a machine
//! that has it. Loads and stores state their bounds beside them.

use std::arch::aarch64::*;

use super::vector::{mask_operators, operators};
use super::{Mask, Vector};

macro_rules! vector {
    (
        $(#[$doc:meta])*
        $vector:ident($register:ident): [$element:ident; $lanes:literal], mask $mask:ident($bits:ident),
        mantissa: $mantissa:literal, bias: $bias:literal, integers: $integers:literal, sqrt_half: $sqrt_half:literal,
        {
            dup: $dup:ident, dup_bits: $dup_bits:ident, load: $load:ident, store: $store:ident, select: $select:ident,
            add: $add:ident, sub: $sub:ident, mul: $mul:ident, div: $div:ident, fma: $fma:ident, neg: $neg:ident,
            abs: $abs:ident, sqrt: $sqrt:ident, round: $round:ident, eq: $eq:ident, lt: $lt:ident, le: $le:ident,
            to_bits: $to_bits:ident, from_bits: $from_bits:ident, to_words: $to_words:ident,
            from_words: $from_words:ident, and: $and:ident, or: $or:ident,
            add_bits: $add_bits:ident, sub_bits: $sub_bits:ident, shl: $shl:ident, shr: $shr:ident,
            fold_sum: $fold_sum:ident, fold_max: $fold_max:ident, zip1: $zip1:ident, zip2: $zip2:ident
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $vector($register);

        /// All bits of a lane are set, or none.
        #[derive(Clone, Copy)]
        pub(super) struct $mask($bits);

        impl $vector {
            #[inline(always)]
            fn op_add(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $add(self.0, other.0) })
            }

            #[inline(always)]
            fn op_sub(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $sub(self.0, other.0) })
            }

            #[inline(always)]
            fn op_mul(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $mul(self.0, other.0) })
            }

            #[inline(always)]
            fn op_div(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $div(self.0, other.0) })
            }

            #[inline(always)]
            fn op_neg(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $neg(self.0) })
            }
        }

        operators!($vector);

        impl Vector for $vector {
            type Element = $element;
            type Mask = $mask;
            const LANES: usize = $lanes;

            #[inline(always)]
            fn splat(value: $element) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $dup(value) })
            }

            #[inline(always)]
            fn load(from: &[$element]) -> Self {
                let from = &from[..$lanes];
                // SAFETY: see the head of this file; `from` has as many elements as the register.
                Self(unsafe { $load(from.as_ptr()) })
            }

            #[inline(always)]
            fn load_partial(from: &[$element], fill: $element) -> Self {
                let mut lanes = [fill; $lanes];
                for (lane, &value) in lanes.iter_mut().zip(from) {
                    *lane = value;
                }
                Self::load(&lanes)
            }

            #[inline(always)]
            fn store(self, to: &mut [$element]) {
                let to = &mut to[..$lanes];
                // SAFETY: see the head of this file; `to` has as many elements as the register.
                unsafe { $store(to.as_mut_ptr(), self.0) }
            }

            #[inline(always)]
            fn store_partial(self, to: &mut [$element]) {
                let mut lanes = [0.0; $lanes];
                self.store(&mut lanes);
                for (value, lane) in to.iter_mut().zip(lanes) {
                    *value = lane;
                }
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $fma(addend.0, self.0, factor.0) })
            }

            // NEON's own minimum and maximum treat NaN differently from what the trait promises.
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Self::select(self.lt(other), self, other)
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Self::select(other.lt(self), self, other)
            }

            #[inline(always)]
            fn abs(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $abs(self.0) })
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                // SAFETY: see the head of this file.
                let bit = $mask(unsafe { $to_bits($dup(-0.0)) });
                Self::select(bit, sign, self)
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $sqrt(self.0) })
            }

            #[inline(always)]
            fn round(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $round(self.0) })
            }

            #[inline(always)]
            fn exp2_of_integer(self) -> Self {
                // The lowest bits of the sum are the biased exponent. The shift moves them into place and discards the rest.
                let biased = self + Self::splat($integers + $bias);
                // SAFETY: see the head of this file.
                Self(unsafe { $from_bits($shl::<$mantissa>($to_bits(biased.0))) })
            }

            #[inline(always)]
            fn split_exponent(self) -> (Self, Self) {
                // SAFETY: see the head of this file.
                unsafe {
                    let bits = $to_bits(self.0);
                    let one = $to_bits($dup(1.0));
                    // The exponent that puts the mantissa above √½, biased: added to `integers` it makes an integer of the type.
                    let power = $shr::<$mantissa>($add_bits($sub_bits(bits, $dup_bits($sqrt_half)), one));
                    let m = Self($from_bits($sub_bits(bits, $sub_bits($shl::<$mantissa>(power), one))));
                    let e = Self($from_bits($add_bits(power, $to_bits($dup($integers)))));
                    (m, e - Self::splat($integers + $bias))
                }
            }

            #[inline(always)]
            fn eq(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                $mask(unsafe { $eq(self.0, other.0) })
            }

            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                $mask(unsafe { $lt(self.0, other.0) })
            }

            #[inline(always)]
            fn le(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                $mask(unsafe { $le(self.0, other.0) })
            }

            #[inline(always)]
            fn select(mask: $mask, yes: Self, no: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $select(mask.0, yes.0, no.0) })
            }

            #[inline(always)]
            fn interleave(self, other: Self) -> (Self, Self) {
                // SAFETY: see the head of this file.
                unsafe { (Self($zip1(self.0, other.0)), Self($zip2(self.0, other.0))) }
            }

            #[inline(always)]
            fn reduce_sum(self) -> $element {
                $fold_sum(self.0)
            }

            #[inline(always)]
            fn reduce_max(self) -> $element {
                $fold_max(self.0)
            }
        }

        impl $mask {
            #[inline(always)]
            fn op_and(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $and(self.0, other.0) })
            }

            #[inline(always)]
            fn op_or(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $or(self.0, other.0) })
            }

            #[inline(always)]
            fn op_not(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $from_words(vmvnq_u32($to_words(self.0))) })
            }
        }

        mask_operators!($mask);

        impl Mask for $mask {
            #[inline(always)]
            fn any(self) -> bool {
                // SAFETY: see the head of this file.
                unsafe { vmaxvq_u32($to_words(self.0)) != 0 }
            }

            #[inline(always)]
            fn all(self) -> bool {
                // SAFETY: see the head of this file.
                unsafe { vminvq_u32($to_words(self.0)) != 0 }
            }
        }
    };
}

vector! {
    /// Four `f32`.
    F32x4(float32x4_t): [f32; 4], mask Mask32x4(uint32x4_t),
    mantissa: 23, bias: 127.0, integers: 8_388_608.0, sqrt_half: 0x3f35_04f3,
    {
        dup: vdupq_n_f32, dup_bits: vdupq_n_u32, load: vld1q_f32, store: vst1q_f32, select: vbslq_f32,
        add: vaddq_f32, sub: vsubq_f32, mul: vmulq_f32, div: vdivq_f32, fma: vfmaq_f32, neg: vnegq_f32,
        abs: vabsq_f32, sqrt: vsqrtq_f32, round: vrndnq_f32, eq: vceqq_f32, lt: vcltq_f32, le: vcleq_f32,
        to_bits: vreinterpretq_u32_f32, from_bits: vreinterpretq_f32_u32, to_words: same,
        from_words: same, and: vandq_u32, or: vorrq_u32,
        add_bits: vaddq_u32, sub_bits: vsubq_u32, shl: vshlq_n_u32, shr: vshrq_n_u32,
        fold_sum: sum_of_4, fold_max: max_of_4, zip1: vzip1q_f32, zip2: vzip2q_f32
    }
}

vector! {
    /// Two `f64`.
    F64x2(float64x2_t): [f64; 2], mask Mask64x2(uint64x2_t),
    mantissa: 52, bias: 1023.0, integers: 4_503_599_627_370_496.0, sqrt_half: 0x3fe6_a09e_667f_3bcd,
    {
        dup: vdupq_n_f64, dup_bits: vdupq_n_u64, load: vld1q_f64, store: vst1q_f64, select: vbslq_f64,
        add: vaddq_f64, sub: vsubq_f64, mul: vmulq_f64, div: vdivq_f64, fma: vfmaq_f64, neg: vnegq_f64,
        abs: vabsq_f64, sqrt: vsqrtq_f64, round: vrndnq_f64, eq: vceqq_f64, lt: vcltq_f64, le: vcleq_f64,
        to_bits: vreinterpretq_u64_f64, from_bits: vreinterpretq_f64_u64, to_words: vreinterpretq_u32_u64,
        from_words: vreinterpretq_u64_u32, and: vandq_u64, or: vorrq_u64,
        add_bits: vaddq_u64, sub_bits: vsubq_u64, shl: vshlq_n_u64, shr: vshrq_n_u64,
        fold_sum: sum_of_2, fold_max: max_of_2, zip1: vzip1q_f64, zip2: vzip2q_f64
    }
}

/// The masks of `f32` are words already.
#[inline(always)]
fn same(bits: uint32x4_t) -> uint32x4_t {
    bits
}

#[inline(always)]
fn sum_of_4(v: float32x4_t) -> f32 {
    // SAFETY: see the head of this file.
    unsafe {
        let two = vadd_f32(vget_low_f32(v), vget_high_f32(v));
        vget_lane_f32::<0>(two) + vget_lane_f32::<1>(two)
    }
}

#[inline(always)]
fn max_of_4(v: float32x4_t) -> f32 {
    // SAFETY: see the head of this file.
    unsafe { vmaxnmvq_f32(v) }
}

#[inline(always)]
fn sum_of_2(v: float64x2_t) -> f64 {
    // SAFETY: see the head of this file.
    unsafe { vgetq_lane_f64::<0>(v) + vgetq_lane_f64::<1>(v) }
}

#[inline(always)]
fn max_of_2(v: float64x2_t) -> f64 {
    // SAFETY: see the head of this file.
    unsafe { vmaxnmvq_f64(v) }
}
