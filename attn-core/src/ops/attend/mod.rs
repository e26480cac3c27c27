//! Attention of queries to keys and values that are there already, put together at run time.

mod composed;
mod dual;
mod fused;
mod shapes;

use std::sync::Arc;

use dfdx::{
    shapes::{Dim, HasShape, Shape},
    tensor::{Merge, NoneTape, PutTape, SplitTape, Storage, Tape, Tensor},
};

pub use dual::{Dual, Pair};
pub use shapes::PairShape;

use crate::{
    Backend, Element, Error,
    composed::reshape,
    data::values,
    entry::check_sizes,
    kernel::attention::{Dropout, Normalizer, PairFunction, PairMask, PairTensor, Sizes},
    model::tapes_of_results,
    ops::check_shape,
    random::RandomU64,
    unwrap,
};
use dual::Function;
use shapes::{check_lengths, check_pairs, sizes_of};

/// `[batch, heads, len, width]`
type Vectors<B, H, S, W, E, D, T> = Tensor<(B, H, S, W), E, D, T>;

/// Scaled dot-product attention, `softmax(q kᵀ / √width) v`, for each head of each sequence.
///
/// | | |
/// | --- | --- |
/// | `q` | `[batch, heads, query, width]` |
/// | `k` | `[batch, kv_heads, key, width]` |
/// | `v` | `[batch, kv_heads, key, value_width]` |
/// | result | `[batch, heads, query, value_width]` |
///
/// `kv_heads` divides `heads`: query head `h` reads key head `h / (heads / kv_heads)`. With a mask, a bias, dropout or any other option
/// it is [`Attend`]. No matrix of scores is in memory.
///
/// Vaswani et al., "Attention is all you need" (2017), equation 1. PyTorch:
/// `torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::attend};
///
/// let dev = Cpu::default();
/// let q: Tensor<Rank4<1, 1, 1, 2>, f32, _> = dev.tensor([[[[1.0, 0.0]]]]);
/// let k: Tensor<Rank4<1, 1, 2, 2>, f32, _> = dev.tensor([[[[0.0, 5.0], [0.0, -5.0]]]]);
/// let v: Tensor<Rank4<1, 1, 2, 1>, f32, _> = dev.tensor([[[[2.0], [4.0]]]]);
/// assert_eq!(attend(q, k, v).array(), [[[[3.0]]]]);
/// ```
///
/// Axes whose sizes are types must fit while the program is compiled:
///
/// ```compile_fail,E0308
/// # use attn::{dfdx::prelude::*, ops::attend};
/// # let dev = Cpu::default();
/// let q: Tensor<Rank4<1, 1, 1, 2>, f32, _> = dev.zeros();
/// let k: Tensor<Rank4<1, 1, 2, 3>, f32, _> = dev.zeros();
/// let v: Tensor<Rank4<1, 1, 2, 1>, f32, _> = dev.zeros();
/// attend(q, k, v);
/// ```
///
/// # Panics
/// If [`try_attend`] returns an error.
#[doc(alias("scaled_dot_product_attention", "sdpa", "flash_attention"))]
#[track_caller]
pub fn attend<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, E, D, T, T2, T3>(
    q: Vectors<B, H, Q, W, E, D, T>,
    k: Vectors<B, G, K, W, E, D, T2>,
    v: Vectors<B, G, K, V, E, D, T3>,
) -> Vectors<B, H, Q, V, E, D, T>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D> + Merge<T2> + Merge<T3>,
{
    unwrap(try_attend(q, k, v))
}

/// The fallible version of [`attend`].
///
/// # Errors
/// The errors of [`Attend::try_forward`].
pub fn try_attend<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, E, D, T, T2, T3>(
    q: Vectors<B, H, Q, W, E, D, T>,
    k: Vectors<B, G, K, W, E, D, T2>,
    v: Vectors<B, G, K, V, E, D, T3>,
) -> Result<Vectors<B, H, Q, V, E, D, T>, Error<D::Err>>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D> + Merge<T2> + Merge<T3>,
{
    Attend::new().try_forward(q, k, v)
}

