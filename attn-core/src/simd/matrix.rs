//! Views of matrices in memory, for products and kernels.

use std::fmt::{Debug, Formatter};
use std::iter;
use std::marker::PhantomData;
use std::ops::Range;

/// A read-only matrix with any row and column strides.
pub struct Matrix<'a, E> {
    data: &'a [E],
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
}

// A derive would require the same traits of the elements.
impl<E> Clone for Matrix<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Matrix<'_, E> {}

impl<'a, E> Matrix<'a, E> {
    /// A contiguous row-major matrix.
    ///
    /// # Panics
    /// If `data` has not `rows * cols` elements.
    #[track_caller]
    pub fn new(data: &'a [E], rows: usize, cols: usize) -> Self {
        assert_eq!(
            Some(data.len()),
            rows.checked_mul(cols),
            "a matrix of {rows} rows and {cols} columns"
        );
        Self::strided(data, rows, cols, cols, 1)
    }

    /// Rows without columns.
    pub fn without_cols(rows: usize) -> Self {
        Self::strided(&[], rows, 0, 0, 1)
    }

    /// The element of row `i` and column `j` is `data[i * row_stride + j * col_stride]`.
    ///
    /// # Panics
    /// If the last element lies outside of `data`.
    #[track_caller]
    pub fn strided(
        data: &'a [E],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        assert!(
            end(rows, cols, row_stride, col_stride).is_some_and(|end| end <= data.len()),
            "a matrix beyond its data"
        );
        Self {
            data,
            rows,
            cols,
            row_stride,
            col_stride,
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Its numbers, row-major.
    ///
    /// # Panics
    /// If they do not stand side by side.
    pub fn values(self) -> &'a [E] {
        let is_contiguous = self.col_stride == 1 && self.row_stride == self.cols;
        assert!(is_contiguous, "a matrix whose numbers stand apart");
        &self.data[..self.rows * self.cols]
    }

    pub(super) fn strides(&self) -> (usize, usize) {
        (self.row_stride, self.col_stride)
    }

    /// The distance between the first numbers of neighbouring rows.
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    pub(super) fn as_ptr(&self) -> *const E {
        self.data.as_ptr()
    }

    /// The same memory as numbers of another type of the same size.
    ///
    /// # Safety
    /// Both types allow all bits, and the alignment of `F` is at most that of `E`.
    pub(super) unsafe fn cast<F>(self) -> Matrix<'a, F> {
        const { assert!(size_of::<E>() == size_of::<F>()) }
        Matrix {
            // SAFETY: the caller's.
            data: unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), self.data.len()) },
            rows: self.rows,
            cols: self.cols,
            row_stride: self.row_stride,
            col_stride: self.col_stride,
        }
    }

    /// The numbers from the first one on, with those between the rows.
    pub(super) fn numbers(&self) -> &'a [E] {
        self.data
    }

    fn at(&self, row: usize, col: usize) -> usize {
        row * self.row_stride + col * self.col_stride
    }

    /// The transposed view.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// A range of rows.
    ///
    /// # Panics
    /// If the matrix has fewer.
    #[must_use]
    #[track_caller]
    pub fn some_rows(self, range: Range<usize>) -> Self {
        self.part(range, 0..self.cols)
    }

    /// Parts of `rows` rows each; the last may have fewer.
    ///
    /// # Panics
    /// If `rows` is 0.
    pub fn row_chunks(self, rows: usize) -> impl Iterator<Item = Self> {
        let starts = (0..self.rows).step_by(rows);
        starts.map(move |start| self.some_rows(start..self.rows.min(start + rows)))
    }

    /// A range of columns.
    ///
    /// # Panics
    /// If the matrix has fewer.
    #[must_use]
    #[track_caller]
    pub fn some_cols(self, range: Range<usize>) -> Self {
        self.part(0..self.rows, range)
    }

    /// A rectangle of the matrix.
    ///
    /// # Panics
    /// If it is out of bounds.
    #[must_use]
    #[track_caller]
    pub fn part(self, rows: Range<usize>, cols: Range<usize>) -> Self {
        assert_inside(&rows, self.rows);
        assert_inside(&cols, self.cols);
        let start = if rows.is_empty() || cols.is_empty() {
            0
        } else {
            self.at(rows.start, cols.start)
        };
        Self {
            data: &self.data[start..],
            rows: rows.len(),
            cols: cols.len(),
            ..self
        }
    }

    /// Whether all elements are contiguous, row by row.
    pub fn is_contiguous(&self) -> bool {
        self.has_row_slices() && (self.row_stride == self.cols || self.rows <= 1)
    }

    /// Whether the elements of a row are contiguous.
    pub fn has_row_slices(&self) -> bool {
        self.col_stride == 1 || self.cols <= 1
    }

    /// A row as a slice.
    ///
    /// # Panics
    /// If there is no such row, or its elements are not contiguous.
    #[inline]
    #[track_caller]
    pub fn row(&self, row: usize) -> &'a [E] {
        assert!(row < self.rows && self.has_row_slices(), "no such row");
        let start = row * self.row_stride;
        &self.data[start..start + self.cols]
    }

    /// An element.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    #[track_caller]
    pub fn get(&self, row: usize, col: usize) -> E
    where
        E: Copy,
    {
        assert!(row < self.rows && col < self.cols, "no such element");
        self.data[self.at(row, col)]
    }
}

