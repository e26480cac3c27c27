//! Keys and values whose rows stand in pages, as those of a session do.

use std::ops::Range;
use std::sync::Arc;

use super::Heads;
use super::heads::HeadLayout;
use super::one_query::{Stored, add_weighted, dots};
use super::plan::TILE;
use crate::kernel::panel::Panel;
use crate::kernel::{Matrix, Pooled};

/// The number of rows of a page: a tile that begins at a multiple of it is in one page, and is read where it stands.
pub const PAGE_ROWS: usize = TILE;

/// The numbers of a page, which several sequences may share: `[heads, rows, width]`. A query reads the rows of one head, which are one piece of
/// memory, and so read faster than short pieces far apart.
pub type Page<E> = Arc<Vec<E>>;

/// `[rows, heads * cols]`, in pages of equally many rows. The last page may have fewer, or room for more.
#[derive(Debug)]
pub struct Paged<'a, E> {
    pages: &'a [Page<E>],
    rows_of_page: usize,
    /// The number of heads of a page, and the length of a row of one.
    of_page: [usize; 2],
    rows: usize,
    first_head: usize,
    heads: usize,
    first_col: usize,
    /// The number of columns of a head.
    cols: usize,
}

// A derive would require the same traits of the elements.
impl<E> Clone for Paged<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Paged<'_, E> {}

impl<'a, E> Paged<'a, E> {
    /// The first `rows` rows of pages of `rows_of_page` rows, which have so many numbers of each head.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn new(
        pages: &'a [Page<E>],
        rows_of_page: usize,
        [heads, width]: [usize; 2],
        rows: usize,
    ) -> Self {
        assert!(rows <= pages.len() * rows_of_page, "rows beyond the pages");
        Self {
            pages,
            rows_of_page,
            of_page: [heads, width],
            rows,
            first_head: 0,
            heads,
            first_col: 0,
            cols: width,
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of one head.
    ///
    /// # Panics
    /// If there are fewer heads.
    #[must_use]
    pub(crate) fn head(self, head: usize) -> Self {
        assert!(head < self.heads, "a head beyond the last one");
        Self {
            first_head: self.first_head + head,
            heads: 1,
            ..self
        }
    }

    /// A range of columns of each head.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn some_cols(self, range: Range<usize>) -> Self {
        assert!(range.end <= self.cols, "columns beyond the last one");
        Self {
            first_col: self.first_col + range.start,
            cols: range.len(),
            ..self
        }
    }

    /// These rows of one head, if they are in one page.
    fn whole(&self, rows: &Range<usize>) -> Option<Matrix<'a, E>> {
        let first = match rows.is_empty() {
            true => Matrix::new(&[], 0, self.cols),
            false => self.in_page(rows.clone()),
        };
        (first.rows() == rows.len()).then_some(first)
    }

    /// These rows of one head, up to the end of the page that the first one is in.
    ///
    /// # Panics
    /// If there are several heads.
    pub(crate) fn in_page(&self, rows: Range<usize>) -> Matrix<'a, E> {
        assert_eq!(self.heads, 1, "rows of several heads");
        let page = &self.pages[rows.start / self.rows_of_page];
        let start = rows.start % self.rows_of_page;
        let end = self.rows_of_page.min(start + rows.len());
        let [heads, width] = self.of_page;
        let of_head = page.len() / heads;
        let numbers = &page[self.first_head * of_head..][..end * width];
        let cols = self.first_col..self.first_col + self.cols;
        Matrix::new(numbers, end, width).part(start..end, cols)
    }
}

impl<N: Copy> Paged<'_, N> {
    /// Calls `body(first, part)` for the parts of a range of rows that are in one page, each with the number of its first row among them.
    fn for_parts(&self, rows: Range<usize>, mut body: impl FnMut(usize, Matrix<'_, N>)) {
        let mut next = rows.start;
        while next < rows.end {
            let part = self.in_page(next..rows.end);
            body(next - rows.start, part);
            next += part.rows();
        }
    }

    /// [`Rows::dots`]
    fn dots<E: Pooled>(&self, scale: E, q: &[E], rows: Range<usize>, to: &mut [E])
    where
        N: Stored<E>,
    {
        self.for_parts(rows, |first, part| {
            dots(scale, q, part, &mut to[first..first + part.rows()]);
        });
    }

    /// [`Rows::add_weighted`]
    fn add_weighted<E: Pooled>(&self, weights: &[E], rows: Range<usize>, to: &mut [E])
    where
        N: Stored<E>,
    {
        self.for_parts(rows, |first, part| {
            add_weighted(&weights[first..first + part.rows()], part, to);
        });
    }
}