/// [`attend`] with options: `weights = normalizer(function(scale q kᵀ) + bias)`, over the keys that every part of the mask lets a query
/// attend to. The others have weights of exactly 0. A query without any key has the output 0.
///
/// A hidden key has no effect, even if it is NaN, as padding may be. That holds for masks and on devices that are
/// [`FUSED`](Backend::FUSED). A bias of -∞ is added to the score, and the [composed](Self::composed) form multiplies the values of hidden keys
/// by 0: there NaN stays NaN, as in PyTorch.
///
/// | | PyTorch |
/// | --- | --- |
/// | [`scale`](Self::scale) | `scale=` |
/// | [`causal`](Self::causal), [`causal_lower_right`](Self::causal_lower_right) | `is_causal=True`, `attn_mask=causal_lower_right(..)` |
/// | [`sliding_window`](Self::sliding_window), [`lengths`](Self::lengths), [`mask_by`](Self::mask_by) | a `mask_mod` of `flex_attention` |
/// | [`mask`](Self::mask) | `attn_mask=` of booleans |
/// | [`bias`](Self::bias) | `attn_mask=` of floats |
/// | [`score_by`](Self::score_by) | a `score_mod` of `flex_attention` |
/// | [`dropout`](Self::dropout) | `dropout_p=` |
/// | [`normalizer`](Self::normalizer) | |
/// | [`forward_with_weights`](Self::forward_with_weights), [`forward_with_lse`](Self::forward_with_lse) | `need_weights=True` of `MultiheadAttention`, `return_lse=True` of `flex_attention` |
///
/// Tiles of pairs that a window, lengths or a tensor leave empty are never computed; a function is asked about each pair of the others.
///
/// A call returns the weights or the logarithms of sums beside the output, not both. In [`model!`](https://docs.rs/attn-dsl) `let (y, weights, lse) =
/// attend(q, k, v)` returns all, and `attend` has what is not here: learned normalizers (`sink`), element by element ones (`sigmoid`, `relu`), talking heads, other
/// scores, rotary positions.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::Attend};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank4<2, 3, 5, 4>, f32, _> = dev.sample_normal();
/// let y = Attend::new().causal().scale(0.1).forward(x.leaky_trace(), x.clone(), x.clone());
/// let gradients = y.square().mean().backward();
/// assert_eq!(gradients.get(&x).shape(), x.shape());
///
/// // ALiBi, and documents that do not see each other.
/// let document = [0, 0, 1, 1, 1];
/// let y = Attend::new()
///     .mask_by(move |at| document[at.q_idx as usize] == document[at.kv_idx as usize])
///     .score_by(|score, at| score - 0.5 * (at.q_idx - at.kv_idx).abs() as f32)
///     .forward(x.clone(), x.clone(), x);
/// # let _ = y;
/// ```
///
/// [`attention!`](https://docs.rs/attn-dsl) knows all this while the program is compiled.
#[doc(alias("flex_attention", "BlockMask", "create_block_mask"))]
#[must_use = "options do nothing until `forward`"]
pub struct Attend<E: Element, D: Backend<E>, T = NoneTape> {
    options: Options<E>,
    /// All numbers of the bias, with its tape, and its sizes.
    #[allow(clippy::type_complexity, reason = "the bias, if there is memory")]
    bias: Option<(Result<Tensor<(usize,), E, D, T>, Error<D::Err>>, [usize; 4])>,
}

/// The options but for those with a gradient.
struct Options<E> {
    scale: Option<f64>,
    causal: Option<Alignment>,
    mask: PairMask,
    /// The sizes of the marks of the mask.
    marks: Option<[usize; 4]>,
    function: Option<Arc<dyn PairFunction<E>>>,
    dropout: f64,
    normalizer: AttendNormalizer,
    is_composed: bool,
}

/// Which query has the position of which key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alignment {
    /// The first query that of the first key.
    UpperLeft,
    /// The last query that of the last key.
    LowerRight,
}

/// From scores to weights, over the keys that a query attends to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttendNormalizer {
    /// `exp(s) / Σ exp(s)`
    #[default]
    Softmax,
    /// `exp(s) / (1 + Σ exp(s))`: Miller, "Attention is off by one" (2023).
    Softmax1,
    /// `max(s - τ, 0)`, with the `τ` for which the weights have the sum 1: Martins and Astudillo (2016).
    Sparsemax,
    /// `max(s / 2 - τ, 0)²`, with the `τ` for which the weights have the sum 1: Peters, Niculae and Martins (2019).
    Entmax15,
    /// `s`: the score is the weight.
    Identity,
}