impl<E> Debug for Matrix<'_, E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "Matrix({} x {})", self.rows, self.cols)
    }
}

/// A mutable matrix with contiguous rows. It can be split into parts that different threads write at the same time.
pub struct MatrixMut<'a, E> {
    // Invariant: for every row i below `rows`, this view alone may access the elements `start + i * row_stride .. + cols`, and
    // they are in bounds and initialised. Rows do not overlap.
    start: *mut E,
    rows: usize,
    cols: usize,
    row_stride: usize,
    data: PhantomData<&'a mut [E]>,
}

// SAFETY: the elements of a view are accessed through it alone, as through a `&mut [E]`.
unsafe impl<E: Send> Send for MatrixMut<'_, E> {}
// SAFETY: a shared view returns only shared references.
unsafe impl<E: Sync> Sync for MatrixMut<'_, E> {}

impl<'a, E> MatrixMut<'a, E> {
    /// A matrix without rows or columns.
    pub fn empty() -> Self {
        Self::without_cols(0)
    }

    /// Rows without columns.
    pub fn without_cols(rows: usize) -> Self {
        Self::strided(&mut [], rows, 0, 0)
    }

    /// A contiguous row-major matrix.
    ///
    /// # Panics
    /// If `data` has not `rows * cols` elements.
    #[track_caller]
    pub fn new(data: &'a mut [E], rows: usize, cols: usize) -> Self {
        assert_eq!(
            Some(data.len()),
            rows.checked_mul(cols),
            "a matrix of {rows} rows and {cols} columns"
        );
        Self::strided(data, rows, cols, cols)
    }

    /// Row `i` is `data[i * row_stride..][..cols]`.
    ///
    /// # Panics
    /// If the last row lies outside of `data`, or rows overlap.
    #[track_caller]
    pub fn strided(data: &'a mut [E], rows: usize, cols: usize, row_stride: usize) -> Self {
        if rows > 0 && cols > 0 {
            assert!(rows == 1 || row_stride >= cols, "rows that overlap");
            assert!(
                end(rows, cols, row_stride, 1).is_some_and(|end| end <= data.len()),
                "a matrix beyond its data"
            );
        }
        Self {
            start: data.as_mut_ptr(),
            rows,
            cols,
            row_stride,
            data: PhantomData,
        }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    pub(super) fn row_stride(&self) -> usize {
        self.row_stride
    }

    pub(super) fn as_ptr(&self) -> *const E {
        self.start
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut E {
        self.start
    }

    /// The same memory as numbers of another type, one or several in the place of each.
    ///
    /// # Safety
    /// Both types allow all bits, and the alignment of `F` is at most that of `E`.
    pub(super) unsafe fn cast<F>(self) -> MatrixMut<'a, F> {
        const { assert!(size_of::<E>().is_multiple_of(size_of::<F>())) }
        let each = size_of::<E>() / size_of::<F>();
        MatrixMut {
            start: self.start.cast(),
            rows: self.rows,
            cols: each * self.cols,
            row_stride: each * self.row_stride,
            data: PhantomData,
        }
    }

    /// The same view with a shorter lifetime.
    pub fn reborrow(&mut self) -> MatrixMut<'_, E> {
        MatrixMut {
            data: PhantomData,
            ..*self
        }
    }

