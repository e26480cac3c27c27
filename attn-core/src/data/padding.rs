//! Which keys are there, and which only fill the batch.

use dfdx::{
    shapes::{Dim, HasShape},
    tensor::{HasErr, Storage, Tensor},
};

use super::{Sizes, check_axis, values};
use crate::{Error, entry::check_batch};

/// Says which keys are real: what a layer with `mask = padding` takes besides its input.
///
/// | data | batched | unbatched |
/// | --- | --- | --- |
/// | valid length: the first `n` keys are real | `Tensor<(B,), usize, D>` | `usize` |
/// | valid length for each query | `Tensor<(B, Q), usize, D>` | `Tensor<(Q,), usize, D>` |
/// | key mask: `true` is real, attend | `Tensor<(B, K), bool, D>` | `Tensor<(K,), bool, D>` |
///
/// `Shape` is `(B, Q, K)` or `(Q, K)`. PyTorch's `key_padding_mask` of
/// [`MultiheadAttention`](https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html) is the key mask
/// with the opposite meaning: there `True` is padding.
///
/// ```
/// use attn_core::data::Padding;
/// use dfdx::prelude::*;
///
/// let dev = Cpu::default();
/// let lengths: Tensor<(usize,), usize, _> = dev.tensor_from_vec(vec![3, 1], (2,));
/// // Two sequences, four queries, four keys.
/// let padding = Padding::<(usize, usize, usize), Cpu>::read(lengths, "Encoder", (2, 4, 4)).unwrap();
/// assert!(padding.attends(0, 3, 2));
/// assert!(!padding.attends(1, 3, 2));
///
/// let too_long: Tensor<(usize,), usize, _> = dev.tensor_from_vec(vec![3, 5], (2,));
/// let error = Padding::<(usize, usize, usize), Cpu>::read(too_long, "Encoder", (2, 4, 4)).unwrap_err();
/// assert_eq!(error.to_string(), "Encoder: the valid length at [1] is 5, but there are 4 keys");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which keys are padding",
    label = "expected valid lengths or a key mask that fit the input",
    note = "for batched input: `Tensor<(B,), usize, D>` (valid length of each sequence), `Tensor<(B, Q), usize, D>` (of each query) or `Tensor<(B, K), bool, D>` (`true` = attend), with the batch and length types of the input",
    note = "for unbatched input: `usize`, `Tensor<(Q,), usize, D>` or `Tensor<(K,), bool, D>`"
)]
pub trait Padding<Shape, D: HasErr>: Sized {
    /// Reads the data and checks it against the sizes.
    ///
    /// # Errors
    /// [`Error::BatchMismatch`], [`Error::LengthsMismatch`] if an axis has the wrong length,
    /// [`Error::LengthBeyondKeys`] if a length is greater than the number of keys.
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>>;
}

/// What [`Padding`] was read into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaddingData(Data);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Data {
    /// `[batch]`.
    PerSequence(Vec<usize>),
    /// `[batch, query]`.
    PerQuery { lengths: Vec<usize>, queries: usize },
    /// `[batch, key]`.
    Keys { attend: Vec<bool>, keys: usize },
}

impl PaddingData {
    /// Whether a query attends to a key. The batch index of unbatched input is 0.
    ///
    /// # Panics
    /// If an index is not within the sizes that the data was read for.
    pub fn attends(&self, b: i64, q_idx: i64, kv_idx: i64) -> bool {
        let [b, q, k] = [b, q_idx, kv_idx].map(|index| index as usize);
        match &self.0 {
            Data::PerSequence(lengths) => k < lengths[b],
            Data::PerQuery { lengths, queries } => k < lengths[b * queries + q],
            Data::Keys { attend, keys } => attend[b * keys + k],
        }
    }
}

impl<B: Dim, Q: Dim, K: Dim, D: Storage<usize>> Padding<(B, Q, K), D> for Tensor<(B,), usize, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let (batch, _, keys) = sizes;
        check_batch(layer, "valid lengths", batch, self.shape().0.size())?;
        let lengths = values(&self);
        for (b, &length) in lengths.iter().enumerate() {
            check_length(layer, length, keys, || vec![b])?;
        }
        Ok(PaddingData(Data::PerSequence(lengths)))
    }
}

impl<B: Dim, Q: Dim, K: Dim, D: Storage<usize>> Padding<(B, Q, K), D> for Tensor<(B, Q), usize, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let (batch, queries, keys) = sizes;
        let (b, q) = *self.shape();
        check_batch(layer, "valid lengths per query", batch, b.size())?;
        check_axis(layer, PER_QUERY, queries, q.size())?;
        let lengths = values(&self);
        for (place, &length) in lengths.iter().enumerate() {
            check_length(layer, length, keys, || {
                vec![place / queries, place % queries]
            })?;
        }
        Ok(PaddingData(Data::PerQuery { lengths, queries }))
    }
}

impl<B: Dim, Q: Dim, K: Dim, D: Storage<bool>> Padding<(B, Q, K), D> for Tensor<(B, K), bool, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let (batch, _, keys) = sizes;
        let (b, k) = *self.shape();
        check_batch(layer, "key mask", batch, b.size())?;
        check_axis(layer, KEY_MASK, keys, k.size())?;
        let attend = values(&self);
        Ok(PaddingData(Data::Keys { attend, keys }))
    }
}

impl<Q: Dim, K: Dim, D: HasErr> Padding<(Q, K), D> for usize {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        check_length(layer, self, sizes.2, Vec::new)?;
        Ok(PaddingData(Data::PerSequence(vec![self])))
    }
}

impl<Q: Dim, K: Dim, D: Storage<usize>> Padding<(Q, K), D> for Tensor<(Q,), usize, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let (_, queries, keys) = sizes;
        check_axis(layer, PER_QUERY, queries, self.shape().0.size())?;
        let lengths = values(&self);
        for (q, &length) in lengths.iter().enumerate() {
            check_length(layer, length, keys, || vec![q])?;
        }
        Ok(PaddingData(Data::PerQuery { lengths, queries }))
    }
}

impl<Q: Dim, K: Dim, D: Storage<bool>> Padding<(Q, K), D> for Tensor<(K,), bool, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let keys = sizes.2;
        check_axis(layer, KEY_MASK, keys, self.shape().0.size())?;
        let attend = values(&self);
        Ok(PaddingData(Data::Keys { attend, keys }))
    }
}

/// Data that is kept for the next call.
impl<S, D: HasErr, P: Padding<S, D> + Clone> Padding<S, D> for &P {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        self.clone().read(layer, sizes)
    }
}

const PER_QUERY: (&str, &str) = ("valid lengths per query", "query");
const KEY_MASK: (&str, &str) = ("the entries of the key mask", "key");

fn check_length<Dev>(
    layer: &'static str,
    length: usize,
    keys: usize,
    index: impl FnOnce() -> Vec<usize>,
) -> Result<(), Error<Dev>> {
    if length <= keys {
        return Ok(());
    }
    Err(Error::LengthBeyondKeys {
        layer,
        length,
        keys,
        index: index(),
    })
}