/// Rows in pages, of numbers of the model or rounded to bf16.
#[derive(Debug)]
pub enum PagedRows<'a, E> {
    /// Numbers of the type of the model.
    Model(Paged<'a, E>),
    /// Rounded.
    Bf16(Paged<'a, u16>),
}

impl<E> Clone for PagedRows<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for PagedRows<'_, E> {}

impl<E> PagedRows<'_, E> {
    /// The number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Model(paged) => paged.rows,
            Self::Bf16(paged) => paged.rows,
        }
    }

    /// The columns of all heads.
    fn cols(&self) -> usize {
        match self {
            Self::Model(paged) => paged.heads * paged.cols,
            Self::Bf16(paged) => paged.heads * paged.cols,
        }
    }

    /// [`Paged::head`]
    fn head(self, head: usize) -> Self {
        match self {
            Self::Model(paged) => Self::Model(paged.head(head)),
            Self::Bf16(paged) => Self::Bf16(paged.head(head)),
        }
    }

    /// A range of columns of each head.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    pub fn some_cols(self, range: Range<usize>) -> Self {
        match self {
            Self::Model(paged) => Self::Model(paged.some_cols(range)),
            Self::Bf16(paged) => Self::Bf16(paged.some_cols(range)),
        }
    }
}

/// The keys or values of a head, `[key, width]`.
#[derive(Debug)]
pub(super) enum Rows<'a, E> {
    /// They stand in one matrix.
    Matrix(Matrix<'a, E>),
    /// They stand in pages.
    Paged(PagedRows<'a, E>),
}

impl<E> Clone for Rows<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Rows<'_, E> {}

impl<E: Pooled> Rows<'_, E> {
    pub(super) fn rows(&self) -> usize {
        match self {
            Self::Matrix(matrix) => matrix.rows(),
            Self::Paged(paged) => paged.rows(),
        }
    }

    pub(super) fn cols(&self) -> usize {
        match self {
            Self::Matrix(matrix) => matrix.cols(),
            Self::Paged(paged) => paged.cols(),
        }
    }

    /// Whether neighbouring rows are contiguous where [`with`](Self::with) reads them, but for those at the ends of pages. Those in bf16 are not: they are
    /// widened for every reader.
    pub(super) fn is_contiguous(&self) -> bool {
        match self {
            Self::Matrix(matrix) => matrix.is_contiguous(),
            Self::Paged(PagedRows::Model(paged)) => paged.cols == paged.of_page[1],
            Self::Paged(PagedRows::Bf16(_)) => false,
        }
    }

    /// Whether the numbers are in bf16.
    pub(super) fn are_rounded(&self) -> bool {
        matches!(self, Self::Paged(PagedRows::Bf16(_)))
    }

    /// A range of rows where they stand, if they are in bf16 and in one page.
    pub(super) fn rounded(&self, rows: &Range<usize>) -> Option<Matrix<'_, u16>> {
        match self {
            Self::Paged(PagedRows::Bf16(paged)) => paged.whole(rows),
            _ => None,
        }
    }

    /// `to[j] = scale q · rows[j]` for a range of rows, which are read where they stand.
    pub(super) fn dots(&self, scale: E, q: &[E], rows: Range<usize>, to: &mut [E]) {
        match self {
            Self::Matrix(matrix) => dots(scale, q, matrix.some_rows(rows), to),
            Self::Paged(PagedRows::Model(paged)) => paged.dots(scale, q, rows, to),
            Self::Paged(PagedRows::Bf16(paged)) => paged.dots(scale, q, rows, to),
        }
    }

    /// `to += Σ weights[j] rows[j]` for a range of rows, which are read where they stand.
    pub(super) fn add_weighted(&self, weights: &[E], rows: Range<usize>, to: &mut [E]) {
        match self {
            Self::Matrix(matrix) => add_weighted(weights, matrix.some_rows(rows), to),
            Self::Paged(PagedRows::Model(paged)) => paged.add_weighted(weights, rows, to),
            Self::Paged(PagedRows::Bf16(paged)) => paged.add_weighted(weights, rows, to),
        }
    }

    /// Calls `body` with a range of rows. Rows of several pages are copied for it, since a product of fewer rows may sum in another order, and those
    /// in bf16 are widened.
    pub(super) fn with<R>(&self, rows: Range<usize>, body: impl FnOnce(Matrix<'_, E>) -> R) -> R {
        let paged = match self {
            Self::Matrix(matrix) => return body(matrix.some_rows(rows)),
            Self::Paged(paged) => paged,
        };
        if let PagedRows::Model(paged) = paged
            && let Some(rows) = paged.whole(&rows)
        {
            return body(rows);
        }
        let mut copy = Panel::new(rows.len(), self.cols());
        let mut to = copy.write();
        match paged {
            PagedRows::Model(paged) => paged.for_parts(rows, |first, part| {
                for row in 0..part.rows() {
                    to.row_mut(first + row).copy_from_slice(part.row(row));
                }
            }),
            PagedRows::Bf16(paged) => paged.for_parts(rows, |first, part| {
                let end = first + part.rows();
                let (to, _) = to.reborrow().split_rows(end);
                E::widen_rows(part, to.split_rows(first).1);
            }),
        }
        body(copy.read())
    }
}

