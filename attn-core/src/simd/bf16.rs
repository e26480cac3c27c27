//! Numbers rounded to bf16, the upper half of an `f32`: rows of them, and pairs for products.
//!
//! A number becomes the nearest one in bf16, and the even one of two; a subnormal one becomes 0. One of `f64` is rounded to `f32` first. That is what `vcvtne2ps2bf16` of AVX-512 BF16
//! computes. Other instruction sets compute the same bits.

#[cfg(target_arch = "x86_64")]
use super::Isa;
use super::{Kernel, Matrix, MatrixMut, Real, Vector, prefetch, run};

/// Two numbers in bf16: those of two neighbouring depths. They stand in memory in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Pair(pub(super) u32);

impl Pair {
    /// Twice 0.
    pub const ZERO: Self = Self(0);

    /// The pair of two numbers, each rounded to the nearest one in bf16, and to the even one of two. A subnormal one becomes 0.
    #[inline(always)]
    pub fn new(first: f32, second: f32) -> Self {
        Self((rounded(first) >> 16 | rounded(second)).to_le())
    }

    /// The pair of two numbers with these bits, which are not those of subnormal ones.
    #[inline(always)]
    fn of_bits([first, second]: [u16; 2]) -> Self {
        Self((u32::from(first) | u32::from(second) << 16).to_le())
    }

    /// The bits of both numbers.
    #[inline(always)]
    pub fn bits(self) -> [u16; 2] {
        let bits = u32::from_le(self.0);
        [bits, bits >> 16].map(|half| half as u16)
    }

    /// Both numbers.
    #[inline(always)]
    pub fn numbers(self) -> [f32; 2] {
        let bits = u32::from_le(self.0);
        [bits << 16, bits & 0xffff_0000].map(f32::from_bits)
    }

    /// Memory for as many pairs as numbers, whose contents are arbitrary.
    pub fn in_memory_of<E: Real>(numbers: &mut [E]) -> &mut [Self] {
        const { assert!(size_of::<E>() >= size_of::<Self>() && align_of::<E>() >= align_of::<Self>()) }
        // SAFETY: the size and alignment of a pair are at most those of a number, `f32` or `f64`, and all these types allow all bits.
        unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
    }

    /// The bits of pairs as they stand in memory: little-endian, the first number in the lower half.
    #[inline(always)]
    pub(super) fn words(pairs: &[Self]) -> &[u32] {
        // SAFETY: a pair is nothing but its bits.
        unsafe { std::slice::from_raw_parts(pairs.as_ptr().cast(), pairs.len()) }
    }

    /// Whether the first numbers of all pairs are finite, and whether the second ones are.
    pub fn are_finite(pairs: &[Self]) -> [bool; 2] {
        // An exponent of ones carries to the bit of the sign.
        let exponents = |pair: &Self| (u32::from_le(pair.0) & 0x7f80_7f80) + 0x0080_0080;
        let carries = pairs.iter().fold(0, |all, pair| all | exponents(pair));
        [0x8000, 0x8000_0000].map(|bit| carries & bit == 0)
    }

    /// A matrix of pairs in the memory of numbers, whose contents are arbitrary.
    pub fn in_matrix_of(numbers: MatrixMut<'_, f32>) -> MatrixMut<'_, Self> {
        // SAFETY: as above.
        unsafe { numbers.cast() }
    }

    /// The pairs that were written to [`in_matrix_of`](Self::in_matrix_of) the same memory.
    pub fn of_matrix(numbers: Matrix<'_, f32>) -> Matrix<'_, Self> {
        // SAFETY: as above.
        unsafe { numbers.cast() }
    }
}

/// Pairs that begin at the start of a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct PairLine(pub [Pair; Self::PAIRS]);

impl PairLine {
    /// The pairs of a line.
    pub const PAIRS: usize = 16;

    /// The pairs of lines, one line behind the other.
    pub fn flatten(lines: &[Self]) -> &[Pair] {
        // SAFETY: a line is its pairs, without any space between or behind them.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), lines.len() * Self::PAIRS) }
    }
}

/// The nearest number in bf16, as an `f32`: half of the last place is added, less one unit where the last bit is 0, and what is behind it cut off.
#[inline(always)]
fn rounded(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    // A NaN may have its bits in the lower half alone.
    let quiet = bits | 0x40_0000;
    let kept = match x.is_nan() {
        true => quiet,
        false => nearest,
    };
    let is_normal = bits & 0x7f80_0000 != 0;
    kept & if is_normal { 0xffff_0000 } else { 0x8000_0000 }
}

/// The same number as an `f32`.
#[inline(always)]
pub fn widened(half: u16) -> f32 {
    f32::from_bits(u32::from(half) << 16)
}

/// Memory for numbers in bf16, two for each number of a wider type, whose contents are arbitrary.
pub fn halves_mut<E: Real>(numbers: &mut [E]) -> &mut [u16] {
    // SAFETY: two halves take at most the memory of a number, `f32` or `f64`, and all these types allow all bits.
    unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), 2 * numbers.len()) }
}

