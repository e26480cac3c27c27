//! The rows that a session keeps for its tokens, in pages that forks share.

use std::{ops::Range, sync::Arc};

use super::memory::CacheMemory;
use crate::kernel::{
    MatrixMut,
    attention::{Page, Paged},
    parallel,
};

/// `[sequences, rows, heads, width]`, in pages of rows of one sequence, which are `[heads, rows, width]`.
///
/// A clone has the same pages. A page that several sequences have is copied when one of them writes to it, up to the row that it writes: copy on
/// write. A page is allocated when its first row is written.
#[derive(Clone, Debug)]
pub(super) struct Pages<N> {
    of_sequences: Vec<Vec<Page<N>>>,
    /// The maximum number of rows of a sequence.
    rows: usize,
    rows_of_page: usize,
    heads: usize,
    width: usize,
}

impl<N: Copy + Default + Send> Pages<N> {
    /// Sequences without rows. They have room for so many, each of so many numbers for each head.
    pub(super) fn new(
        sequences: usize,
        rows: usize,
        rows_of_page: usize,
        [heads, width]: [usize; 2],
    ) -> Self {
        Self {
            of_sequences: vec![Vec::new(); sequences],
            rows,
            rows_of_page: rows_of_page.min(rows),
            heads,
            width,
        }
    }

    /// The first `len` rows of a sequence.
    pub(super) fn read(&self, sequence: usize, len: usize) -> Paged<'_, N> {
        let pages = &self.of_sequences[sequence];
        Paged::new(pages, self.rows_of_page, [self.heads, self.width], len)
    }

    /// The pages of a sequence.
    pub(super) fn of_sequence(&self, sequence: usize) -> &[Page<N>] {
        &self.of_sequences[sequence]
    }

    /// Writes rows of a sequence that has those before them: `body(rows, head, to)` for rows of each head, with their numbers among those that are written,
    /// in any order and on any thread.
    pub(super) fn write(
        &mut self,
        sequence: usize,
        rows: Range<usize>,
        body: impl Fn(Range<usize>, usize, MatrixMut<'_, N>) + Send + Sync,
    ) {
        let (heads, width) = (self.heads, self.width);
        let of_task = parallel::rows_per_task(width);
        let mut next = rows.start;
        while next < rows.end {
            let page = next / self.rows_of_page;
            let first = next % self.rows_of_page;
            let last = self.rows_of_page.min(first + rows.end - next);
            let pages = &mut self.of_sequences[sequence];
            if page == pages.len() {
                let rows = self.rows_of_page.min(self.rows - next);
                pages.push(Arc::new(vec![N::default(); heads * rows * width]));
            }
            let start = next - rows.start;
            let of_heads = own(&mut pages[page], [heads, width], first).enumerate();
            let tasks = of_heads.flat_map(|(head, numbers)| {
                let to = &mut numbers[first * width..last * width];
                let chunks = MatrixMut::new(to, last - first, width).row_chunks(of_task);
                let tasks = chunks.enumerate();
                tasks.map(move |(index, to)| (start + index * of_task, head, to))
            });
            let run = |(first, head, to): (usize, usize, MatrixMut<'_, N>)| {
                body(first..first + to.rows(), head, to);
            };
            match (last - first) * heads * width < parallel::SMALL {
                true => tasks.for_each(run),
                false => parallel::for_each(tasks, run),
            }
            next += last - first;
        }
    }

    /// Moves rows of a sequence to `to`, all in its first page.
    pub(super) fn shift(&mut self, sequence: usize, rows: Range<usize>, to: usize) {
        let (heads, width) = (self.heads, self.width);
        if let Some(page) = self.of_sequences[sequence].first_mut() {
            for numbers in own(page, [heads, width], rows.end) {
                numbers.copy_within(rows.start * width..rows.end * width, to * width);
            }
        }
    }

    /// Gives up what a sequence shares behind its first `len` rows. It keeps its own pages for the rows to come.
    pub(super) fn truncate(&mut self, sequence: usize, len: usize) {
        let pages = &mut self.of_sequences[sequence];
        let kept = len.div_ceil(self.rows_of_page.max(1));
        let shared = pages.iter().skip(kept).position(is_shared);
        if let Some(shared) = shared {
            pages.truncate(kept + shared);
        }
    }

    /// Makes a sequence share all rows of another one.
    pub(super) fn copy(&mut self, from: usize, to: usize) {
        self.of_sequences[to] = self.of_sequences[from].clone();
    }

    /// No rows, in pages of numbers of another type.
    pub(super) fn emptied<M: Copy + Default + Send>(&self) -> Pages<M> {
        let sequences = self.of_sequences.len();
        let of_row = [self.heads, self.width];
        Pages::new(sequences, self.rows, self.rows_of_page, of_row)
    }

    /// The bytes of the pages that are copied when a fork of a sequence writes rows from the row `len` on.
    pub(super) fn copied(&self, sequence: usize, len: usize) -> usize {
        let pages = self.of_sequences[sequence].iter();
        let written = pages.skip(len / self.rows_of_page.max(1));
        written.map(|page| size_of_val(&page[..])).sum()
    }

    pub(super) fn memory(&self) -> CacheMemory {
        let all = self.of_sequences.len() * self.rows * self.heads * self.width;
        let pages = self.of_sequences.iter().flatten();
        let memory = CacheMemory::of_capacity(all * size_of::<N>());
        pages.fold(memory, |memory, page| {
            memory.with(size_of_val(&page[..]), is_shared(page))
        })
    }
}

