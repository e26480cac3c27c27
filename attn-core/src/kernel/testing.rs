//! Helpers of the tests of kernels.

use super::Real;
use crate::simd::Isa;
pub(super) use support::{
    close::{
        Tolerance::{Absolute, OfEach},
        assert_close,
    },
    differences::{STEP, slope, slopes},
};

/// Lengths around every number of lanes, and around blocks of four vectors.
pub(super) const LENGTHS: [usize; 18] = [
    0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129,
];

/// Numbers between -1 and 1, the same in every run.
pub(super) fn noise<E: Real>(len: usize, seed: u64) -> Vec<E> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(2 * seed + 1);
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            E::of_f64((state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0)
        })
        .collect()
}

/// The same numbers in `f64`.
pub(super) fn wide<E: Copy + Into<f64>>(x: &[E]) -> Vec<f64> {
    x.iter().map(|&x| x.into()).collect()
}

/// Runs a test with each instruction set of the machine.
pub(super) fn on_every_isa(test: impl Fn(Isa) + Sync) {
    for isa in Isa::available() {
        isa.force(|| test(isa));
    }
}

/// Fails unless 1, 2, 3 and 8 threads compute the same, with each instruction set.
#[track_caller]
pub(super) fn same_for_all_threads<T: PartialEq + Send>(compute: impl Fn() -> T + Sync) {
    on_every_isa(|isa| {
        let with = |threads| isa.pool(threads).install(&compute);
        let alone = with(1);
        for threads in [2, 3, 8] {
            assert!(with(threads) == alone, "{threads} threads on {isa}");
        }
    });
}
