//! Products of pairs of numbers in bf16, whose sums have the type of the result.
//!
//! ```text
//! sum ← sum + a₁ b₁, then sum ← sum + a₀ b₀     for the pairs (a₀, a₁) and (b₀, b₁) of two neighbouring depths
//! ```
//!
//! Each of the two steps is rounded once, to the nearest and to the even one of two, and a subnormal sum becomes 0. That is what `vdpbf16ps` of
//! AVX-512 BF16 computes. Other instruction sets compute the same bits with multiply-adds: the product of two numbers in bf16 is exact in `f32`,
//! unless it is too small or too large, and the sum is rounded once there, too. A number of a pair is never subnormal, because the instruction
//! reads 0 in place of such a number: [`Pair::new`] replaces it.
//!
//! All sums are multiples of the last place of the smallest product. If that place is a normal number, no sum is subnormal, and plain multiply-adds
//! compute the same bits. On the processors of Intel that were measured, these are faster than the instruction, so that it is left out there if the sums
//! allow it.
//!
//! Tiles of AMX multiply pairs, too, but add their products in another order, which no other instruction has at the same rate. So the sums of
//! [`Isa::Amx`] have bits of their own:
//!
//! ```text
//! sum ← sum + (e + o)     e ← e + a₀ b₀, and o ← o + a₁ b₁, for the next 16 pairs, each from 0 on
//! ```

use std::cell::{Cell, OnceCell};

#[cfg(target_arch = "x86_64")]
use super::amx;
use super::tiles::{Factors, Product, TILE_ROWS};
use super::{Bf16Rows, Initial, Isa, Kernel, Matrix, MatrixMut, Pair, Panels, Real, Vector, run};

/// Columns of pairs that several products multiply.
#[derive(Debug)]
pub struct PairPanels<'a> {
    panels: Panels<'a, Pair>,
    /// The number of columns.
    count: usize,
    /// The [least exponent](least_exponent) of all of them, once it is known.
    least: OnceCell<u32>,
}

impl<'a> PairPanels<'a> {
    /// So many columns.
    pub fn new(panels: Panels<'a, Pair>, count: usize) -> Self {
        Self {
            panels,
            count,
            least: OnceCell::new(),
        }
    }

    /// Columns none of whose numbers has an exponent below this [least one](least_exponent).
    pub fn with_least_exponent(panels: Panels<'a, Pair>, count: usize, least: u32) -> Self {
        Self {
            least: OnceCell::from(least),
            ..Self::new(panels, count)
        }
    }

    fn least_exponent(&self) -> u32 {
        *self.least.get_or_init(|| {
            let slices = self.panels.column_slices(self.count);
            run(LeastExponent(slices))
        })
    }
}

/// The rows that [`PairSums::multiply_pairs`] multiplies at a time, if there are so many.
pub fn pair_tile_rows() -> usize {
    #[cfg(target_arch = "x86_64")]
    if Isa::current() == Isa::Amx {
        return amx::BLOCK;
    }
    TILE_ROWS
}

