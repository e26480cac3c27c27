//! Vectors of 256 bits: AVX2 with FMA.
//!
//! SAFETY of every block here: the head of [the module](super) says why an instruction is only reached on a machine that has it.
//! Loads and stores state their bounds beside them.

use std::arch::x86_64::*;

use super::vector::{mask_operators, operators};
use super::{Mask, Vector};

/// Ones, then zeros: a window of this table is a mask of the first lanes.
static FIRST_OF_8: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];
static FIRST_OF_4: [i64; 8] = [-1, -1, -1, -1, 0, 0, 0, 0];

macro_rules! vector {
    (
        $(#[$doc:meta])*
        $vector:ident($register:ident): [$element:ident; $lanes:literal], mask $mask:ident,
        mantissa: $mantissa:literal, bias: $bias:literal, integers: $integers:literal, sqrt_half: $sqrt_half:literal,
        first: $first:ident,
        {
            set1: $set1:ident, set1_bits: $set1_bits:ident, loadu: $loadu:ident, storeu: $storeu:ident,
            maskload: $maskload:ident, maskstore: $maskstore:ident, blendv: $blendv:ident,
            add: $add:ident, sub: $sub:ident, mul: $mul:ident, div: $div:ident, fmadd: $fmadd:ident,
            min: $min:ident, max: $max:ident, sqrt: $sqrt:ident, round: $round:ident, cmp: $cmp:ident,
            and: $and:ident, or: $or:ident, xor: $xor:ident, andnot: $andnot:ident, movemask: $movemask:ident,
            to_bits: $to_bits:ident, from_bits: $from_bits:ident,
            add_bits: $add_bits:ident, sub_bits: $sub_bits:ident, shl: $shl:ident, shr: $shr:ident,
            fold_sum: $fold_sum:ident, fold_max: $fold_max:ident,
            unpacklo: $unpacklo:ident, unpackhi: $unpackhi:ident, permute2f128: $permute2f128:ident,
            load_halves: $load_halves:ident
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $vector($register);

        /// All bits of a lane are set, or none.
        #[derive(Clone, Copy)]
        pub(super) struct $mask($register);

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
                Self(unsafe { $xor(self.0, Self::splat(-0.0).0) })
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
                Self(unsafe { $set1(value) })
            }

            #[inline(always)]
            fn load(from: &[$element]) -> Self {
                let from = &from[..$lanes];
                // SAFETY: see the head of this file; `from` has as many elements as the register.
                Self(unsafe { $loadu(from.as_ptr()) })
            }

            #[inline(always)]
            fn load_partial(from: &[$element], fill: $element) -> Self {
                let count = from.len().min($lanes);
                // SAFETY: see the head of this file. The window onto the table ends within it, for `count` is at most
                // the number of lanes; only the first `count` elements of `from` are read.
                unsafe {
                    let first = $loadu($first.as_ptr().add($lanes - count).cast());
                    let loaded = $maskload(from.as_ptr(), $to_bits(first));
                    Self($blendv(Self::splat(fill).0, loaded, first))
                }
            }

            #[inline(always)]
            fn load_halves(from: &[u32]) -> [Self; 2] {
                let from = &from[..$lanes];
                // SAFETY: see the head of this file; there are as many words as lanes.
                let [lower, upper] = unsafe { $load_halves(from.as_ptr()) };
                [Self(lower), Self(upper)]
            }

            #[inline(always)]
            fn store(self, to: &mut [$element]) {
                let to = &mut to[..$lanes];
                // SAFETY: see the head of this file; `to` has as many elements as the register.
                unsafe { $storeu(to.as_mut_ptr(), self.0) }
            }

            #[inline(always)]
            fn store_partial(self, to: &mut [$element]) {
                let count = to.len().min($lanes);
                // SAFETY: as in `load_partial`; only the first `count` elements of `to` are written.
                unsafe {
                    let first = $loadu($first.as_ptr().add($lanes - count).cast());
                    $maskstore(to.as_mut_ptr(), $to_bits(first), self.0);
                }
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $fmadd(self.0, factor.0, addend.0) })
            }

            #[inline(always)]
            fn min(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $min(self.0, other.0) })
            }

            #[inline(always)]
            fn max(self, other: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $max(self.0, other.0) })
            }

            #[inline(always)]
            fn abs(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $andnot(Self::splat(-0.0).0, self.0) })
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                let bit = Self::splat(-0.0).0;
                // SAFETY: see the head of this file.
                Self(unsafe { $or($andnot(bit, self.0), $and(bit, sign.0)) })
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $sqrt(self.0) })
            }

            #[inline(always)]
            fn round(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $round::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
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
                    let one = $to_bits(Self::splat(1.0).0);
                    // The exponent that puts the mantissa above √½, biased: added to `integers` it makes an integer of the type.
                    let power = $shr::<$mantissa>($add_bits($sub_bits(bits, $set1_bits($sqrt_half)), one));
                    let m = Self($from_bits($sub_bits(bits, $sub_bits($shl::<$mantissa>(power), one))));
                    let e = $from_bits($add_bits(power, $to_bits(Self::splat($integers).0)));
                    (m, Self(e) - Self::splat($integers + $bias))
                }
            }

            #[inline(always)]
            fn eq(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                $mask(unsafe { $cmp::<_CMP_EQ_OQ>(self.0, other.0) })
            }

            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                $mask(unsafe { $cmp::<_CMP_LT_OQ>(self.0, other.0) })
            }

            #[inline(always)]
            fn le(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                $mask(unsafe { $cmp::<_CMP_LE_OQ>(self.0, other.0) })
            }

            #[inline(always)]
            fn select(mask: $mask, yes: Self, no: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $blendv(no.0, yes.0, mask.0) })
            }

            #[inline(always)]
            fn interleave(self, other: Self) -> (Self, Self) {
                // The instructions treat the two halves of a register separately.
                // SAFETY: see the head of this file.
                unsafe {
                    let even = $unpacklo(self.0, other.0);
                    let odd = $unpackhi(self.0, other.0);
                    (Self($permute2f128::<0x20>(even, odd)), Self($permute2f128::<0x31>(even, odd)))
                }
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
                Self(unsafe { $xor(self.0, $from_bits($set1_bits(-1))) })
            }
        }

        mask_operators!($mask);

        impl Mask for $mask {
            #[inline(always)]
            fn any(self) -> bool {
                // SAFETY: see the head of this file.
                unsafe { $movemask(self.0) != 0 }
            }

            #[inline(always)]
            fn all(self) -> bool {
                // SAFETY: see the head of this file.
                unsafe { $movemask(self.0) == (1 << $lanes) - 1 }
            }
        }
    };
}

