//! The numbers of tensors, as types and as bytes.

use std::{
    fmt::{self, Display},
    mem::size_of,
};

use half::{bf16, f16};
use safetensors::Dtype;

use crate::Element;

/// The type of the numbers of a tensor, and its shape.
///
/// ```
/// use attn::checkpoint::{Dtype, TensorType};
///
/// let matrix = TensorType { dtype: Dtype::F32, shape: vec![2, 3] };
/// assert_eq!(matrix.to_string(), "F32 [2, 3]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The type of its numbers.
    pub dtype: Dtype,
    /// How many there are along each axis. The last axis is that of neighbours.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// How many bytes it takes: none if that is no whole number of them, or more than a `usize` can say.
    pub(super) fn bytes(&self) -> Option<usize> {
        let factors = [self.dtype.bitsize()];
        let mut factors = factors.iter().chain(&self.shape);
        let bits = factors.try_fold(1_usize, |bits, &factor| bits.checked_mul(factor))?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

impl Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype, self.shape)
    }
}

/// The type of an element: there are two.
pub(super) fn dtype_of<E: Element>() -> Dtype {
    if size_of::<E>() == size_of::<f32>() {
        Dtype::F32
    } else {
        Dtype::F64
    }
}

/// The bytes of some numbers.
pub(super) fn encode<E: Element>(numbers: &[E]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of_val(numbers));
    for number in numbers {
        // Exact: an element is an `f32` or an `f64`.
        let number = number.to_f64().unwrap_or(f64::NAN);
        match dtype_of::<E>() {
            Dtype::F32 => bytes.extend((number as f32).to_le_bytes()),
            _ => bytes.extend(number.to_le_bytes()),
        }
    }
    bytes
}

/// Reads one number from its bytes.
type Read = fn(&[u8]) -> f64;

/// How floats of a type are read, and the bytes of one; nothing for other types. An `f64` can hold them all.
fn reader(dtype: Dtype) -> Option<(Read, usize)> {
    /// The bytes of a chunk, which has as many as it must have.
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap_or([0; N])
    }
    Some(match dtype {
        Dtype::F16 => (|bytes| f16::from_le_bytes(array(bytes)).into(), 2),
        Dtype::BF16 => (|bytes| bf16::from_le_bytes(array(bytes)).into(), 2),
        Dtype::F32 => (|bytes| f32::from_le_bytes(array(bytes)).into(), 4),
        Dtype::F64 => (|bytes| f64::from_le_bytes(array(bytes)), 8),
        _ => return None,
    })
}

/// Whether numbers of this type can be converted.
pub(super) fn is_float(dtype: Dtype) -> bool {
    reader(dtype).is_some()
}

/// The numbers in some bytes; none if they are not floats.
pub(super) fn decode(dtype: Dtype, bytes: &[u8]) -> impl Iterator<Item = f64> {
    let chunks = reader(dtype).map(|(read, width)| bytes.chunks_exact(width).map(read));
    chunks.into_iter().flatten()
}
