//! Several documents packed into one sequence.

use dfdx::{
    shapes::{Dim, HasShape},
    tensor::{HasErr, Storage, Tensor},
};

use super::{Sizes, check_axis, values};
use crate::{
    Error,
    entry::check_batch,
    fused::{Affine, Interval},
};

/// The document of each token: an argument of a layer with `mask = document`, besides its input. A token attends to tokens of its
/// own document.
///
/// | data | batched | unbatched |
/// | --- | --- | --- |
/// | self-attention | `Tensor<(B, S), usize, D>` | `Tensor<(S,), usize, D>` |
/// | cross-attention: of the queries, of the keys | `(Tensor<(B, Q), usize, D>, Tensor<(B, K), usize, D>)` | `(Tensor<(Q,), usize, D>, Tensor<(K,), usize, D>)` |
///
/// `Shape` is `(B, Q, K)` or `(Q, K)`. PyTorch: the document mask of
/// [FlexAttention](https://pytorch.org/blog/flexattention/), `document_id[q_idx] == document_id[kv_idx]`.
///
/// ```
/// use attn::{data::Documents, dfdx::prelude::*};
///
/// let dev = Cpu::default();
/// let ids: Tensor<(usize,), usize, _> = dev.tensor_from_vec(vec![7, 7, 9], (3,));
/// let ids = Documents::<(usize, usize), Cpu>::read(ids, "Encoder", (1, 3, 3)).unwrap();
/// assert_eq!(ids.query_id(0, 0), ids.key_id(0, 1));
/// assert_ne!(ids.query_id(0, 0), ids.key_id(0, 2));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which document each token belongs to, in input of the axes `{Shape}`",
    label = "expected document ids that fit the input",
    note = "for self-attention: `Tensor<(B, S), usize, D>`, or `Tensor<(S,), usize, D>` for unbatched input, with the batch and length types of the input",
    note = "for cross-attention: a pair of those, the ids of the queries and the ids of the keys"
)]
pub trait Documents<Shape, D: HasErr>: Sized {
    /// Reads the data and checks it against the sizes.
    ///
    /// # Errors
    /// [`Error::BatchMismatch`], or [`Error::LengthsMismatch`] if there is not one id for each token.
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<DocumentData, Error<D::Err>>;
}

/// The values of [`Documents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentData {
    /// `[batch, query]`.
    query: DocumentIds,
    /// `[batch, key]`.
    key: DocumentIds,
}

impl DocumentData {
    /// The document of a query. The batch index of unbatched input is 0.
    ///
    /// # Panics
    /// If an index is not within the sizes that the data was read for.
    pub fn query_id(&self, b: i64, q_idx: i64) -> i64 {
        self.query.at(b, q_idx)
    }

    /// The document of a key.
    ///
    /// # Panics
    /// If an index is not within the sizes that the data was read for.
    pub fn key_id(&self, b: i64, kv_idx: i64) -> i64 {
        self.key.at(b, kv_idx)
    }

    /// [`query_id`](Self::query_id) of all queries of a zone.
    pub fn query_ids<'z>(&self, b: Affine<'z>, q_idx: Affine<'z>) -> Affine<'z> {
        self.query.over(b, q_idx)
    }

    /// [`key_id`](Self::key_id) of all keys of a zone.
    pub fn key_ids<'z>(&self, b: Affine<'z>, kv_idx: Affine<'z>) -> Affine<'z> {
        self.key.over(b, kv_idx)
    }
}

/// `[batch, len]`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DocumentIds {
    ids: Vec<usize>,
    len: usize,
}

impl DocumentIds {
    /// The ids of a range of tokens. One sequence at a time.
    fn over<'z>(&self, b: Affine<'z>, index: Affine<'z>) -> Affine<'z> {
        let (first, last) = index.bounds().ends();
        let ids = match b.bounds().ends() {
            (b, end) if b == end => Interval::around((first..=last).map(|index| self.at(b, index))),
            _ => Interval::ANY,
        };
        Affine::looked_up(index.zone(), ids, [index])
    }

    fn at(&self, b: i64, index: i64) -> i64 {
        // Ids are only compared, so a huge one may wrap to a negative number.
        self.ids[b as usize * self.len + index as usize] as i64
    }
}

impl<B: Dim, S: Dim, D: Storage<usize>> Documents<(B, S, S), D> for Tensor<(B, S), usize, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<DocumentData, Error<D::Err>> {
        let (batch, queries, keys) = sizes;
        let query = batched(&self, layer, batch, QUERY, queries)?;
        let key = batched(&self, layer, batch, KEY, keys)?;
        Ok(DocumentData { query, key })
    }
}

impl<B: Dim, Q: Dim, K: Dim, D: Storage<usize>> Documents<(B, Q, K), D>
    for (Tensor<(B, Q), usize, D>, Tensor<(B, K), usize, D>)
{
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<DocumentData, Error<D::Err>> {
        let (batch, queries, keys) = sizes;
        let query = batched(&self.0, layer, batch, QUERY, queries)?;
        let key = batched(&self.1, layer, batch, KEY, keys)?;
        Ok(DocumentData { query, key })
    }
}

impl<S: Dim, D: Storage<usize>> Documents<(S, S), D> for Tensor<(S,), usize, D> {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<DocumentData, Error<D::Err>> {
        let query = unbatched(&self, layer, QUERY, sizes.1)?;
        let key = unbatched(&self, layer, KEY, sizes.2)?;
        Ok(DocumentData { query, key })
    }
}

impl<Q: Dim, K: Dim, D: Storage<usize>> Documents<(Q, K), D>
    for (Tensor<(Q,), usize, D>, Tensor<(K,), usize, D>)
{
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<DocumentData, Error<D::Err>> {
        let query = unbatched(&self.0, layer, QUERY, sizes.1)?;
        let key = unbatched(&self.1, layer, KEY, sizes.2)?;
        Ok(DocumentData { query, key })
    }
}

