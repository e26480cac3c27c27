//! The entry to a layer: checks and conversions of its inputs before the first operation, and of the output after the last one.

use std::fmt::{Debug, Display};

use dfdx::{
    shapes::{Const, Dim, Dtype, HasShape, Shape},
    tensor::{Storage, Tape, Tensor},
    tensor_ops::Device,
};

use crate::{
    Backend, Element, Error,
    composed::reshape,
    maps::{Looked, Recorder},
};

/// Options of a forward pass.
#[derive(Clone, Copy, Debug)]
pub struct ForwardOptions<'a> {
    /// Whether dropout is applied, if the input is traced.
    pub train: bool,
    /// Whether the composed form runs, which returns the weights, on any device.
    pub composed: bool,
    /// The recorder of the weights.
    pub recorder: Option<&'a Recorder>,
}

impl ForwardOptions<'_> {
    /// A pass without dropout.
    pub const FORWARD: Self = Self {
        train: false,
        composed: false,
        recorder: None,
    };

    /// A pass of training.
    pub const TRAIN: Self = Self {
        train: true,
        composed: false,
        recorder: None,
    };

    /// A pass without dropout in the composed form, for the weights.
    pub const COMPOSED: Self = Self {
        train: false,
        composed: true,
        recorder: None,
    };

    /// Whether a layer runs in its fused form.
    pub fn is_fused<E: Element, D: Backend<E>>(self) -> bool {
        D::FUSED && !self.composed
    }

    /// The output of an attention. Its weights are recorded if there is a recorder.
    ///
    /// # Errors
    /// The error of the layer.
    pub fn output<Output, Weights: Looked, Dev>(
        self,
        attended: Result<Attended<Output, Weights>, Error<Dev>>,
    ) -> Result<Output, Error<Dev>> {
        let (output, weights) = attended?;
        if let (Some(recorder), Some(weights)) = (self.recorder, &weights) {
            recorder.record(weights);
        }
        Ok(output)
    }
}

/// The result of a layer: the output, and the weights where it runs in the composed form.
pub type Attended<Output, Weights> = (Output, Option<Weights>);

/// The output without the weights.
///
/// # Errors
/// The error of the layer.
pub fn output<Output, Weights, Dev>(
    attended: Result<Attended<Output, Weights>, Error<Dev>>,
) -> Result<Output, Error<Dev>> {
    attended.map(|(output, _)| output)
}

/// The output without the weights, or the error of the device, as dfdx's traits return it.
///
/// # Errors
/// The error of the device.
///
/// # Panics
/// On every other error of the layer.
#[track_caller]
pub fn into_device<Output, Weights, Dev: Debug + Display>(
    attended: Result<Attended<Output, Weights>, Error<Dev>>,
) -> Result<Output, Dev> {
    output(attended).map_err(Error::into_device)
}

/// The output and the weights of [`ForwardOptions::COMPOSED`].
///
/// # Errors
/// The error of the layer.
///
/// # Panics
/// If the layer ran in its fused form.
pub fn with_weights<Output, Weights, Dev>(
    attended: Result<Attended<Output, Weights>, Error<Dev>>,
) -> Result<(Output, Weights), Error<Dev>> {
    let (output, weights) = attended?;
    Ok((output, weights.expect("the composed form has weights")))
}

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
const LONGEST_MASK: usize = 1 << 19;

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
    if length <= LONGEST_MASK {
        return Ok(());
    }
    Err(Error::TooLong {
        layer,
        length,
        max: LONGEST_MASK,
    })
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

/// The widths of a layer's tensors that its declaration determines.
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

/// The same tensor in row-major order. It is not copied if it is row-major already.
///
/// dfdx's matrix product computes wrong gradients for an operand that is broadcast along its matrix axes, once the operand is
/// large enough for several threads: they accumulate into the same memory without synchronisation.
pub fn contiguous<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    let shape = *x.shape();
    reshape(x, shape)
}

/// `[len, width]` to `[1, len, width]`.
pub fn add_batch<S: Dim, const W: usize, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<(S, Const<W>), E, D, T>,
) -> Result<Tensor<(Const<1>, S, Const<W>), E, D, T>, D::Err> {
    let (len, width) = *x.shape();
    reshape(x, (Const, len, width))
}

/// The result of a layer without the batch axis: `[1, len, width]` to `[len, width]`, and `[1, heads, query, key]` to
/// `[heads, query, key]`.
pub fn drop_batch<
    const W: usize,
    const H: usize,
    Q: Dim,
    K: Dim,
    E: Element,
    D: Device<E>,
    T: Tape<E, D>,
>(
    (output, weights): Attended<
        Tensor<(Const<1>, Q, Const<W>), E, D, T>,
        Tensor<(Const<1>, Const<H>, Q, K), E, D>,
    >,
) -> Result<Attended<Tensor<(Q, Const<W>), E, D, T>, Tensor<(Const<H>, Q, K), E, D>>, Error<D::Err>>
{
    let (_, len, width) = *output.shape();
    let output = reshape(output, (len, width))?;
    let without_batch = |weights: Tensor<(Const<1>, Const<H>, Q, K), E, D>| {
        let (_, heads, q, k) = *weights.shape();
        reshape(weights, (heads, q, k))
    };
    Ok((output, weights.map(without_batch).transpose()?))
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
    fn sizes_are_too_large_from_an_allocation_on_that_no_machine_has() {
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
    fn batches_must_agree() {
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
    fn inputs_have_axes() {
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

    #[test]
    fn the_batch_axis_comes_and_goes() {
        fn check(len: usize) {
            let x: Tensor<(usize, Const<2>), f64, Cpu> = tensor((len, Const), 1);
            let batched = add_batch(x.clone()).unwrap();
            assert_eq!(*batched.shape(), (Const::<1>, len, Const::<2>));
            let weights: Tensor<(Const<1>, Const<2>, usize, usize), f64, Cpu> =
                tensor((Const, Const, len, 3), 1);
            let (output, dropped) = drop_batch((batched, Some(weights.clone()))).unwrap();
            assert_eq!(values(&output), values(&x));
            let dropped = dropped.unwrap();
            assert_eq!(*dropped.shape(), (Const::<2>, len, 3));
            assert_eq!(values(&dropped), values(&weights));
        }
        check(3);
        check(1);
        check(0);
    }

    #[test]
    fn views_become_row_major_and_get_their_gradient() {
        let x: Tensor<(Const<2>, usize), f64, Cpu> = tensor((Const, 3), 1);
        check_gradient(&x, |x| {
            let view: Traced<(usize, Const<2>)> = x.leaky_trace().permute();
            let alone: Attended<_, Tensor<(Const<1>, Const<1>, usize, usize), f64, Cpu>> =
                (add_batch(view).unwrap(), None);
            drop_batch(alone).unwrap().0
        });
        let row: Tensor<Rank1<2>, f64, Cpu> = tensor((Const,), 1);
        check_gradient(&row, |x| {
            let view: Traced<(usize, Const<2>)> = x.leaky_trace().broadcast_like(&(3, Const));
            let view = contiguous(view).unwrap();
            // The physical buffer: of the broadcast view it has two numbers.
            let mut physical = [0.0; 6];
            view.copy_into(&mut physical);
            assert_eq!(physical.as_slice(), values(&view));
            view
        });
    }
}
