//! The parameters of a session in fewer bits, by the names of the model's tensors.

use std::{convert::Infallible, mem, ops::Range, sync::Arc};

use super::arena::Numbers;
use crate::{
    Element,
    kernel::{
        Buffer, Matrix,
        quantized::{self, QuantizedMatrix, WeightFormat},
    },
    lora::adapted_layer,
};

/// Parameters of layers, some of which are matrices that can be rounded.
pub trait VisitWeights<E: Element> {
    /// Calls `visit` with all of them.
    fn visit_weights(&mut self, visit: WeightVisitor<'_, E>);
}

/// A function that is called with each parameter. A matrix that can be rounded comes with the number of its columns.
pub type WeightVisitor<'a, E> = &'a mut dyn FnMut(&mut Numbers<E>, Option<usize>);

impl<E: Element, W: VisitWeights<E>> VisitWeights<E> for Option<W> {
    fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
        self.iter_mut().for_each(|of| of.visit_weights(visit));
    }
}

impl<E: Element, W: VisitWeights<E>> VisitWeights<E> for Vec<W> {
    fn visit_weights(&mut self, visit: WeightVisitor<'_, E>) {
        self.iter_mut().for_each(|of| of.visit_weights(visit));
    }
}

/// The parameters of all of these.
pub fn visit_weights<E: Element>(of: &mut [&mut dyn VisitWeights<E>], visit: WeightVisitor<'_, E>) {
    of.iter_mut().for_each(|of| of.visit_weights(visit));
}

/// A tensor of a model, and its place in the arena.
#[derive(Clone, Debug)]
pub struct NamedTensor {
    pub(crate) name: String,
    pub(crate) dims: Vec<usize>,
    pub(crate) range: Range<usize>,
}

/// The bytes of a session's weights before and after rounding, and the rows with large errors.
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
    /// The name of the tensor: `blocks.3.attention.q_proj.weight`.
    pub tensor: String,
    /// The row: an output, or a token of a table.
    pub row: usize,
    /// `‖w - rounded‖ / ‖w‖`
    pub error: f32,
}

impl InexactRow {
    pub(crate) fn new(tensor: String, row: usize, error: f32) -> Self {
        Self { tensor, row, error }
    }
}

/// The error of a row from which on a report names it. That of normally distributed weights in int8 is about 0.01, and in bf16 0.002.
const LARGE: f32 = 0.05;

/// The weights of a session, rounded, by the names of the model's tensors.
pub struct RoundedWeights<E: Element> {
    pub(crate) report: WeightReport,
    /// In the order of the layers. A tensor that several layers read is there once.
    pub(crate) tensors: Vec<SessionTensor<E>>,
}

/// A tensor of a session.
pub(crate) struct SessionTensor<E: Element> {
    pub(crate) name: String,
    pub(crate) dims: Vec<usize>,
    numbers: Numbers<E>,
    /// Its rows of a rounded matrix, or its range of other numbers.
    range: Range<usize>,
}

/// The numbers of a tensor of a session.
pub(crate) enum TensorNumbers<'a, E> {
    Exact(&'a [E]),
    Rounded(&'a QuantizedMatrix, Range<usize>),
}

impl<E: Element> SessionTensor<E> {
    pub(crate) fn numbers(&self) -> TensorNumbers<'_, E> {
        match self.numbers.quantized() {
            None => TensorNumbers::Exact(&self.numbers[self.range.clone()]),
            Some(matrix) => TensorNumbers::Rounded(matrix, self.range.clone()),
        }
    }
}

/// Where the weights of a session come from.
pub(crate) trait WeightSource<E> {
    type Error;

    /// The matrix of tensors whose rows stand one below the other. `numbers` are those of the model.
    fn matrix(
        &mut self,
        tensors: &[NamedTensor],
        numbers: Matrix<'_, E>,
    ) -> Result<QuantizedMatrix, Self::Error>;

    /// The numbers of a tensor that is not rounded. They are those of the model before.
    fn exact(&mut self, tensor: &NamedTensor, numbers: &mut [E]) -> Result<(), Self::Error>;
}

/// The tensors of a session that are rounded in a format, and those that are not. Each is there once.
pub(crate) fn tensors_by_kind<E: Element>(
    weights: &mut dyn VisitWeights<E>,
    tensors: &[NamedTensor],
    format: WeightFormat,
) -> Vec<(NamedTensor, bool)> {
    let mut found: Vec<(NamedTensor, bool)> = Vec::new();
    weights.visit_weights(&mut |numbers, cols| {
        let parts = parts(tensors, numbers);
        let is_rounded = rounded_cols(parts, cols, format).is_some();
        for tensor in parts {
            if found.iter().all(|(other, _)| other.name != tensor.name) {
                found.push((tensor.clone(), is_rounded));
            }
        }
    });
    found
}

/// The tensors in a range of the arena.
fn parts<'t, E: Element>(tensors: &'t [NamedTensor], numbers: &Numbers<E>) -> &'t [NamedTensor] {
    let Numbers::Range { range, .. } = numbers else {
        return &[];
    };
    let start = tensors.partition_point(|tensor| tensor.range.start < range.start);
    let end = tensors.partition_point(|tensor| tensor.range.start < range.end);
    &tensors[start..end.max(start)]
}