/// The keys or values of all heads and sequences.
#[derive(Clone, Copy, Debug)]
pub enum KeySource<'a, E> {
    /// In one matrix.
    Heads(Heads<Matrix<'a, E>>),
    /// The vectors of one sequence, in pages.
    Paged(PagedRows<'a, E>),
}

impl<'a, E, T: Into<Heads<Matrix<'a, E>>>> From<T> for KeySource<'a, E> {
    fn from(heads: T) -> Self {
        Self::Heads(heads.into())
    }
}

impl<'a, E> KeySource<'a, E> {
    /// The layout of the heads, and the numbers of rows and columns.
    pub(super) fn shape(&self) -> (HeadLayout, (usize, usize)) {
        match self {
            Self::Heads(heads) => (heads.layout, (heads.matrix.rows(), heads.matrix.cols())),
            Self::Paged(paged) => (HeadLayout::SideBySide, (paged.rows(), paged.cols())),
        }
    }

    /// The vectors of head `h` of sequence `b`, of so many.
    pub(super) fn of(&self, of: [usize; 2], b: usize, h: usize) -> Rows<'a, E> {
        match self {
            Self::Heads(heads) => Rows::Matrix(heads.of(of, b, h)),
            Self::Paged(paged) => Rows::Paged(paged.head(h)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages of 3 rows of two heads, of 2 numbers each. The last one has room for more. Row `i` has the numbers `4 i`, `4 i + 1` .. of both heads.
    fn pages() -> Vec<Page<f32>> {
        let number = |page: usize, at: usize| {
            let [head, row, col] = [at / 6, at % 6 / 2, at % 2];
            (12 * page + 4 * row + 2 * head + col) as f32
        };
        let of_page = |page| {
            (0..12)
                .map(|at| number(page, at))
                .collect::<Vec<_>>()
                .into()
        };
        (0..3).map(of_page).collect()
    }

    #[test]
    fn rows_of_one_page_are_read_where_they_stand_and_those_of_several_are_copied() {
        let pages = pages();
        let whole: Vec<f32> = (0..36).map(|i| i as f32).collect();
        let whole = Matrix::new(&whole, 9, 4);
        let keys = KeySource::Paged(PagedRows::Model(Paged::new(&pages, 3, [2, 2], 7)));
        assert_eq!(keys.shape(), (HeadLayout::SideBySide, (7, 4)));
        for head in 0..2 {
            let rows = keys.of([1, 2], 0, head);
            for start in 0..7 {
                for end in start..=7 {
                    let expected = whole.part(start..end, 2 * head..2 * head + 2);
                    rows.with(start..end, |found| {
                        assert_eq!((found.rows(), found.cols()), (end - start, 2));
                        for row in 0..found.rows() {
                            assert_eq!(found.row(row), expected.row(row), "{start}..{end}");
                        }
                        if end > start {
                            let page = pages[start / 3].as_ptr_range();
                            let stands = page.contains(&found.row(0).as_ptr());
                            assert_eq!(stands, start / 3 == (end - 1) / 3, "{start}..{end}");
                        }
                    });
                }
            }
        }
    }
}