/// The numbers that were written to [`halves_mut`] of the same memory. In other memory they are arbitrary.
pub fn halves<E: Real>(numbers: &[E]) -> &[u16] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), 2 * numbers.len()) }
}

/// Rows of numbers, rounded to bf16 and widened again.
pub trait Bf16Rows: Real {
    /// Rounds rows, which are contiguous each.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    fn round_rows(rows: Matrix<'_, Self>, to: MatrixMut<'_, u16>);

    /// The same numbers in this type. The rows are contiguous each.
    ///
    /// # Panics
    /// If the shapes differ.
    #[track_caller]
    fn widen_rows(rows: Matrix<'_, u16>, to: MatrixMut<'_, Self>);

    /// Makes pairs of the numbers of two neighbouring rows. Behind the last row and the last column, there are zeros.
    ///
    /// `rows`: `[depths, columns]`, with contiguous rows; `to`: `[pairs, columns]`.
    ///
    /// # Panics
    /// If `to` has too few rows or columns.
    #[track_caller]
    fn pair_rows(rows: Matrix<'_, Self>, to: MatrixMut<'_, Pair>);

    /// Makes pairs of neighbouring numbers of each row. Behind the last one there is 0.
    ///
    /// `rows`: `[rows, depths]`, with contiguous rows; `to`: `[rows, pairs]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    fn pair_columns(rows: Matrix<'_, Self>, to: MatrixMut<'_, Pair>);
}

// Not by default methods, which every crate that calls them would compile.
macro_rules! bf16_rows {
    ($element:ty, $round:ident) => {
        impl Bf16Rows for $element {
            fn round_rows(rows: Matrix<'_, Self>, to: MatrixMut<'_, u16>) {
                assert_shape(&rows, &to, 1);
                $round(Round { rows, to });
            }

            fn widen_rows(rows: Matrix<'_, u16>, to: MatrixMut<'_, Self>) {
                assert_shape(&rows, &to, 1);
                run(Widen { rows, to });
            }

            fn pair_rows(rows: Matrix<'_, Self>, to: MatrixMut<'_, Pair>) {
                $round(PairRows { rows, to });
            }

            fn pair_columns(rows: Matrix<'_, Self>, to: MatrixMut<'_, Pair>) {
                let to = columns_of_pairs(&rows, to);
                $round(Round { rows, to });
            }
        }
    };
}

bf16_rows!(f32, round);
bf16_rows!(f64, run);

/// Pairs of neighbouring numbers of each row, as their numbers.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
fn columns_of_pairs<'a, N>(rows: &Matrix<'_, N>, to: MatrixMut<'a, Pair>) -> MatrixMut<'a, u16> {
    assert_shape(rows, &to, 2);
    // SAFETY: a pair is its two halves, and both allow all bits.
    unsafe { to.cast() }
}

/// Checks that `to` has a number for so many of each row.
#[track_caller]
fn assert_shape<A, B>(rows: &Matrix<'_, A>, to: &MatrixMut<'_, B>, numbers: usize) {
    assert!(
        rows.rows() == to.rows() && rows.cols().div_ceil(numbers) == to.cols(),
        "({} x {}) as ({} x {}), each of {numbers}",
        rows.rows(),
        rows.cols(),
        to.rows(),
        to.cols()
    );
}

/// How numbers are rounded.
trait Rounds<E> {
    /// Each number of a row. Both slices have the same length.
    fn each(x: &[E], to: &mut [u16]);

    /// Pairs of the numbers of two rows. All slices have the same length.
    fn both(first: &[E], second: &[E], to: &mut [Pair]);
}

/// [`rounded`], in plain loops, which the compiler vectorises.
struct Plain;

impl<E: Real> Rounds<E> for Plain {
    #[inline(always)]
    fn each(x: &[E], to: &mut [u16]) {
        for (to, x) in to.iter_mut().zip(x) {
            *to = (rounded(x.nearest_f32()) >> 16) as u16;
        }
    }

