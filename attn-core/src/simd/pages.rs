//! Pages of the system's memory.

/// The bytes from which glibc maps new pages for each allocation, and unmaps them when it is freed. Below it keeps them.
const MAPPED: usize = 32 << 20;

/// Asks the system for huge pages under new memory that is large, on Linux. Nothing else changes.
///
/// Each page of 4 KiB is a fault when it is first written, which takes several times as long as writing its numbers. A huge page is 512 of
/// them.
pub(crate) fn prefer_huge_pages<E>(memory: &mut [E]) {
    if size_of_val(memory) >= MAPPED {
        system::advise(memory.as_mut_ptr_range());
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{c_int, c_void};
    use std::ops::Range;

    /// The smallest pages of the system, or a multiple of these.
    const PAGE: usize = 1 << 16;
    /// `MADV_HUGEPAGE` of `<sys/mman.h>`.
    const HUGE: c_int = 14;

    unsafe extern "C" {
        fn madvise(start: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    }

    pub(super) fn advise<E>(memory: Range<*mut E>) {
        let start = memory.start.cast::<u8>();
        let before = start.align_offset(PAGE);
        let bytes = memory.end.addr() - memory.start.addr();
        let whole = bytes.saturating_sub(before) / PAGE * PAGE;
        if whole > 0 {
            // SAFETY: the pages are within the memory, which is borrowed exclusively. The advice does not change what is in them. If the
            // system knows no huge pages, it returns an error, and they stay as they are.
            unsafe {
                madvise(start.wrapping_add(before).cast(), whole, HUGE);
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    pub(super) fn advise<E>(_: std::ops::Range<*mut E>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_keeps_its_numbers() {
        for len in [0, 1, MAPPED / 8, MAPPED / 8 + 12_345] {
            let mut numbers = vec![0.0_f64; len];
            numbers.iter_mut().step_by(1000).for_each(|x| *x = 1.5);
            prefer_huge_pages(&mut numbers);
            assert!(numbers.iter().step_by(1000).all(|x| *x == 1.5));
            assert!(numbers.iter().skip(1).step_by(1000).all(|x| *x == 0.0));
        }
    }
}
