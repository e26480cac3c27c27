//! The KV cache of an attention.

use super::{
    key_window::KeyWindow,
    tokens::{Capacity, NewTokens, Span},
};
use crate::{
    Error,
    kernel::{
        Buffer, Kernels, Matrix, MatrixMut,
        attention::{Attention, Positions, decode, head_transform},
    },
    memory::can_allocate,
};

/// The maximum number of new tokens of a sequence in one step. More are processed in several steps, so that memory does not grow
/// with the prompt.
pub(super) const MAX_NEW: usize = 128;

/// The cached keys and values of all sequences of a session, for one attention.
///
/// Both are cached after their transforms: keys are rotated by their position. When the cache is full, rows that no later query
/// attends to are evicted. So a window of `W` keys takes the memory of `W` and some more, for any length of the sequence.
#[derive(Debug)]
pub struct Cache<E> {
    keys: Rows<E>,
    values: Values<E>,
    sequences: Vec<Sequence>,
    key_window: KeyWindow,
    /// The maximum number of rows of a sequence.
    rows: usize,
}

/// Where the values are.
#[derive(Debug)]
enum Values<E> {
    Apart(Rows<E>),
    /// They are columns of the keys, from this one on.
    InKeys(usize),
}

/// The cached rows of a sequence.
#[derive(Clone, Debug, Default)]
struct Sequence {
    len: usize,
    /// The number of evicted rows after the first rows, which are kept.
    dropped: usize,
}

/// `[sequences, rows, width]`, in one allocation: the operating system provides a page when a row is first written.
#[derive(Clone, Debug)]
pub(super) struct Rows<E> {
    numbers: Vec<E>,
    width: usize,
}

impl<E: Kernels> Rows<E> {
    pub(super) fn new(rows: usize, width: usize) -> Self {
        Self {
            numbers: vec![E::ZERO; rows * width],
            width,
        }
    }

    /// `len` rows from `start` on.
    pub(super) fn rows(&self, start: usize, len: usize) -> Matrix<'_, E> {
        let numbers = &self.numbers[start * self.width..][..len * self.width];
        Matrix::new(numbers, len, self.width)
    }

    /// `len` rows from `start` on, mutable.
    pub(super) fn rows_mut(&mut self, start: usize, len: usize) -> MatrixMut<'_, E> {
        let numbers = &mut self.numbers[start * self.width..][..len * self.width];
        MatrixMut::new(numbers, len, self.width)
    }

    /// The number of elements that are allocated.
    pub(super) fn elements(&self) -> usize {
        self.numbers.len()
    }

    /// Moves the rows `from..end` to `to`.
    fn shift(&mut self, from: usize, end: usize, to: usize) {
        let width = self.width;
        self.numbers
            .copy_within(from * width..end * width, to * width);
    }
}

impl<E: Kernels> Clone for Cache<E> {
    /// Copies the rows of the tokens so far. The rest is memory that the system provides when it is written, as in a new cache.
    fn clone(&self) -> Self {
        let copy = |from: &Rows<E>| {
            let mut to = Rows::new(self.sequences.len() * self.rows, from.width);
            for (number, sequence) in self.sequences.iter().enumerate() {
                let first = number * self.rows;
                let mut rows = to.rows_mut(first, sequence.len);
                rows.as_mut_slice()
                    .copy_from_slice(from.rows(first, sequence.len).values());
            }
            to
        };
        Self {
            keys: copy(&self.keys),
            values: match &self.values {
                Values::Apart(values) => Values::Apart(copy(values)),
                Values::InKeys(start) => Values::InKeys(*start),
            },
            sequences: self.sequences.clone(),
            key_window: self.key_window,
            rows: self.rows,
        }
    }
}