    #[inline(always)]
    fn both(first: &[E], second: &[E], to: &mut [Pair]) {
        for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
            *to = Pair::new(first.nearest_f32(), second.nearest_f32());
        }
    }
}

/// How many rows ahead memory is asked for.
const AHEAD: usize = 16;

/// The numbers that a second row behind the last one has.
const NO_ROW: usize = 64;

/// A copy of numbers, rounded.
trait Rounding<E> {
    fn round<R: Rounds<E>>(self);
}

/// [`Bf16Rows::round_rows`], with zeros in the columns behind the last one.
struct Round<'a, E> {
    rows: Matrix<'a, E>,
    to: MatrixMut<'a, u16>,
}

impl<E: Copy> Rounding<E> for Round<'_, E> {
    #[inline(always)]
    fn round<R: Rounds<E>>(mut self) {
        let cols = self.rows.cols();
        if cols == 0 {
            return;
        }
        for row in 0..self.to.rows() {
            let (to, rest) = self.to.row_mut(row).split_at_mut(cols);
            R::each(self.rows.row(row), to);
            rest.fill(0);
        }
    }
}

/// [`Bf16Rows::pair_rows`]
struct PairRows<'a, E> {
    rows: Matrix<'a, E>,
    to: MatrixMut<'a, Pair>,
}

impl<E: Copy + Default> Rounding<E> for PairRows<'_, E> {
    #[inline(always)]
    fn round<R: Rounds<E>>(mut self) {
        let rows = self.rows;
        assert!(
            rows.rows() <= 2 * self.to.rows() && rows.cols() <= self.to.cols(),
            "({} x {}) as ({} x {}) pairs",
            rows.rows(),
            rows.cols(),
            self.to.rows(),
            self.to.cols()
        );
        let none = [E::default(); NO_ROW];
        // Of short pieces far apart the processor foresees nothing.
        let is_apart = rows.row_stride() > rows.cols();
        for pair in 0..self.to.rows() {
            let ahead = 2 * pair + AHEAD;
            if is_apart && ahead + 1 < rows.rows() {
                prefetch(rows.row(ahead));
                prefetch(rows.row(ahead + 1));
            }
            let (to, rest) = self.to.row_mut(pair).split_at_mut(rows.cols());
            rest.fill(Pair(0));
            match rows.rows().saturating_sub(2 * pair) {
                _ if to.is_empty() => {}
                0 => to.fill(Pair(0)),
                1 => {
                    let first = rows.row(2 * pair).chunks(NO_ROW);
                    for (to, first) in to.chunks_mut(NO_ROW).zip(first) {
                        R::both(first, &none[..first.len()], to);
                    }
                }
                _ => R::both(rows.row(2 * pair), rows.row(2 * pair + 1), to),
            }
        }
    }
}

impl<E: Real> Kernel for Round<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        self.round::<Plain>();
    }
}

impl<E: Real> Kernel for PairRows<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        self.round::<Plain>();
    }
}

/// Numbers that are rounded already: no copy of them rounds.
struct Copied;

impl Rounds<u16> for Copied {
    #[inline(always)]
    fn each(x: &[u16], to: &mut [u16]) {
        // Chunks of a constant length are copied in registers. Rows of a head are short, and there are too many of them for calls of `memcpy`.
        let (chunks, rest) = x.as_chunks::<32>();
        let (to, to_rest) = to.as_chunks_mut();
        for (to, x) in to.iter_mut().zip(chunks) {
            *to = *x;
        }
        to_rest.copy_from_slice(rest);
    }

    /// A plain loop, which the compiler vectorises.
    #[inline(always)]
    fn both(first: &[u16], second: &[u16], to: &mut [Pair]) {
        for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
            *to = Pair::of_bits([*first, *second]);
        }
    }
}

/// A copy of numbers that are rounded already.
struct CopyOf<T>(T);

impl<T: Rounding<u16>> Kernel for CopyOf<T> {
    type Element = f32;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        self.0.round::<Copied>();
    }
}

/// [`Bf16Rows::pair_rows`] of rows that [`Bf16Rows::round_rows`] wrote.
///
/// # Panics
/// As [`Bf16Rows::pair_rows`].
#[track_caller]
pub fn pair_rounded_rows(rows: Matrix<'_, u16>, to: MatrixMut<'_, Pair>) {
    run(CopyOf(PairRows { rows, to }));
}

