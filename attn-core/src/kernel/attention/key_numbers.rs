//! The numbers that the body of an attention reads for each key: in one slice, or in pages, as those of a session.

use super::Page;

/// The numbers of a page: 16 KiB of `f32`. A power of two, so that the page of a number is a shift away.
pub const PAGE_NUMBERS: usize = 4096;

/// Numbers by their index.
pub trait KeyNumbers<E>: Copy + Send + Sync {
    /// The number at this index.
    ///
    /// # Panics
    /// If there is none.
    fn at(&self, index: usize) -> E;

    /// `len` numbers from `start` on, if they stand side by side.
    ///
    /// # Panics
    /// If there are fewer.
    fn row(&self, start: usize, len: usize) -> Option<&[E]>;
}

impl<E: Copy + Send + Sync> KeyNumbers<E> for &[E] {
    #[inline(always)]
    fn at(&self, index: usize) -> E {
        self[index]
    }

    #[inline(always)]
    fn row(&self, start: usize, len: usize) -> Option<&[E]> {
        Some(&self[start..start + len])
    }
}

/// Numbers in pages of [`PAGE_NUMBERS`].
#[derive(Debug)]
pub struct PagedNumbers<'a, E> {
    pages: &'a [Page<E>],
    len: usize,
}

// A derive would require the same traits of the elements.
impl<E> Clone for PagedNumbers<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for PagedNumbers<'_, E> {}

impl<'a, E> PagedNumbers<'a, E> {
    /// The first `len` numbers of these pages.
    pub fn new(pages: &'a [Page<E>], len: usize) -> Self {
        Self { pages, len }
    }
}

impl<E: Copy + Send + Sync> KeyNumbers<E> for PagedNumbers<'_, E> {
    #[inline(always)]
    fn at(&self, index: usize) -> E {
        assert!(index < self.len, "a number behind the last key");
        self.pages[index / PAGE_NUMBERS][index % PAGE_NUMBERS]
    }

    #[inline(always)]
    fn row(&self, start: usize, len: usize) -> Option<&[E]> {
        assert!(start + len <= self.len, "numbers behind the last key");
        let first = start % PAGE_NUMBERS;
        let fits = first + len <= PAGE_NUMBERS && len > 0;
        fits.then(|| &self.pages[start / PAGE_NUMBERS][first..first + len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn numbers_in_pages_are_those_of_a_slice() {
        let numbers: Vec<f32> = (0..2 * PAGE_NUMBERS + 5).map(|i| i as f32).collect();
        let pages = numbers.chunks(PAGE_NUMBERS);
        let pages: Vec<Page<f32>> = pages.map(|page| Arc::new(page.to_vec())).collect();
        let (slice, paged) = (&*numbers, PagedNumbers::new(&pages, numbers.len()));
        for index in [0, 1, PAGE_NUMBERS - 1, PAGE_NUMBERS, numbers.len() - 1] {
            assert_eq!(paged.at(index), slice.at(index));
        }
        for (start, len) in [(0, 7), (PAGE_NUMBERS - 7, 7), (PAGE_NUMBERS, PAGE_NUMBERS)] {
            assert_eq!(paged.row(start, len), slice.row(start, len));
        }
        assert_eq!(paged.row(PAGE_NUMBERS - 3, 7), None);
    }

    #[test]
    #[should_panic(expected = "behind the last key")]
    fn a_number_behind_the_last_key_is_not_read() {
        let page: Page<f32> = Arc::new(vec![0.0; 8]);
        PagedNumbers::new(&[page], 7).at(7);
    }
}