/// The columns, if the matrix is rounded. The matrices of adapters are not: they are small, and are what was trained last.
fn rounded_cols(
    tensors: &[NamedTensor],
    cols: Option<usize>,
    format: WeightFormat,
) -> Option<usize> {
    let is_adapter = |tensor: &NamedTensor| adapted_layer(&tensor.name).is_some();
    cols.filter(|cols| *cols > 0 && format.fits(*cols) && !tensors.iter().any(is_adapter))
}

/// Replaces the weights of a session by those of a source: matrices in the format, and the others in memory of their own. The former memory of all
/// goes back to the system.
pub(crate) fn replace_weights<E: Element, S: WeightSource<E>>(
    weights: &mut dyn VisitWeights<E>,
    tensors: &[NamedTensor],
    format: WeightFormat,
    source: &mut S,
) -> Result<RoundedWeights<E>, S::Error> {
    let [mut bytes_before, mut bytes] = [0; 2];
    let mut found: Vec<SessionTensor<E>> = Vec::new();
    let mut before = None;
    let mut result = Ok(());
    weights.visit_weights(&mut |numbers, cols| {
        if result.is_err() {
            return;
        }
        let parts = parts(tensors, numbers);
        let cols = rounded_cols(parts, cols, format);
        let size = size_of_val::<[E]>(numbers);
        bytes_before += size;
        let new = match cols {
            Some(cols) => {
                let matrix = Matrix::new(numbers, numbers.len() / cols, cols);
                source.matrix(parts, matrix).map(|matrix| {
                    bytes += matrix.bytes();
                    Numbers::Quantized(Arc::new(matrix))
                })
            }
            None => {
                bytes += size;
                copy_of(numbers, parts, source).map(Numbers::of)
            }
        };
        match new {
            Err(error) => result = Err(error),
            Ok(new) => {
                let start = parts.first().map_or(0, |first| first.range.start);
                for NamedTensor { name, dims, range } in parts {
                    if found.iter().all(|other| other.name != *name) {
                        let cols = cols.unwrap_or(1);
                        found.push(SessionTensor {
                            name: name.clone(),
                            dims: dims.clone(),
                            numbers: new.clone(),
                            range: (range.start - start) / cols..(range.end - start) / cols,
                        });
                    }
                }
                if let Numbers::Range { arena, .. } = mem::replace(numbers, new) {
                    before.get_or_insert(arena);
                }
            }
        }
    });
    result?;
    // Nobody else refers to it now.
    let numbers = before.and_then(|arena| Arc::into_inner(arena)?.into_inner());
    if let Some(numbers) = numbers {
        numbers.release();
    }
    Ok(RoundedWeights {
        report: WeightReport {
            format,
            bytes_before,
            bytes,
            inexact: Vec::new(),
        },
        tensors: found,
    })
}

/// The numbers in memory of their own, with what the source has for them.
fn copy_of<E: Element, S: WeightSource<E>>(
    numbers: &Numbers<E>,
    tensors: &[NamedTensor],
    source: &mut S,
) -> Result<Buffer<E>, S::Error> {
    let mut buffer = Buffer::exact(numbers.len());
    buffer.copy_from_slice(numbers);
    let start = tensors.first().map_or(0, |first| first.range.start);
    for tensor in tensors {
        let range = tensor.range.start - start..tensor.range.end - start;
        source.exact(tensor, &mut buffer[range])?;
    }
    Ok(buffer)
}

/// The weights of the model, rounded.
struct Rounding {
    format: WeightFormat,
    inexact: Vec<InexactRow>,
}

/// Rounds the matrices of a session.
pub(crate) fn round_weights<E: Element>(
    weights: &mut dyn VisitWeights<E>,
    tensors: &[NamedTensor],
    format: WeightFormat,
) -> RoundedWeights<E> {
    let mut source = Rounding {
        format,
        inexact: Vec::new(),
    };
    let Ok(mut rounded) = replace_weights(weights, tensors, format, &mut source);
    rounded.report.inexact = source.inexact;
    rounded
}

impl<E: Element> WeightSource<E> for Rounding {
    type Error = Infallible;

    fn matrix(
        &mut self,
        tensors: &[NamedTensor],
        numbers: Matrix<'_, E>,
    ) -> Result<QuantizedMatrix, Infallible> {
        let (matrix, errors) = quantized::quantize(numbers, self.format);
        let mut errors = errors.into_iter();
        for NamedTensor { name, range, .. } in tensors {
            let rows = errors.by_ref().take(range.len() / numbers.cols());
            let large = rows
                .enumerate()
                .filter(|(_, error)| error.is_nan() || *error > LARGE);
            let large = large.map(|(row, error)| InexactRow::new(name.clone(), row, error));
            self.inexact.extend(large);
        }
        Ok(matrix)
    }

    fn exact(&mut self, _: &NamedTensor, _: &mut [E]) -> Result<(), Infallible> {
        Ok(())
    }
}
