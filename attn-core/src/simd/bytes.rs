//! Products of rows of 16 bits with columns of 8 bits. The sums are exact: the same integers on every instruction set.
//!
//! ```text
//! y[r][c][lane] = (256 (a[r] + Σ_k high[r][k] w[c][k][lane]) + (b[r] + Σ_k low[r][k] w[c][k][lane])) scale[r] scale[c][lane]
//! ```
//!
//! A number of a row is two bytes, `256 high + low`, both in -128..=127. Bytes of columns are in 0..=255. The sums begin with `a` and `b`. Four depths of 16 columns stand in one cache line. `vpdpbusd` of AVX-512 VNNI multiplies
//! such a line with four numbers of a row, and adds the products to 16 sums of 32 bits. AVX2 multiplies 16 numbers of 16 bits, and adds two products.
//! Other instruction sets run a plain loop, which the compiler vectorises. Each operation on the sums is rounded on its own.

use super::{Kernel, Vector, run};

/// The columns of a [`ByteLine`].
pub const BYTE_COLUMNS: usize = 16;

/// The depths of a [`ByteLine`].
pub const BYTE_DEPTHS: usize = 4;

/// The most depths whose sums fit into 32 bits: a product is at most 128 times 255.
pub const MOST_BYTE_DEPTHS: usize = 1 << 16;

/// Four depths of 16 columns: a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct ByteLine(pub [[u8; BYTE_DEPTHS]; BYTE_COLUMNS]);

/// Four depths of a row.
pub type SignedBytes = [i8; BYTE_DEPTHS];

/// Rows of numbers `(256 high + low) scale`.
#[derive(Clone, Copy, Debug)]
pub struct ByteRows<'a> {
    /// `[rows, 2, depths]`: the high bytes of each row, then its low bytes.
    pub bytes: &'a [SignedBytes],
    /// `[rows]`: the initial values of the sums of the high bytes and of the low bytes.
    pub initial: &'a [[i32; 2]],
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
/// If there are not so many rows and panels, of one depth, which is at most [`MOST_BYTE_DEPTHS`].
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
    #[cfg(target_arch = "x86_64")]
    match super::Isa::current() {
        super::Isa::Avx512 if is_x86_feature_detected!("avx512vnni") => {
            // SAFETY: the line above has checked the machine, the assertion the lengths.
            return unsafe { vnni::multiply(product) };
        }
        super::Isa::Avx2 | super::Isa::Avx512 => {
            // SAFETY: a machine with one of these has AVX2.
            return unsafe { avx2::multiply(product) };
        }
        _ => {}
    }
    run(product);
}

struct Product<'a, const R: usize, const C: usize> {
    depths: usize,
    /// `[R, 2, depths]`
    bytes: &'a [SignedBytes],
    /// `[C, depths]`
    lines: &'a [ByteLine],
    initial: &'a [[i32; 2]; R],
    row_scales: &'a [f32; R],
    column_scales: &'a [[f32; BYTE_COLUMNS]; C],
    to: &'a mut [[[f32; BYTE_COLUMNS]; C]; R],
}

impl<const R: usize, const C: usize> Kernel for Product<'_, R, C> {
    type Element = f32;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) {
        self.multiply(|lines, bytes, initial| {
            [0, 1].map(|which| sums(bytes[which], lines, initial[which]))
        });
    }
}

impl<const R: usize, const C: usize> Product<'_, R, C> {
    /// The products, from the sums of lines with the high and the low bytes of a row.
    #[inline(always)]
    fn multiply(
        self,
        sums: impl Fn(&[ByteLine], [&[SignedBytes]; 2], [i32; 2]) -> [[i32; BYTE_COLUMNS]; 2],
    ) {
        for (r, to) in self.to.iter_mut().enumerate() {
            let (high, low) = self.bytes[2 * r * self.depths..].split_at(self.depths);
            for (c, to) in to.iter_mut().enumerate() {
                let lines = &self.lines[c * self.depths..][..self.depths];
                let [high, low] = sums(lines, [high, &low[..self.depths]], self.initial[r]);
                for (lane, to) in to.iter_mut().enumerate() {
                    let sum = high[lane] as f32 * 256.0 + low[lane] as f32;
                    *to = sum * (self.row_scales[r] * self.column_scales[c][lane]);
                }
            }
        }
    }
}