/// [`Bf16Rows::pair_columns`] of rows that [`Bf16Rows::round_rows`] wrote.
///
/// # Panics
/// As [`Bf16Rows::pair_columns`].
#[track_caller]
pub fn pair_rounded_columns(rows: Matrix<'_, u16>, to: MatrixMut<'_, Pair>) {
    let to = columns_of_pairs(&rows, to);
    run(CopyOf(Round { rows, to }));
}

/// Rounds `f32`, with the instruction if the machine has it.
fn round<T: Rounding<f32> + Kernel<Element = f32, Output = ()>>(rounding: T) {
    #[cfg(target_arch = "x86_64")]
    if Isa::current().has_avx512() && is_x86_feature_detected!("avx512bf16") {
        // SAFETY: the line above has checked the machine.
        return unsafe { instruction::round(rounding) };
    }
    run(rounding);
}

/// [`Bf16Rows::widen_rows`]
struct Widen<'a, E> {
    rows: Matrix<'a, u16>,
    to: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Widen<'_, E> {
    type Element = E;
    type Output = ();

    /// A plain loop, which the compiler vectorises.
    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        if self.rows.cols() == 0 {
            return;
        }
        for row in 0..self.to.rows() {
            for (to, half) in self.to.row_mut(row).iter_mut().zip(self.rows.row(row)) {
                *to = E::of_f32(widened(*half));
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod instruction {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_loadu_si512, _mm512_mask_storeu_epi16,
        _mm512_mask_storeu_epi32, _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16,
    };

    use super::{Pair, Rounding, Rounds};

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) fn round(rounding: impl Rounding<f32>) {
        rounding.round::<Convert>();
    }

    /// Numbers that the instruction rounds.
    struct Convert;

    /// The lanes of 16 bits that interleave those of two halves.
    const INTERLEAVED: [u16; 32] = {
        let mut lanes = [0; 32];
        let mut lane = 0;
        while lane < 32 {
            lanes[lane] = lane as u16 / 2 + if lane.is_multiple_of(2) { 0 } else { 16 };
            lane += 1;
        }
        lanes
    };

    /// A mask of the first lanes, of 32.
    #[inline(always)]
    fn first(count: usize) -> u32 {
        ((1_u64 << count.min(32)) - 1) as u32
    }

    /// The first 16 numbers, or all of fewer and zeros, of each: those of `a` in the lower half.
    #[inline(always)]
    fn convert(a: &[f32], b: &[f32]) -> __m512i {
        // SAFETY: see the head of the folder: `round` is the only user. No number behind the last one of a slice is read.
        unsafe {
            let [a, b] = [a, b].map(|x| _mm512_maskz_loadu_ps(first(x.len()) as u16, x.as_ptr()));
            std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(b, a))
        }
    }

    impl Rounds<f32> for Convert {
        #[inline(always)]
        fn each(x: &[f32], to: &mut [u16]) {
            for (to, x) in to.chunks_mut(32).zip(x.chunks(32)) {
                let (a, b) = x.split_at(x.len().min(16));
                let mask = first(to.len());
                // SAFETY: as above, and nothing behind the last number is written.
                unsafe { _mm512_mask_storeu_epi16(to.as_mut_ptr().cast(), mask, convert(a, b)) }
            }
        }

        #[inline(always)]
        fn both(first_row: &[f32], second_row: &[f32], to: &mut [Pair]) {
            // SAFETY: as above, and the lanes have the size of the register.
            let order = unsafe { _mm512_loadu_si512(INTERLEAVED.as_ptr().cast()) };
            let rows = first_row.chunks(16).zip(second_row.chunks(16));
            for (to, (a, b)) in to.chunks_mut(16).zip(rows) {
                let mask = first(to.len()) as u16;
                // SAFETY: as above, and nothing behind the last pair is written.
                unsafe {
                    let pairs = _mm512_permutexvar_epi16(order, convert(a, b));
                    _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), mask, pairs);
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::simd::Isa;

    /// Pseudorandom bits.
    pub(in crate::simd) fn bits(seed: u64) -> impl FnMut() -> u32 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32
        }
    }

    pub(in crate::simd) fn flushed(x: f32) -> f32 {
        match x.abs() < f32::MIN_POSITIVE {
            true => 0_f32.copysign(x),
            false => x,
        }
    }

    pub(in crate::simd) fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    #[test]
    fn numbers_are_rounded_to_the_nearest_even_one_and_subnormal_ones_to_0() {
        let mut bits = bits(1);
        let special = [0.0, -0.0, f32::INFINITY, f32::MAX, f32::MIN, 1e-40, -1e-40];
        let random = (0..100_000).map(|_| f32::from_bits(bits()));
        for x in special.into_iter().chain(random) {
            let given = x;
            let x = if x.is_nan() { x } else { flushed(x) };
            let upper = x.to_bits() & 0xffff_0000;
            let neighbours = [upper, upper.wrapping_add(0x1_0000)].map(f32::from_bits);
            let [first, second] = Pair::new(given, 1.0).numbers();
            assert_eq!(second, 1.0);
            if x.is_nan() {
                assert!(first.is_nan());
                continue;
            }
            // Behind the largest number is the next power of two.
            let value = |x: f32| match x.is_infinite() {
                true => 2_f64.powi(128).copysign(x.into()),
                false => x.into(),
            };
            let distances = neighbours.map(|near| (value(near) - f64::from(x)).abs());
            let is_odd = upper >> 16 & 1 == 1;
            let up = distances[1] < distances[0] || distances[1] == distances[0] && is_odd;
            let want = match x.is_infinite() {
                true => x,
                false => flushed(neighbours[usize::from(up)]),
            };
            assert!(same(first, want), "{x:e}: {first:e}, not {want:e}");
            assert_eq!(
                Pair::new(1.0, given).numbers()[1].to_bits(),
                first.to_bits()
            );
        }
    }

    /// All exponents, NaN and subnormal numbers among them, in rows and columns that fill no vector.
    #[test]
    fn rows_and_pairs_are_those_of_their_numbers_on_every_machine() {
        let mut bits = bits(5);
        let pair_of =
            |x: Option<&f32>, y: Option<&f32>| Pair::new(*x.unwrap_or(&0.0), *y.unwrap_or(&0.0)).0;
        for [rows, cols] in [[0, 3], [3, 0], [1, 1], [2, 16], [5, 37], [6, 64], [7, 131]] {
            let numbers: Vec<f32> = (0..rows * cols).map(|_| f32::from_bits(bits())).collect();
            let at = |i: usize, j: usize| {
                let is_inside = i < rows && j < cols;
                is_inside.then(|| &numbers[i * cols + j])
            };
            let x = Matrix::new(&numbers, rows, cols);
            for isa in Isa::available() {
                isa.force(|| {
                    let mut halves = vec![7; rows * cols];
                    f32::round_rows(x, MatrixMut::new(&mut halves, rows, cols));
                    for (half, x) in halves.iter().zip(&numbers) {
                        let want = pair_of(Some(x), None);
                        assert_eq!(u32::from(*half), want, "{rows} x {cols}, {isa}");
                    }
                    let halves = Matrix::new(&halves, rows, cols);
                    // A column and a row more than there are numbers for.
                    let [pairs, width] = [rows.div_ceil(2) + 1, cols + 1];
                    let mut got = [(); 2].map(|()| vec![Pair(7); pairs * width]);
                    let [rounds, copies] = got.each_mut();
                    f32::pair_rows(x, MatrixMut::new(rounds, pairs, width));
                    pair_rounded_rows(halves, MatrixMut::new(copies, pairs, width));
                    for (index, pair) in got.iter().flat_map(|got| got.iter().enumerate()) {
                        let [i, j] = [index / width, index % width];
                        let want = pair_of(at(2 * i, j), at(2 * i + 1, j));
                        assert_eq!(pair.0, want, "rows {rows} x {cols}, {isa}");
                    }
                    let width = cols.div_ceil(2);
                    let mut got = [(); 2].map(|()| vec![Pair(7); rows * width]);
                    let [rounds, copies] = got.each_mut();
                    f32::pair_columns(x, MatrixMut::new(rounds, rows, width));
                    pair_rounded_columns(halves, MatrixMut::new(copies, rows, width));
                    for (index, pair) in got.iter().flat_map(|got| got.iter().enumerate()) {
                        let [i, j] = [index / width, index % width];
                        let want = pair_of(at(i, 2 * j), at(i, 2 * j + 1));
                        assert_eq!(pair.0, want, "columns {rows} x {cols}, {isa}");
                    }
                    let mut wide = vec![7.0; rows * cols];
                    f32::widen_rows(halves, MatrixMut::new(&mut wide, rows, cols));
                    for (wide, half) in wide.iter().zip(halves.values()) {
                        assert_eq!(wide.to_bits(), u32::from(*half) << 16);
                    }
                });
            }
        }
    }
}
