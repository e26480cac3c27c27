//! Products of pairs of numbers in bf16, whose sums have the type of the result.
//!
//! ```text
//! sum ← sum + a₁ b₁, then sum ← sum + a₀ b₀     for the pairs (a₀, a₁) and (b₀, b₁) of two neighbouring depths
//! ```
//!
//! Each of the two steps is rounded once, to the nearest and to the even one of two, and a subnormal sum becomes 0. That is what `vdpbf16ps` of
//! AVX-512 BF16 computes. Other instruction sets compute the same bits with multiply-adds: the product of two numbers in bf16 is exact in `f32`,
//! unless it is too small or too large, and the sum is rounded once there, too. A number of a pair is never subnormal, because the instruction
//! reads 0 in place of such a number: [`Pair::new`] replaces it. `vcvtne2ps2bf16` rounds numbers in the same way.

#[cfg(target_arch = "x86_64")]
use super::Isa;
use super::panels::{Factors, Product};
use super::{Initial, Kernel, Matrix, MatrixMut, Panels, Real, Vector, prefetch, run};

/// Two numbers in bf16: those of two neighbouring depths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Pair(u32);

impl Pair {
    /// The pair of two numbers, each rounded to the nearest one in bf16, and to the even one of two. A subnormal one becomes 0.
    #[inline(always)]
    pub fn new(first: f32, second: f32) -> Self {
        Self(rounded(first) >> 16 | rounded(second))
    }

    /// Both numbers.
    #[inline(always)]
    pub fn numbers(self) -> [f32; 2] {
        [self.0 << 16, self.0 & 0xffff_0000].map(f32::from_bits)
    }

    /// Memory for as many pairs as numbers, whose contents are arbitrary.
    pub fn in_memory_of<E: Real>(numbers: &mut [E]) -> &mut [Self] {
        const { assert!(size_of::<E>() >= size_of::<Self>() && align_of::<E>() >= align_of::<Self>()) }
        // SAFETY: the size and alignment of a pair are at most those of a number, `f32` or `f64`, and all these types allow all bits.
        unsafe { std::slice::from_raw_parts_mut(numbers.as_mut_ptr().cast(), numbers.len()) }
    }