impl AttendNormalizer {
    fn of_kernel<E>(self) -> Normalizer<'static, E> {
        match self {
            Self::Softmax => Normalizer::Softmax,
            Self::Softmax1 => Normalizer::Softmax1,
            Self::Sparsemax => Normalizer::Sparsemax,
            Self::Entmax15 => Normalizer::Entmax15,
            Self::Identity => Normalizer::Identity,
        }
    }
}

impl<E: Element, D: Backend<E>, T: Tape<E, D>> Default for Attend<E, D, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Element, D: Backend<E>, T: Tape<E, D>> Attend<E, D, T> {
    /// No option.
    pub fn new() -> Self {
        let options = Options {
            scale: None,
            causal: None,
            mask: PairMask::default(),
            marks: None,
            function: None,
            dropout: 0.0,
            normalizer: AttendNormalizer::Softmax,
            is_composed: false,
        };
        let bias = None;
        Self { options, bias }
    }

    /// The factor of products, in place of `1 / √width`.
    pub fn scale(mut self, scale: f64) -> Self {
        self.options.scale = Some(scale);
        self
    }

    /// Query `i` attends to the keys up to `i`.
    #[doc(alias = "is_causal")]
    pub fn causal(mut self) -> Self {
        self.options.causal = Some(Alignment::UpperLeft);
        self
    }

    /// The last query attends to all keys, the one before to all but the last, and so on: queries are the last tokens of the keys.
    pub fn causal_lower_right(mut self) -> Self {
        self.options.causal = Some(Alignment::LowerRight);
        self
    }

    /// A query attends to the last `size` keys up to its own position. That is the position of [`causal`](Self::causal), or of
    /// [`causal_lower_right`](Self::causal_lower_right) if that is an option, too.
    pub fn sliding_window(mut self, size: usize) -> Self {
        self.options.causal.get_or_insert(Alignment::UpperLeft);
        self.options.mask.window = Some(size);
        self
    }

    /// The valid keys of every sequence are the first ones, as many as its length.
    #[doc(alias("valid_lens", "key_padding_mask"))]
    pub fn lengths(mut self, lengths: impl Into<Vec<usize>>) -> Self {
        self.options.mask.lengths = Some(lengths.into());
        self
    }

    /// A query attends to the keys where the mask is `true`: `[query, key]`, `[heads, query, key]` or `[batch, heads, query, key]`, of which
    /// an axis may have size 1. Three axes have the heads first, as PyTorch broadcasts an `attn_mask`: a mask for each sequence is
    /// `[batch, 1, query, key]`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::Attend};
    ///
    /// let dev = Cpu::default();
    /// let x: Tensor<Rank4<2, 3, 2, 4>, f32, _> = dev.sample_normal();
    /// // The second sequence has one token.
    /// let mask: Tensor<Rank4<2, 1, 1, 2>, bool, _> = dev.tensor([[[[true, true]]], [[[true, false]]]]);
    /// let (_, weights) = Attend::new().mask(&mask).forward_with_weights(x.clone(), x.clone(), x);
    /// assert_eq!(weights.array()[1], [[[1.0, 0.0]; 2]; 3]);
    /// ```
    #[doc(alias = "attn_mask")]
    pub fn mask<S: PairShape, D2: Storage<bool>>(mut self, mask: &Tensor<S, bool, D2>) -> Self {
        let sizes = mask.shape().sizes();
        self.options.marks = Some(sizes);
        self.options.mask.marks = Some(PairTensor::new(values(mask), sizes));
        self
    }

    /// A query attends to the keys where the function is `true`.
    ///
    /// PyTorch: `mask_mod` of `flex_attention`. The function is called for each pair that no other option rules out.
    #[doc(alias = "mask_mod")]
    pub fn mask_by(mut self, attends: impl Fn(Pair) -> bool + Send + Sync + 'static) -> Self {
        self.options.mask.function = Some(Arc::new(move |at, to: &mut [bool]| {
            for (key, to) in to.iter_mut().enumerate() {
                *to = attends(Pair::at(at, key));
            }
        }));
        self
    }

