//! The checks of a call, before the first tensor is made.

use dfdx::{
    shapes::{Dim, Dtype, HasShape},
    tensor::{Storage, Tensor},
};

use crate::Error;

/// Bytes of the largest [`Element`].
const ELEMENT_BYTES: usize = size_of::<f64>();

/// Checks that a tensor of these sizes can exist: its bytes must fit an allocation.
///
/// dfdx multiplies the sizes of a shape without a check. In a release build without overflow checks the product wraps around, the
/// buffer is too small, and the matrix product reads out of bounds.
///
/// # Errors
/// [`Error::TooLarge`] with the sizes.
///
/// ```
/// use attn::__private::runtime::entry::check_sizes;
///
/// assert!(check_sizes::<()>("Decoder", &[("batch", 4), ("heads", 8)]).is_ok());
/// assert!(check_sizes::<()>("Decoder", &[("batch", 1 << 40), ("query", 1 << 40)]).is_err());
/// ```
pub fn check_sizes<Dev>(
    layer: &'static str,
    sizes: &[(&'static str, usize)],
) -> Result<(), Error<Dev>> {
    let bytes = sizes
        .iter()
        // A size of 0 must not hide an overflow of two others: strides are products of the trailing sizes.
        .map(|&(_, size)| size.max(1))
        .try_fold(ELEMENT_BYTES, usize::checked_mul);
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::TooLarge {
            layer,
            sizes: sizes.to_vec(),
        }),
    }
}

/// The largest number of queries, and of keys, for which the mask is evaluated. More would take minutes.
const MAX_MASK_LENGTH: usize = 1 << 19;

/// Checks that the mask of a layer can be evaluated for this length.
///
/// # Errors
/// [`Error::TooLong`], with the length.
pub fn check_mask_lengths<Dev>(
    layer: &'static str,
    q_len: usize,
    kv_len: usize,
) -> Result<(), Error<Dev>> {
    let length = q_len.max(kv_len);
    if length <= MAX_MASK_LENGTH {
        return Ok(());
    }
    Err(Error::TooLong {
        layer,
        length,
        max: MAX_MASK_LENGTH,
    })
}

/// Checks that a sequence fills the grid on which its tokens are, behind `prefix` others.
///
/// # Errors
/// [`Error::GridMismatch`], with the length and the sizes of the grid.
///
/// ```
/// use attn::__private::runtime::entry::check_grid;
///
/// assert!(check_grid::<()>("Vit", "query", 65, &[8, 8], 1).is_ok());
/// assert!(check_grid::<()>("Vit", "query", 64, &[8, 8], 1).is_err());
/// ```
pub fn check_grid<Dev>(
    layer: &'static str,
    axis: &'static str,
    length: usize,
    grid: &[usize],
    prefix: usize,
) -> Result<(), Error<Dev>> {
    if Some(length) == tokens_of_grid(grid, prefix) {
        return Ok(());
    }
    Err(Error::GridMismatch {
        layer,
        axis,
        length,
        grid: grid.to_vec(),
        prefix,
    })
}

/// Checks that the tokens of a session have places on a grid, which they may fill in part.
///
/// # Errors
/// [`Error::TooLong`], with the capacity of the session and the number of places.
pub fn check_grid_capacity<Dev>(
    layer: &'static str,
    capacity: usize,
    grid: &[usize],
    prefix: usize,
) -> Result<(), Error<Dev>> {
    match tokens_of_grid(grid, prefix) {
        Some(max) if capacity > max => Err(Error::TooLong {
            layer,
            length: capacity,
            max,
        }),
        _ => Ok(()),
    }
}

fn tokens_of_grid(grid: &[usize], prefix: usize) -> Option<usize> {
    let places = grid
        .iter()
        .try_fold(1, |places: usize, size| places.checked_mul(*size))?;
    places.checked_add(prefix)
}

/// Checks that what a session of one sequence is given is that of one.
///
/// # Errors
/// [`Error::SequencesMismatch`], with the number of sequences.
pub fn check_one_sequence<Dev>(
    model: &'static str,
    axis: &'static str,
    sequences: usize,
) -> Result<(), Error<Dev>> {
    match sequences {
        1 => Ok(()),
        _ => Err(Error::SequencesMismatch {
            model,
            axis,
            sequences,
        }),
    }
}