/// The sums of products of pairs.
pub trait PairSums: Bf16Rows {
    /// [`multiply_panels`](super::multiply_panels) of pairs: a depth of `rows` and `columns` is that of two numbers. The product prefetches `next`: numbers
    /// that the caller rounds afterwards.
    ///
    /// The sums of `f32` have the same bits on every instruction set but [`Isa::Amx`], except for the bits of a NaN.
    ///
    /// # Panics
    /// If there are too few panels, or pieces have other numbers of rows.
    #[track_caller]
    fn multiply_pairs(
        to: &mut [MatrixMut<'_, Self>],
        initial: Initial<'_, Self>,
        rows: Matrix<'_, Pair>,
        columns: &PairPanels<'_>,
        next: Option<Matrix<'_, Self>>,
    );
}

impl PairSums for f32 {
    fn multiply_pairs(
        to: &mut [MatrixMut<'_, f32>],
        initial: Initial<'_, f32>,
        rows: Matrix<'_, Pair>,
        columns: &PairPanels<'_>,
        next: Option<Matrix<'_, f32>>,
    ) {
        let product = Product::new(to, initial, rows, columns.panels).prefetching(next);
        multiply(product, columns);
    }
}

impl PairSums for f64 {
    fn multiply_pairs(
        to: &mut [MatrixMut<'_, f64>],
        initial: Initial<'_, f64>,
        rows: Matrix<'_, Pair>,
        columns: &PairPanels<'_>,
        next: Option<Matrix<'_, f64>>,
    ) {
        run(Product::new(to, initial, rows, columns.panels).prefetching(next));
    }
}

/// The product of `f32`, in the fastest of four ways.
fn multiply(product: Product<'_, '_, f32, Pair, Pair>, columns: &PairPanels<'_>) {
    #[cfg(target_arch = "x86_64")]
    if Isa::current() == Isa::Amx {
        // SAFETY: the line above has checked the machine.
        return unsafe { amx::multiply_pairs(product) };
    }
    #[cfg(target_arch = "x86_64")]
    if Isa::current() == Isa::Avx512 && is_x86_feature_detected!("avx512bf16") {
        return match dot::is_slow() && has_normal_sums(product.rows, columns) {
            true => multiply_wide(product),
            // SAFETY: the condition above has checked the machine.
            false => unsafe { dot::multiply(product) },
        };
    }
    multiply_add(product, columns);
}

/// The product without the instruction.
fn multiply_add(product: Product<'_, '_, f32, Pair, Pair>, columns: &PairPanels<'_>) {
    match has_normal_sums(product.rows, columns) {
        true => multiply_wide(product),
        false => run(product),
    }
}

/// With fewer rows, a look at all numbers of the columns takes as long as their products.
const FEW_ROWS: usize = 8;

/// Whether no sum can be subnormal: the last place of each product, but for zeros, is at least the least normal number. False if that is not known,
/// and there are too few rows to find it out.
fn has_normal_sums(rows: Matrix<'_, Pair>, columns: &PairPanels<'_>) -> bool {
    // Without vectors, a multiply-add may be rounded twice.
    let is_fused = Isa::current() != Isa::Scalar;
    let may_look = rows.rows() >= FEW_ROWS || columns.least.get().is_some();
    is_fused && may_look && {
        let rows = slices(rows);
        let of_rows = run(LeastExponent((0..rows.rows()).map(|row| rows.row(row))));
        // Exponents are stored as 127 more. The last place of a number in bf16 is 2^-7 of the power of two, and the least normal number is 2^-126.
        of_rows + columns.least_exponent() >= 2 * 127 + 2 * 7 - 126
    }
}

/// Above all exponents.
const ABOVE_ALL: u32 = 256;

/// The least exponent, as it is stored, of numbers that are not 0. Without any, it is above all exponents.
pub fn least_exponent(pairs: &[Pair]) -> u32 {
    run(LeastExponent([pairs].into_iter()))
}

struct LeastExponent<I>(I);

impl<'a, I: Iterator<Item = &'a [Pair]>> Kernel for LeastExponent<I> {
    type Element = f32;
    type Output = u32;

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) -> u32 {
        let mut least = u32::MAX;
        for pairs in self.0 {
            // A plain loop, which the compiler vectorises.
            for pair in pairs {
                let bits = u32::from_le(pair.0);
                for half in [bits, bits >> 16] {
                    // The exponent of 0 wraps to the largest number.
                    least = least.min((half & 0x7f80).wrapping_sub(1));
                }
            }
        }
        match least {
            u32::MAX => ABOVE_ALL,
            least => (least + 1) >> 7,
        }
    }
}

thread_local! {
    /// The rows of a product as `f32`: memory that the next product on this thread uses again.
    static WIDE: Cell<Vec<[f32; 2]>> = Cell::default();
}

/// Computes a product without subnormal sums by plain multiply-adds, with rows that are copied as `f32`.
fn multiply_wide(product: Product<'_, '_, f32, Pair, Pair>) {
    let rows = product.rows;
    let slices = slices(rows);
    let mut memory = WIDE.take();
    let count = rows.rows() * rows.cols();
    memory.resize(count.max(memory.len()), [0.0; 2]);
    let wide = &mut memory[..count];
    run(Widen {
        from: slices,
        to: wide,
    });
    let wide_slices = Matrix::new(wide, slices.rows(), slices.cols());
    run(product.with_rows(match rows.has_row_slices() {
        true => wide_slices,
        false => wide_slices.transposed(),
    }));
    WIDE.set(memory);
}

/// Rows whose numbers stand side by side: these, or their transpose.
fn slices(rows: Matrix<'_, Pair>) -> Matrix<'_, Pair> {
    match rows.has_row_slices() {
        true => rows,
        false => rows.transposed(),
    }
}

/// Copies rows as `f32`.
struct Widen<'a> {
    from: Matrix<'a, Pair>,
    to: &'a mut [[f32; 2]],
}

impl Kernel for Widen<'_> {
    type Element = f32;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        let rows = self.to.chunks_mut(self.from.cols().max(1));
        for (row, to) in rows.enumerate() {
            for (to, pair) in to.iter_mut().zip(self.from.row(row)) {
                *to = pair.numbers();
            }
        }
    }
}

