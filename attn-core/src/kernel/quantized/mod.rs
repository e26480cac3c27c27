//! Products with weights in fewer bits, which a session reads instead of `f32`.

mod bf16;
mod int8;

pub use bf16::Bf16Matrix;
pub use int8::Int8Matrix;

use std::ops::Range;

use super::compiled::compiled;
use super::linear_parts::Parts;
use super::parallel::{for_each, rows_per_task};
use super::{Matrix, MatrixMut, Real};

/// Reading a number of the weights takes as long as multiplying it with so many rows.
const ROWS_PER_READ: usize = 4;

/// The columns of the smallest block of outputs.
const BLOCK: usize = 64;

/// The numbers in which a session keeps the matrices of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WeightFormat {
    /// 8 bits, symmetric, with a scale for each output of a linear layer, or for each row of a table: `w ≈ scale q`, with an integer `q` from
    /// -127 to 127. What is multiplied with the weights is rounded to 16 bits, a row at a time.
    Int8,
    /// bf16: the sign, the exponent and the first 7 bits of an `f32`, rounded to the nearest. What is multiplied with the weights is rounded, too.
    /// Sums are those of [`Dtype::Bf16`](crate::kernel::Dtype), with the same bits on every processor without AMX.
    Bf16,
}

/// A matrix of weights `[out, in]` in one of the formats.
#[derive(Debug)]
pub enum QuantizedMatrix {
    /// [`WeightFormat::Int8`]
    Int8(Int8Matrix),
    /// [`WeightFormat::Bf16`]
    Bf16(Bf16Matrix),
}

impl QuantizedMatrix {
    /// The bytes that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Int8(w) => w.bytes(),
            Self::Bf16(w) => w.bytes(),
        }
    }

    /// The numbers of some rows as bytes, row-major, little-endian.
    pub fn to_bytes(&self, rows: Range<usize>) -> Vec<u8> {
        match self {
            Self::Int8(w) => rows
                .flat_map(|row| w.integers(row))
                .map(|q| q as u8)
                .collect(),
            Self::Bf16(w) => rows
                .flat_map(|row| w.bits(row))
                .flat_map(u16::to_le_bytes)
                .collect(),
        }
    }

    /// The scales of some rows, if rows have scales.
    pub fn scales(&self, rows: Range<usize>) -> Option<&[f32]> {
        match self {
            Self::Int8(w) => Some(&w.scales()[rows]),
            Self::Bf16(_) => None,
        }
    }

    /// The matrix of these [bytes](Self::to_bytes) and [scales](Self::scales).
    ///
    /// # Panics
    /// If they do not fit the number of rows and of columns.
    pub fn of_bytes(
        format: WeightFormat,
        [rows, cols]: [usize; 2],
        scales: Vec<f32>,
        bytes: Vec<u8>,
    ) -> Self {
        match format {
            WeightFormat::Int8 => {
                assert_eq!(scales.len(), rows, "a scale for each row");
                let integers: Vec<i8> = bytes.into_iter().map(|byte| byte as i8).collect();
                Self::Int8(Int8Matrix::of_integers(cols, scales, &integers))
            }
            WeightFormat::Bf16 => {
                assert_eq!(bytes.len(), 2 * rows * cols, "two bytes for each number");
                let bits = bytes.chunks_exact(2);
                let bits = bits.map(|half| u16::from_le_bytes([half[0], half[1]]));
                Self::Bf16(Bf16Matrix::of_bits(rows, cols, bits))
            }
        }
    }

    /// The number of rows, and of columns.
    pub fn extents(&self) -> [usize; 2] {
        match self {
            Self::Int8(w) => w.extents(),
            Self::Bf16(w) => w.extents(),
        }
    }
}

/// Some rows of a matrix: those of a group of inputs.
#[derive(Clone, Debug)]
pub struct QuantizedRows<'a> {
    matrix: &'a QuantizedMatrix,
    rows: Range<usize>,
}

impl<'a> From<&'a QuantizedMatrix> for QuantizedRows<'a> {
    fn from(matrix: &'a QuantizedMatrix) -> Self {
        matrix.some_rows(0..matrix.extents()[0])
    }
}