/// An input of a layer: tokens of some width, batched or not.
pub trait Tokens {
    /// The number of sequences, and their length.
    fn batch_and_len(&self) -> [usize; 2];
}

impl<B: Dim, S: Dim, W: Dim, E: Dtype, D: Storage<E>, T> Tokens for Tensor<(B, S, W), E, D, T> {
    fn batch_and_len(&self) -> [usize; 2] {
        let (batch, len, _) = self.shape();
        [batch.size(), len.size()]
    }
}

impl<S: Dim, W: Dim, E: Dtype, D: Storage<E>, T> Tokens for Tensor<(S, W), E, D, T> {
    fn batch_and_len(&self) -> [usize; 2] {
        [1, self.shape().0.size()]
    }
}

/// The widths of a layer's tensors that are known from its declaration.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// The widest row of the values computed from `x`.
    pub queries: usize,
    /// The widest row of the values computed from `context`.
    pub keys: usize,
    /// The number of query heads.
    pub heads: usize,
    /// The width of the additive score's hidden layer, if it is stored.
    pub hidden: Option<usize>,
}

/// Checks that the inputs fit each other and that every tensor of the layer can exist. Returns the sizes of the axes batch, query
/// and key, for queries from `x` and keys from `context`.
///
/// # Errors
/// [`Error::BatchMismatch`] and [`Error::TooLarge`], with the sizes.
pub fn check_inputs<Dev>(
    layer: &'static str,
    x: &impl Tokens,
    context: &impl Tokens,
    widths: Widths,
) -> Result<(usize, usize, usize), Error<Dev>> {
    let [batch, query] = x.batch_and_len();
    let [other, key] = context.batch_and_len();
    check_batch(layer, "context", batch, other)?;
    check_axes(layer, (batch, query, key), widths)?;
    Ok((batch, query, key))
}

/// Checks that the input with the values has a value for every key of `context`.
///
/// # Errors
/// [`Error::BatchMismatch`] and [`Error::LengthsMismatch`], with the sizes.
pub fn check_values<Dev>(
    layer: &'static str,
    context: &impl Tokens,
    values: &impl Tokens,
) -> Result<(), Error<Dev>> {
    let [batch, expected] = context.batch_and_len();
    let [other, found] = values.batch_and_len();
    check_batch(layer, "values", batch, other)?;
    match expected == found {
        true => Ok(()),
        false => Err(Error::LengthsMismatch {
            layer,
            what: "the values",
            axis: "key",
            expected,
            found,
        }),
    }
}

/// Checks that every tensor of a layer can exist for these sizes of the axes batch, query and key.
///
/// # Errors
/// [`Error::TooLarge`], with the sizes.
pub fn check_axes<Dev>(
    layer: &'static str,
    (batch, query, key): (usize, usize, usize),
    widths: Widths,
) -> Result<(), Error<Dev>> {
    let batch = ("batch", batch);
    let query = ("query", query);
    let key = ("key", key);
    check_sizes(layer, &[batch, query, ("width", widths.queries)])?;
    check_sizes(layer, &[batch, key, ("width", widths.keys)])?;
    let mut scores = vec![batch, ("heads", widths.heads), query, key];
    scores.extend(widths.hidden.map(|hidden| ("hidden", hidden)));
    check_sizes(layer, &scores)
}

/// Checks that a session can have so many sequences of so many tokens.
///
/// # Errors
/// [`Error::TooLarge`], with the sizes of the keys and values of all tokens. The scores of all pairs bound the tables of positions, but a
/// session never has them.
pub fn check_room<Dev>(
    layer: &'static str,
    (sequences, capacity): (usize, usize),
    widths: Widths,
) -> Result<(), Error<Dev>> {
    let axes = (sequences, capacity, capacity);
    let refused = |_: Error<Dev>| Error::TooLarge {
        layer,
        sizes: vec![
            ("sequences", sequences),
            ("capacity", capacity),
            ("width", widths.keys),
        ],
    };
    check_axes(layer, axes, widths).map_err(refused)
}

/// Checks that the input `what` has the batch size of `x`.
///
/// # Errors
/// [`Error::BatchMismatch`] with both.
pub fn check_batch<Dev>(
    layer: &'static str,
    what: &'static str,
    x: usize,
    found: usize,
) -> Result<(), Error<Dev>> {
    if x == found {
        Ok(())
    } else {
        Err(Error::BatchMismatch {
            layer,
            what,
            x,
            found,
        })
    }
}