vector! {
    /// Eight `f32`.
    F32x8(__m256): [f32; 8], mask Mask32x8,
    mantissa: 23, bias: 127.0, integers: 8_388_608.0, sqrt_half: 0x3f35_04f3,
    first: FIRST_OF_8,
    {
        set1: _mm256_set1_ps, set1_bits: _mm256_set1_epi32, loadu: _mm256_loadu_ps, storeu: _mm256_storeu_ps,
        maskload: _mm256_maskload_ps, maskstore: _mm256_maskstore_ps, blendv: _mm256_blendv_ps,
        add: _mm256_add_ps, sub: _mm256_sub_ps, mul: _mm256_mul_ps, div: _mm256_div_ps, fmadd: _mm256_fmadd_ps,
        min: _mm256_min_ps, max: _mm256_max_ps, sqrt: _mm256_sqrt_ps, round: _mm256_round_ps, cmp: _mm256_cmp_ps,
        and: _mm256_and_ps, or: _mm256_or_ps, xor: _mm256_xor_ps, andnot: _mm256_andnot_ps,
        movemask: _mm256_movemask_ps,
        to_bits: _mm256_castps_si256, from_bits: _mm256_castsi256_ps,
        add_bits: _mm256_add_epi32, sub_bits: _mm256_sub_epi32, shl: _mm256_slli_epi32, shr: _mm256_srli_epi32,
        fold_sum: sum_of_8, fold_max: max_of_8,
        unpacklo: _mm256_unpacklo_ps, unpackhi: _mm256_unpackhi_ps, permute2f128: _mm256_permute2f128_ps,
        load_halves: bf16_f32
    }
}

