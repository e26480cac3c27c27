//! One sequence that a model continues token by token.

use super::{SessionError, memory::CacheMemory, sessions::Sessions};
use crate::{
    Element,
    fused::WeightReport,
    kernel::{Dtype, Matrix, quantized::WeightFormat},
};

/// One sequence that a model continues token by token: [`Sessions`] of one.
#[doc(alias("kv_cache", "past_key_values", "use_cache"))]
pub struct Session<E: Element> {
    sessions: Sessions<E>,
    /// The results of the last call that asked for those of all tokens.
    all: Vec<E>,
}

impl<E: Element> From<Sessions<E>> for Session<E> {
    /// # Panics
    /// If there is not one sequence.
    fn from(sessions: Sessions<E>) -> Self {
        assert_eq!(sessions.lens().len(), 1, "a session is of one sequence");
        Self {
            sessions,
            all: Vec::new(),
        }
    }
}

impl<E: Element> Session<E> {
    /// Rounds the weights of the session to int8 or bf16, so that a token of an `f32` model reads a quarter or half of their bytes. Rounded are the
    /// matrices of linear layers, attention projections, feed-forward layers and experts, and the tables of embeddings and learned positions,
    /// which a tied output shares. Everything else stays: other parameters, adapters of `lora(..)` among them, keys and values, and what was
    /// computed from the inputs that the session was given when it began. The model does not change, and may be dropped.
    ///
    /// In [`WeightFormat::Int8`], each row of the weights has a scale, and the inputs of products are rounded to 16 bits. Products have the same bits
    /// on every processor, however many tokens are given at a time. A row with a number that is much larger than the others loses precision:
    /// the [report](Self::weight_report) names it. In [`WeightFormat::Bf16`], the inputs of products are rounded to bf16, too, and products of
    /// `f32` have the same bits on every processor without AMX, or with `ATTN_SIMD=avx512`. AVX-512 BF16 of AMD and AMX make prompts faster than weights of `f32` do.
    ///
    /// PyTorch: `torchao.quantization.quantize_(model, Int8DynamicActivationInt8WeightConfig())`, but with inputs of 16 bits;
    /// `model.bfloat16()`.
    ///
    /// ```
    /// use attn::{generate::WeightFormat::Int8, prelude::*};
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let gpt = Cpu::default().build_module::<Gpt, f32>();
    /// let mut session = gpt.session(16)?.weights(Int8)?;
    /// let report = session.weight_report().expect("the weights are rounded");
    /// assert!(report.bytes < report.bytes_before / 2);
    /// for row in &report.inexact {
    ///     println!("row {} of {}: {:.1}% is lost", row.row, row.tensor, 100.0 * row.error);
    /// }
    /// let logits = session.prefill(&[0, 1, 2])?;
    /// assert_eq!(logits.len(), 65);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SessionError::Rounded`] if they are rounded already, [`SessionError::SharedWeights`] if a fork of the session has them, too.
    #[doc(alias("quantize", "int8", "bfloat16", "dtype"))]
    pub fn weights(self, format: WeightFormat) -> Result<Self, SessionError> {
        self.try_map(|sessions| sessions.weights(format))
    }

    /// Keeps keys and values in bf16: the cache of an `f32` model takes half the memory, and a token reads half of its bytes. They are rounded after
    /// norm and rotation: to the nearest number, ties to even; subnormal numbers become 0. So are those of a context that the session was
    /// given when it began, and the queries and weights that are multiplied with them, as a trainer in bf16 rounds them; scores, softmax and sums are
    /// those of the model. The states of scans and convolutions, and what a body reads of each key, stay what they are.
    ///
    /// [`cache_bytes`](Self::cache_bytes) has the bytes. With [`Dtype::Model`] nothing changes.
    ///
    /// vLLM: `kv_cache_dtype="bfloat16"`; llama.cpp: `--cache-type-k bf16`.
    ///
    /// ```
    /// use attn::{generate::Dtype, prelude::*};
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let gpt = Cpu::default().build_module::<Gpt, f32>();
    /// let whole = gpt.session(16)?.cache_bytes();
    /// let mut session = gpt.session(16)?.cache(Dtype::Bf16)?;
    /// assert_eq!(session.cache_bytes(), whole / 2);
    /// let logits = session.prefill(&[0, 1, 2])?;
    /// assert_eq!(logits.len(), 65);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SessionError::Cached`] if there are tokens already.
    #[doc(alias("kv_cache_dtype", "cache_type_k", "QuantizedCache"))]
    pub fn cache(self, dtype: Dtype) -> Result<Self, SessionError> {
        self.try_map(|sessions| sessions.cache(dtype))
    }