#[cfg(test)]
mod tests {
    use dfdx::prelude::*;

    use super::*;
    use crate::testing::*;

    fn fits(sizes: &[usize]) -> bool {
        let sizes: Vec<_> = sizes.iter().map(|&size| ("size", size)).collect();
        check_sizes::<()>("L", &sizes).is_ok()
    }

    #[test]
    fn sizes_beyond_any_allocation_are_too_large() {
        let most = isize::MAX as usize / 8;
        assert!(fits(&[]));
        assert!(fits(&[4, 8, 1024, 1024]));
        assert!(fits(&[most]));
        assert!(!fits(&[most + 1]));
        assert!(!fits(&[usize::MAX, usize::MAX]));
        // 2^62 * 4 = 2^64 wraps around to 0.
        assert!(!fits(&[1 << 62, 4]));
        assert!(fits(&[0, 8, 1024]));
        assert!(!fits(&[0, 1 << 62, 4]));
    }

    #[test]
    fn batch_sizes_must_agree() {
        assert!(check_batch::<()>("L", "context", 3, 3).is_ok());
        let error = check_batch::<&str>("L", "context", 3, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "L: the batch of x is 3, that of context is 4"
        );
    }

    type Input<S> = Tensor<S, f64, Cpu>;

    const WIDTHS: Widths = Widths {
        queries: 4,
        keys: 2,
        heads: 3,
        hidden: None,
    };

    #[test]
    fn batch_and_length_are_read_from_the_shape() {
        let x: Input<(usize, usize, Const<4>)> = tensor((2, 3, Const), 1);
        let context: Input<(usize, usize, Const<2>)> = tensor((2, 0, Const), 1);
        let axes = check_inputs::<()>("L", &x, &context, WIDTHS);
        assert_eq!(axes.unwrap(), (2, 3, 0));
        let alone: Input<(usize, Const<4>)> = tensor((5, Const), 1);
        let axes = check_inputs::<()>("L", &alone, &alone, WIDTHS);
        assert_eq!(axes.unwrap(), (1, 5, 5));
        let error = check_inputs::<&str>("L", &alone, &context, WIDTHS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "L: the batch of x is 1, that of context is 2"
        );
    }

    #[test]
    fn there_is_a_value_for_every_key() {
        let context: Input<(usize, usize, Const<2>)> = tensor((2, 5, Const), 1);
        let values: Input<(usize, usize, Const<3>)> = tensor((2, 5, Const), 1);
        assert!(check_values::<()>("L", &context, &values).is_ok());
        let message = |batch, len| {
            let values: Input<(usize, usize, Const<3>)> = tensor((batch, len, Const), 1);
            let error = check_values::<&str>("L", &context, &values).unwrap_err();
            error.to_string()
        };
        assert_eq!(
            message(2, 4),
            "L: the key axis has length 5, but the values cover 4"
        );
        assert_eq!(message(3, 5), "L: the batch of x is 2, that of values is 3");
    }

    #[test]
    fn a_session_that_is_too_large_has_no_scores() {
        assert!(check_room::<()>("L", (2, 1 << 20), WIDTHS).is_ok());
        let error = check_room::<&str>("L", (1, 1 << 40), WIDTHS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "L: sequences (1) * capacity (1099511627776) * width (2) does not fit into memory"
        );
    }

    #[test]
    fn every_product_of_sizes_is_checked() {
        let x: Input<(usize, Const<4>)> = tensor((5, Const), 1);
        let most = usize::MAX;
        let wide = |widths: fn(&mut Widths)| {
            let mut changed = WIDTHS;
            widths(&mut changed);
            check_inputs::<&str>("L", &x, &x, changed)
                .unwrap_err()
                .to_string()
        };
        assert!(wide(|widths| widths.queries = usize::MAX).contains("query (5) * width"));
        assert!(wide(|widths| widths.keys = usize::MAX).contains("key (5) * width"));
        assert!(wide(|widths| widths.heads = usize::MAX).contains(&format!("heads ({most})")));
        assert!(wide(|widths| widths.hidden = Some(usize::MAX)).contains("* hidden ("));
    }
}
