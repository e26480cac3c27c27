//! Products of rows of 16 bits with columns of 8 bits. The sums are exact: the same integers on every instruction set.
//!
//! ```text
//! y[r][c][lane] = (initial[r] + Σ_k x[r][k] w[c][k][lane]) (scale[r] scale[c][lane])     the first factor rounded to f32
//! ```
//!
//! Bytes of columns are in 0..=255. Four depths of 16 columns stand in one cache line. A number of a row is two bytes, which stand as the
//! instruction set multiplies them ([`RowForm`]): `vpdpbusd` of AVX-512 VNNI multiplies a line with four bytes of a row, and adds the products to 16
//! sums of 32 bits. It multiplies the high and the low bytes on their own. AVX2 multiplies 16 numbers of 16 bits, and adds two products, with AVX-VNNI to
//! their sum. A tile of AMX has 16 lines, or 64 bytes of each of 16 rows, and one instruction multiplies both. Other instruction sets run a plain loop, which the compiler vectorises.

use super::{Isa, Kernel, Vector, run};

/// The columns of a [`ByteLine`].
pub const BYTE_COLUMNS: usize = 16;

/// The depths of a [`ByteLine`].
pub const BYTE_DEPTHS: usize = 4;

/// The rows of a block of AMX tiles: the high bytes of a row are a row of a tile, and its low bytes the next one.
pub const BYTE_TILE_ROWS: usize = 16;

/// The most depths: the sums of so many bytes of a row, and their products, fit into 32 bits. A product is at most 128 times 255.
pub const MOST_BYTE_DEPTHS: usize = 1 << 16;

/// Four depths of 16 columns: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct ByteLine(pub [[u8; BYTE_DEPTHS]; BYTE_COLUMNS]);

/// Four bytes of a row.
pub type RowBytes = [i8; BYTE_DEPTHS];

/// Where the two bytes of the numbers of a row stand.
#[derive(Clone, Copy, Debug, Default)]
pub enum RowForm {
    /// `[2, depths]`: the high bytes of all numbers, then their low bytes. A number is `256 high + low`, with both in -128..=127.
    Apart,
    /// `[depths, 2]`: those of a number side by side, as an `i16` of the machine.
    #[default]
    Whole,
}

impl RowForm {
    /// The form that [`multiply_bytes`] reads on the instruction set in use.
    #[inline]
    pub fn current() -> Self {
        #[cfg(target_arch = "x86_64")]
        if Isa::current().has_avx512() && is_x86_feature_detected!("avx512vnni") {
            return Self::Apart;
        }
        Self::Whole
    }
}

/// Whether [`multiply_bytes`] of [`BYTE_TILE_ROWS`] rows uses tiles.
#[inline]
pub fn has_byte_tiles() -> bool {
    Isa::current() == Isa::Amx
}

/// Rows of numbers of 16 bits, each with a scale.
#[derive(Clone, Copy, Debug)]
pub struct ByteRows<'a> {
    /// `[rows, 2 depths]`: the bytes of each row.
    pub bytes: &'a [RowBytes],
    /// Where they stand.
    pub form: RowForm,
    /// `[rows]`: integers, to which the products are added.
    pub initial: &'a [f64],
    /// `[rows]`: the scale of each row.
    pub scales: &'a [f32],
}

/// Panels of 16 columns, with all depths.
#[derive(Clone, Copy, Debug)]
pub struct BytePanels<'a> {
    /// `[panels, depths]`: the bytes.
    pub lines: &'a [ByteLine],
    /// `[panels]`: the scale of each column.
    pub scales: &'a [[f32; BYTE_COLUMNS]],
}