    /// The session with its only sequence changed.
    pub(crate) fn try_map<Err>(
        self,
        f: impl FnOnce(Sessions<E>) -> Result<Sessions<E>, Err>,
    ) -> Result<Self, Err> {
        let sessions = f(self.sessions)?;
        Ok(Self { sessions, ..self })
    }

    pub(crate) fn sessions(&self) -> &Sessions<E> {
        &self.sessions
    }

    /// The report of the rounded [`weights`](Self::weights), if they are rounded.
    pub fn weight_report(&self) -> Option<&WeightReport> {
        self.sessions.weight_report()
    }

    /// Continues the sequence by a token. Returns its results, `[width]`: for a language model, the logits of the next token.
    ///
    /// `transformers`: `model(token, past_key_values=cache).logits[0, -1]`.
    ///
    /// # Errors
    /// [`SessionError::Full`] if the session is full, [`SessionError::Unknown`] if the vocabulary does not have the token. Then the sequence has
    /// not changed.
    pub fn step(&mut self, token: usize) -> Result<&[E], SessionError> {
        self.prefill(&[token])
    }

    /// Continues the sequence by any number of tokens. Returns the results of the last one, `[width]`: for a language model, the logits of the
    /// next token. No tokens leave the sequence and its results as they are.
    ///
    /// `transformers`: `model(tokens, past_key_values=cache).logits[0, -1]`.
    ///
    /// # Errors
    /// [`SessionError::Full`] if the tokens do not fit, [`SessionError::Unknown`] if the vocabulary does not have one of them; if there are none,
    /// [`SessionError::Empty`] if the sequence is empty, and [`SessionError::Cut`] if it was [cut](Self::truncate). Then the sequence has not
    /// changed.
    pub fn prefill(&mut self, tokens: &[usize]) -> Result<&[E], SessionError> {
        Ok(self.sessions.prefill(&[tokens])?.row(0))
    }

