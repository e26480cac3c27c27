//! The numbers of tensors, as types and as bytes.

use std::{
    fmt::{self, Display},
    mem::size_of,
};

use half::{bf16, f16};
use safetensors::Dtype;

use crate::Element;

/// The element type and the shape of a tensor.
///
/// ```
/// use attn::checkpoint::{Dtype, TensorType};
///
/// let matrix = TensorType { dtype: Dtype::F32, shape: vec![2, 3] };
/// assert_eq!(matrix.to_string(), "F32 [2, 3]");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorType {
    /// The element type.
    pub dtype: Dtype,
    /// The size of each axis. The last axis is contiguous.
    pub shape: Vec<usize>,
}

impl TensorType {
    /// The number of bytes; `None` if it is not an integer, or does not fit a `usize`.
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

/// The type of `E`: `f32` or `f64`.
pub(super) fn dtype_of<E: Element>() -> Dtype {
    if size_of::<E>() == size_of::<f32>() {
        Dtype::F32
    } else {
        Dtype::F64
    }
}

/// The numbers as bytes, little-endian.
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

/// A function that decodes one number.
type Read = fn(&[u8]) -> f64;

/// The decoder of a float type, and the size of a number in bytes; `None` for other types. An `f64` holds all of them exactly.
fn reader(dtype: Dtype) -> Option<(Read, usize)> {
    /// The bytes of a chunk with exactly `N` bytes.
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

/// The numbers in these bytes; none if the type is not a float.
pub(super) fn decode(dtype: Dtype, bytes: &[u8]) -> impl Iterator<Item = f64> {
    let chunks = reader(dtype).map(|(read, width)| bytes.chunks_exact(width).map(read));
    chunks.into_iter().flatten()
}
