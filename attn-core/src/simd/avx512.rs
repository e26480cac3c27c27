//! Vectors of 512 bits: AVX-512.
//!
//! SAFETY of every block here: the head of [the module](super) says why an instruction is only reached on a machine
//! that has it. Loads and stores state their bounds beside them.

use std::arch::x86_64::*;

use super::avx2::{max_of_4, max_of_8, sum_of_4, sum_of_8};
use super::vector::operators;
use super::{Mask, Vector};

impl Mask for __mmask8 {
    #[inline(always)]
    fn any(self) -> bool {
        self != 0
    }

    #[inline(always)]
    fn all(self) -> bool {
        self == Self::MAX
    }
}

impl Mask for __mmask16 {
    #[inline(always)]
    fn any(self) -> bool {
        self != 0
    }

    #[inline(always)]
    fn all(self) -> bool {
        self == Self::MAX
    }
}

macro_rules! vector {
    (
        $(#[$doc:meta])*
        $vector:ident($register:ident): [$element:ident; $lanes:literal], mask $mask:ident,
        mantissa: $mantissa:literal, bias: $bias:literal, integers: $integers:literal, sqrt_half: $sqrt_half:literal,
        {
            set1: $set1:ident, set1_bits: $set1_bits:ident, loadu: $loadu:ident, storeu: $storeu:ident,
            mask_loadu: $mask_loadu:ident, mask_storeu: $mask_storeu:ident, mask_blend: $mask_blend:ident,
            add: $add:ident, sub: $sub:ident, mul: $mul:ident, div: $div:ident, fmadd: $fmadd:ident,
            min: $min:ident, max: $max:ident, sqrt: $sqrt:ident, roundscale: $roundscale:ident,
            scalef: $scalef:ident, abs: $abs:ident, cmp: $cmp:ident,
            xor_bits: $xor_bits:ident, ternary: $ternary:ident,
            to_bits: $to_bits:ident, from_bits: $from_bits:ident,
            add_bits: $add_bits:ident, sub_bits: $sub_bits:ident, shl: $shl:ident, shr: $shr:ident,
            halves: $halves:ident, half_add: $half_add:ident, half_max: $half_max:ident,
            fold_sum: $fold_sum:ident, fold_max: $fold_max:ident, interleave: $interleave:ident,
            load_halves: $load_halves:ident
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $vector($register);

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
                Self(unsafe { $from_bits($xor_bits($to_bits(self.0), $to_bits(Self::splat(-0.0).0))) })
            }

            /// A mask of the first lanes, for a `count` up to the number of lanes.
            #[inline(always)]
            fn first(count: usize) -> $mask {
                ((1_u32 << count) - 1) as $mask
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
                // SAFETY: see the head of this file; only the first `count` elements of `from` are read.
                Self(unsafe { $mask_loadu(Self::splat(fill).0, Self::first(count), from.as_ptr()) })
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
                // SAFETY: see the head of this file; only the first `count` elements of `to` are written.
                unsafe { $mask_storeu(to.as_mut_ptr(), Self::first(count), self.0) }
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
                Self(unsafe { $abs(self.0) })
            }

            #[inline(always)]
            fn copysign(self, sign: Self) -> Self {
                // The table of `bit ? sign : self` over (bit, sign, self) is 0b1100_1010.
                // SAFETY: see the head of this file.
                unsafe {
                    let bit = $to_bits(Self::splat(-0.0).0);
                    Self($from_bits($ternary::<0b1100_1010>(bit, $to_bits(sign.0), $to_bits(self.0))))
                }
            }

            #[inline(always)]
            fn sqrt(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $sqrt(self.0) })
            }

            #[inline(always)]
            fn round(self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $roundscale::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0) })
            }

            #[inline(always)]
            fn exp2_of_integer(self) -> Self {
                // The lowest bits of the sum are the biased exponent. The shift moves them into place and discards the rest.
                let biased = self + Self::splat($integers + $bias);
                // SAFETY: see the head of this file.
                Self(unsafe { $from_bits($shl::<$mantissa>($to_bits(biased.0))) })
            }

            #[inline(always)]
            fn scale(self, exponent: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $scalef(self.0, exponent.0) })
            }

            #[inline(always)]
            fn scale_normal(self, exponent: Self) -> Self {
                self.scale(exponent)
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
                unsafe { $cmp::<_CMP_EQ_OQ>(self.0, other.0) }
            }

            #[inline(always)]
            fn lt(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                unsafe { $cmp::<_CMP_LT_OQ>(self.0, other.0) }
            }

            #[inline(always)]
            fn le(self, other: Self) -> $mask {
                // SAFETY: see the head of this file.
                unsafe { $cmp::<_CMP_LE_OQ>(self.0, other.0) }
            }

            #[inline(always)]
            fn select(mask: $mask, yes: Self, no: Self) -> Self {
                // SAFETY: see the head of this file.
                Self(unsafe { $mask_blend(mask, no.0, yes.0) })
            }

            #[inline(always)]
            fn interleave(self, other: Self) -> (Self, Self) {
                let (low, high) = $interleave(self.0, other.0);
                (Self(low), Self(high))
            }

            #[inline(always)]
            fn reduce_sum(self) -> $element {
                let (low, high) = $halves(self.0);
                // SAFETY: see the head of this file.
                $fold_sum(unsafe { $half_add(low, high) })
            }

            #[inline(always)]
            fn reduce_max(self) -> $element {
                let (low, high) = $halves(self.0);
                // SAFETY: see the head of this file.
                $fold_max(unsafe { $half_max(low, high) })
            }

            #[inline(always)]
            fn first_lanes(count: usize) -> $mask {
                Self::first(count.min($lanes))
            }
        }
    };
}

