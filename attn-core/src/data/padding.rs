//! Padding: the real keys of each sequence.

use dfdx::{
    shapes::{Dim, HasShape},
    tensor::{HasErr, Storage, Tensor},
};

use super::{Sizes, check_axis, values};
use crate::{
    Error,
    entry::check_batch,
    fused::{Affine, Interval, Truth},
    kernel::axis::Counted,
};

/// The real keys: an argument of a layer with `mask = padding`, besides its input.
///
/// | data | batched | unbatched |
/// | --- | --- | --- |
/// | valid length: the first `n` keys are real | `Tensor<(B,), usize, D>` | `usize` |
/// | key mask: `true` is real, attend | `Tensor<(B, K), bool, D>` | `Tensor<(K,), bool, D>` |
/// | valid length for each query | [`LengthsPerQuery`]`<Tensor<(B, Q), usize, D>>` | `LengthsPerQuery<Tensor<(Q,), usize, D>>` |
///
/// A plain `usize` tensor `[batch, seq]` is a compile error: it may be lengths per query, or the ones and zeros of a tokenizer's
/// `attention_mask`. The latter becomes a key mask by conversion to `bool`: `attention_mask.ne(0)`.
///
/// `Shape` is `(B, Q, K)` or `(Q, K)`. PyTorch's `key_padding_mask` of
/// [`MultiheadAttention`](https://pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html) is the key mask
/// with the opposite meaning: there `True` is padding.
///
/// ```
/// use attn::{data::Padding, dfdx::prelude::*};
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
    message = "`{Self}` does not say which keys are padding, in input of the axes `{Shape}`",
    label = "expected valid lengths or a key mask that fit the input",
    note = "for batched input: `Tensor<(B,), usize, D>` (valid length of each sequence), `Tensor<(B, K), bool, D>` (`true` = attend) or `LengthsPerQuery<Tensor<(B, Q), usize, D>>`, with the batch and length types of the input",
    note = "for unbatched input: `usize`, `Tensor<(K,), bool, D>` or `LengthsPerQuery<Tensor<(Q,), usize, D>>`",
    note = "`dev.tensor_from_vec(lengths, (batch,))` makes a tensor of a `Vec<usize>`"
)]
pub trait Padding<Shape, D: HasErr>: Sized {
    /// Reads the data and checks it against the sizes.
    ///
    /// # Errors
    /// [`Error::BatchMismatch`], [`Error::LengthsMismatch`] if an axis has the wrong length,
    /// [`Error::LengthBeyondKeys`] if a length is greater than the number of keys.
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>>;
}

/// A valid length for each query, as [`Padding`]: `[batch, query]`, or `[query]` without a batch. Query `q` attends to the first
/// `lengths[q]` keys.
///
/// ```
/// use attn::{data::{LengthsPerQuery, Padding}, dfdx::prelude::*};
///
/// let lengths: Tensor<Rank1<3>, usize, _> = Cpu::default().tensor([1, 2, 3]);
/// // Three queries, three keys.
/// let padding = Padding::<(Const<3>, Const<3>), Cpu>::read(LengthsPerQuery(lengths), "Encoder", (1, 3, 3)).unwrap();
/// assert!(padding.attends(0, 1, 1));
/// assert!(!padding.attends(0, 1, 2));
/// ```
#[derive(Clone, Debug)]
pub struct LengthsPerQuery<T>(pub T);

/// No type implements this trait. The impls of [`Padding`] for plain `usize` tensors with a sequence axis require it, so that the
/// compiler's error names both readings.
#[diagnostic::on_unimplemented(
    message = "padding as a `usize` tensor with a sequence axis has two readings: ones and zeros that mark keys, or a valid length for each query",
    label = "say which one it is",
    note = "ones and zeros, such as the `attention_mask` of a tokenizer: `attention_mask.ne(0)` is a key mask of `bool`, `true` = attend",
    note = "a valid length for each query: `attn::data::LengthsPerQuery(lengths)`"
)]
pub trait HasOneReading {}

/// The values of [`Padding`].
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