    /// The pairs in memory that was given to them by [`in_memory_of`](Self::in_memory_of). In other memory they are arbitrary.
    pub fn in_memory<E: Real>(numbers: &[E]) -> &[Self] {
        const { assert!(size_of::<E>() >= size_of::<Self>() && align_of::<E>() >= align_of::<Self>()) }
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(numbers.as_ptr().cast(), numbers.len()) }
    }

    /// Whether the first numbers of all pairs are finite, and whether the second ones are.
    pub fn are_finite(pairs: &[Self]) -> [bool; 2] {
        // An exponent of ones carries to the bit of the sign.
        let exponents = |pair: &Self| (pair.0 & 0x7f80_7f80) + 0x0080_0080;
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
        let all = numbers.numbers();
        // SAFETY: as above.
        let pairs = unsafe { std::slice::from_raw_parts(all.as_ptr().cast(), all.len()) };
        let (row_stride, col_stride) = numbers.strides();
        Matrix::strided(
            pairs,
            numbers.rows(),
            numbers.cols(),
            row_stride,
            col_stride,
        )
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

/// The sums of products of pairs.
pub trait PairSums: Real {
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

    /// [`multiply_panels`](super::multiply_panels) of pairs: a depth of `rows` and `columns` is that of two numbers. The panels have as many columns
    /// as those of the sums.
    ///
    /// The sums of `f32` have the same bits on every instruction set, but for the bits of a NaN.
    ///
    /// # Panics
    /// If there are too few panels, or pieces have other numbers of rows.
    #[track_caller]
    fn multiply_pairs(
        to: &mut [MatrixMut<'_, Self>],
        initial: Initial<'_, Self>,
        rows: Matrix<'_, Pair>,
        columns: Panels<'_, Pair>,
    );
}

impl PairSums for f32 {
    fn pair_rows(rows: Matrix<'_, f32>, to: MatrixMut<'_, Pair>) {
        round(PairRows { rows, to });
    }

    fn pair_columns(rows: Matrix<'_, f32>, to: MatrixMut<'_, Pair>) {
        round(PairColumns { rows, to });
    }

    fn multiply_pairs(
        to: &mut [MatrixMut<'_, f32>],
        initial: Initial<'_, f32>,
        rows: Matrix<'_, Pair>,
        columns: Panels<'_, Pair>,
    ) {
        multiply(Product::new(to, initial, rows, columns));
    }
}

impl PairSums for f64 {
    fn pair_rows(rows: Matrix<'_, f64>, to: MatrixMut<'_, Pair>) {
        run(PairRows { rows, to });
    }

    fn pair_columns(rows: Matrix<'_, f64>, to: MatrixMut<'_, Pair>) {
        run(PairColumns { rows, to });
    }

    fn multiply_pairs(
        to: &mut [MatrixMut<'_, f64>],
        initial: Initial<'_, f64>,
        rows: Matrix<'_, Pair>,
        columns: Panels<'_, Pair>,
    ) {
        run(Product::new(to, initial, rows, columns));
    }
}

/// The product of `f32`, with the instruction if the machine has it.
fn multiply(product: Product<'_, '_, f32, Pair>) {
    #[cfg(target_arch = "x86_64")]
    if Isa::current() == Isa::Avx512 && is_x86_feature_detected!("avx512bf16") {
        // SAFETY: the line above has checked the machine.
        return unsafe { dot::multiply(product) };
    }
    run(product);
}

impl<E: Real> Kernel for Product<'_, '_, E, Pair> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        self.multiply::<V, Halves>();
    }
}

/// Both numbers of a pair, in vectors of their own.
struct Halves;

impl<V: Vector> Factors<V> for Halves {
    type Number = Pair;
    type Lanes = [V; 2];

    #[inline(always)]
    fn splat(pair: Pair) -> [V; 2] {
        pair.numbers().map(|x| V::splat(V::Element::of_f32(x)))
    }

    #[inline(always)]
    fn load(from: &[Pair]) -> [V; 2] {
        let mut halves = [[V::Element::ZERO; 16]; 2];
        for (lane, pair) in from[..V::LANES].iter().enumerate() {
            let [first, second] = pair.numbers();
            halves[0][lane] = V::Element::of_f32(first);
            halves[1][lane] = V::Element::of_f32(second);
        }
        [V::load(&halves[0]), V::load(&halves[1])]
    }

    #[inline(always)]
    fn add_product(a: [V; 2], b: [V; 2], sum: V) -> V {
        let sum = without_subnormals(a[1].mul_add_once(b[1], sum));
        without_subnormals(a[0].mul_add_once(b[0], sum))
    }
}

#[inline(always)]
fn without_subnormals<V: Vector>(x: V) -> V {
    let least = V::splat(V::Element::MIN_POSITIVE);
    V::select(x.abs().lt(least), V::zero().copysign(x), x)
}

/// How numbers become pairs.
trait Rounds<E> {
    /// Pairs of the numbers of two rows. All slices have the same length.
    fn both(first: &[E], second: &[E], to: &mut [Pair]);

    /// Pairs of neighbouring numbers. Behind an odd number of them there is 0.
    fn neighbours(x: &[E], to: &mut [Pair]);
}

/// [`Pair::new`], in plain loops, which the compiler vectorises.
struct Plain;

impl<E: Real> Rounds<E> for Plain {
    #[inline(always)]
    fn both(first: &[E], second: &[E], to: &mut [Pair]) {
        for ((to, first), second) in to.iter_mut().zip(first).zip(second) {
            *to = Pair::new(first.nearest_f32(), second.nearest_f32());
        }
    }

    #[inline(always)]
    fn neighbours(x: &[E], to: &mut [Pair]) {
        for (to, pair) in to.iter_mut().zip(x.chunks_exact(2)) {
            *to = Pair::new(pair[0].nearest_f32(), pair[1].nearest_f32());
        }
        if let (Some(to), [last]) = (to.get_mut(x.len() / 2), x.chunks_exact(2).remainder()) {
            *to = Pair::new(last.nearest_f32(), 0.0);
        }
    }
}

/// How many rows ahead memory is asked for.
const AHEAD: usize = 16;

/// The numbers that a second row behind the last one has.
const NO_ROW: usize = 64;

/// A copy of numbers as pairs.
trait Rounding<E> {
    fn round<R: Rounds<E>>(self);
}

/// [`PairSums::pair_rows`]
struct PairRows<'a, E> {
    rows: Matrix<'a, E>,
    to: MatrixMut<'a, Pair>,
}

impl<E: Real> Rounding<E> for PairRows<'_, E> {
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
        let none = [E::ZERO; NO_ROW];
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

/// [`PairSums::pair_columns`]
struct PairColumns<'a, E> {
    rows: Matrix<'a, E>,
    to: MatrixMut<'a, Pair>,
}