vector! {
    /// Four `f64`.
    F64x4(__m256d): [f64; 4], mask Mask64x4,
    mantissa: 52, bias: 1023.0, integers: 4_503_599_627_370_496.0, sqrt_half: 0x3fe6_a09e_667f_3bcd,
    first: FIRST_OF_4,
    {
        set1: _mm256_set1_pd, set1_bits: _mm256_set1_epi64x, loadu: _mm256_loadu_pd, storeu: _mm256_storeu_pd,
        maskload: _mm256_maskload_pd, maskstore: _mm256_maskstore_pd, blendv: _mm256_blendv_pd,
        add: _mm256_add_pd, sub: _mm256_sub_pd, mul: _mm256_mul_pd, div: _mm256_div_pd, fmadd: _mm256_fmadd_pd,
        min: _mm256_min_pd, max: _mm256_max_pd, sqrt: _mm256_sqrt_pd, round: _mm256_round_pd, cmp: _mm256_cmp_pd,
        and: _mm256_and_pd, or: _mm256_or_pd, xor: _mm256_xor_pd, andnot: _mm256_andnot_pd,
        movemask: _mm256_movemask_pd,
        to_bits: _mm256_castpd_si256, from_bits: _mm256_castsi256_pd,
        add_bits: _mm256_add_epi64, sub_bits: _mm256_sub_epi64, shl: _mm256_slli_epi64, shr: _mm256_srli_epi64,
        fold_sum: sum_of_4, fold_max: max_of_4,
        unpacklo: _mm256_unpacklo_pd, unpackhi: _mm256_unpackhi_pd, permute2f128: _mm256_permute2f128_pd,
        load_halves: bf16_f64
    }
}

/// The numbers of the halves of eight words: an `f32` in bf16 is the upper half of its bits.
///
/// # Safety
/// See the head of this file; there must be eight words.
#[inline(always)]
unsafe fn bf16_f32(from: *const u32) -> [__m256; 2] {
    // SAFETY: the caller's.
    unsafe {
        let words = _mm256_loadu_si256(from.cast());
        let upper = _mm256_and_si256(words, _mm256_set1_epi32(!0xffff));
        [
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words)),
            _mm256_castsi256_ps(upper),
        ]
    }
}

/// The numbers of the halves of four words.
///
/// # Safety
/// See the head of this file; there must be four words.
#[inline(always)]
unsafe fn bf16_f64(from: *const u32) -> [__m256d; 2] {
    // SAFETY: as above.
    unsafe {
        let words = _mm_loadu_si128(from.cast());
        let upper = _mm_and_si128(words, _mm_set1_epi32(!0xffff));
        [
            _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32::<16>(words))),
            _mm256_cvtps_pd(_mm_castsi128_ps(upper)),
        ]
    }
}

/// Halves a register until one lane is left. `avx512` uses it after it has folded its two halves.
macro_rules! fold_f32 {
    ($name:ident, $wide:ident, $single:ident) => {
        #[inline(always)]
        pub(super) fn $name(v: __m256) -> f32 {
            // SAFETY: see the head of this file.
            unsafe {
                let four = $wide(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
                let two = $wide(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32($single(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }
    };
}

macro_rules! fold_f64 {
    ($name:ident, $wide:ident, $single:ident) => {
        #[inline(always)]
        pub(super) fn $name(v: __m256d) -> f64 {
            // SAFETY: see the head of this file.
            unsafe {
                let two = $wide(_mm256_castpd256_pd128(v), _mm256_extractf128_pd::<1>(v));
                _mm_cvtsd_f64($single(two, _mm_unpackhi_pd(two, two)))
            }
        }
    };
}

fold_f32!(sum_of_8, _mm_add_ps, _mm_add_ss);
fold_f32!(max_of_8, _mm_max_ps, _mm_max_ss);
fold_f64!(sum_of_4, _mm_add_pd, _mm_add_sd);
fold_f64!(max_of_4, _mm_max_pd, _mm_max_sd);