/// The products of `R` rows with `C` panels, on the calling thread.
///
/// # Panics
/// If there are not so many rows and panels, of one depth, which is at most [`MOST_BYTE_DEPTHS`], or the machine does not multiply rows of this form.
#[inline(always)]
#[track_caller]
pub fn multiply_bytes<const R: usize, const C: usize>(
    rows: ByteRows<'_>,
    panels: BytePanels<'_>,
    to: &mut [[[f32; BYTE_COLUMNS]; C]; R],
) {
    let depths = rows.bytes.len() / (2 * R);
    let (Ok(initial), Ok(row_scales), Ok(column_scales)) = (
        rows.initial.try_into(),
        rows.scales.try_into(),
        panels.scales.try_into(),
    ) else {
        panic!("a scale for each of {R} rows and {C} panels");
    };
    assert!(
        depths <= MOST_BYTE_DEPTHS / BYTE_DEPTHS
            && rows.bytes.len() == 2 * R * depths
            && panels.lines.len() == C * depths,
        "rows and panels of one depth, at most {MOST_BYTE_DEPTHS}"
    );
    let product = Product {
        depths,
        bytes: rows.bytes,
        lines: panels.lines,
        initial,
        row_scales,
        column_scales,
        to,
    };
    match rows.form {
        #[cfg(target_arch = "x86_64")]
        RowForm::Apart if R == BYTE_TILE_ROWS && has_byte_tiles() => {
            // SAFETY: the line above has checked the machine, the assertion the lengths.
            unsafe { super::amx::multiply_bytes(product) }
        }
        #[cfg(target_arch = "x86_64")]
        RowForm::Apart if is_x86_feature_detected!("avx512vnni") => {
            // SAFETY: the line above has checked the machine, the assertion the lengths.
            unsafe { avx512::multiply(product) }
        }
        RowForm::Apart => panic!("only AVX-512 VNNI multiplies bytes that stand apart"),
        #[cfg(target_arch = "x86_64")]
        RowForm::Whole if Isa::current() != Isa::Scalar => {
            // SAFETY: a machine with vectors has AVX2. The assertion has checked the lengths.
            unsafe { avx2::multiply(product) }
        }
        RowForm::Whole => run(product),
    }
}

pub(super) struct Product<'a, const R: usize, const C: usize> {
    pub(super) depths: usize,
    /// `[R, 2 depths]`
    pub(super) bytes: &'a [RowBytes],
    /// `[C, depths]`
    pub(super) lines: &'a [ByteLine],
    initial: &'a [f64; R],
    row_scales: &'a [f32; R],
    column_scales: &'a [[f32; BYTE_COLUMNS]; C],
    to: &'a mut [[[f32; BYTE_COLUMNS]; C]; R],
}

impl<const R: usize, const C: usize> Product<'_, R, C> {
    /// Writes the products of all rows with a panel: their sums, without the initial numbers and the scales.
    #[inline(always)]
    fn write(&mut self, panel: usize, sums: &[[f64; BYTE_COLUMNS]; R]) {
        for (r, sums) in sums.iter().enumerate() {
            let to = self.to[r][panel].iter_mut();
            let scales = &self.column_scales[panel];
            for ((to, sum), scale) in to.zip(sums).zip(scales) {
                *to = (self.initial[r] + sum) as f32 * (self.row_scales[r] * scale);
            }
        }
    }
}

impl<const R: usize, const C: usize> Kernel for Product<'_, R, C> {
    type Element = f32;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(mut self) {
        for c in 0..C {
            let lines = &self.lines[c * self.depths..][..self.depths];
            let mut sums = [[0.0; BYTE_COLUMNS]; R];
            for (r, sums) in sums.iter_mut().enumerate() {
                let row = &self.bytes[2 * r * self.depths..][..2 * self.depths];
                add_products(row, lines, sums);
            }
            self.write(c, &sums);
        }
    }
}