fn is_shared<N>(page: &Page<N>) -> bool {
    Arc::strong_count(page) > 1
}

/// The numbers of each head of a page that no other sequence has. If others have it, it becomes a copy of its first `rows` rows.
fn own<N: Copy + Default>(
    page: &mut Page<N>,
    [heads, width]: [usize; 2],
    rows: usize,
) -> impl Iterator<Item = &mut [N]> {
    // Not 0, so that there are chunks of it.
    let of_head = (page.len() / heads.max(1)).max(1);
    if Arc::get_mut(page).is_none() {
        let mut copy = vec![N::default(); page.len()];
        let of_heads = copy.chunks_mut(of_head).zip(page.chunks(of_head));
        of_heads.for_each(|(to, from)| to[..rows * width].copy_from_slice(&from[..rows * width]));
        *page = Arc::new(copy);
    }
    Arc::make_mut(page).chunks_mut(of_head)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends rows to a sequence of so many: the numbers of the second head are negative.
    fn push(pages: &mut Pages<f32>, sequence: usize, first: usize, numbers: &[f32]) {
        let rows = first..first + numbers.len();
        pages.write(sequence, rows, |rows, head, mut to| {
            for (row, number) in numbers[rows].iter().enumerate() {
                to.row_mut(row).fill(number * [1.0, -1.0][head]);
            }
        });
    }

    fn rows(pages: &Pages<f32>, sequence: usize, len: usize) -> Vec<f32> {
        let paged = pages.read(sequence, len);
        let of_row = |row: usize| {
            let [one, other] = [0, 1].map(|head| paged.head(head).in_page(row..row + 1).get(0, 0));
            assert_eq!(one, -other);
            one
        };
        (0..len).map(of_row).collect()
    }

    #[test]
    fn a_clone_shares_all_pages_but_those_that_are_written() {
        let mut one = Pages::<f32>::new(1, 10, 4, [2, 1]);
        push(&mut one, 0, 0, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let mut other = one.clone();
        let expected = CacheMemory {
            capacity: 4 * 20,
            own: 0,
            shared: 4 * 16,
        };
        assert_eq!([one.memory(), other.memory()], [expected; 2]);
        push(&mut other, 0, 5, &[6.0]);
        push(&mut one, 0, 5, &[7.0, 8.0, 9.0, 10.0]);
        assert_eq!(rows(&other, 0, 6), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let of_one = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0, 10.0];
        assert_eq!(rows(&one, 0, 9), of_one);
        let memory = one.memory();
        // The last page is as long as there are rows to come.
        assert_eq!((memory.own, memory.shared), (4 * (8 + 4), 4 * 8));
        drop(one);
        let memory = other.memory();
        assert_eq!((memory.own, memory.shared), (4 * 16, 0));
    }

    #[test]
    fn rows_behind_the_end_are_neither_copied_nor_shared() {
        let mut one = Pages::<f32>::new(1, 12, 4, [2, 1]);
        push(&mut one, 0, 0, &[1.0; 9]);
        let other = one.clone();
        one.truncate(0, 2);
        assert_eq!(one.memory().shared, 4 * 8);
        push(&mut one, 0, 2, &[2.0]);
        assert_eq!(
            one.of_sequence(0)[0][..],
            [1.0, 1.0, 2.0, 0.0, -1.0, -1.0, -2.0, 0.0]
        );
        assert_eq!(rows(&other, 0, 9), [1.0; 9]);
        // A sequence that shares nothing keeps its memory.
        let mut alone = other;
        let all = alone.memory().own;
        alone.truncate(0, 0);
        assert_eq!(alone.memory().own, all);
    }

    #[test]
    fn a_fork_copies_the_pages_behind_its_last_row() {
        let mut pages = Pages::<f32>::new(2, 10, 4, [2, 1]);
        push(&mut pages, 1, 0, &[1.0; 9]);
        // The last page has the two rows that there is room for.
        let copied = [0, 3, 4, 8, 9, 10].map(|len| pages.copied(1, len));
        assert_eq!(copied, [80, 80, 48, 16, 16, 16]);
        assert_eq!(pages.copied(0, 0), 0);
    }

    #[test]
    fn rows_that_move_leave_those_of_a_clone() {
        let mut one = Pages::<f32>::new(2, 6, 6, [2, 1]);
        push(&mut one, 1, 0, &[1.0, 2.0, 3.0, 4.0, 5.0]);
        let other = one.clone();
        one.shift(1, 3..5, 1);
        assert_eq!(rows(&one, 1, 3), [1.0, 4.0, 5.0]);
        assert_eq!(rows(&other, 1, 5), [1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    #[test]
    fn a_sequence_can_share_the_rows_of_another_one() {
        let mut pages = Pages::<f32>::new(2, 6, 2, [2, 1]);
        push(&mut pages, 0, 0, &[1.0, 2.0, 3.0]);
        pages.copy(0, 1);
        push(&mut pages, 1, 3, &[4.0]);
        push(&mut pages, 0, 3, &[5.0]);
        assert_eq!(rows(&pages, 0, 4), [1.0, 2.0, 3.0, 5.0]);
        assert_eq!(rows(&pages, 1, 4), [1.0, 2.0, 3.0, 4.0]);
    }
}