vector! {
    /// Sixteen `f32`.
    F32x16(__m512): [f32; 16], mask __mmask16,
    mantissa: 23, bias: 127.0, integers: 8_388_608.0, sqrt_half: 0x3f35_04f3,
    {
        set1: _mm512_set1_ps, set1_bits: _mm512_set1_epi32, loadu: _mm512_loadu_ps, storeu: _mm512_storeu_ps,
        mask_loadu: _mm512_mask_loadu_ps, mask_storeu: _mm512_mask_storeu_ps, mask_blend: _mm512_mask_blend_ps,
        add: _mm512_add_ps, sub: _mm512_sub_ps, mul: _mm512_mul_ps, div: _mm512_div_ps, fmadd: _mm512_fmadd_ps,
        min: _mm512_min_ps, max: _mm512_max_ps, sqrt: _mm512_sqrt_ps, roundscale: _mm512_roundscale_ps,
        scalef: _mm512_scalef_ps, abs: _mm512_abs_ps, cmp: _mm512_cmp_ps_mask,
        xor_bits: _mm512_xor_si512, ternary: _mm512_ternarylogic_epi32,
        to_bits: _mm512_castps_si512, from_bits: _mm512_castsi512_ps,
        add_bits: _mm512_add_epi32, sub_bits: _mm512_sub_epi32, shl: _mm512_slli_epi32, shr: _mm512_srli_epi32,
        halves: halves_f32, half_add: _mm256_add_ps, half_max: _mm256_max_ps,
        fold_sum: sum_of_8, fold_max: max_of_8, interleave: interleave_f32,
        load_halves: bf16_f32
    }
}

