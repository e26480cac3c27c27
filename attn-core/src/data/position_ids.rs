//! The positions of tokens.

use dfdx::{
    shapes::{Dim, HasShape},
    tensor::{HasErr, Storage, Tensor},
};

use super::{Sizes, check_axis, values};
use crate::{Error, entry::check_batch};

/// The position of each token: an argument of a layer with `position = rope(position_ids)`, besides its input. Positions may be in any order,
/// occur several times, as in packed sequences, and exceed the length of the sequence.
///
/// | positions | batched | unbatched |
/// | --- | --- | --- |
/// | self-attention | `Tensor<(B, S), usize, D>`, or `Tensor<(S,), usize, D>` for all sequences | `Tensor<(S,), usize, D>` |
/// | cross-attention: of the queries, of the keys | a pair of these | a pair of these |
///
/// `Shape` is `(B, Q, K)` or `(Q, K)`. The `position_ids` of Hugging Face.
///
/// ```
/// use attn::{data::PositionIds, dfdx::prelude::*};
///
/// let dev = Cpu::default();
/// // The second sequence is padded on the left.
/// let ids: Tensor<Rank2<2, 3>, usize, _> = dev.tensor([[0, 1, 2], [0, 0, 1]]);
/// let ids = PositionIds::<(Const<2>, Const<3>, Const<3>), Cpu>::read(ids, "Decoder", (2, 3, 3)).unwrap();
/// assert_eq!(ids.of_keys(), [0, 1, 2, 0, 0, 1]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which position each token has, in input of the axes `{Shape}`",
    label = "expected position ids that fit the input",
    note = "for self-attention: `Tensor<(B, S), usize, D>` or `Tensor<(S,), usize, D>`, with the batch and length types of the input",
    note = "for cross-attention: a pair of those, the positions of the queries and of the keys"
)]
pub trait PositionIds<Shape, D: HasErr>: Sized {
    /// Reads the positions and checks them against the sizes.
    ///
    /// # Errors
    /// [`Error::BatchMismatch`], or [`Error::LengthsMismatch`] if there is not one position for each token.
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PositionData, Error<D::Err>>;
}

/// The values of [`PositionIds`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PositionData {
    query: Vec<usize>,
    /// `None` are those of the queries.
    key: Option<Vec<usize>>,
}

impl PositionData {
    /// The positions of the queries, `[batch, query]`.
    pub fn of_queries(&self) -> &[usize] {
        &self.query
    }

    /// The positions of the keys, `[batch, key]`.
    pub fn of_keys(&self) -> &[usize] {
        self.key.as_ref().unwrap_or(&self.query)
    }

    /// The length of the shortest sequence with these positions: one more than the last.
    pub fn longest(&self) -> usize {
        let positions = self.of_queries().iter().chain(self.of_keys());
        positions.max().map_or(0, |last| last.saturating_add(1))
    }
}

const QUERY: (&str, &str) = ("the position ids", "query");
const KEY: (&str, &str) = ("the position ids", "key");

/// The positions of the tokens of one sequence, or of a batch of them.
trait Positions<D: HasErr> {
    fn all(
        &self,
        layer: &'static str,
        batch: usize,
        axis: (&'static str, &'static str),
        len: usize,
    ) -> Result<Vec<usize>, Error<D::Err>>;
}

impl<B: Dim, S: Dim, D: Storage<usize>> Positions<D> for Tensor<(B, S), usize, D> {
    fn all(
        &self,
        layer: &'static str,
        batch: usize,
        axis: (&'static str, &'static str),
        len: usize,
    ) -> Result<Vec<usize>, Error<D::Err>> {
        let (b, s) = *self.shape();
        check_batch(layer, axis.0, batch, b.size())?;
        check_axis(layer, axis, len, s.size())?;
        Ok(values(self))
    }
}

impl<S: Dim, D: Storage<usize>> Positions<D> for Tensor<(S,), usize, D> {
    fn all(
        &self,
        layer: &'static str,
        batch: usize,
        axis: (&'static str, &'static str),
        len: usize,
    ) -> Result<Vec<usize>, Error<D::Err>> {
        check_axis(layer, axis, len, self.shape().0.size())?;
        Ok(values(self).repeat(batch))
    }
}

