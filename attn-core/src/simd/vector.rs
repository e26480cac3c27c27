//! Vectors, algorithms over them, and the numbers in them: three traits that are defined by one another.

use std::fmt::Debug;
use std::ops::{Add, AddAssign, BitAnd, BitOr, Div, Mul, MulAssign, Neg, Not, Sub, SubAssign};

use gemm_common::Parallelism;

use super::isa::Isa;
use super::tables::Tables;

/// The lanes of the widest vector.
pub const MAX_LANES: usize = 16;

/// A vector: [`LANES`](Self::LANES) elements of `f32` or `f64`.
///
/// Comparisons follow IEEE 754: with NaN all are false except [`ne`](Self::ne).
pub trait Vector:
    Copy
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
{
    /// The type of a lane.
    type Element: Real;
    /// The result of a comparison: true or false per lane.
    type Mask: Mask;
    /// The number of lanes, a power of two and at most [`MAX_LANES`].
    const LANES: usize;

    /// `value` in every lane.
    fn splat(value: Self::Element) -> Self;

    /// The first [`LANES`](Self::LANES) elements of `from`. Panics if it has fewer.
    fn load(from: &[Self::Element]) -> Self;

    /// The first elements of `from`. Lanes beyond its end are `fill`.
    fn load_partial(from: &[Self::Element], fill: Self::Element) -> Self;

    /// The numbers in bf16 of the lower halves of words of 32 bits, which are little-endian, and those of the upper halves. Panics if there are fewer
    /// words than lanes.
    #[inline(always)]
    fn load_halves(from: &[u32]) -> [Self; 2] {
        let mut halves = [[Self::Element::ZERO; MAX_LANES]; 2];
        for (lane, word) in from[..Self::LANES].iter().enumerate() {
            let bits = u32::from_le(*word);
            let [lower, upper] = [bits << 16, bits & 0xffff_0000].map(f32::from_bits);
            halves[0][lane] = Self::Element::of_f32(lower);
            halves[1][lane] = Self::Element::of_f32(upper);
        }
        [Self::load(&halves[0]), Self::load(&halves[1])]
    }

    /// Writes all lanes to the first elements of `to`. Panics if it has fewer.
    fn store(self, to: &mut [Self::Element]);

    /// Writes the first lanes to `to`, up to its length.
    fn store_partial(self, to: &mut [Self::Element]);

    /// `self * factor + addend`, rounded once, but twice in the scalar form.
    fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// `self * factor + addend`, rounded once in every form, where the product is exact in `f64`.
    #[inline(always)]
    fn mul_add_once(self, factor: Self, addend: Self) -> Self {
        self.mul_add(factor, addend)
    }

    /// `if self < other { self } else { other }`: `other` where either is NaN.
    fn min(self, other: Self) -> Self;

    /// `if self > other { self } else { other }`: `other` where either is NaN.
    ///
    /// So `x.max(running)` ignores NaN in `x`, and `bound.max(x)` keeps it.
    fn max(self, other: Self) -> Self;

    /// The absolute value.
    fn abs(self) -> Self;

    /// This value with the sign of `sign`.
    fn copysign(self, sign: Self) -> Self;

    /// The square root, correctly rounded; NaN for negative numbers.
    fn sqrt(self) -> Self;

    /// The nearest integer; ties go to the even one.
    fn round(self) -> Self;

    /// `2^self`, for integers whose power is a normal number (-126 to 127 for `f32`, -1022 to 1023 for `f64`). For other numbers
    /// the lane is undefined.
    fn exp2_of_integer(self) -> Self;

    /// `self * 2^exponent`, rounded once, for a `self` between ½ and 2 and an integer `exponent` between twice the smallest and
    /// twice the largest of [`exp2_of_integer`](Self::exp2_of_integer). NaN is preserved.
    #[inline(always)]
    fn scale(self, exponent: Self) -> Self {
        // Two steps, because 2^exponent may overflow where the product does not. The first step is exact.
        let half = (exponent * Self::splat(Self::Element::HALF)).round();
        self * half.exp2_of_integer() * (exponent - half).exp2_of_integer()
    }

    /// [`scale`](Self::scale) where `2^exponent` and the result are normal numbers, in fewer instructions.
    #[inline(always)]
    fn scale_normal(self, exponent: Self) -> Self {
        self * exponent.exp2_of_integer()
    }

    /// `(m, e)` with `self = m * 2^e` and `m` from √½ to √2, for positive normal numbers. For others the result is undefined.
    fn split_exponent(self) -> (Self, Self);

    /// The lanes where `self == other`.
    fn eq(self, other: Self) -> Self::Mask;

    /// The lanes where `self < other`.
    fn lt(self, other: Self) -> Self::Mask;

    /// The lanes where `self <= other`.
    fn le(self, other: Self) -> Self::Mask;

    /// The lanes where `self != other`. NaN differs from everything.
    #[inline(always)]
    fn ne(self, other: Self) -> Self::Mask {
        !self.eq(other)
    }

    /// The lanes where `self > other`.
    #[inline(always)]
    fn gt(self, other: Self) -> Self::Mask {
        other.lt(self)
    }

    /// The lanes where `self >= other`.
    #[inline(always)]
    fn ge(self, other: Self) -> Self::Mask {
        other.le(self)
    }

    /// `yes` where `mask` is true, `no` where it is false.
    fn select(mask: Self::Mask, yes: Self, no: Self) -> Self;

    /// Interleaves the lanes of `self` and `other`: those of the lower halves, and those of the upper halves.
    fn interleave(self, other: Self) -> (Self, Self);

    /// The sum of the lanes. The upper half is added to the lower one until one lane is left.
    fn reduce_sum(self) -> Self::Element;

    /// The largest lane, by halving in the same order. A NaN may be ignored or returned.
    fn reduce_max(self) -> Self::Element;

    /// The smallest lane, by halving in the same order. A NaN may be ignored or returned.
    #[inline(always)]
    fn reduce_min(self) -> Self::Element {
        -(-self).reduce_max()
    }

    /// Zero in every lane.
    #[inline(always)]
    fn zero() -> Self {
        Self::splat(Self::Element::ZERO)
    }

    /// `0, 1, 2, ..`: the index of each lane.
    #[inline(always)]
    fn lane_indices() -> Self {
        Self::load(&Self::Element::INDICES)
    }

    /// True in the first `count` lanes.
    #[inline(always)]
    fn first_lanes(count: usize) -> Self::Mask {
        Self::lane_indices().lt(Self::splat(Self::Element::of_f64(
            count.min(Self::LANES) as f64
        )))
    }
}