impl<E: Real> Kernel for Product<'_, '_, E, Pair, Pair> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        self.multiply::<V, Halves>();
    }
}

/// The numbers of a pair, one after the other. Subnormal sums become 0.
struct Halves;

impl<V: Vector> Factors<V> for Halves {
    type Row = Pair;
    type Column = Pair;
    type Lanes = V;

    const HAS_TWO_PRODUCTS: bool = true;

    #[inline(always)]
    fn splat<const P: usize>(pair: &Pair) -> V {
        V::splat(V::Element::of_f32(pair.numbers()[1 - P]))
    }

    #[inline(always)]
    fn load<const P: usize>(from: &[Pair]) -> V {
        V::load_halves(Pair::words(from))[1 - P]
    }

    #[inline(always)]
    fn add_product(a: V, b: V, sum: V) -> V {
        without_subnormals(a.mul_add_once(b, sum))
    }
}

#[inline(always)]
fn without_subnormals<V: Vector>(x: V) -> V {
    let least = V::splat(V::Element::MIN_POSITIVE);
    V::select(x.abs().lt(least), V::zero().copysign(x), x)
}

/// Rows of pairs as `f32`.
impl Kernel for Product<'_, '_, f32, [f32; 2], Pair> {
    type Element = f32;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        self.multiply::<V, WideRows>();
    }
}

/// The numbers of a pair, one after the other, whose sums are never subnormal.
struct WideRows;

impl<V: Vector<Element = f32>> Factors<V> for WideRows {
    type Row = [f32; 2];
    type Column = Pair;
    type Lanes = V;

    const HAS_TWO_PRODUCTS: bool = true;

    #[inline(always)]
    fn splat<const P: usize>(numbers: &[f32; 2]) -> V {
        V::splat(numbers[1 - P])
    }

    #[inline(always)]
    fn load<const P: usize>(from: &[Pair]) -> V {
        <Halves as Factors<V>>::load::<P>(from)
    }

    #[inline(always)]
    fn add_product(a: V, b: V, sum: V) -> V {
        a.mul_add(b, sum)
    }
}

#[cfg(target_arch = "x86_64")]
mod dot {
    use std::arch::x86_64::{__cpuid, __m512i, _mm512_loadu_si512, _mm512_set1_epi32};
    use std::sync::LazyLock;

    use super::super::avx512::F32x16;
    use super::{Factors, Pair, Product};