    /// The same with the results of every new token, `[tokens, width]`: what each says of the next one. The session keeps memory for as many
    /// rows.
    ///
    /// ```
    /// use attn::{generate::Choice, prelude::*};
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = AutoDevice::default().build_module::<Gpt, f32>();
    /// let mut session = model.session(20)?;
    /// let text = [3, 1, 4, 1, 5];
    /// let logits = session.prefill_all(&text)?;
    /// let mut log_probability = 0.0;
    /// for (place, token) in text[1..].iter().enumerate() {
    ///     log_probability += Choice::new(*token, logits.row(place), 0)?.log_probability;
    /// }
    /// assert!(log_probability < 0.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `model(tokens, past_key_values=cache).logits`; vLLM: `prompt_logprobs`.
    ///
    /// # Errors
    /// [`SessionError`]. Then the sequence has not changed.
    #[doc(alias("prompt_logprobs", "echo"))]
    pub fn prefill_all(&mut self, tokens: &[usize]) -> Result<Matrix<'_, E>, SessionError> {
        let all = &mut self.all;
        all.clear();
        let last = self
            .sessions
            .advance(1, |_| tokens, |_, rows| all.extend(rows.values()))?;
        Ok(Matrix::new(all, tokens.len(), last.cols()))
    }

    /// The results of the last token, or zeros if there is none, or if it was [cut](Self::truncate) off.
    pub fn results(&self) -> &[E] {
        self.sessions.results().row(0)
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.sessions.lens()[0]
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The maximum number of tokens.
    pub fn capacity(&self) -> usize {
        self.sessions.capacity()
    }

    /// The bytes of the KV cache at the capacity: [`Sessions::cache_bytes`].
    pub fn cache_bytes(&self) -> usize {
        self.sessions.cache_bytes()
    }

    /// The bytes of the KV cache now: [`Sessions::cache_memory`].
    pub fn cache_memory(&self) -> CacheMemory {
        self.sessions.cache_memory()
    }

    /// Cuts the sequence to its first `len` tokens: it goes on as if the later ones had never been there, with the same bits, unless a window
    /// has evicted keys since, which changes the order of sums.
    ///
    /// The [`results`](Self::results) of its last token are not kept: the next call needs a token.
    ///
    /// A mask with a window evicts keys. At least the last 63 tokens can be cut if they were given one by one, and all tokens of the last call if
    /// it had at most 128. A longer call is read in pieces of 128, and evicts keys between them. A `scan` and a causal convolution have a state
    /// that only goes on: such a session can be cut to 0 alone, and a [fork](Self::fork) keeps an earlier state.
    ///
    /// ```
    /// use attn::prelude::*;
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = AutoDevice::default().build_module::<Gpt, f32>();
    /// let mut session = model.session(20)?;
    /// session.prefill(&[3, 1, 4])?;
    /// let expected = session.step(1)?.to_vec();
    /// session.prefill(&[9, 9])?;
    /// session.truncate(3)?;
    /// assert_eq!(session.step(1)?, expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// `transformers`: `past_key_values.crop(len)`.
    ///
    /// # Errors
    /// [`SessionError::Truncate`] if there are fewer tokens, or if no longer all is kept that they need. Then the sequence has not changed.
    #[doc(alias("crop", "rollback"))]
    pub fn truncate(&mut self, len: usize) -> Result<(), SessionError> {
        self.sessions.truncate(0, len)
    }

    /// Checks tokens as [`prefill`](Self::prefill) does.
    pub(super) fn check(&self, tokens: &[usize]) -> Result<(), SessionError> {
        self.sessions.check(1, |_| tokens)
    }

    /// The most tokens that can always be taken back: [`Sessions::most_to_take_back`].
    pub(super) fn most_to_take_back(&self) -> usize {
        self.sessions.most_to_take_back()
    }

    /// An error if tokens cannot be taken back once the sequence is continued by `given` of them: [`Sessions::can_go_back`].
    pub(super) fn can_go_back(&self, given: usize) -> Result<(), SessionError> {
        self.sessions.can_go_back(0, given)
    }

    /// Clears the sequence.
    pub fn reset(&mut self) {
        self.sessions.reset(0);
    }

    /// Replaces the sequence by these tokens.
    ///
    /// # Errors
    /// [`SessionError`]. Then the sequence has not changed.
    pub(super) fn restart(&mut self, tokens: &[usize]) -> Result<(), SessionError> {
        self.sessions.check_tokens(0, 0, tokens)?;
        self.reset();
        self.prefill(tokens).map(drop)
    }

    /// An independent continuation of the same tokens.
    ///
    /// Both share the weights, and the keys and values of the tokens so far: these stand in pages of 512 rows, and a fork takes a pointer to
    /// each. When one of them reads its next token, it copies the last, partly filled page: copy on write. Full pages are never copied. So a
    /// prompt that many requests have in common is read once and stands in memory once. A fork can be [cut](Self::truncate), forked and
    /// dropped like any other session.
    ///
    /// Values that the body of an attention reads for each key stand in pages of 4,096 numbers in the same way. A mask with a window has one page, which
    /// holds the window. States of a `scan` and of a causal convolution are copied as a whole.
    ///
    /// ```
    /// use attn::prelude::*;
    ///
    /// model! {
    ///     struct Gpt<vocab = 65, d_model = 16>;
    ///
    ///     fn forward(tokens: ids[batch, seq]) -> [batch, seq, vocab] {
    ///         let x = embedding::<vocab, d_model>(tokens);
    ///         linear::<vocab>(x + attention::<heads = 2, mask = causal>(layer_norm(x)))
    ///     }
    /// }
    ///
    /// let model = AutoDevice::default().build_module::<Gpt, f32>();
    /// let mut prompt = model.session(2000)?;
    /// prompt.prefill(&[7; 1200])?;
    ///
    /// let mut answer = prompt.fork();
    /// answer.step(3)?;
    /// // Two pages of 512 tokens, of keys and values of 16 numbers each.
    /// assert_eq!(answer.cache_memory().shared, 2 * 512 * 2 * 16 * 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// vLLM: `enable_prefix_caching`, over the paged KV cache of Kwon et al., "Efficient Memory Management for Large Language Model Serving with
    /// PagedAttention" (2023). `transformers`: `copy.deepcopy(past_key_values)`, which copies all.
    ///
    /// # Panics
    /// If there is no memory for the tokens to come: [`try_fork`](Self::try_fork).
    #[doc(alias("prefix_caching", "paged_attention", "copy_on_write", "deepcopy"))]
    pub fn fork(&self) -> Self {
        self.sessions.fork().into()
    }

    /// As [`fork`](Self::fork).
    ///
    /// # Errors
    /// [`SessionError::TooLarge`] if there is no memory for the tokens to come.
    pub fn try_fork(&self) -> Result<Self, SessionError> {
        Ok(self.sessions.try_fork()?.into())
    }
}