/// Sums of 16 columns, which stay in registers over all depths.
#[inline(always)]
fn sums(x: &[SignedBytes], lines: &[ByteLine], initial: i32) -> [i32; BYTE_COLUMNS] {
    let mut sums = [initial; BYTE_COLUMNS];
    for (x, ByteLine(line)) in x.iter().zip(lines) {
        let x = x.map(i32::from);
        for (sum, w) in sums.iter_mut().zip(line) {
            let w = w.map(i32::from);
            // The sum may wrap before the last depth, and is exact behind it. With a check for overflow, the loop would not be vectorised.
            *sum = sum.wrapping_add(x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3]);
        }
    }
    sums
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{BYTE_COLUMNS, ByteLine, Product, SignedBytes};

    /// # Safety
    /// The machine must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn multiply<const R: usize, const C: usize>(of: Product<'_, R, C>) {
        // SAFETY: the caller's.
        of.multiply(|lines, bytes, initial| unsafe { sums(lines, bytes, initial) });
    }

    /// Four depths of a row for each of four columns. A function, as closures of `map` may stay calls.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn repeated([a, b, c, d]: SignedBytes) -> __m256i {
        let depths = i32::from_ne_bytes([a as u8, b as u8, c as u8, d as u8]);
        _mm256_cvtepi8_epi16(_mm_set1_epi32(depths))
    }

    /// A register has four depths of four columns, in 16 bits, and two sums of each of these columns, which are added at the end.
    ///
    /// # Safety
    /// The machine must have AVX2.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sums(
        lines: &[ByteLine],
        [high, low]: [&[SignedBytes]; 2],
        initial: [i32; 2],
    ) -> [[i32; BYTE_COLUMNS]; 2] {
        let mut sums = [[_mm256_setzero_si256(); 4]; 2];
        for ((line, high), low) in lines.iter().zip(high).zip(low) {
            let rows = [repeated(*high), repeated(*low)];
            for (at, columns) in line.0.as_chunks::<4>().0.iter().enumerate() {
                // SAFETY: four columns of four depths are 16 bytes.
                let columns = unsafe { _mm_loadu_si128(columns.as_ptr().cast()) };
                let columns = _mm256_cvtepu8_epi16(columns);
                for (row, sums) in rows.iter().zip(&mut sums) {
                    sums[at] = _mm256_add_epi32(sums[at], _mm256_madd_epi16(columns, *row));
                }
            }
        }
        let mut to = [[0; BYTE_COLUMNS]; 2];
        for ((to, sums), initial) in to.iter_mut().zip(sums).zip(initial) {
            for (to, sums) in to.chunks_mut(4).zip(sums) {
                let mut halves = [0_i32; 8];
                // SAFETY: eight sums of 32 bits have the size of the register.
                unsafe { _mm256_storeu_si256(halves.as_mut_ptr().cast(), sums) };
                for (to, [first, second]) in to.iter_mut().zip(halves.as_chunks().0) {
                    *to = initial.wrapping_add(*first).wrapping_add(*second);
                }
            }
        }
        to
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    use super::Product;

    /// # Safety
    /// There must be `2 R depths` bytes of rows and `C depths` lines.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn multiply<const R: usize, const C: usize>(of: Product<'_, R, C>) {
        let depths = of.depths;
        let mut sums = [[[_mm512_setzero_si512(); C]; 2]; R];
        for (initial, sums) in of.initial.iter().zip(&mut sums) {
            for (initial, sums) in initial.iter().zip(sums) {
                *sums = [_mm512_set1_epi32(*initial); C];
            }
        }
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
        for (r, to) in of.to.iter_mut().enumerate() {
            let scale = _mm512_set1_ps(of.row_scales[r]);
            for (c, to) in to.iter_mut().enumerate() {
                let [high, low] = [sums[r][0][c], sums[r][1][c]].map(|sum| _mm512_cvtepi32_ps(sum));
                let sum = _mm512_add_ps(_mm512_mul_ps(high, _mm512_set1_ps(256.0)), low);
                // SAFETY: 16 numbers have the size of the register.
                let scales = unsafe { _mm512_loadu_ps(of.column_scales[c].as_ptr()) };
                let product = _mm512_mul_ps(sum, _mm512_mul_ps(scale, scales));
                // SAFETY: as above.
                unsafe { _mm512_storeu_ps(to.as_mut_ptr(), product) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Isa;

    /// The sum of two neighbouring products does not fit 16 bits, and that of all depths just fits 32.
    #[test]
    fn sums_of_the_largest_bytes_are_exact() {
        for depths in [1, 3, MOST_BYTE_DEPTHS / BYTE_DEPTHS] {
            let count = (BYTE_DEPTHS * depths) as i64;
            let lines = vec![ByteLine([[255; BYTE_DEPTHS]; BYTE_COLUMNS]); depths];
            let scales = [[1.0; BYTE_COLUMNS]];
            for (high, low) in [(127, -128), (-128, 127)] {
                let bytes = [[high; BYTE_DEPTHS], [low; BYTE_DEPTHS]].map(|x| vec![x; depths]);
                let initial = [high, low].map(|x| (-128 * count * i64::from(x)) as i32);
                let rows = ByteRows {
                    bytes: &bytes.concat(),
                    initial: &[initial],
                    scales: &[1.0],
                };
                let panels = BytePanels {
                    lines: &lines,
                    scales: &scales,
                };
                let sum = |x: i8| (count * i64::from(x) * (255 - 128)) as f32;
                let want = sum(high) * 256.0 + sum(low);
                for isa in Isa::available() {
                    let mut to = [[[f32::NAN; BYTE_COLUMNS]]];
                    isa.force(|| multiply_bytes(rows, panels, &mut to));
                    assert_eq!(to, [[[want; BYTE_COLUMNS]]], "{depths} depths on {isa}");
                }
            }
        }
    }
}