/// Borrowed data, for several calls.
impl<S, D: HasErr, P: Documents<S, D> + Clone> Documents<S, D> for &P {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<DocumentData, Error<D::Err>> {
        self.clone().read(layer, sizes)
    }
}

const QUERY: (&str, &str) = ("the document ids", "query");
const KEY: (&str, &str) = ("the document ids", "key");

fn batched<B: Dim, S: Dim, D: Storage<usize>>(
    ids: &Tensor<(B, S), usize, D>,
    layer: &'static str,
    batch: usize,
    axis: (&'static str, &'static str),
    len: usize,
) -> Result<DocumentIds, Error<D::Err>> {
    let (b, s) = *ids.shape();
    check_batch(layer, axis.0, batch, b.size())?;
    check_axis(layer, axis, len, s.size())?;
    let ids = values(ids);
    Ok(DocumentIds { ids, len })
}

fn unbatched<S: Dim, D: Storage<usize>>(
    ids: &Tensor<(S,), usize, D>,
    layer: &'static str,
    axis: (&'static str, &'static str),
    len: usize,
) -> Result<DocumentIds, Error<D::Err>> {
    check_axis(layer, axis, len, ids.shape().0.size())?;
    let ids = values(ids);
    Ok(DocumentIds { ids, len })
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::fused::Zone;

    type Batched = (usize, usize, usize);
    type Unbatched = (usize, usize);
    type Read = Result<DocumentData, Error<CpuError>>;

    fn ids<S: Shape>(values: &[usize], shape: S) -> Tensor<S, usize, Cpu> {
        Cpu::default().tensor_from_vec(values.to_vec(), shape)
    }

    fn batched(data: impl Documents<Batched, Cpu>, sizes: Sizes) -> Read {
        data.read("L", sizes)
    }

    fn unbatched(data: impl Documents<Unbatched, Cpu>, q: usize, k: usize) -> Read {
        data.read("L", (1, q, k))
    }

    #[track_caller]
    fn fails(read: Read, message: &str) {
        assert_eq!(read.unwrap_err().to_string(), message);
    }

    #[test]
    fn self_attention_has_one_list_of_ids() {
        let data = batched(ids(&[1, 1, 2, 3, 4, 4], (2, 3)), (2, 3, 3)).unwrap();
        assert_eq!([0, 1, 2].map(|q| data.query_id(1, q)), [3, 4, 4]);
        assert_eq!([0, 1, 2].map(|k| data.key_id(0, k)), [1, 1, 2]);

        let data = unbatched(ids(&[5, 6], (2,)), 2, 2).unwrap();
        assert_eq!((data.query_id(0, 1), data.key_id(0, 0)), (6, 5));
    }

    #[test]
    fn ranges_contain_the_ids_of_their_tokens() {
        let data = batched(ids(&[1, 1, 2, 3, 4, 4], (2, 3)), (2, 3, 3)).unwrap();
        let ends = |b, range| {
            let at = Zone::of(&range, &range);
            let ids = [
                data.query_ids(at.within(b), at.q_idx()),
                data.key_ids(at.within(b), at.kv_idx()),
            ];
            ids.map(|ids| ids.bounds().ends())
        };
        let [zero, one] = [0, 1].map(Interval::exactly);
        assert_eq!(ends(zero, 0..2), [(1, 1); 2]);
        assert_eq!(ends(zero, 1..3), [(1, 2); 2]);
        assert_eq!(ends(one, 0..3), [(3, 4); 2]);
        assert_eq!(ends(one, 1..2), [(4, 4); 2]);
        assert_eq!(
            ends(Interval::between(0, 1), 1..2),
            [Interval::ANY.ends(); 2]
        );
    }

    #[test]
    fn cross_attention_has_two_lists_of_ids() {
        let pair = (ids(&[1, 2], (2, 1)), ids(&[1, 2, 3, 4], (2, 2)));
        let data = batched(pair, (2, 1, 2)).unwrap();
        assert_eq!((data.query_id(1, 0), data.key_id(1, 0)), (2, 3));

        let pair = (ids(&[1], (1,)), ids(&[2, 3], (2,)));
        let data = unbatched(&pair, 1, 2).unwrap();
        assert_eq!((data.query_id(0, 0), data.key_id(0, 1)), (1, 3));
    }

    #[test]
    fn the_number_of_ids_is_checked() {
        fails(
            batched(ids(&[1, 1, 2], (1, 3)), (2, 3, 3)),
            "L: the batch of x is 2, that of the document ids is 1",
        );
        fails(
            batched(ids(&[1, 1, 2], (1, 3)), (1, 4, 4)),
            "L: the query axis has length 4, but the document ids cover 3",
        );
        fails(
            batched((ids(&[1], (1, 1)), ids(&[1, 1], (1, 2))), (1, 1, 3)),
            "L: the key axis has length 3, but the document ids cover 2",
        );
        fails(
            batched((ids(&[1], (1, 1)), ids(&[1, 1], (2, 1))), (1, 1, 1)),
            "L: the batch of x is 1, that of the document ids is 2",
        );
        fails(
            unbatched((ids(&[1], (1,)), ids(&[2], (1,))), 1, 2),
            "L: the key axis has length 2, but the document ids cover 1",
        );
    }

    #[test]
    fn empty_batches_and_sequences_are_supported() {
        assert!(batched(ids(&[], (0, 3)), (0, 3, 3)).is_ok());
        assert!(batched(ids(&[], (2, 0)), (2, 0, 0)).is_ok());
        assert!(unbatched(ids(&[], (0,)), 0, 0).is_ok());
    }
}