fn read_one<D: Storage<usize>>(
    ids: &impl Positions<D>,
    layer: &'static str,
    (batch, query, key): Sizes,
) -> Result<PositionData, Error<D::Err>> {
    let all = ids.all(layer, batch, QUERY, query)?;
    check_axis(layer, KEY, key, query)?;
    Ok(PositionData {
        query: all,
        key: None,
    })
}

fn read_pair<D: Storage<usize>>(
    (of_queries, of_keys): &(impl Positions<D>, impl Positions<D>),
    layer: &'static str,
    (batch, query, key): Sizes,
) -> Result<PositionData, Error<D::Err>> {
    Ok(PositionData {
        query: of_queries.all(layer, batch, QUERY, query)?,
        key: Some(of_keys.all(layer, batch, KEY, key)?),
    })
}

/// The accepted tensors, for each shape of the input.
macro_rules! accept {
    ($($read:ident: $Shape:ty, $Ids:ty, [$($Axis:ident)*];)*) => {$(
        impl<$($Axis: Dim,)* D: Storage<usize>> PositionIds<$Shape, D> for $Ids {
            fn read(self, layer: &'static str, sizes: Sizes) -> Result<PositionData, Error<D::Err>> {
                $read(&self, layer, sizes)
            }
        }
    )*};
}

type Of<S, D> = Tensor<S, usize, D>;

accept! {
    read_one: (B, S, S), Of<(B, S), D>, [B S];
    read_one: (B, S, S), Of<(S,), D>, [B S];
    read_one: (S, S), Of<(S,), D>, [S];
    read_pair: (B, Q, K), (Of<(B, Q), D>, Of<(B, K), D>), [B Q K];
    read_pair: (B, Q, K), (Of<(Q,), D>, Of<(B, K), D>), [B Q K];
    read_pair: (B, Q, K), (Of<(B, Q), D>, Of<(K,), D>), [B Q K];
    read_pair: (B, Q, K), (Of<(Q,), D>, Of<(K,), D>), [B Q K];
    read_pair: (Q, K), (Of<(Q,), D>, Of<(K,), D>), [Q K];
}

/// Borrowed data, for several calls.
impl<S, D: HasErr, P: PositionIds<S, D> + Clone> PositionIds<S, D> for &P {
    fn read(self, layer: &'static str, sizes: Sizes) -> Result<PositionData, Error<D::Err>> {
        self.clone().read(layer, sizes)
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;

    type Shape = (usize, usize, usize);
    type Read = Result<PositionData, Error<CpuError>>;

    fn ids<S: dfdx::shapes::Shape>(values: &[usize], shape: S) -> Tensor<S, usize, Cpu> {
        Cpu::default().tensor_from_vec(values.to_vec(), shape)
    }

    fn read(data: impl PositionIds<Shape, Cpu>, sizes: Sizes) -> Read {
        data.read("L", sizes)
    }

    #[test]
    fn one_row_of_positions_is_that_of_all_sequences() {
        let same = read(ids(&[3, 9], (2,)), (2, 2, 2)).unwrap();
        let each = read(ids(&[3, 9, 3, 9], (2, 2)), (2, 2, 2)).unwrap();
        assert_eq!(same, each);
        assert_eq!((same.longest(), same.of_keys()), (10, &[3, 9, 3, 9][..]));
    }

    #[test]
    fn a_pair_is_of_queries_and_keys() {
        let pair = (ids(&[5], (1,)), ids(&[1, 2, 3, 4], (2, 2)));
        let read = read(pair, (2, 1, 2)).unwrap();
        assert_eq!(read.of_queries(), [5, 5]);
        assert_eq!(read.of_keys(), [1, 2, 3, 4]);
    }

    #[test]
    fn every_token_has_a_position() {
        let error = read(ids(&[1, 2, 3], (3,)), (2, 4, 4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "L: the query axis has length 4, but the position ids cover 3"
        );
        assert!(read(ids(&[1, 2], (1, 2)), (2, 2, 2)).is_err());
        assert_eq!(read(ids(&[], (0,)), (2, 0, 0)).unwrap().longest(), 0);
    }
}
