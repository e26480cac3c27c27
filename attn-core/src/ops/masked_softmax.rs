//! The softmax over the valid numbers of the last axis.

use dfdx::{
    shapes::{Axis, Dim, HasShape, Shape},
    tensor::{Storage, Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    composed::reshape,
    data::{Selection, values},
    ops::{LastAxis, check_shape, softmax::softmax_where_with_form},
    sizes::index_of,
    unwrap,
};

/// The softmax over the valid numbers of the last axis: the others are not read, become exactly 0, and have the gradient 0. A row without
/// any valid number becomes 0.
///
/// `valid` says which numbers these are:
///
/// | `x` | `valid` | |
/// | --- | --- | --- |
/// | `[batch, .., key]` | `Vec<usize>`, `&Tensor<(batch,), usize>` | so many of the first, in each sequence |
/// | `[batch, query, key]`, `[batch, heads, query, key]` | `&Tensor<(batch, query), usize>` | so many of the first, for each query |
/// | the same | `&Tensor<(query, key), bool>`, `(batch, query, key)`, `(batch, heads, query, key)` | those that are `true` |
///
/// With three axes a mask of `[batch, heads, query, key]` has the sequences first: it is one for each of them, as lengths are. A mask of
/// [`Attend`](super::Attend) with three axes is one for each head.
///
/// Zhang et al., "Dive into deep learning", section 11.3: `masked_softmax(X, valid_lens)`, where masked weights are nearly 0, and a row without valid
/// keys has equal weights. PyTorch: `torch.softmax(x.masked_fill(~valid, -torch.inf), -1)`, where such a row is NaN. It is
/// [`softmax_where`](super::softmax_where) of the last axis, with selections that have fewer axes.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::masked_softmax};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank3<2, 1, 3>, f32, _> = dev.tensor([[[2.0, 2.0, f32::NAN]], [[2.0, 2.0, 2.0]]]);
/// assert_eq!(masked_softmax(x, vec![2, 0]).array(), [[[0.5, 0.5, 0.0]], [[0.0, 0.0, 0.0]]]);
///
/// let x: Tensor<Rank3<1, 2, 2>, f32, _> = dev.zeros();
/// let valid: Tensor<Rank2<1, 2>, usize, _> = dev.tensor([[1, 2]]);
/// assert_eq!(masked_softmax(x, &valid).array(), [[[1.0, 0.0], [0.5, 0.5]]]);
/// ```
///
/// # Panics
/// If [`try_masked_softmax`] returns an error.
#[doc(alias("valid_lens", "sequence_mask"))]
#[track_caller]
pub fn masked_softmax<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    valid: impl Valid<S>,
) -> Tensor<S, E, D, T> {
    unwrap(try_masked_softmax(x, valid))
}

/// The fallible version of [`masked_softmax`].
///
/// # Errors
/// [`Error::DataMismatch`] if an axis of `valid` has another size than that of `x`; [`Error::LengthBeyondKeys`] if a length is greater than the
/// last axis; [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_masked_softmax<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
    valid: impl Valid<S>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    masked_softmax_with_form(D::FUSED, x, valid)
}

/// [`try_masked_softmax`] in the fused or the composed form.
pub(crate) fn masked_softmax_with_form<S: LastAxis, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    valid: impl Valid<S>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape("masked_softmax", x.shape())?;
    let shape = *x.shape();
    let selection = valid.read().selection(&shape)?;
    let rows = shape.leading().num_elements();
    let x = reshape(x, (rows, shape.last()))?;
    let y = softmax_where_with_form(fused, x, Axis::<1>, selection)?;
    Ok(reshape(y, shape)?)
}

/// Which numbers of the last axis of a tensor of shape `S` are valid: see [`masked_softmax`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which numbers of `{S}` are valid",
    note = "valid lengths are a `Vec<usize>`, a `&Tensor<(batch,), usize, _>` or a `&Tensor<(batch, query), usize, _>`",
    note = "a mask is a `&Tensor<_, bool, _>` of `(query, key)`, `(batch, query, key)` or `(batch, heads, query, key)`"
)]
pub trait Valid<S: Shape> {
    /// The numbers.
    #[doc(hidden)]
    fn read(self) -> ValidNumbers;
}

