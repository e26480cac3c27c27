//! Several texts in a row.

use std::collections::BTreeMap;

use dfdx::tensor::{Tensor, TensorFromVec};

use super::{
    BatchError, DataError, Position, at_least_one, check_memory,
    epochs::{Epochs, epochs},
    ids,
    share::Share,
};
use crate::random::{Subject, Words};

/// Rows of several texts, as a model takes them whose attention has `mask = causal & document`.
#[derive(Clone, Debug)]
pub struct PackedBatch<D: TensorFromVec<usize>> {
    /// `[batch, seq]`: texts one after the other, then padding.
    pub ids: Tensor<(usize, usize), usize, D>,
    /// `[batch, seq]`: the token after each token in its own text. Those of padding are the ignored index.
    pub targets: Tensor<(usize, usize), usize, D>,
    /// `[batch, seq]`: the number of the text in its row, for the mask `document`. The padding has a number of its own.
    pub document: Tensor<(usize, usize), usize, D>,
    /// `[batch, seq]`: the place in the text, from 0, for `position = rope(position_ids)` or as ids of an embedding of positions.
    pub positions: Tensor<(usize, usize), usize, D>,
}

/// Batches of rows of several texts for a language model, so that little is padding: an iterator of [`PackedBatch`]es, over one epoch if nothing
/// else is said.
///
/// A text of `n` tokens takes `n - 1` places, each of which has the next token as its target. A longer one than a row is cut, and its parts
/// are texts of their own. The longest come first, each into the fullest row that has room (best fit decreasing).
///
/// ```
/// use attn::{attention, batches::PackedBatches, dfdx::prelude::*};
///
/// attention! {
///     struct Packed<heads = 1, d_model = 4, mask = causal & document, position = rope(position_ids)>;
/// }
///
/// let dev = Cpu::default();
/// let texts = [vec![1, 2, 3], vec![4, 5, 6, 7, 8], vec![9, 1, 2]];
/// let mut batches = PackedBatches::new(&texts, (8, 4), &dev)?.padding(0, 99);
/// let batch = batches.next().unwrap()?;
/// assert_eq!(batch.ids.as_vec(), [4, 5, 6, 7, 1, 2, 9, 1]);
/// assert_eq!(batch.targets.as_vec(), [5, 6, 7, 8, 2, 3, 1, 2]);
/// assert_eq!(batch.document.as_vec(), [0, 0, 0, 0, 0, 0, 1, 1]);
/// assert_eq!(batch.positions.as_vec(), [0, 1, 2, 3, 0, 1, 0, 1]);
///
/// let layer = dev.build_module::<Packed, f32>();
/// let x: Tensor<(usize, usize, Const<4>), f32, _> = dev.sample_normal_like(&(2, 4, Const));
/// layer.try_forward((x, batch.document, batch.positions)).unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Hugging Face: `packing=True` of TRL's `SFTTrainer`, with its strategy `bfd`.
#[derive(Clone, Debug)]
#[doc(alias("packing", "SFTTrainer"))]
pub struct PackedBatches<'a, T, D> {
    texts: &'a [T],
    shape: (usize, usize),
    padding: usize,
    ignored: usize,
    seed: Option<u64>,
    drop_last: bool,
    device: D,
    epochs: Epochs<Row>,
}

/// The parts of texts in a row.
type Row = Vec<Part>;

/// Tokens of a text that are read. The last target is the token behind them.
#[derive(Clone, Copy, Debug)]
struct Part {
    text: usize,
    start: usize,
    len: usize,
}

impl<'a, T: AsRef<[usize]>, D: TensorFromVec<usize>> PackedBatches<'a, T, D> {
    /// Batches of the shape `(batch, seq)`. The last one may have fewer rows.
    ///
    /// # Errors
    /// [`DataError::Zero`] if a size is 0, [`DataError::BatchTooLarge`] if there is no memory for a row.
    pub fn new(texts: &'a [T], shape: (usize, usize), device: &D) -> Result<Self, DataError> {
        at_least_one("the number of rows in a batch", shape.0)?;
        at_least_one("the length of a row", shape.1)?;
        // A batch has no more rows than the texts fill.
        check_memory(4, 1, shape.1)?;
        Ok(Self {
            texts,
            shape,
            padding: 0,
            ignored: usize::MAX,
            seed: None,
            drop_last: false,
            device: device.clone(),
            epochs: Epochs::new(),
        })
    }