vector! {
    /// Eight `f64`.
    F64x8(__m512d): [f64; 8], mask __mmask8,
    mantissa: 52, bias: 1023.0, integers: 4_503_599_627_370_496.0, sqrt_half: 0x3fe6_a09e_667f_3bcd,
    {
        set1: _mm512_set1_pd, set1_bits: _mm512_set1_epi64, loadu: _mm512_loadu_pd, storeu: _mm512_storeu_pd,
        mask_loadu: _mm512_mask_loadu_pd, mask_storeu: _mm512_mask_storeu_pd, mask_blend: _mm512_mask_blend_pd,
        add: _mm512_add_pd, sub: _mm512_sub_pd, mul: _mm512_mul_pd, div: _mm512_div_pd, fmadd: _mm512_fmadd_pd,
        min: _mm512_min_pd, max: _mm512_max_pd, sqrt: _mm512_sqrt_pd, roundscale: _mm512_roundscale_pd,
        scalef: _mm512_scalef_pd, abs: _mm512_abs_pd, cmp: _mm512_cmp_pd_mask,
        xor_bits: _mm512_xor_si512, ternary: _mm512_ternarylogic_epi64,
        to_bits: _mm512_castpd_si512, from_bits: _mm512_castsi512_pd,
        add_bits: _mm512_add_epi64, sub_bits: _mm512_sub_epi64, shl: _mm512_slli_epi64, shr: _mm512_srli_epi64,
        halves: halves_f64, half_add: _mm256_add_pd, half_max: _mm256_max_pd,
        fold_sum: sum_of_4, fold_max: max_of_4, interleave: interleave_f64,
        load_halves: bf16_f64
    }
}

/// The numbers of the halves of sixteen words: an `f32` in bf16 is the upper half of its bits.
///
/// # Safety
/// See the head of this file; there must be sixteen words.
#[inline(always)]
unsafe fn bf16_f32(from: *const u32) -> [__m512; 2] {
    // SAFETY: the caller's.
    unsafe {
        let words = _mm512_loadu_si512(from.cast());
        let upper = _mm512_and_si512(words, _mm512_set1_epi32(!0xffff));
        [
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)),
            _mm512_castsi512_ps(upper),
        ]
    }
}

/// The numbers of the halves of eight words.
///
/// # Safety
/// See the head of this file; there must be eight words.
#[inline(always)]
unsafe fn bf16_f64(from: *const u32) -> [__m512d; 2] {
    // SAFETY: as above.
    unsafe {
        let words = _mm256_loadu_si256(from.cast());
        let upper = _mm256_and_si256(words, _mm256_set1_epi32(!0xffff));
        [
            _mm512_cvtps_pd(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))),
            _mm512_cvtps_pd(_mm256_castsi256_ps(upper)),
        ]
    }
}

/// The lower and the upper lanes.
#[inline(always)]
fn halves_f32(v: __m512) -> (__m256, __m256) {
    // SAFETY: see the head of this file.
    unsafe {
        (
            _mm512_castps512_ps256(v),
            _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v))),
        )
    }
}

/// The lower and the upper lanes.
#[inline(always)]
fn halves_f64(v: __m512d) -> (__m256d, __m256d) {
    // SAFETY: see the head of this file.
    unsafe { (_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd::<1>(v)) }
}

/// Interleaves the lanes of both. An index counts the lanes of `a`, then those of `b`.
#[inline(always)]
fn interleave_f32(a: __m512, b: __m512) -> (__m512, __m512) {
    // SAFETY: see the head of this file.
    unsafe {
        let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
        let high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
        (
            _mm512_permutex2var_ps(a, low, b),
            _mm512_permutex2var_ps(a, high, b),
        )
    }
}

impl F32x16 {
    /// Adds the products of pairs of numbers in bf16: that of the second numbers first.
    ///
    /// Only where the machine has AVX-512 BF16.
    #[inline(always)]
    pub(super) fn add_dot(self, a: __m512i, b: __m512i) -> Self {
        // SAFETY: the caller has checked the machine. A register of pairs in bf16 is one of 512 bits of any kind.
        unsafe {
            let [a, b] = [a, b].map(|x| std::mem::transmute::<__m512i, __m512bh>(x));
            Self(_mm512_dpbf16_ps(self.0, a, b))
        }
    }
}

/// Interleaves the lanes of both. An index counts the lanes of `a`, then those of `b`.
#[inline(always)]
fn interleave_f64(a: __m512d, b: __m512d) -> (__m512d, __m512d) {
    // SAFETY: see the head of this file.
    unsafe {
        let low = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        let high = _mm512_add_epi64(low, _mm512_set1_epi64(4));
        (
            _mm512_permutex2var_pd(a, low, b),
            _mm512_permutex2var_pd(a, high, b),
        )
    }
}
