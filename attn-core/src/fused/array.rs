//! Intermediate values: matrices side by side. All of them count as [activations](crate::memory).

use crate::kernel::{Buffer, Matrix, MatrixMut, Pooled};
use crate::memory::AllocationGuard;

/// `N` matrices with the same number of rows, side by side in one: the result of a product with stacked weights.
/// `[rows, Σ widths]`.
///
/// ```
/// use attn::__private::runtime::fused::Array;
///
/// let mut q_k = Array::<f32, 2>::uninit(3, [4, 2]);
/// q_k.as_mut_slice().fill(0.0);
/// let [mut q, _] = q_k.parts_mut();
/// q.row_mut(1).fill(1.0);
/// assert_eq!(q_k.view().row(1), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
/// ```
#[derive(Debug)]
pub struct Array<E: Pooled, const N: usize = 1> {
    numbers: Buffer<E>,
    rows: usize,
    widths: [usize; N],
}

impl<E: Pooled, const N: usize> Array<E, N> {
    /// An uninitialised array.
    pub fn uninit(rows: usize, widths: [usize; N]) -> Self {
        let numbers = Buffer::counted(rows * widths.iter().sum::<usize>());
        Self {
            numbers,
            rows,
            widths,
        }
    }

    /// One of the matrices.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part(&self, part: usize) -> Matrix<'_, E> {
        let start: usize = self.widths[..part].iter().sum();
        self.view().some_cols(start..start + self.widths[part])
    }

    /// One of the matrices, mutable.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn part_mut(&mut self, part: usize) -> MatrixMut<'_, E> {
        let start: usize = self.widths[..part].iter().sum();
        let width = self.widths[part];
        self.view_mut().split_cols(start).1.split_cols(width).0
    }

    /// The whole array.
    pub fn view(&self) -> Matrix<'_, E> {
        Matrix::new(&self.numbers, self.rows, self.widths.iter().sum())
    }

    /// The whole array, mutable.
    pub fn view_mut(&mut self) -> MatrixMut<'_, E> {
        MatrixMut::new(&mut self.numbers, self.rows, self.widths.iter().sum())
    }

    /// An array of zeros.
    pub fn zeros(rows: usize, widths: [usize; N]) -> Self {
        let mut array = Self::uninit(rows, widths);
        array.numbers.fill(E::ZERO);
        array
    }

    /// Sets all numbers to 0.
    pub fn clear(&mut self) {
        self.numbers.fill(E::ZERO);
    }

    /// A copy of the array.
    pub fn copy(&self) -> Self {
        let mut copy = Self::uninit(self.rows, self.widths);
        copy.numbers.copy_from_slice(&self.numbers);
        copy
    }

    /// Its numbers, row-major.
    pub fn as_slice(&self) -> &[E] {
        &self.numbers
    }

    /// Its numbers, row-major, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [E] {
        &mut self.numbers
    }

    /// The matrices, mutable.
    pub fn parts_mut(&mut self) -> [MatrixMut<'_, E>; N] {
        let widths = self.widths;
        let mut rest = Some(self.view_mut());
        widths.map(|width| {
            let (part, others) = rest.take().map_or_else(
                || (MatrixMut::empty(), MatrixMut::empty()),
                |rest| rest.split_cols(width),
            );
            rest = Some(others);
            part
        })
    }
}

impl<E: Pooled> Array<E> {
    /// An array of these numbers, row-major.
    pub fn of(numbers: &[E], rows: usize, width: usize) -> Self {
        let mut array = Self::uninit(rows, [width]);
        array.numbers.copy_from_slice(numbers);
        array
    }

    /// The same numbers with so many rows and columns.
    ///
    /// # Panics
    /// If these are more or fewer numbers.
    #[track_caller]
    pub fn reshaped(self, rows: usize, width: usize) -> Self {
        assert_eq!(self.numbers.len(), rows * width, "the numbers of an array");
        Self {
            rows,
            widths: [width],
            ..self
        }
    }
}

/// Computed indices. They count as [activations](crate::memory), too.
///
/// ```
/// use attn::{__private::runtime::fused::IdArray, memory};
///
/// let before = memory::allocated();
/// let mut ids = IdArray::zeros(3);
/// ids.as_mut_slice().copy_from_slice(&[2, 0, 1]);
/// assert_eq!(ids.as_slice(), [2, 0, 1]);
/// assert_eq!(memory::allocated() - before, 3 * size_of::<usize>());
/// ```
#[derive(Debug)]
pub struct IdArray {
    ids: Vec<usize>,
    _guard: AllocationGuard,
}

impl IdArray {
    /// So many indices, all 0.
    pub fn zeros(count: usize) -> Self {
        Self {
            ids: vec![0; count],
            _guard: AllocationGuard::of::<usize>(count),
        }
    }

    /// The indices, row-major.
    pub fn as_slice(&self) -> &[usize] {
        &self.ids
    }

    /// The indices, row-major, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [usize] {
        &mut self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_columns() {
        let mut array = Array::<f64, 3>::uninit(2, [1, 0, 2]);
        array.as_mut_slice().fill(0.0);
        let [mut a, b, mut c] = array.parts_mut();
        assert_eq!((b.rows(), b.cols()), (2, 0));
        a.row_mut(1).fill(1.0);
        c.row_mut(0).fill(2.0);
        assert_eq!(array.as_slice(), [0.0, 2.0, 2.0, 1.0, 0.0, 0.0]);
        assert_eq!(array.part(0).get(1, 0), 1.0);
        assert_eq!(array.part(1).cols(), 0);
        assert_eq!(array.part(2).row(0), [2.0, 2.0]);
        array.part_mut(2).row_mut(1)[1] = 3.0;
        assert_eq!(array.as_slice(), [0.0, 2.0, 2.0, 1.0, 0.0, 3.0]);
    }

    #[test]
    fn an_array_may_be_empty() {
        let mut array = Array::<f32, 2>::uninit(0, [3, 4]);
        assert_eq!(
            array.parts_mut().map(|part| (part.rows(), part.cols())),
            [(0, 3), (0, 4)]
        );
        assert_eq!(array.part(1).rows(), 0);
    }
}