/// Adds the products of a row, in the [whole form](RowForm::Whole), with a panel.
#[inline(always)]
fn add_products(row: &[RowBytes], lines: &[ByteLine], to: &mut [f64; BYTE_COLUMNS]) {
    /// The lines whose sums fit into 32 bits: their products are below 2^15 times 255.
    const LINES: usize = 64;
    for (row, lines) in row.chunks(2 * LINES).zip(lines.chunks(LINES)) {
        let mut sums = [0_i32; BYTE_COLUMNS];
        for (x, ByteLine(line)) in row.as_chunks::<2>().0.iter().zip(lines) {
            let x = numbers(*x).map(i32::from);
            for (sum, w) in sums.iter_mut().zip(line) {
                let w = w.map(i32::from);
                // Nothing wraps: with a check for that, the loop would not be vectorised.
                *sum = sum.wrapping_add(x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3]);
            }
        }
        for (to, sum) in to.iter_mut().zip(sums) {
            *to += f64::from(sum);
        }
    }
}

/// Four numbers of a row, from the [whole form](RowForm::Whole).
#[inline(always)]
fn numbers([[a, b, c, d], [e, f, g, h]]: [RowBytes; 2]) -> [i16; BYTE_DEPTHS] {
    [[a, b], [c, d], [e, f], [g, h]].map(|bytes| i16::from_ne_bytes(bytes.map(|x| x as u8)))
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::{arch::x86_64::*, mem};

    use super::{BYTE_COLUMNS, ByteLine, Product, RowBytes};

    /// The lines whose sums fit into 32 bits: two products of each are added to a sum, each below 2^15 times 255.
    const LINES: usize = 128;

    /// The columns of a line in a register.
    const COLUMNS: usize = 4;

    /// # Safety
    /// The machine must have AVX2. There must be `2 R depths` bytes of rows and `C depths` lines.
    pub(super) unsafe fn multiply<const R: usize, const C: usize>(of: Product<'_, R, C>) {
        // SAFETY: the caller's, and the match checks the machine.
        match is_x86_feature_detected!("avxvnni") {
            true => unsafe { with_vnni(of) },
            false => unsafe { without_vnni(of) },
        }
    }

    /// # Safety
    /// The machine must have AVX2 and AVX-VNNI. The lengths are those of [`multiply`].
    #[target_feature(enable = "avx2,avxvnni")]
    unsafe fn with_vnni<const R: usize, const C: usize>(of: Product<'_, R, C>) {
        // SAFETY: the caller's.
        unsafe { panels::<Vnni, R, C>(of) };
    }

    /// # Safety
    /// The machine must have AVX2. The lengths are those of [`multiply`].
    #[target_feature(enable = "avx2")]
    unsafe fn without_vnni<const R: usize, const C: usize>(of: Product<'_, R, C>) {
        // SAFETY: the caller's.
        unsafe { panels::<Plain, R, C>(of) };
    }

    /// The products of 16 numbers of 16 bits, in pairs, which are added to 8 sums of 32 bits.
    trait Dot {
        /// # Safety
        /// The machine must have the instructions.
        unsafe fn add(sums: __m256i, columns: __m256i, row: __m256i) -> __m256i;
    }

    struct Plain;

    impl Dot for Plain {
        #[inline(always)]
        unsafe fn add(sums: __m256i, columns: __m256i, row: __m256i) -> __m256i {
            // SAFETY: the caller's.
            unsafe { _mm256_add_epi32(sums, _mm256_madd_epi16(columns, row)) }
        }
    }

    struct Vnni;

    impl Dot for Vnni {
        #[inline(always)]
        unsafe fn add(sums: __m256i, columns: __m256i, row: __m256i) -> __m256i {
            // SAFETY: the caller's.
            unsafe { _mm256_dpwssd_avx_epi32(sums, columns, row) }
        }
    }

    /// # Safety
    /// The machine must have the instructions of `D`. The lengths are those of [`multiply`].
    #[inline(always)]
    unsafe fn panels<D: Dot, const R: usize, const C: usize>(mut of: Product<'_, R, C>) {
        let depths = of.depths;
        for c in 0..C {
            let mut totals = [[0.0; BYTE_COLUMNS]; R];
            for first in (0..depths).step_by(LINES) {
                let count = LINES.min(depths - first);
                let lines = &of.lines[c * depths + first..][..count];
                // SAFETY: the last row has so many bytes, and the others as many.
                let sums = unsafe {
                    let rows = of.bytes.as_ptr().add(2 * first);
                    sums::<D, R>(lines, rows, 2 * depths)
                };
                for (at, sums) in sums.into_iter().enumerate() {
                    for (totals, sums) in totals.iter_mut().zip(sums) {
                        // SAFETY: eight sums of 32 bits have the size of the register.
                        let sums: [[i32; 2]; COLUMNS] = unsafe { mem::transmute(sums) };
                        let totals = &mut totals.as_chunks_mut::<COLUMNS>().0[at];
                        for (total, [first, second]) in totals.iter_mut().zip(sums) {
                            *total += f64::from(first) + f64::from(second);
                        }
                    }
                }
            }
            of.write(c, &totals);
        }
    }

    /// The products of rows, which are `stride` apart, with lines: two sums for each column.
    ///
    /// # Safety
    /// The machine must have the instructions of `D`, and each row two `RowBytes` for each line.
    #[inline(always)]
    unsafe fn sums<D: Dot, const R: usize>(
        lines: &[ByteLine],
        rows: *const RowBytes,
        stride: usize,
    ) -> [[__m256i; R]; BYTE_COLUMNS / COLUMNS] {
        // SAFETY: the caller's, and four columns of a line are 16 bytes.
        unsafe {
            let mut sums = [[_mm256_setzero_si256(); R]; _];
            for (k, line) in lines.iter().enumerate() {
                let mut numbers = [_mm256_setzero_si256(); R];
                for (r, numbers) in numbers.iter_mut().enumerate() {
                    let four = rows.add(r * stride + 2 * k).cast::<i64>();
                    *numbers = _mm256_set1_epi64x(four.read_unaligned());
                }
                for (sums, columns) in sums.iter_mut().zip(line.0.as_chunks::<COLUMNS>().0) {
                    let columns = _mm_loadu_si128(columns.as_ptr().cast());
                    let columns = _mm256_cvtepu8_epi16(columns);
                    for (sums, numbers) in sums.iter_mut().zip(numbers) {
                        *sums = D::add(*sums, columns, numbers);
                    }
                }
            }
            sums
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::{arch::x86_64::*, hint::black_box};

    use super::Product;

    /// # Safety
    /// The machine must have AVX-512 VNNI. There must be `2 R depths` bytes of rows and `C depths` lines.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn multiply<const R: usize, const C: usize>(mut of: Product<'_, R, C>) {
        let depths = of.depths;
        // The sums of a row: those of its high bytes, and of its low bytes.
        let mut sums = [[[_mm512_setzero_si512(); C]; 2]; R];
        for k in 0..depths {
            let mut lines = [_mm512_setzero_si512(); C];
            for (c, line) in lines.iter_mut().enumerate() {
                // SAFETY: this line is one of `C depths`, which have the size and alignment of the register.
                *line = unsafe { _mm512_load_si512(of.lines.as_ptr().add(c * depths + k).cast()) };
            }
            for (index, sums) in sums.as_flattened_mut().iter_mut().enumerate() {
                // SAFETY: these bytes are some of `2 R depths`.
                let x = unsafe { of.bytes.get_unchecked(index * depths + k) };
                let x = _mm512_set1_epi32(i32::from_ne_bytes(x.map(|x| x as u8)));
                for (line, sum) in lines.iter().zip(sums) {
                    *sum = _mm512_dpbusd_epi32(*sum, *line, x);
                }
            }
        }
        // A loop that is not unrolled reads the sums from memory. It reads a copy, so that the sums themselves stay in registers above.
        for (r, sums) in black_box(sums).iter().enumerate() {
            for (c, (high, low)) in sums[0].iter().zip(&sums[1]).enumerate() {
                of.write_sums(r, c, [*high, *low]);
            }
        }
    }

    impl<const R: usize, const C: usize> Product<'_, R, C> {
        /// Writes the products of a row with a panel: the sums of its high bytes, and of its low ones.
        #[inline]
        #[target_feature(enable = "avx512f")]
        pub(in super::super) fn write_sums(
            &mut self,
            r: usize,
            c: usize,
            [high, low]: [__m512i; 2],
        ) {
            let scale = _mm512_set1_ps(self.row_scales[r]);
            let sum = rounded(high, low, self.initial[r]);
            // SAFETY: 16 numbers have the size of the register.
            let scales = unsafe { _mm512_loadu_ps(self.column_scales[c].as_ptr()) };
            let product = _mm512_mul_ps(sum, _mm512_mul_ps(scale, scales));
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(self.to[r][c].as_mut_ptr(), product) };
        }
    }

    /// `256 high + low + initial`, which is exact in `f64`, rounded once.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn rounded(high: __m512i, low: __m512i, initial: f64) -> __m512 {
        let half = |high: __m256i, low: __m256i| {
            let low = _mm512_add_pd(_mm512_cvtepi32_pd(low), _mm512_set1_pd(initial));
            let high = _mm512_cvtepi32_pd(high);
            let sum = _mm512_fmadd_pd(high, _mm512_set1_pd(256.0), low);
            _mm256_castps_pd(_mm512_cvtpd_ps(sum))
        };
        let first = half(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low));
        let second = half(
            _mm512_extracti64x4_epi64::<1>(high),
            _mm512_extracti64x4_epi64::<1>(low),
        );
        let both = _mm512_insertf64x4::<1>(_mm512_castpd256_pd512(first), second);
        _mm512_castpd_ps(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The products of `R` such rows with a panel.
    fn products<const R: usize>(number: [i8; 2], lines: &[ByteLine], initial: f64) -> Vec<f32> {
        let rows = ByteRows {
            bytes: &row_of(number, lines.len()).repeat(R),
            form: RowForm::current(),
            initial: &[initial; R],
            scales: &[1.0; R],
        };
        let panels = BytePanels {
            lines,
            scales: &[[1.0; BYTE_COLUMNS]],
        };
        let mut to = [[[f32::NAN; BYTE_COLUMNS]]; R];
        multiply_bytes(rows, panels, &mut to);
        to.as_flattened().as_flattened().to_vec()
    }

    /// A row of so many equal numbers, `256 high + low`.
    fn row_of([high, low]: [i8; 2], depths: usize) -> Vec<RowBytes> {
        match RowForm::current() {
            RowForm::Apart => [high, low].map(|x| vec![[x; BYTE_DEPTHS]; depths]).concat(),
            RowForm::Whole => {
                let number = 256 * i16::from(high) + i16::from(low);
                let [a, b] = number.to_ne_bytes().map(|x| x as i8);
                vec![[a, b, a, b]; 2 * depths]
            }
        }
    }

    /// The sums of some lines just fit 32 bits, and that of all does not.
    #[test]
    fn sums_of_the_largest_bytes_are_exact() {
        for depths in [1, 3, 64, 65, 128, 129, MOST_BYTE_DEPTHS / BYTE_DEPTHS] {
            let count = (BYTE_DEPTHS * depths) as i64;
            let lines = vec![ByteLine([[255; BYTE_DEPTHS]; BYTE_COLUMNS]); depths];
            for [high, low] in [[127, 127], [-127, -128]] {
                let number = 256 * i64::from(high) + i64::from(low);
                let initial = -128 * count * number;
                // The sum is an exact integer, which is rounded once.
                let want = (count * number * (255 - 128)) as f32;
                for isa in Isa::available() {
                    isa.force(|| {
                        let initial = initial as f64;
                        let one = products::<1>([high, low], &lines, initial);
                        assert_eq!(one, [want; BYTE_COLUMNS], "{depths} depths on {isa}");
                        let all = products::<BYTE_TILE_ROWS>([high, low], &lines, initial);
                        assert!(
                            all.iter().all(|sum| *sum == want),
                            "{depths} depths of tiles on {isa}"
                        );
                    });
                }
            }
        }
    }
}