impl QuantizedMatrix {
    /// Some of its rows.
    pub fn some_rows(&self, rows: Range<usize>) -> QuantizedRows<'_> {
        QuantizedRows { matrix: self, rows }
    }
}

impl WeightFormat {
    /// Whether a matrix with so many columns can have this format.
    pub fn fits(self, cols: usize) -> bool {
        match self {
            Self::Int8 => Int8Matrix::fits(cols),
            Self::Bf16 => true,
        }
    }
}

compiled! {
    Quantized:

    /// Rounds a matrix `[out, in]`, and returns the error of each row: the norm of what is missing, in parts of the norm of the row.
    ///
    /// # Panics
    /// If its rows are not contiguous, or do not [fit](WeightFormat::fits).
    #[track_caller]
    pub fn quantize<E>(w: Matrix<'_, E>, format: WeightFormat) -> (QuantizedMatrix, Vec<f32>) {
        match format {
            WeightFormat::Int8 => {
                let (w, errors) = int8::quantize(w);
                (QuantizedMatrix::Int8(w), errors)
            }
            WeightFormat::Bf16 => {
                let (w, errors) = bf16::quantize(w);
                (QuantizedMatrix::Bf16(w), errors)
            }
        }
    }

    /// `y = x Wᵀ + b`, for `x [n, in]`, `w [out, in]`, `bias [out]` and parts of `y`, each of them `[n, out / parts]`.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<E>(x: Matrix<'_, E>, w: QuantizedRows<'_>, bias: Option<&[E]>, y: Parts<'_, E>) {
        let QuantizedRows { matrix, rows } = w;
        let [outputs, inputs] = [rows.len(), matrix.extents()[1]];
        let width = outputs / y.len().max(1);
        let fits = |y: &MatrixMut<'_, E>| y.rows() == x.rows() && y.cols() == width;
        assert!(
            x.cols() == inputs
                && outputs == width * y.len()
                && y.iter().all(fits)
                && bias.is_none_or(|bias| bias.len() == outputs),
            "weights ({outputs} x {inputs}) map ({} x {}) to {y:?}",
            x.rows(),
            x.cols()
        );
        match matrix {
            QuantizedMatrix::Int8(w) => int8::forward(x, w, rows, bias, y),
            QuantizedMatrix::Bf16(w) => bf16::forward(x, w, rows, bias, y),
        }
    }

    /// Copies row `rows[i]` to row `i` of the result.
    ///
    /// # Panics
    /// If there is no such row, or the shapes do not fit.
    #[track_caller]
    pub fn copy_rows<E>(w: &QuantizedMatrix, rows: &[usize], to: MatrixMut<'_, E>) {
        let [all, cols] = w.extents();
        assert!(to.rows() == rows.len() && to.cols() == cols, "{} rows of {all} x {cols} to {to:?}", rows.len());
        assert!(rows.iter().all(|row| *row < all), "rows {rows:?} of {all}");
        match w {
            QuantizedMatrix::Int8(w) => copy(rows, to, |row| w.row(row)),
            QuantizedMatrix::Bf16(w) => copy(rows, to, |row| w.row(row)),
        }
    }
}

fn copy<E: Real, I: Iterator<Item = f32>>(
    rows: &[usize],
    to: MatrixMut<'_, E>,
    of: impl Fn(usize) -> I + Send + Sync,
) {
    let some = rows_per_task(to.cols());
    let tasks = rows.chunks(some).zip(to.row_chunks(some));
    for_each(tasks, |(rows, mut to)| {
        for (index, row) in rows.iter().enumerate() {
            for (to, weight) in to.row_mut(index).iter_mut().zip(of(*row)) {
                *to = E::of_f32(weight);
            }
        }
    });
}

/// The sums of squares of the weights of a row and of what is missing of them.
#[derive(Default)]
struct RowError {
    missing: f64,
    all: f64,
}

impl RowError {
    #[inline(always)]
    fn add(&mut self, weight: f32, rounded: f32) {
        self.missing += f64::from(weight - rounded).powi(2);
        self.all += f64::from(weight).powi(2);
    }

    fn relative(&self) -> f32 {
        match self.all == 0.0 {
            true => 0.0,
            false => (self.missing / self.all).sqrt() as f32,
        }
    }
}

#[cfg(test)]
mod tests;
