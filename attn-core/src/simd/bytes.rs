//! Products of signed and unsigned bytes, whose sums are exact: the same integers on every instruction set.
//!
//! ```text
//! sums[r][c][lane] = Σ_k x[r][k] w[c][k][lane]      x in -128..=127, w in 0..=255
//! ```
//!
//! Four depths of 16 columns stand in one cache line. `vpdpbusd` of AVX-512 VNNI multiplies such a line with four numbers of a row, and adds the
//! products to 16 sums of 32 bits. Other instruction sets run a plain loop, which the compiler vectorises.

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

/// The sums of `R` rows and `C` times 16 columns.
pub type ByteSums<const R: usize, const C: usize> = [[[i32; BYTE_COLUMNS]; C]; R];

/// The sums of the products of rows with columns, on the calling thread.
///
/// # Panics
/// If the depths of the rows and columns differ, or there are more than [`MOST_BYTE_DEPTHS`].
#[track_caller]
pub fn sums_of_bytes<const R: usize, const C: usize>(
    x: [&[SignedBytes]; R],
    w: [&[ByteLine]; C],
) -> ByteSums<R, C> {
    let depths = x.first().map_or(0, |x| x.len());
    assert!(
        depths <= MOST_BYTE_DEPTHS / BYTE_DEPTHS
            && x.iter().all(|x| x.len() == depths)
            && w.iter().all(|w| w.len() == depths),
        "rows and columns of one depth, at most {MOST_BYTE_DEPTHS}"
    );
    #[cfg(target_arch = "x86_64")]
    if super::Isa::current() == super::Isa::Avx512 && is_x86_feature_detected!("avx512vnni") {
        // SAFETY: the line above has checked the machine, the assertion the lengths.
        return unsafe { vnni::sums(x, w) };
    }
    run(Plain { x, w })
}

struct Plain<'a, const R: usize, const C: usize> {
    x: [&'a [SignedBytes]; R],
    w: [&'a [ByteLine]; C],
}

impl<const R: usize, const C: usize> Kernel for Plain<'_, R, C> {
    type Element = f32;
    type Output = ByteSums<R, C>;

    #[inline(always)]
    fn run<V: Vector<Element = f32>>(self) -> Self::Output {
        let mut sums = [[[0; BYTE_COLUMNS]; C]; R];
        // A sum of 16 columns stays in registers over all depths.
        for (x, sums) in self.x.iter().zip(&mut sums) {
            for (w, sums) in self.w.iter().zip(sums) {
                let mut of_columns = [0; BYTE_COLUMNS];
                for (x, ByteLine(line)) in x.iter().zip(*w) {
                    let x = x.map(i32::from);
                    for (sum, w) in of_columns.iter_mut().zip(line) {
                        let w = w.map(i32::from);
                        *sum += x[0] * w[0] + x[1] * w[1] + x[2] * w[2] + x[3] * w[3];
                    }
                }
                *sums = of_columns;
            }
        }
        sums
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use std::arch::x86_64::*;

    use super::{ByteLine, ByteSums, SignedBytes};

    /// # Safety
    /// All slices must have one length.
    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) unsafe fn sums<const R: usize, const C: usize>(
        x: [&[SignedBytes]; R],
        w: [&[ByteLine]; C],
    ) -> ByteSums<R, C> {
        let depths = x.first().map_or(0, |x| x.len());
        let mut sums = [[_mm512_setzero_si512(); C]; R];
        for k in 0..depths {
            // SAFETY: each of `w` has `depths` lines, which have the size and alignment of the register.
            let lines = w.map(|w| unsafe { _mm512_load_si512(w.as_ptr().add(k).cast()) });
            for (x, sums) in x.iter().zip(&mut sums) {
                // SAFETY: each of `x` has `depths` numbers.
                let x = unsafe { x.get_unchecked(k) };
                let x = _mm512_set1_epi32(i32::from_ne_bytes(x.map(|x| x as u8)));
                for (line, sum) in lines.iter().zip(sums) {
                    *sum = _mm512_dpbusd_epi32(*sum, *line, x);
                }
            }
        }
        let mut stored = [[[0; super::BYTE_COLUMNS]; C]; R];
        for (sums, stored) in sums.iter().zip(&mut stored) {
            for (sum, stored) in sums.iter().zip(stored) {
                // SAFETY: 16 integers of 32 bits have the size of the register.
                unsafe { _mm512_storeu_si512(stored.as_mut_ptr().cast(), *sum) };
            }
        }
        stored
    }
}