    /// Whether multiply-adds of `f32` are faster: on the processors of Intel. Measured on Sapphire Rapids and Emerald Rapids.
    pub(super) fn is_slow() -> bool {
        static IS_SLOW: LazyLock<bool> = LazyLock::new(|| {
            let vendor = __cpuid(0);
            [vendor.ebx, vendor.edx, vendor.ecx]
                .map(u32::to_le_bytes)
                .as_flattened()
                == b"GenuineIntel"
        });
        *IS_SLOW
    }

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) fn multiply(product: Product<'_, '_, f32, Pair, Pair>) {
        product.multiply::<F32x16, Dot>();
    }

    /// Pairs as the instruction reads them.
    struct Dot;

    impl Factors<F32x16> for Dot {
        type Row = Pair;
        type Column = Pair;
        type Lanes = __m512i;

        #[inline(always)]
        fn splat<const P: usize>(pair: &Pair) -> __m512i {
            // SAFETY: see the head of the folder: `multiply` is the only user.
            unsafe { _mm512_set1_epi32(pair.0 as i32) }
        }

        #[inline(always)]
        fn load<const P: usize>(from: &[Pair]) -> __m512i {
            let from = &from[..16];
            // SAFETY: as above, and 16 pairs have the size of the register.
            unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
        }

        #[inline(always)]
        fn add_product(a: __m512i, b: __m512i, sum: F32x16) -> F32x16 {
            sum.add_dot(a, b)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::bf16::tests::{bits, flushed, same};
    use crate::simd::{panel_columns, vector_columns};

    /// A number with one of some exponents.
    fn number(bits: &mut impl FnMut() -> u32, exponents: &[u32]) -> f32 {
        let exponent = exponents[bits() as usize % exponents.len()];
        f32::from_bits(bits() & 0x807f_ffff | exponent << 23)
    }

    /// `sum + a b`, which is exact in `f64` before the one rounding.
    fn step(sum: f32, a: f32, b: f32) -> f32 {
        flushed((f64::from(a) * f64::from(b) + f64::from(sum)) as f32)
    }

    /// The steps of the instruction.
    fn reference(a: &[Pair], b: &[Pair]) -> f32 {
        a.iter().zip(b).fold(0.0, |sum, (a, b)| {
            let [a, b] = [a.numbers(), b.numbers()];
            step(step(sum, a[1], b[1]), a[0], b[0])
        })
    }

    /// The steps of tiles: a sum of the first numbers of 16 pairs, and one of their second ones. Behind the last pair there are zeros.
    fn reference_of_tiles(a: &[Pair], b: &[Pair]) -> f32 {
        const GROUP: usize = 16;
        a.chunks(GROUP)
            .zip(b.chunks(GROUP))
            .fold(0.0, |sum, (a, b)| {
                let [first, second] = [0, 1].map(|half| {
                    let numbers = a.iter().zip(b);
                    let numbers = numbers.map(|(a, b)| [a, b].map(|pair| pair.numbers()[half]));
                    let zeros = std::iter::repeat_n([0.0; 2], GROUP - a.len());
                    numbers
                        .chain(zeros)
                        .fold(0.0, |sum, [a, b]| step(sum, a, b))
                });
                step(sum, step(first, 1.0, second), 1.0)
            })
    }

    /// Sums that are small, large, subnormal and not finite, of rows and columns that fill no tile.
    #[test]
    fn products_are_those_of_the_instructions_on_every_machine() {
        let exponents: [&[u32]; 7] = [
            &[124, 125, 126, 127, 128],
            // The least ones without subnormal sums, and those below them.
            &[71, 72, 73],
            &[70, 71, 72],
            &[60, 61, 62, 63, 64],
            &[188, 189, 190, 191],
            &[0, 1, 2, 127, 252, 253],
            &[0, 127, 255],
        ];
        let width = panel_columns::<f32>();
        for (case, exponents) in exponents.into_iter().enumerate() {
            for [rows, depth, columns] in [
                [1, 1, 1],
                [7, 33, 17],
                [6, 16, 64],
                [13, 5, 100],
                [50, 40, 70],
                [32, 48, 32],
                [17, 31, 49],
            ] {
                let mut bits = bits(case as u64 + 7);
                let mut pairs = |len: usize| -> Vec<Pair> {
                    let mut one = || number(&mut bits, exponents);
                    (0..len).map(|_| Pair::new(one(), one())).collect()
                };
                let a = pairs(rows * depth);
                let panels = columns.div_ceil(width);
                let b = pairs(panels * depth * width);
                let column = |j: usize| -> Vec<Pair> {
                    let panel = &b[j / width * depth * width..][..depth * width];
                    panel
                        .iter()
                        .skip(j % width)
                        .step_by(width)
                        .copied()
                        .collect()
                };
                let all = |sum: fn(&[Pair], &[Pair]) -> f32| -> Vec<f32> {
                    let of_row = |at: usize| &a[at / columns * depth..][..depth];
                    (0..rows * columns)
                        .map(|at| sum(of_row(at), &column(at % columns)))
                        .collect()
                };
                let want = all(reference);
                type Multiply<'a> =
                    &'a (dyn Fn(Product<'_, '_, f32, Pair, Pair>, &PairPanels<'_>) + Sync);
                let check = |want: &[f32], what: &str, multiply: Multiply<'_>| {
                    let mut got = vec![f32::NAN; rows * columns];
                    let mut to = [MatrixMut::new(&mut got, rows, columns)];
                    let rows = Matrix::new(&a, rows, depth);
                    let panels = Panels::new(&b, depth, width);
                    let product = Product::new(&mut to, Initial::Zero, rows, panels);
                    multiply(product, &PairPanels::new(panels, columns));
                    for (got, want) in got.iter().zip(want) {
                        assert!(
                            same(*got, *want),
                            "{what}, case {case}: {got:e}, not {want:e}"
                        );
                    }
                };
                for isa in Isa::available() {
                    let name = &isa.to_string();
                    match isa {
                        Isa::Amx => isa.force(|| check(&all(reference_of_tiles), name, &multiply)),
                        _ => isa.force(|| check(&want, name, &multiply)),
                    }
                    // Without the instruction.
                    check(&want, name, &|product, _| isa.run(product));
                    isa.force(|| check(&want, name, &multiply_add));
                }
            }
        }
    }

    /// The sums of the products of two numbers, and of a pair of zeros.
    #[test]
    fn subnormal_sums_are_foreseen() {
        let width = panel_columns::<f32>();
        let sums_are_normal = |a: f32, b: f32| {
            let rows = vec![Pair::new(a, 0.0); FEW_ROWS];
            let mut columns = vec![Pair::ZERO; width];
            columns[3] = Pair::new(0.0, b);
            let rows = Matrix::new(&rows, FEW_ROWS, 1);
            let columns = PairPanels::new(Panels::new(&columns, 1, width), 4);
            has_normal_sums(rows, &columns)
        };
        let power = |exponent: i32| 2_f32.powi(exponent);
        for isa in Isa::available().filter(|isa| *isa != Isa::Scalar) {
            isa.force(|| {
                assert!(sums_are_normal(1.0, -1.0), "{isa}");
                assert!(sums_are_normal(0.0, f32::MIN_POSITIVE), "{isa}");
                assert!(sums_are_normal(0.0, 0.0), "{isa}");
                assert!(sums_are_normal(power(-56), power(-56)), "{isa}");
                assert!(sums_are_normal(power(-112), -1.0), "{isa}");
                assert!(!sums_are_normal(power(-56), power(-57)), "{isa}");
                assert!(!sums_are_normal(-power(-113), 1.9), "{isa}");
                assert!(sums_are_normal(power(-126), f32::INFINITY), "{isa}");
            });
        }
    }

    /// The same operands: only the sums are wider.
    #[test]
    fn sums_of_f64_are_those_of_rounded_numbers() {
        let width = panel_columns::<f64>();
        assert_eq!(width, 4 * vector_columns::<f64>());
        let mut bits = bits(3);
        let mut one = || number(&mut bits, &[125, 126, 127]);
        let mut pairs =
            |len: usize| -> Vec<Pair> { (0..len).map(|_| Pair::new(one(), one())).collect() };
        let [rows, depth, columns] = [3, 9, 20];
        let (a, b) = (pairs(rows * depth), pairs(depth * width));
        for isa in Isa::available() {
            isa.force(|| {
                let mut got = vec![1.0; rows * columns];
                let mut to = [MatrixMut::new(&mut got, rows, columns)];
                let a_rows = Matrix::new(&a, rows, depth);
                let panels = PairPanels::new(Panels::new(&b, depth, width), columns);
                f64::multiply_pairs(&mut to, Initial::Old, a_rows, &panels, None);
                for (at, got) in got.iter().enumerate() {
                    let of = |k: usize| {
                        let a = a[at / columns * depth + k].numbers().map(f64::from);
                        let b = b[k * width + at % columns].numbers().map(f64::from);
                        a[0] * b[0] + a[1] * b[1]
                    };
                    let want = 1.0 + (0..depth).map(of).sum::<f64>();
                    // 18 products of at most 1.
                    assert!((got - want).abs() < 1e-14, "{isa}");
                }
            });
        }
    }
}