impl<E: Real> Rounding<E> for PairColumns<'_, E> {
    #[inline(always)]
    fn round<R: Rounds<E>>(mut self) {
        assert!(
            self.rows.rows() == self.to.rows() && self.rows.cols().div_ceil(2) == self.to.cols(),
            "({} x {}) as ({} x {}) pairs",
            self.rows.rows(),
            self.rows.cols(),
            self.to.rows(),
            self.to.cols()
        );
        if self.rows.cols() == 0 {
            return;
        }
        for row in 0..self.to.rows() {
            R::neighbours(self.rows.row(row), self.to.row_mut(row));
        }
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

impl<E: Real> Kernel for PairColumns<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        self.round::<Plain>();
    }
}

/// Makes pairs of `f32`, with the instruction if the machine has it.
fn round<T: Rounding<f32> + Kernel<Element = f32, Output = ()>>(rounding: T) {
    #[cfg(target_arch = "x86_64")]
    if Isa::current() == Isa::Avx512 && is_x86_feature_detected!("avx512bf16") {
        // SAFETY: the line above has checked the machine.
        return unsafe { dot::round(rounding) };
    }
    run(rounding);
}

#[cfg(target_arch = "x86_64")]
mod dot {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_loadu_si512, _mm512_mask_storeu_epi32,
        _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16, _mm512_set1_epi32,
    };

    use super::super::avx512::F32x16;
    use super::{Factors, Pair, Product, Rounding, Rounds};

    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
    pub(super) fn multiply(product: Product<'_, '_, f32, Pair>) {
        product.multiply::<F32x16, Dot>();
    }

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

    /// A mask of the first lanes.
    #[inline(always)]
    fn first(count: usize) -> u16 {
        ((1_u32 << count.min(16)) - 1) as u16
    }

    /// The first 16 numbers, or all of fewer and zeros, of each: those of `a` in the lower half.
    #[inline(always)]
    fn convert(a: &[f32], b: &[f32]) -> __m512i {
        // SAFETY: see the head of the module: `round` is the only user. No number behind the last one of a slice is read.
        unsafe {
            let [a, b] = [a, b].map(|x| _mm512_maskz_loadu_ps(first(x.len()), x.as_ptr()));
            std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(b, a))
        }
    }

    /// Writes 16 pairs, or as many as there is room for.
    #[inline(always)]
    fn store(pairs: __m512i, to: &mut [Pair]) {
        // SAFETY: as above, and nothing behind the last pair is written.
        unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().cast(), first(to.len()), pairs) }
    }

    impl Rounds<f32> for Convert {
        #[inline(always)]
        fn both(first: &[f32], second: &[f32], to: &mut [Pair]) {
            // SAFETY: as above, and the lanes have the size of the register.
            let order = unsafe { _mm512_loadu_si512(INTERLEAVED.as_ptr().cast()) };
            let rows = first.chunks(16).zip(second.chunks(16));
            for (to, (first, second)) in to.chunks_mut(16).zip(rows) {
                // SAFETY: as above.
                let pairs = unsafe { _mm512_permutexvar_epi16(order, convert(first, second)) };
                store(pairs, to);
            }
        }

        #[inline(always)]
        fn neighbours(x: &[f32], to: &mut [Pair]) {
            for (to, x) in to.chunks_mut(16).zip(x.chunks(32)) {
                let (a, b) = x.split_at(x.len().min(16));
                store(convert(a, b), to);
            }
        }
    }

    /// Pairs as the instruction reads them.
    struct Dot;

    impl Factors<F32x16> for Dot {
        type Number = Pair;
        type Lanes = __m512i;

        #[inline(always)]
        fn splat(pair: Pair) -> __m512i {
            // SAFETY: see the head of the module: `multiply` is the only user.
            unsafe { _mm512_set1_epi32(pair.0 as i32) }
        }

        #[inline(always)]
        fn load(from: &[Pair]) -> __m512i {
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
    use crate::simd::{Isa, panel_columns, vector_columns};

    /// Pseudorandom bits.
    fn bits(seed: u64) -> impl FnMut() -> u32 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 16) as u32
        }
    }

    /// A number with one of some exponents.
    fn number(bits: &mut impl FnMut() -> u32, exponents: &[u32]) -> f32 {
        let exponent = exponents[bits() as usize % exponents.len()];
        f32::from_bits(bits() & 0x807f_ffff | exponent << 23)
    }

    fn flushed(x: f32) -> f32 {
        match x.abs() < f32::MIN_POSITIVE {
            true => 0_f32.copysign(x),
            false => x,
        }
    }

    /// The steps of the instruction, with a product and a sum that are exact in `f64` before the one rounding.
    fn reference(a: &[Pair], b: &[Pair]) -> f32 {
        let step = |sum: f32, a: f32, b: f32| {
            flushed((f64::from(a) * f64::from(b) + f64::from(sum)) as f32)
        };
        a.iter().zip(b).fold(0.0, |sum, (a, b)| {
            let [a, b] = [a.numbers(), b.numbers()];
            step(step(sum, a[1], b[1]), a[0], b[0])
        })
    }

    fn same(a: f32, b: f32) -> bool {
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
    fn pairs_of_matrices_are_those_of_their_numbers_on_every_machine() {
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
                    // A column and a row more than there are numbers for.
                    let [pairs, width] = [rows.div_ceil(2) + 1, cols + 1];
                    let mut got = vec![Pair(7); pairs * width];
                    f32::pair_rows(x, MatrixMut::new(&mut got, pairs, width));
                    for (index, pair) in got.iter().enumerate() {
                        let [i, j] = [index / width, index % width];
                        let want = pair_of(at(2 * i, j), at(2 * i + 1, j));
                        assert_eq!(pair.0, want, "rows {rows} x {cols}, {isa}");
                    }
                    let width = cols.div_ceil(2);
                    let mut got = vec![Pair(7); rows * width];
                    f32::pair_columns(x, MatrixMut::new(&mut got, rows, width));
                    for (index, pair) in got.iter().enumerate() {
                        let [i, j] = [index / width, index % width];
                        let want = pair_of(at(i, 2 * j), at(i, 2 * j + 1));
                        assert_eq!(pair.0, want, "columns {rows} x {cols}, {isa}");
                    }
                });
            }
        }
    }

    /// Sums that are small, large, subnormal and not finite, of rows and columns that fill no tile.
    #[test]
    fn products_are_those_of_the_instruction_on_every_machine() {
        let exponents: [&[u32]; 5] = [
            &[124, 125, 126, 127, 128],
            &[60, 61, 62, 63, 64],
            &[188, 189, 190, 191],
            &[0, 1, 2, 127, 252, 253],
            &[0, 127, 255],
        ];
        let width = panel_columns::<f32>();
        for (case, exponents) in exponents.into_iter().enumerate() {
            for [rows, depth, columns] in [[1, 1, 1], [7, 33, 17], [6, 16, 64], [13, 5, 100]] {
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
                let want: Vec<f32> = (0..rows * columns)
                    .map(|at| {
                        let row = &a[at / columns * depth..][..depth];
                        reference(row, &column(at % columns))
                    })
                    .collect();
                let check = |what: &str, multiply: &dyn Fn(Product<'_, '_, f32, Pair>)| {
                    let mut got = vec![f32::NAN; rows * columns];
                    let mut to = [MatrixMut::new(&mut got, rows, columns)];
                    let rows = Matrix::new(&a, rows, depth);
                    let columns = Panels::with_columns(&b, depth, width);
                    multiply(Product::new(&mut to, Initial::Zero, rows, columns));
                    for (got, want) in got.iter().zip(&want) {
                        assert!(
                            same(*got, *want),
                            "{what}, case {case}: {got:e}, not {want:e}"
                        );
                    }
                };
                for isa in Isa::available() {
                    isa.force(|| check(&isa.to_string(), &|product| multiply(product)));
                    // Without the instruction.
                    check(&isa.to_string(), &|product| isa.run(product));
                }
            }
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
                let panels = Panels::with_columns(&b, depth, width);
                f64::multiply_pairs(&mut to, Initial::Old, a_rows, panels);
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