    /// A function of a score and its place, which is applied to `scale q k`. Its derivative is computed with it.
    ///
    /// PyTorch: `score_mod` of `flex_attention`. A soft cap of scores, as in Gemma 2:
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::Attend};
    ///
    /// let x: Tensor<Rank4<1, 2, 5, 4>, f32, _> = Cpu::default().sample_normal();
    /// let y = Attend::new()
    ///     .score_by(|score, _| 30.0 * (score / 30.0).tanh())
    ///     .forward(x.clone(), x.clone(), x);
    /// # let _ = y;
    /// ```
    ///
    /// The function is called for each pair of the tiles that are visited, also for masked ones.
    #[doc(alias("score_mod", "softcap"))]
    pub fn score_by(
        mut self,
        function: impl Fn(Dual<E>, Pair) -> Dual<E> + Send + Sync + 'static,
    ) -> Self {
        self.options.function = Some(Arc::new(Function(function)));
        self
    }

    /// Numbers that are added to the scores, with a gradient: `[query, key]`, `[heads, query, key]` or `[batch, heads, query, key]`, of
    /// which an axis may have size 1. Three axes have the heads first, as in [`mask`](Self::mask). -∞ hides a key.
    ///
    /// The gradient is computed for each pair of each head before it is summed, which takes memory of the size of the scores.
    #[doc(alias = "attn_bias")]
    pub fn bias<S: PairShape, T2>(mut self, bias: Tensor<S, E, D, T2>) -> Self
    where
        T: Merge<T2>,
    {
        let sizes = bias.shape().sizes();
        let flat = check_shape("attend", bias.shape()).and_then(|()| {
            let (bias, tape) = bias.split_tape();
            let len = bias.shape().num_elements();
            let bias = bias.put_tape(T::default().merge(tape));
            Ok(reshape(bias, (len,))?)
        });
        self.bias = Some((flat, sizes));
        self
    }

    /// If `q` has a tape, sets each weight to 0 with probability `p`, and multiplies the others by `1 / (1 - p)`. See
    /// [`dropout`](crate::ops::dropout).
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    pub fn dropout(mut self, p: f64) -> Self {
        assert!((0.0..=1.0).contains(&p), "{p} is not a probability");
        self.options.dropout = p;
        self
    }

    /// How scores become weights.
    pub fn normalizer(mut self, normalizer: AttendNormalizer) -> Self {
        self.options.normalizer = normalizer;
        self
    }

    /// Computes it with dfdx's operations, with a matrix of scores: the readable definition, with the same results where all numbers are
    /// finite. Devices that are not [`FUSED`](Backend::FUSED) do so in any case.
    pub fn composed(mut self) -> Self {
        self.options.is_composed = true;
        self
    }

    /// The output, `[batch, heads, query, value_width]`, of `q` `[batch, heads, query, width]`, `k` `[batch, kv_heads, key, width]` and `v`
    /// `[batch, kv_heads, key, value_width]`.
    ///
    /// # Panics
    /// If [`try_forward`](Self::try_forward) returns an error.
    #[track_caller]
    pub fn forward<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, T2, T3>(
        self,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> Vectors<B, H, Q, V, E, D, T>
    where
        T: Merge<T2> + Merge<T3>,
    {
        unwrap(self.try_forward(q, k, v))
    }

    /// The fallible version of [`forward`](Self::forward).
    ///
    /// # Errors
    /// - [`Error::AxisMismatch`] if an axis of `k` or `v` has another size;
    /// - [`Error::Indivisible`] if `heads` is no multiple of `kv_heads`;
    /// - [`Error::DataMismatch`] if an axis of the mask or of the bias has another size;
    /// - [`Error::BatchMismatch`] or [`Error::LengthBeyondKeys`] if the lengths are not those of the sequences;
    /// - [`Error::TooLarge`] if the sizes do not fit the memory;
    /// - [`Error::Device`] if dfdx fails.
    pub fn try_forward<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, T2, T3>(
        self,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> Result<Vectors<B, H, Q, V, E, D, T>, Error<D::Err>>
    where
        T: Merge<T2> + Merge<T3>,
    {
        let shape = (q.shape().0, q.shape().1, q.shape().2, v.shape().3);
        let results = self.run(Wanted::Output, q, k, v)?;
        Ok(reshape(results.y, shape)?.put_tape(results.tape))
    }

    /// [`forward`](Self::forward), and the weights, `[batch, heads, query, key]`: after dropout, and exactly 0 where the mask hides a key.
    ///
    /// Both have a gradient. A loss that reads the weights reads the output, too, which has the history of both. Weights with the logarithms of
    /// [`forward_with_lse`](Self::forward_with_lse) are results of an `attend` of `model!`.
    ///
    /// PyTorch: `need_weights=True, average_attn_weights=False` of `torch.nn.MultiheadAttention`.
    ///
    /// # Panics
    /// If [`try_forward_with_weights`](Self::try_forward_with_weights) returns an error.
    #[doc(alias = "need_weights")]
    #[track_caller]
    pub fn forward_with_weights<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, T2, T3>(
        self,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> (Vectors<B, H, Q, V, E, D, T>, Vectors<B, H, Q, K, E, D, T>)
    where
        T: Merge<T2> + Merge<T3>,
    {
        unwrap(self.try_forward_with_weights(q, k, v))
    }

    /// The fallible version of [`forward_with_weights`](Self::forward_with_weights).
    ///
    /// # Errors
    /// Those of [`try_forward`](Self::try_forward).
    #[allow(clippy::type_complexity, reason = "two tensors, or an error")]
    pub fn try_forward_with_weights<
        B: Dim,
        H: Dim,
        G: Dim,
        Q: Dim,
        K: Dim,
        W: Dim,
        V: Dim,
        T2,
        T3,
    >(
        self,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> Result<(Vectors<B, H, Q, V, E, D, T>, Vectors<B, H, Q, K, E, D, T>), Error<D::Err>>
    where
        T: Merge<T2> + Merge<T3>,
    {
        let shape = (q.shape().0, q.shape().1, q.shape().2, v.shape().3);
        let axes = (q.shape().0, q.shape().1, q.shape().2, k.shape().2);
        let results = self.run(Wanted::Weights, q, k, v)?;
        let [first, second] = tapes_of_results::<E, D, T, 2>("attend", results.tape);
        let y = reshape(results.y, shape)?;
        let weights = reshape(results.other, axes)?;
        Ok((y.put_tape(first), weights.put_tape(second)))
    }

    /// [`forward`](Self::forward), and the logarithm of the sum of `exp(score)` for every query, `[batch, heads, query]`: -∞ if it attends to
    /// no key. [`Softmax1`](AttendNormalizer::Softmax1) adds 1 to the sum. For sparse normalizers it is the threshold `τ`, for the identity 0.
    ///
    /// Both have a gradient. A loss that reads the second result reads the output, too, which has the history of both.
    ///
    /// PyTorch: `return_lse=True` of `flex_attention`. Outputs over parts of the keys are combined with it.
    ///
    /// # Panics
    /// If [`try_forward_with_lse`](Self::try_forward_with_lse) returns an error.
    #[doc(alias("return_lse", "logsumexp"))]
    #[track_caller]
    pub fn forward_with_lse<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, T2, T3>(
        self,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> (Vectors<B, H, Q, V, E, D, T>, Tensor<(B, H, Q), E, D, T>)
    where
        T: Merge<T2> + Merge<T3>,
    {
        unwrap(self.try_forward_with_lse(q, k, v))
    }

    /// The fallible version of [`forward_with_lse`](Self::forward_with_lse).
    ///
    /// # Errors
    /// Those of [`try_forward`](Self::try_forward).
    #[allow(clippy::type_complexity, reason = "two tensors, or an error")]
    pub fn try_forward_with_lse<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, T2, T3>(
        self,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> Result<(Vectors<B, H, Q, V, E, D, T>, Tensor<(B, H, Q), E, D, T>), Error<D::Err>>
    where
        T: Merge<T2> + Merge<T3>,
    {
        let shape = (q.shape().0, q.shape().1, q.shape().2, v.shape().3);
        let axes = (q.shape().0, q.shape().1, q.shape().2);
        let results = self.run(Wanted::Lse, q, k, v)?;
        let [first, second] = tapes_of_results::<E, D, T, 2>("attend", results.tape);
        let y = reshape(results.y, shape)?;
        let lse = reshape(results.other, axes)?;
        Ok((y.put_tape(first), lse.put_tape(second)))
    }

    /// The output, and what else is wanted.
    fn run<B: Dim, H: Dim, G: Dim, Q: Dim, K: Dim, W: Dim, V: Dim, T2, T3>(
        mut self,
        wanted: Wanted,
        q: Vectors<B, H, Q, W, E, D, T>,
        k: Vectors<B, G, K, W, E, D, T2>,
        v: Vectors<B, G, K, V, E, D, T3>,
    ) -> Result<Results<E, D, T>, Error<D::Err>>
    where
        T: Merge<T2> + Merge<T3>,
    {
        let shapes = [
            q.shape().concrete(),
            k.shape().concrete(),
            v.shape().concrete(),
        ];
        let sizes = sizes_of(shapes)?;
        check_shape("attend", q.shape())?;
        check_shape("attend", k.shape())?;
        check_shape("attend", v.shape())?;
        self.options
            .check(self.bias.as_ref().map(|(_, of)| *of), sizes)?;
        let bias = match self.bias {
            Some((bias, sizes)) => Some((bias?, sizes)),
            None => None,
        };
        let device = q.device().clone();
        let p = self.options.dropout;
        let dropout = (T::OWNS_TAPE && p > 0.0).then(|| Dropout {
            p,
            seed: RandomU64::random_u64(&device),
            first: 0,
        });
        if let Some(alignment) = self.options.causal {
            self.options.mask.causal = Some(match alignment {
                Alignment::UpperLeft => 0,
                Alignment::LowerRight => sizes.key as i64 - sizes.query as i64,
            });
        }
        let call = Call {
            sizes,
            scale: self
                .options
                .scale
                .unwrap_or((sizes.width as f64).powf(-0.5)),
            mask: self.options.mask,
            function: self.options.function,
            normalizer: self.options.normalizer,
            dropout,
        };
        let (q, tape) = q.split_tape();
        let (k, k_tape) = k.split_tape();
        let (v, v_tape) = v.split_tape();
        let tape = Merge::<T3>::merge(Merge::<T2>::merge(tape, k_tape), v_tape);
        let [q_shape, k_shape, v_shape] = shapes.map(|[b, h, s, w]| (b, h, s, w));
        let inputs = Inputs {
            q: reshape(q.put_tape(tape), q_shape)?,
            k: reshape(k.put_tape(T::default()), k_shape)?,
            v: reshape(v.put_tape(T::default()), v_shape)?,
            bias,
        };
        Ok(match D::FUSED && !self.options.is_composed {
            true => fused::attend(call, wanted, inputs)?,
            false => composed::attend(call, wanted, inputs)?,
        })
    }
}

impl<E> Options<E> {
    /// Checks that the data of an attention are of its sizes.
    fn check<Dev>(&self, bias: Option<[usize; 4]>, sizes: Sizes) -> Result<(), Error<Dev>> {
        check_sizes(
            "attend",
            &[
                ("batch", sizes.batch),
                ("heads", sizes.heads),
                ("query", sizes.query),
                ("key", sizes.key.max(sizes.value_width)),
            ],
        )?;
        if let Some(marks) = self.marks {
            check_pairs("mask", marks, sizes)?;
        }
        if let Some(bias) = bias {
            check_pairs("bias", bias, sizes)?;
        }
        match &self.mask.lengths {
            Some(lengths) => check_lengths(lengths, sizes),
            None => Ok(()),
        }
    }
}

/// What is returned beside the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Output,
    Weights,
    Lse,
}

/// What an attention computes with, beside tensors.
struct Call<E> {
    sizes: Sizes,
    scale: f64,
    mask: PairMask,
    function: Option<Arc<dyn PairFunction<E>>>,
    normalizer: AttendNormalizer,
    dropout: Option<Dropout>,
}

/// The tensors that an attention computes with. Their tapes are one, that of the queries, and that of the bias.
struct Inputs<E: Element, D: Backend<E>, T> {
    q: Vectors<usize, usize, usize, usize, E, D, T>,
    k: Vectors<usize, usize, usize, usize, E, D, T>,
    v: Vectors<usize, usize, usize, usize, E, D, T>,
    /// All numbers of the bias, and its sizes.
    bias: Option<(Tensor<(usize,), E, D, T>, [usize; 4])>,
}

/// The output, the other result if one is wanted, and the tape of both.
struct Results<E: Element, D: Backend<E>, T> {
    y: Vectors<usize, usize, usize, usize, E, D, NoneTape>,
    other: Tensor<(usize,), E, D>,
    tape: T,
}
