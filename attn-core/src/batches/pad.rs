//! Texts of different lengths in one tensor.

use dfdx::tensor::{Tensor, TensorFromVec};

use super::{BatchError, Ids, ids};

/// Texts with padding behind them, as a model with `ids[batch, seq]` and `lens[batch]` takes them.
#[derive(Clone, Debug)]
pub struct PaddedBatch<D: TensorFromVec<usize>> {
    /// `[batch, seq]`, where `seq` is the length of the longest text.
    pub ids: Tensor<(usize, usize), usize, D>,
    /// `[batch]`: the lengths of the texts.
    pub lens: Tensor<(usize,), usize, D>,
}

/// Texts with padding, and the next token after each token.
#[derive(Clone, Debug)]
pub struct PaddedNext<D: TensorFromVec<usize>> {
    /// `[batch, seq]`: the texts without their last tokens.
    pub ids: Tensor<(usize, usize), usize, D>,
    /// `[batch]`: the lengths of those.
    pub lens: Tensor<(usize,), usize, D>,
    /// `[batch, seq]`: the texts without their first tokens; behind them the ignored index.
    pub targets: Tensor<(usize, usize), usize, D>,
}

/// Pairs of texts, of which the second is to be predicted from the first: for an encoder and a decoder.
#[derive(Clone, Debug)]
pub struct PaddedPairs<D: TensorFromVec<usize>> {
    /// The first texts.
    pub source: PaddedBatch<D>,
    /// The second texts.
    pub target: PaddedNext<D>,
}

/// Puts texts into one tensor, with the token `padding` behind the shorter ones.
///
/// ```
/// use attn::{batches::pad, dfdx::prelude::*};
///
/// let batch = pad([vec![5, 6, 7], vec![8]], 0, &Cpu::default())?;
/// assert_eq!(batch.ids.as_vec(), [5, 6, 7, 8, 0, 0]);
/// assert_eq!(batch.lens.as_vec(), [3, 1]);
/// # Ok::<(), attn::batches::BatchError<CpuError>>(())
/// ```
///
/// PyTorch: `torch.nn.utils.rnn.pad_sequence(texts, batch_first=True)`; Hugging Face: `DataCollatorWithPadding`.
///
/// # Errors
/// [`BatchError::Device`].
#[doc(alias("pad_sequence", "DataCollatorWithPadding"))]
pub fn pad<D: TensorFromVec<usize>>(
    texts: impl IntoIterator<Item: AsRef<[usize]>>,
    padding: usize,
    device: &D,
) -> Result<PaddedBatch<D>, BatchError<D::Err>> {
    let texts: Vec<_> = texts.into_iter().collect();
    let texts: Vec<&[usize]> = texts.iter().map(AsRef::as_ref).collect();
    let lens: Vec<usize> = texts.iter().map(|text| text.len()).collect();
    Ok(PaddedBatch {
        ids: filled(&texts, padding, device)?,
        lens: lengths(lens, device)?,
    })
}

/// Puts texts into one tensor for a language model, and the token after each of their tokens into another one. A text of `n` tokens has
/// `n - 1` of these; what is behind them has the target `ignored`, which is no token.
///
/// ```
/// use attn::{batches::pad_next, dfdx::prelude::*, ops::CrossEntropyOptions};
///
/// let batch = pad_next([vec![5, 6, 7], vec![8, 9]], 0, 99, &Cpu::default())?;
/// assert_eq!(batch.ids.as_vec(), [5, 6, 8, 0]);
/// assert_eq!(batch.lens.as_vec(), [2, 1]);
/// assert_eq!(batch.targets.as_vec(), [6, 7, 9, 99]);
/// let options = CrossEntropyOptions { ignore_index: Some(99), ..Default::default() };
/// # Ok::<(), attn::batches::BatchError<CpuError>>(())
/// ```
///
/// Hugging Face: `DataCollatorForLanguageModeling(mlm=False)`, whose ignored index is -100.
///
/// # Errors
/// [`BatchError::Device`].
#[doc(alias = "DataCollatorForLanguageModeling")]
pub fn pad_next<D: TensorFromVec<usize>>(
    texts: impl IntoIterator<Item: AsRef<[usize]>>,
    padding: usize,
    ignored: usize,
    device: &D,
) -> Result<PaddedNext<D>, BatchError<D::Err>> {
    let texts: Vec<_> = texts.into_iter().collect();
    let texts = texts.iter().map(AsRef::as_ref);
    let (read, next): (Vec<_>, Vec<_>) = texts.map(shifted).unzip();
    Ok(PaddedNext {
        ids: filled(&read, padding, device)?,
        lens: lengths(read.iter().map(|text| text.len()).collect(), device)?,
        targets: filled(&next, ignored, device)?,
    })
}

/// Puts pairs of texts into tensors: the first of each as [`pad`] does, the second as [`pad_next`]. The second text begins with the token
/// that a decoder begins with, and ends with the one that it ends with.
///
/// ```
/// use attn::{batches::pad_pairs, dfdx::prelude::*};
///
/// const BEGIN: usize = 1;
/// const END: usize = 2;
/// let pairs = [(vec![5, 6, 7], vec![BEGIN, 8, END]), (vec![9], vec![BEGIN, 4, 3, END])];
/// let batch = pad_pairs(pairs, 0, 99, &Cpu::default())?;
/// assert_eq!(batch.source.lens.as_vec(), [3, 1]);
/// assert_eq!(batch.target.ids.as_vec(), [BEGIN, 8, 0, BEGIN, 4, 3]);
/// assert_eq!(batch.target.targets.as_vec(), [8, END, 99, 4, 3, END]);
/// # Ok::<(), attn::batches::BatchError<CpuError>>(())
/// ```
///
/// Hugging Face: `DataCollatorForSeq2Seq`.
///
/// # Errors
/// [`BatchError::Device`].
#[doc(alias = "DataCollatorForSeq2Seq")]
pub fn pad_pairs<D: TensorFromVec<usize>>(
    pairs: impl IntoIterator<Item = (impl AsRef<[usize]>, impl AsRef<[usize]>)>,
    padding: usize,
    ignored: usize,
    device: &D,
) -> Result<PaddedPairs<D>, BatchError<D::Err>> {
    let (sources, targets): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    Ok(PaddedPairs {
        source: pad(sources, padding, device)?,
        target: pad_next(targets, padding, ignored, device)?,
    })
}

/// A text without its last token, and without its first one.
fn shifted(text: &[usize]) -> (&[usize], &[usize]) {
    match text {
        [] => (text, text),
        [start @ .., _] => (start, &text[1..]),
    }
}

/// `[texts, longest]`, with `rest` behind each text.
fn filled<D: TensorFromVec<usize>>(
    texts: &[&[usize]],
    rest: usize,
    device: &D,
) -> Result<Ids<D>, BatchError<D::Err>> {
    let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
    let mut all = Vec::with_capacity(texts.len() * longest);
    for (row, text) in (1..).zip(texts) {
        all.extend(*text);
        all.resize(row * longest, rest);
    }
    ids(device, all, (texts.len(), longest))
}

fn lengths<D: TensorFromVec<usize>>(
    lens: Vec<usize>,
    device: &D,
) -> Result<Tensor<(usize,), usize, D>, BatchError<D::Err>> {
    let count = lens.len();
    let tensor = device.try_tensor_from_vec(lens, (count,));
    tensor.map_err(BatchError::Device)
}