impl PaddingData {
    /// [`attends`](Self::attends) of all queries and keys of a zone.
    pub fn attends_all<'z>(&self, b: Affine<'z>, q_idx: Affine<'z>, kv_idx: Affine<'z>) -> Truth {
        let at = kv_idx.zone();
        let [(b, last), (q, last_q), (k, last_k)] =
            [b, q_idx, kv_idx].map(|index| index.bounds().ends());
        if b != last {
            return Truth::Unknown(None);
        }
        let b = b as usize;
        match &self.0 {
            Data::PerSequence(lengths) => kv_idx.less(at.number(lengths[b] as i64)),
            Data::PerQuery { lengths, queries } => {
                let lengths = &lengths[b * queries..][q as usize..=last_q as usize];
                let ends = Interval::around(lengths.iter().map(|&length| length as i64));
                kv_idx.less(Affine::looked_up(at, ends, [q_idx]))
            }
            Data::Keys { attend, keys } => {
                let attend = &attend[b * keys..][k as usize..=last_k as usize];
                let marks = Interval::around(attend.iter().map(|&attend| i64::from(attend)));
                Affine::looked_up(at, marks, [kv_idx]).equals(at.number(1))
            }
        }
    }

    /// The keys that the one query of each sequence attends to.
    pub(crate) fn counted(&self) -> Counted<'_> {
        match &self.0 {
            Data::PerSequence(lengths) | Data::PerQuery { lengths, .. } => Counted::First(lengths),
            Data::Keys { attend, .. } => Counted::Where(attend),
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

impl<B: Dim, Q: Dim, K: Dim, D: Storage<usize>> Padding<(B, Q, K), D>
    for LengthsPerQuery<Tensor<(B, Q), usize, D>>
{
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let (batch, queries, keys) = sizes;
        let (b, q) = *self.0.shape();
        check_batch(layer, "valid lengths per query", batch, b.size())?;
        check_axis(layer, PER_QUERY, queries, q.size())?;
        let lengths = values(&self.0);
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

impl<Q: Dim, K: Dim, D: Storage<usize>> Padding<(Q, K), D>
    for LengthsPerQuery<Tensor<(Q,), usize, D>>
{
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PaddingData, Error<D::Err>> {
        let (_, queries, keys) = sizes;
        check_axis(layer, PER_QUERY, queries, self.0.shape().0.size())?;
        let lengths = values(&self.0);
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

impl<B: Dim, S: Dim, Q: Dim, K: Dim, D: Storage<usize>> Padding<(B, Q, K), D>
    for Tensor<(B, S), usize, D>
where
    Self: HasOneReading,
{
    fn read(self, _: &'static str, _: Sizes) -> Result<PaddingData, Error<D::Err>> {
        no_one_reading()
    }
}

impl<S: Dim, Q: Dim, K: Dim, D: Storage<usize>> Padding<(Q, K), D> for Tensor<(S,), usize, D>
where
    Self: HasOneReading,
{
    fn read(self, _: &'static str, _: Sizes) -> Result<PaddingData, Error<D::Err>> {
        no_one_reading()
    }
}

/// Unreachable: the bound [`HasOneReading`] never holds.
fn no_one_reading() -> ! {
    unreachable!("no type has `HasOneReading`")
}

/// Borrowed data, for several calls.
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

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::{fused::Zone, kernel::attention::Coverage};

    type Batched = (usize, usize, usize);
    type Unbatched = (usize, usize);
    type Read = Result<PaddingData, Error<CpuError>>;

    /// Two sequences, three queries, four keys.
    const SIZES: Sizes = (2, 3, 4);

    fn ints<S: Shape>(values: &[usize], shape: S) -> Tensor<S, usize, Cpu> {
        Cpu::default().tensor_from_vec(values.to_vec(), shape)
    }

    fn bools<S: Shape>(values: &[bool], shape: S) -> Tensor<S, bool, Cpu> {
        Cpu::default().tensor_from_vec(values.to_vec(), shape)
    }

    fn batched(data: impl Padding<Batched, Cpu>, sizes: Sizes) -> Read {
        data.read("L", sizes)
    }

    fn unbatched(data: impl Padding<Unbatched, Cpu>, q: usize, k: usize) -> Read {
        data.read("L", (1, q, k))
    }

    #[track_caller]
    fn fails(read: Read, message: &str) {
        assert_eq!(read.unwrap_err().to_string(), message);
    }

    /// The number of keys that each query attends to, `[batch, query]`.
    fn counts(data: &PaddingData, (b, q, k): Sizes) -> Vec<usize> {
        let place = |row| ((row / q) as i64, (row % q) as i64);
        (0..b * q)
            .map(place)
            .map(|(b, q)| (0..k as i64).filter(|&k| data.attends(b, q, k)).count())
            .collect()
    }

    #[test]
    fn lengths_per_sequence_mask_later_keys() {
        let data = batched(ints(&[4, 1], (2,)), SIZES).unwrap();
        assert_eq!(counts(&data, SIZES), [4, 4, 4, 1, 1, 1]);
        assert!(data.attends(1, 0, 0) && !data.attends(1, 0, 1));
        fails(
            batched(ints(&[4, 5], (2,)), SIZES),
            "L: the valid length at [1] is 5, but there are 4 keys",
        );
        fails(
            batched(ints(&[4], (1,)), SIZES),
            "L: the batch of x is 2, that of valid lengths is 1",
        );
    }

    #[test]
    fn lengths_per_query_mask_later_keys() {
        let data = batched(LengthsPerQuery(ints(&[0, 1, 2, 3, 4, 0], (2, 3))), SIZES).unwrap();
        assert_eq!(counts(&data, SIZES), [0, 1, 2, 3, 4, 0]);
        fails(
            batched(LengthsPerQuery(ints(&[0, 1, 2, 3, 9, 0], (2, 3))), SIZES),
            "L: the valid length at [1, 1] is 9, but there are 4 keys",
        );
        fails(
            batched(LengthsPerQuery(ints(&[0, 1, 2, 3], (2, 2))), SIZES),
            "L: the query axis has length 3, but valid lengths per query cover 2",
        );
        fails(
            batched(LengthsPerQuery(ints(&[0, 1, 2], (1, 3))), SIZES),
            "L: the batch of x is 2, that of valid lengths per query is 1",
        );
    }

    #[test]
    fn key_masks_mask_keys() {
        let keys = [true, false, true, false, false, false, false, true];
        let data = batched(bools(&keys, (2, 4)), SIZES).unwrap();
        assert_eq!(counts(&data, SIZES), [2, 2, 2, 1, 1, 1]);
        assert!(data.attends(1, 2, 3) && !data.attends(1, 2, 0));
        fails(
            batched(bools(&keys[..6], (2, 3)), SIZES),
            "L: the key axis has length 4, but the entries of the key mask cover 3",
        );
        fails(
            batched(bools(&keys[..4], (1, 4)), SIZES),
            "L: the batch of x is 2, that of key mask is 1",
        );
    }

    #[test]
    fn ones_and_zeros_convert_to_a_key_mask() {
        let attention_mask = ints(&[1, 1, 0, 0, 1, 0, 0, 0], (2, 4));
        let data = batched(attention_mask.ne(0), SIZES).unwrap();
        assert_eq!(counts(&data, SIZES), [2, 2, 2, 1, 1, 1]);
        assert!(data.attends(0, 2, 1) && !data.attends(0, 2, 2));
    }

    #[test]
    fn unbatched_data_is_read() {
        let sizes = (1, 2, 4);
        assert_eq!(counts(&unbatched(3, 2, 4).unwrap(), sizes), [3, 3]);
        fails(
            unbatched(5, 2, 4),
            "L: the valid length is 5, but there are 4 keys",
        );

        let data = unbatched(LengthsPerQuery(ints(&[0, 4], (2,))), 2, 4).unwrap();
        assert_eq!(counts(&data, sizes), [0, 4]);
        fails(
            unbatched(LengthsPerQuery(ints(&[0, 5], (2,))), 2, 4),
            "L: the valid length at [1] is 5, but there are 4 keys",
        );

        let data = unbatched(bools(&[false, true, false, true], (4,)), 2, 4).unwrap();
        assert_eq!(counts(&data, sizes), [2, 2]);
        fails(
            unbatched(bools(&[true], (1,)), 2, 4),
            "L: the key axis has length 4, but the entries of the key mask cover 1",
        );
    }

    /// A result for a range holds for all of its elements. If all elements agree, there is a result.
    #[test]
    fn results_for_ranges_agree_with_their_elements() {
        let keys = [true, true, false, true, false, false, false, false];
        let all = [
            batched(ints(&[4, 1], (2,)), SIZES),
            batched(LengthsPerQuery(ints(&[0, 1, 2, 3, 4, 0], (2, 3))), SIZES),
            batched(bools(&keys, (2, 4)), SIZES),
        ];
        let ranges =
            |len: usize| (0..len).flat_map(move |from| (from..len).map(move |to| (from, to)));
        for data in all.map(Result::unwrap) {
            for b in 0..2 {
                for ((q, last_q), (k, last_k)) in
                    ranges(3).flat_map(|q| ranges(4).map(move |k| (q, k)))
                {
                    let at = Zone::of(&(q..last_q + 1), &(k..last_k + 1));
                    let each = (q..=last_q)
                        .flat_map(|q| (k..=last_k).map(move |k| (q as i64, k as i64)))
                        .map(|(q, k)| data.attends(b, q, k));
                    let each: Vec<_> = each.collect();
                    let expected = match (each.contains(&true), each.contains(&false)) {
                        (true, true) => Coverage::Partial,
                        (true, false) => Coverage::Full,
                        _ => Coverage::Empty,
                    };
                    let attends =
                        |at: &Zone| data.attends_all(at.number(b), at.q_idx(), at.kv_idx());
                    assert_eq!(at.coverage(&attends), expected);
                }
            }
            let at = Zone::of(&(0..1), &(0..1));
            let both = at.within(Interval::between(0, 1));
            let unknown = data.attends_all(both, at.q_idx(), at.kv_idx());
            assert_eq!(unknown, Truth::Unknown(None));
        }
    }

    #[test]
    fn data_can_be_borrowed() {
        let lengths = ints(&[4, 1], (2,));
        let lent = batched(&lengths, SIZES).unwrap();
        assert_eq!(lent, batched(lengths, SIZES).unwrap());
    }

    #[test]
    fn permuted_tensors_are_read_in_row_major_order() {
        let lengths: Tensor<(usize, usize), usize, Cpu> =
            ints(&[0, 3, 1, 4, 2, 0], (3, 2)).permute();
        let data = batched(LengthsPerQuery(lengths), SIZES).unwrap();
        assert_eq!(counts(&data, SIZES), [0, 1, 2, 3, 4, 0]);
    }

    #[test]
    fn empty_batches_and_sequences_are_supported() {
        assert!(batched(ints(&[], (0,)), (0, 3, 4)).is_ok());
        assert!(batched(LengthsPerQuery(ints(&[], (2, 0))), (2, 0, 4)).is_ok());
        assert!(batched(bools(&[], (2, 0)), (2, 3, 0)).is_ok());
        assert!(unbatched(0, 2, 0).is_ok());
    }
}