    /// The token behind the texts of a row, and its target, which the loss ignores: 0 and `usize::MAX` if nothing else is said.
    pub fn padding(mut self, token: usize, ignored: usize) -> Self {
        self.padding = token;
        self.ignored = ignored;
        self
    }

    epochs!(shape.0);

    /// The batches of an epoch.
    fn plan(&self, epoch: u64) -> Vec<Vec<Row>> {
        let mut parts = self.parts();
        if let Some(seed) = self.seed {
            Words::new(seed, Subject::Texts, epoch).shuffle(&mut parts);
        }
        parts.sort_by_key(|part| std::cmp::Reverse(part.len));
        let mut rows = packed(parts, self.shape.1);
        if let Some(seed) = self.seed {
            Words::new(seed, Subject::Batches, epoch).shuffle(&mut rows);
        }
        let mut batches: Vec<Vec<Row>> = rows.chunks(self.shape.0).map(Vec::from).collect();
        if self.drop_last {
            batches.retain(|batch| batch.len() == self.shape.0);
        }
        batches
    }

    /// The texts, cut where they are longer than a row.
    fn parts(&self) -> Vec<Part> {
        let seq = self.shape.1;
        let texts = self.texts.iter().enumerate();
        let parts = texts.flat_map(|(text, tokens)| {
            let asked = tokens.as_ref().len().saturating_sub(1);
            (0..asked).step_by(seq).map(move |start| Part {
                text,
                start,
                len: seq.min(asked - start),
            })
        });
        parts.collect()
    }

    fn batch(&self, rows: &[Row]) -> Result<PackedBatch<D>, BatchError<D::Err>> {
        let shape = (rows.len(), self.shape.1);
        let [mut tokens, mut targets, mut document, mut positions] =
            [(); 4].map(|()| Vec::with_capacity(shape.0 * shape.1));
        for (end, row) in (1..).map(|row| row * shape.1).zip(rows) {
            for (number, part) in row.iter().enumerate() {
                let text = &self.texts[part.text].as_ref()[part.start..][..=part.len];
                tokens.extend(&text[..part.len]);
                targets.extend(&text[1..]);
                document.resize(document.len() + part.len, number);
                positions.extend(0..part.len);
            }
            positions.extend(0..end - tokens.len());
            tokens.resize(end, self.padding);
            targets.resize(end, self.ignored);
            document.resize(end, row.len());
        }
        Ok(PackedBatch {
            ids: ids(&self.device, tokens, shape)?,
            targets: ids(&self.device, targets, shape)?,
            document: ids(&self.device, document, shape)?,
            positions: ids(&self.device, positions, shape)?,
        })
    }
}

impl<T: AsRef<[usize]>, D: TensorFromVec<usize>> Iterator for PackedBatches<'_, T, D> {
    type Item = Result<PackedBatch<D>, BatchError<D::Err>>;

    fn next(&mut self) -> Option<Self::Item> {
        // The plan reads the settings, and the epochs change.
        let mut epochs = std::mem::replace(&mut self.epochs, Epochs::new());
        let batch = epochs.next(|epoch| self.plan(epoch));
        let batch = batch.map(|rows| self.batch(rows));
        self.epochs = epochs;
        batch
    }
}

/// Rows of at most `seq` places for parts, the longest of which come first: each goes into the fullest row that has room for it.
fn packed(parts: Vec<Part>, seq: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // The rows by the room that they have.
    let mut room: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for part in parts {
        let fitting = room.range_mut(part.len..).next();
        let (left, row) = match fitting.and_then(|(left, rows)| Some((*left, rows.pop()?))) {
            Some(found) => found,
            None => {
                rows.push(Row::new());
                (seq, rows.len() - 1)
            }
        };
        if room.get(&left).is_some_and(Vec::is_empty) {
            room.remove(&left);
        }
        rows[row].push(part);
        if left > part.len {
            room.entry(left - part.len).or_default().push(row);
        }
    }
    rows
}