    /// The same matrix, read-only.
    ///
    /// # Panics
    /// If there are gaps between the rows.
    #[track_caller]
    pub fn as_ref(&self) -> Matrix<'_, E> {
        let len = self.len_without_gaps();
        // SAFETY: without gaps, the range is the rows themselves, in bounds by the invariant. Nothing writes to them while `self`
        // is borrowed.
        let data = unsafe { std::slice::from_raw_parts(self.start, len) };
        Matrix::strided(data, self.rows, self.cols, self.row_stride, 1)
    }

    /// The elements, row by row.
    ///
    /// # Panics
    /// If there are gaps between the rows.
    #[track_caller]
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        let len = self.len_without_gaps();
        // SAFETY: without gaps, the range is the rows themselves, in bounds by the invariant; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, len) }
    }

    /// The number of elements. Another view may write to the memory between the rows, so there must be none.
    #[track_caller]
    fn len_without_gaps(&self) -> usize {
        assert!(
            self.rows <= 1 || self.row_stride == self.cols,
            "only a matrix without gaps is one slice; take it row by row"
        );
        self.rows * self.cols
    }

    /// The rows before `at`, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[track_caller]
    pub fn split_rows(self, at: usize) -> (Self, Self) {
        assert!(at <= self.rows, "row {at} of {}", self.rows);
        let offset = match at == self.rows || self.cols == 0 {
            true => 0,
            false => at * self.row_stride,
        };
        // SAFETY: row `at` exists and has numbers, so its start is in bounds (an empty part keeps the start of the whole). The parts
        // have no row in common.
        let start = unsafe { self.start.add(offset) };
        let upper = Self { rows: at, ..self };
        let lower = Self {
            start,
            rows: self.rows - at,
            ..self
        };
        (upper, lower)
    }

    /// The columns before `at`, and the others.
    ///
    /// # Panics
    /// If there are fewer.
    #[track_caller]
    pub fn split_cols(self, at: usize) -> (Self, Self) {
        assert!(at <= self.cols, "column {at} of {}", self.cols);
        let offset = if at == self.cols || self.rows == 0 {
            0
        } else {
            at
        };
        // SAFETY: column `at` of row 0 exists, so it is in bounds (an empty part keeps the start of the whole). The
        // parts have no column in common.
        let start = unsafe { self.start.add(offset) };
        let left = Self { cols: at, ..self };
        let right = Self {
            start,
            cols: self.cols - at,
            ..self
        };
        (left, right)
    }

    /// A range of rows.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn some_rows(self, range: Range<usize>) -> Self {
        self.split_rows(range.end).0.split_rows(range.start).1
    }

    /// A range of columns.
    ///
    /// # Panics
    /// If there are fewer.
    #[must_use]
    #[track_caller]
    pub fn some_cols(self, range: Range<usize>) -> Self {
        self.split_cols(range.end).0.split_cols(range.start).1
    }

    /// Parts of `rows` rows each; the last may have fewer.
    ///
    /// # Panics
    /// If `rows` is 0.
    pub fn row_chunks(self, rows: usize) -> impl Iterator<Item = Self> {
        assert!(rows > 0, "parts of no row");
        let mut rest = Some(self);
        iter::from_fn(move || {
            let all = rest.take().filter(|rest| rest.rows > 0)?;
            let at = rows.min(all.rows);
            let (part, others) = all.split_rows(at);
            rest = Some(others);
            Some(part)
        })
    }

    /// Parts of `cols` columns each; the last may have fewer.
    ///
    /// # Panics
    /// If `cols` is 0.
    pub fn col_chunks(self, cols: usize) -> impl Iterator<Item = Self> {
        assert!(cols > 0, "parts of no column");
        let mut rest = Some(self);
        iter::from_fn(move || {
            let all = rest.take().filter(|rest| rest.cols > 0)?;
            let at = cols.min(all.cols);
            let (part, others) = all.split_cols(at);
            rest = Some(others);
            Some(part)
        })
    }

    /// A row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    #[track_caller]
    pub fn row(&self, row: usize) -> &[E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: by the invariant. The borrow of `self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.row_start(row), self.cols) }
    }

    /// Sets all elements to one number.
    pub fn fill(&mut self, value: E)
    where
        E: Copy,
    {
        (0..self.rows).for_each(|row| self.row_mut(row).fill(value));
    }

    /// A mutable row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    #[track_caller]
    pub fn row_mut(&mut self, row: usize) -> &mut [E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: by the invariant; `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.row_start(row), self.cols) }
    }

    /// The same for as long as the matrix lives.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline]
    #[track_caller]
    pub fn into_row(self, row: usize) -> &'a mut [E] {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        // SAFETY: by the invariant; `self` is gone, so nothing else accesses the row in `'a`.
        unsafe { std::slice::from_raw_parts_mut(self.row_start(row), self.cols) }
    }

    #[inline]
    fn row_start(&self, row: usize) -> *mut E {
        if self.cols == 0 {
            return self.start;
        }
        // SAFETY: the row exists and is not empty, so its start is in bounds.
        unsafe { self.start.add(row * self.row_stride) }
    }
}

impl<E> Debug for MatrixMut<'_, E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "MatrixMut({} x {})", self.rows, self.cols)
    }
}

/// The index after that of the last element, or `None` if a product overflows, in any profile.
fn end(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row_stride)?;
    let last_col = (cols - 1).checked_mul(col_stride)?;
    last_row.checked_add(last_col)?.checked_add(1)
}

#[track_caller]
fn assert_inside(range: &Range<usize>, len: usize) {
    assert!(
        range.start <= range.end && range.end <= len,
        "{range:?} of {len}"
    );
}