/// A boolean per lane.
pub trait Mask: Copy + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self> {
    /// Whether a lane is true.
    fn any(self) -> bool;

    /// Whether every lane is true.
    fn all(self) -> bool;
}

/// An algorithm over vectors: a struct of its arguments, and the code.
pub trait Kernel {
    /// The type of its numbers.
    type Element: Real;
    /// Its result.
    type Output;

    /// The algorithm. Mark it `#[inline(always)]`, and everything it calls with `V`: an instruction set is switched on
    /// for the function that this is inlined into, and code that is left outside calls a function per instruction.
    fn run<V: Vector<Element = Self::Element>>(self) -> Self::Output;
}

/// The numbers that there are vectors of: `f32` and `f64`.
pub trait Real:
    Tables
    + Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + 'static
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Into<f64>
{
    /// 0
    const ZERO: Self;
    /// ½
    const HALF: Self;
    /// 1
    const ONE: Self;
    /// 2
    const TWO: Self;
    /// Infinity.
    const INFINITY: Self;
    /// Not a number.
    const NAN: Self;
    /// The smallest positive normal number.
    const MIN_POSITIVE: Self;
    /// 0, 1, .., 15
    const INDICES: [Self; MAX_LANES];

    /// The number nearest to `value`.
    fn of_f64(value: f64) -> Self;

    /// The number `value`.
    fn of_f32(value: f32) -> Self;

    /// The nearest `f32`.
    fn nearest_f32(self) -> f32;

    /// Runs `kernel` with the vectors of `isa`; see [`Isa::run`].
    #[doc(hidden)]
    fn run_on<K: Kernel<Element = Self>>(isa: Isa, kernel: K) -> K::Output;

    /// The matrix product, for the machine.
    #[doc(hidden)]
    fn gemm() -> Gemm<Self>;
}

/// A product of `gemm`: `to = alpha * to + beta * left * right`, with `to` read only if asked.
///
/// In order: rows, columns and depth; `to`, its strides of columns and rows, whether it is read; `left` and its strides;
/// `right` and its strides; `alpha` and `beta`; whether to conjugate each of the three; the threads.
pub type Gemm<E> = unsafe fn(
    usize,
    usize,
    usize,
    *mut E,
    isize,
    isize,
    bool,
    *const E,
    isize,
    isize,
    *const E,
    isize,
    isize,
    E,
    E,
    bool,
    bool,
    bool,
    Parallelism,
);

/// The operators of a vector type, from its inherent `op_add`, `op_sub`, `op_mul`, `op_div` and `op_neg`.
macro_rules! operators {
    ($vector:ty) => {
        operators!(@binary $vector, Add, add, op_add);
        operators!(@binary $vector, Sub, sub, op_sub);
        operators!(@binary $vector, Mul, mul, op_mul);
        operators!(@binary $vector, Div, div, op_div);
        operators!(@assign $vector, AddAssign, add_assign, op_add);
        operators!(@assign $vector, SubAssign, sub_assign, op_sub);
        operators!(@assign $vector, MulAssign, mul_assign, op_mul);

        impl std::ops::Neg for $vector {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self {
                self.op_neg()
            }
        }
    };
    (@binary $vector:ty, $trait:ident, $method:ident, $op:ident) => {
        impl std::ops::$trait for $vector {
            type Output = Self;
            #[inline(always)]
            fn $method(self, other: Self) -> Self {
                self.$op(other)
            }
        }
    };
    (@assign $vector:ty, $trait:ident, $method:ident, $op:ident) => {
        impl std::ops::$trait for $vector {
            #[inline(always)]
            fn $method(&mut self, other: Self) {
                *self = self.$op(other);
            }
        }
    };
}

/// The operators of a mask type, from its inherent `op_and`, `op_or` and `op_not`.
macro_rules! mask_operators {
    ($mask:ty) => {
        impl std::ops::BitAnd for $mask {
            type Output = Self;
            #[inline(always)]
            fn bitand(self, other: Self) -> Self {
                self.op_and(other)
            }
        }

        impl std::ops::BitOr for $mask {
            type Output = Self;
            #[inline(always)]
            fn bitor(self, other: Self) -> Self {
                self.op_or(other)
            }
        }

        impl std::ops::Not for $mask {
            type Output = Self;
            #[inline(always)]
            fn not(self) -> Self {
                self.op_not()
            }
        }
    };
}

pub(super) use {mask_operators, operators};

/// A number in every lane.
#[inline(always)]
pub fn splat<E: Real, V: Vector<Element = E>>(value: f64) -> V {
    V::splat(E::of_f64(value))
}