/// Lengths or marks, and which axes they have.
#[doc(hidden)]
#[derive(Debug)]
pub struct ValidNumbers {
    of: LengthsOrMarks,
    sizes: Vec<usize>,
    /// The axes of the tensor.
    axes: Vec<usize>,
}

#[derive(Debug)]
enum LengthsOrMarks {
    Lengths(Vec<usize>),
    Marks(Vec<bool>),
}

impl ValidNumbers {
    fn selection<S: Shape, Dev>(self, shape: &S) -> Result<Selection<'static>, Error<Dev>> {
        const NAMES: [&str; 4] = ["axis 0 of x", "axis 1 of x", "axis 2 of x", "axis 3 of x"];
        const LAYER: &str = "masked_softmax";
        let of_x: Vec<usize> = shape.concrete().into_iter().collect();
        let data = match self.of {
            LengthsOrMarks::Lengths(_) => "valid lengths",
            LengthsOrMarks::Marks(_) => "mask",
        };
        for (place, (&axis, &found)) in self.axes.iter().zip(&self.sizes).enumerate() {
            if of_x[axis] != found {
                return Err(Error::DataMismatch {
                    layer: LAYER,
                    data,
                    axis: place,
                    name: NAMES[axis],
                    expected: of_x[axis],
                    found,
                });
            }
        }
        let (keys, before) = of_x.split_last().unwrap_or((&1, &[]));
        match self.of {
            LengthsOrMarks::Marks(marks) => {
                Ok(Selection::of_marks(&marks, &of_x, &self.axes).into_owned())
            }
            LengthsOrMarks::Lengths(lengths) => {
                if let Some(place) = lengths.iter().position(|length| length > keys) {
                    return Err(Error::LengthBeyondKeys {
                        layer: LAYER,
                        length: lengths[place],
                        keys: *keys,
                        index: index_of(place, &self.sizes),
                    });
                }
                Ok(Selection::of_lengths(&lengths, before, &self.axes).into_owned())
            }
        }
    }
}

macro_rules! valid {
    ($($Number:ident, $Numbers:ident { $(($($axis:ident)*) of ($($of:ident)*) [$($place:expr),*];)* })*) => {$($(
        impl<$($of: Dim,)* D: Storage<$Number>> Valid<($($of,)*)>
            for &Tensor<($($axis,)*), $Number, D> {
            fn read(self) -> ValidNumbers {
                let sizes: Vec<usize> = self.shape().concrete().into_iter().collect();
                ValidNumbers {
                    of: LengthsOrMarks::$Numbers(values(self)),
                    sizes,
                    axes: vec![$($place),*],
                }
            }
        }
    )*)*};
}

valid! {
    usize, Lengths {
    (B) of (B K) [0];
    (B) of (B Q K) [0];
    (B) of (B H Q K) [0];
    (B Q) of (B Q K) [0, 1];
    (B Q) of (B H Q K) [0, 2];
    }
    bool, Marks {
    (K) of (K) [0];
    (B K) of (B K) [0, 1];
    (Q K) of (B Q K) [1, 2];
    (Q K) of (B H Q K) [2, 3];
    (B Q K) of (B Q K) [0, 1, 2];
    (B Q K) of (B H Q K) [0, 2, 3];
    (B H Q K) of (B H Q K) [0, 1, 2, 3];
    }
}

macro_rules! lengths {
    ($(($($axis:ident)*))*) => {$(
        impl<$($axis: Dim),*> Valid<($($axis,)*)> for Vec<usize> {
            fn read(self) -> ValidNumbers {
                ValidNumbers {
                    sizes: vec![self.len()],
                    of: LengthsOrMarks::Lengths(self),
                    axes: vec![0],
                }
            }
        }
    )*};
}

lengths! { (B K) (B Q K) (B H Q K) }
