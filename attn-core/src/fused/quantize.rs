//! The parameters of a session in fewer bits.

use super::arena::{Arena, Numbers};
use crate::{
    Element,
    kernel::quantized::WeightFormat,
    kernel::{Matrix, quantized},
};

/// Parameters whose matrices can be rounded.
pub trait Quantize<E: Element> {
    /// Hands all of them to the quantizer.
    fn quantize(&mut self, with: &mut Quantizer<E>);
}

impl<E: Element, P: Quantize<E>> Quantize<E> for Option<P> {
    fn quantize(&mut self, with: &mut Quantizer<E>) {
        self.iter_mut().for_each(|of| of.quantize(with));
    }
}

impl<E: Element, P: Quantize<E>> Quantize<E> for Vec<P> {
    fn quantize(&mut self, with: &mut Quantizer<E>) {
        for (index, of) in self.iter_mut().enumerate() {
            with.field(&index.to_string(), of);
        }
    }
}

/// What a session has lost and won by rounding its weights.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WeightReport {
    /// The format of the weights.
    pub format: WeightFormat,
    /// The bytes of all parameters before.
    pub bytes_before: usize,
    /// The bytes of all parameters now. Those that are no matrices of a product or rows of a table, as the gains of norms, are what they were.
    pub bytes: usize,
    /// The rows with a large error, in the order of the model.
    pub inexact: Vec<InexactRow>,
}

/// A row of weights with a large error: one of its numbers is much larger than the others, or is not finite.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct InexactRow {
    /// The path of the layer: `blocks.3.attention.q_k_v`.
    pub layer: String,
    /// The row: an output, or a token of a table. Projections of one value stand one below the other.
    pub row: usize,
    /// `‖w - rounded‖ / ‖w‖`
    pub error: f32,
}

/// The error of a row from which on a report names it. That of normally distributed weights in int8 is about 0.01, and in bf16 0.002.
const LARGE: f32 = 0.05;

/// Rounds the matrices among the parameters of a session, and moves the others to memory of their own.
pub struct Quantizer<E: Element> {
    path: Vec<String>,
    report: WeightReport,
    /// The memory in which all parameters were.
    before: Option<Arena<E>>,
}

impl<E: Element> Quantizer<E> {
    /// Rounds the matrices of `weights`. Their former memory goes back to the system.
    pub(crate) fn run(weights: &mut impl Quantize<E>, format: WeightFormat) -> WeightReport {
        let report = WeightReport {
            format,
            bytes_before: 0,
            bytes: 0,
            inexact: Vec::new(),
        };
        let mut quantizer = Self {
            path: Vec::new(),
            report,
            before: None,
        };
        weights.quantize(&mut quantizer);
        let Self { report, before, .. } = quantizer;
        // Nobody else refers to it now.
        let numbers = before.and_then(|arena| std::sync::Arc::into_inner(arena)?.into_inner());
        if let Some(numbers) = numbers {
            numbers.release();
        }
        report
    }

    /// Parameters with a name.
    pub fn field(&mut self, name: &str, of: &mut impl Quantize<E>) {
        self.path.push(name.into());
        of.quantize(self);
        self.path.pop();
    }

    /// A matrix of rows of so many numbers.
    pub(crate) fn matrix(&mut self, numbers: &mut Numbers<E>, cols: usize) {
        let format = self.report.format;
        if cols == 0 || !format.fits(cols) {
            return self.keep(numbers);
        }
        let rows = numbers.len() / cols;
        self.report.bytes_before += size_of_val::<[E]>(numbers);
        let (matrix, errors) = quantized::quantize(Matrix::new(numbers, rows, cols), format);
        self.report.bytes += matrix.bytes();
        let large = errors.into_iter().enumerate();
        let large = large.filter(|(_, error)| error.is_nan() || *error > LARGE);
        let layer = self.path.join(".");
        let large = large.map(|(row, error)| InexactRow {
            layer: layer.clone(),
            row,
            error,
        });
        self.report.inexact.extend(large);
        self.replace(numbers, Numbers::Quantized(matrix));
    }

    /// Parameters that stay what they are.
    pub(crate) fn keep(&mut self, numbers: &mut Numbers<E>) {
        let bytes = size_of_val::<[E]>(numbers);
        self.report.bytes_before += bytes;
        self.report.bytes += bytes;
        let copy = Numbers::copy_of(numbers);
        self.replace(numbers, copy);
    }

    fn replace(&mut self, numbers: &mut Numbers<E>, by: Numbers<E>) {
        if let Numbers::Range { arena, .. } = std::mem::replace(numbers, by) {
            self.before.get_or_insert(arena);
        }
    }
}