impl<E: Kernels> Cache<E> {
    /// An empty cache for an attention that looks back only. Only the masks of the first `different` sequences can differ.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn new<Dev>(
        room: Capacity,
        different: usize,
        attention: &Attention<'_, E>,
    ) -> Result<Self, Error<Dev>> {
        Self::with_values(room, different, attention, None)
    }

    /// The same for values that are columns of the keys, from one on, which one head has: the keys alone are cached.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn with_values_in_keys<Dev>(
        room: Capacity,
        different: usize,
        attention: &Attention<'_, E>,
        start: usize,
    ) -> Result<Self, Error<Dev>> {
        Self::with_values(room, different, attention, Some(start))
    }

    fn with_values<Dev>(
        room: Capacity,
        different: usize,
        attention: &Attention<'_, E>,
        in_keys: Option<usize>,
    ) -> Result<Self, Error<Dev>> {
        let Capacity {
            sequences,
            capacity,
        } = room;
        let sizes = attention.sizes;
        let mut widths = [sizes.width, sizes.value_width].map(|width| sizes.kv_heads * width);
        if in_keys.is_some() {
            widths[1] = 0;
        }
        // A lower bound, before the mask is evaluated.
        check_memory::<E, Dev>(sequences, capacity.min(MAX_NEW), widths)?;
        // The space for new tokens holds the whole sequence, whatever the mask.
        let key_window = match capacity <= MAX_NEW {
            true => KeyWindow::all(capacity),
            false => KeyWindow::of(attention.mask, sizes, different, capacity),
        };
        let rows = capacity.min(key_window.kept + key_window.window + MAX_NEW);
        check_memory::<E, Dev>(sequences, rows, widths)?;
        let [keys, values] = widths.map(|width| Rows::new(sequences * rows, width));
        Ok(Self {
            keys,
            values: in_keys.map_or(Values::Apart(values), Values::InKeys),
            sequences: vec![Sequence::default(); sequences],
            key_window,
            rows,
        })
    }

    /// The number of elements that are allocated.
    pub fn elements(&self) -> usize {
        self.keys.elements()
            + match &self.values {
                Values::Apart(values) => values.elements(),
                Values::InKeys(_) => 0,
            }
    }

    /// Clears a sequence.
    pub fn reset(&mut self, sequence: usize) {
        self.sequences[sequence] = Sequence::default();
    }

    /// The fewest tokens that a sequence can be cut to: a query behind them attends to no evicted row.
    pub fn shortest(&self, sequence: usize) -> usize {
        let KeyWindow { kept, window } = self.key_window;
        match self.sequences[sequence].dropped {
            0 => 0,
            dropped => kept + dropped + window.max(1) - 1,
        }
    }

    /// Cuts a sequence to `len` tokens, not fewer than [`shortest`](Self::shortest).
    pub fn truncate(&mut self, sequence: usize, len: usize) {
        let sequence = &mut self.sequences[sequence];
        sequence.len = sequence.len.min(len.saturating_sub(sequence.dropped));
    }

    /// The attention of new tokens to those before them and to each other. Their keys and values are added to the cache.
    ///
    /// The tensors are those of [`Attention::forward`], of a single sequence: the rows of the new tokens. `lse` gets the logarithms of the
    /// sums, `[heads, tokens]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or if there are more than [`MAX_NEW`] tokens of a sequence.
    pub fn attend(
        &mut self,
        new: &NewTokens,
        attention: &Attention<'_, E>,
        [q, k, v]: [Matrix<'_, E>; 3],
        mut output: MatrixMut<'_, E>,
        mut lse: Option<&mut [E]>,
    ) {
        for span in new.spans() {
            let lse = lse.as_deref_mut();
            self.attend_in(span, attention, [q, k, v], output.reborrow(), lse);
        }
    }

    /// The same for the tokens of one sequence: these rows of the tensors.
    ///
    /// # Panics
    /// As [`attend`](Self::attend).
    pub fn attend_in(
        &mut self,
        span: &Span,
        attention: &Attention<'_, E>,
        [q, k, v]: [Matrix<'_, E>; 3],
        mut output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    ) {
        let [q, k, v] = [q, k, v].map(|x| x.some_rows(span.rows.clone()));
        self.evict(span);
        self.push(attention, span, k, v);
        let sequence = &self.sequences[span.sequence];
        let positions = Positions {
            sequence: span.sequence,
            first: span.first,
            kept: self.key_window.kept,
            dropped: sequence.dropped,
        };
        let first = span.sequence * self.rows;
        let keys = self.keys.rows(first, sequence.len);
        let values = match &self.values {
            Values::Apart(values) => values.rows(first, sequence.len),
            Values::InKeys(start) => keys.some_cols(*start..start + attention.sizes.value_width),
        };
        let output = span.of(&mut output);
        let mut sums = Buffer::uninit(attention.sizes.heads * q.rows());
        decode(attention, positions, q, keys, values, output, &mut sums);
        if let Some(lse) = lse {
            span.write_heads(&sums, lse);
        }
    }

    /// Evicts rows that no later query attends to, if there is no free space.
    fn evict(&mut self, span: &Span) {
        let KeyWindow { kept, window } = self.key_window;
        let sequence = &mut self.sequences[span.sequence];
        if sequence.len + span.rows.len() <= self.rows {
            return;
        }
        // A sequence can be cut by so many tokens, as that of a draft is.
        let cut = MAX_NEW.saturating_sub(span.rows.len()) / 2;
        // Even a mask that attends to the first keys only needs the new ones.
        let needed = (span.first + 1).saturating_sub(window.max(1) + cut);
        let dead = needed.saturating_sub(kept + sequence.dropped);
        let first = span.sequence * self.rows;
        let values = match &mut self.values {
            Values::Apart(values) => Some(values),
            Values::InKeys(_) => None,
        };
        for rows in [&mut self.keys].into_iter().chain(values) {
            rows.shift(first + kept + dead, first + sequence.len, first + kept);
        }
        sequence.len -= dead;
        sequence.dropped += dead;
    }

    fn push(
        &mut self,
        attention: &Attention<'_, E>,
        span: &Span,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
    ) {
        let sequence = &mut self.sequences[span.sequence];
        let start = span.sequence * self.rows + sequence.len;
        let len = span.rows.len();
        let heads = attention.sizes.kv_heads;
        let keys = (&attention.key, k, &mut self.keys);
        let values = match &mut self.values {
            Values::Apart(values) => Some((&attention.value, v, values)),
            Values::InKeys(_) => None,
        };
        for (transform, x, rows) in [keys].into_iter().chain(values) {
            let transform = transform.from(span.first);
            head_transform(&transform, 1, len, heads, x, rows.rows_mut(start, len));
        }
        sequence.len += len;
    }
}

/// Checks that the rows fit the memory of the system: [`can_allocate`].
pub(super) fn check_memory<E, Dev>(
    sequences: usize,
    rows: usize,
    widths: [usize; 2],
) -> Result<(), Error<Dev>> {
    let width = widths[0] + widths[1];
    let row = size_of::<E>().checked_mul(width);
    let each = row
        .and_then(|row| row.checked_mul(rows))
        .and_then(|rows| rows.checked_add(size_of::<Sequence>()));
    let all = each.and_then(|each| each.checked_mul(sequences));
    match can_allocate(all) {
        true => Ok(()),
        false => Err(Error::TooLarge {
            layer: "a session",
            sizes: vec![("sequences", sequences), ("tokens", rows), ("width", width)],
        }),
    }
}
