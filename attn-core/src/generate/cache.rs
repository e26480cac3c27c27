//! The KV cache of an attention.

use super::{
    reach::Reach,
    tokens::{Capacity, NewTokens, Span},
};
use crate::{
    Error,
    kernel::{
        Matrix, MatrixMut, Pooled,
        attention::{Attention, Positions, decode, prepare},
    },
};

/// The maximum number of new tokens of a sequence in one step. More are processed in several steps, so that memory does not grow
/// with the prompt.
pub(super) const MOST_NEW: usize = 128;

/// The cached keys and values of all sequences of a session, for one attention.
///
/// Both are cached after their transforms: keys are rotated by their position. When the cache is full, rows that no later query
/// attends to are evicted. So a window of `W` keys takes the memory of `W` and some more, for any length of the sequence.
#[derive(Clone, Debug)]
pub struct Cache<E> {
    sequences: Vec<Sequence<E>>,
    reach: Reach,
    /// The maximum number of rows of a sequence.
    rows: usize,
}

/// Rows of keys and values, of which `len` are in use.
#[derive(Clone, Debug)]
struct Sequence<E> {
    keys: Rows<E>,
    values: Rows<E>,
    len: usize,
    /// The number of evicted rows after the first rows, which are kept.
    dropped: usize,
}

#[derive(Clone, Debug)]
struct Rows<E> {
    numbers: Vec<E>,
    width: usize,
}

impl<E: Pooled> Rows<E> {
    fn new(rows: usize, width: usize) -> Self {
        Self {
            numbers: vec![E::ZERO; rows * width],
            width,
        }
    }

    fn first(&self, rows: usize) -> Matrix<'_, E> {
        Matrix::new(&self.numbers[..rows * self.width], rows, self.width)
    }

    /// `len` rows from `start` on, mutable.
    fn some_mut(&mut self, start: usize, len: usize) -> MatrixMut<'_, E> {
        let numbers = &mut self.numbers[start * self.width..][..len * self.width];
        MatrixMut::new(numbers, len, self.width)
    }

    /// Moves the rows `from..end` to `to`.
    fn shift(&mut self, from: usize, end: usize, to: usize) {
        let width = self.width;
        self.numbers
            .copy_within(from * width..end * width, to * width);
    }
}

impl<E: Pooled> Cache<E> {
    /// An empty cache for a causal attention.
    ///
    /// # Errors
    /// [`Error::TooLarge`] if there is not enough memory.
    pub fn new<Dev>(room: Capacity, attention: &Attention<'_, E>) -> Result<Self, Error<Dev>> {
        let Capacity {
            sequences,
            capacity,
        } = room;
        let sizes = attention.sizes;
        // The space for new tokens holds such a sequence, whatever its mask attends to.
        let reach = match capacity <= MOST_NEW {
            true => Reach::all(capacity),
            false => Reach::of(attention.mask, sizes, sequences, capacity),
        };
        let rows = capacity.min(reach.kept + reach.window + MOST_NEW);
        let widths = [sizes.width, sizes.value_width].map(|width| sizes.kv_heads * width);
        check_memory::<E, Dev>(sequences, rows, widths)?;
        let sequence = |_| Sequence {
            keys: Rows::new(rows, widths[0]),
            values: Rows::new(rows, widths[1]),
            len: 0,
            dropped: 0,
        };
        Ok(Self {
            sequences: (0..sequences).map(sequence).collect(),
            reach,
            rows,
        })
    }

    /// The number of elements that are allocated.
    pub fn numbers(&self) -> usize {
        let each = self.sequences.iter();
        each.map(|of| of.keys.numbers.len() + of.values.numbers.len())
            .sum()
    }

    /// Clears a sequence.
    pub fn reset(&mut self, sequence: usize) {
        let of = &mut self.sequences[sequence];
        (of.len, of.dropped) = (0, 0);
    }

    /// The attention of new tokens to those before them and to each other. Their keys and values are added to the cache.
    ///
    /// The tensors are those of [`Attention::forward`], of a single sequence: the rows of the new tokens.
    ///
    /// # Panics
    /// If the shapes do not fit, or if there are more than [`MOST_NEW`] tokens of a sequence.
    pub fn attend(
        &mut self,
        new: &NewTokens,
        attention: &Attention<'_, E>,
        [q, k, v]: [Matrix<'_, E>; 3],
        mut output: MatrixMut<'_, E>,
    ) {
        for span in new.spans() {
            let [q, k, v] = [q, k, v].map(|x| x.some_rows(span.rows.clone()));
            self.make_room(span);
            let sequence = &mut self.sequences[span.sequence];
            sequence.push(attention, span, k, v);
            let positions = Positions {
                sequence: span.sequence,
                first: span.first,
                kept: self.reach.kept,
                dropped: sequence.dropped,
            };
            let rows = [&sequence.keys, &sequence.values];
            let [keys, values] = rows.map(|rows| rows.first(sequence.len));
            decode(attention, positions, q, keys, values, span.of(&mut output));
        }
    }

    /// Evicts rows that no later query attends to, if there is no free space.
    fn make_room(&mut self, span: &Span) {
        let Reach { kept, window } = self.reach;
        let sequence = &mut self.sequences[span.sequence];
        if sequence.len + span.rows.len() <= self.rows {
            return;
        }
        // If a mask attends to the first keys only, nothing else is needed.
        let needed = (span.first + 1).saturating_sub(window.max(1));
        let dead = needed.saturating_sub(kept + sequence.dropped);
        for rows in [&mut sequence.keys, &mut sequence.values] {
            rows.shift(kept + dead, sequence.len, kept);
        }
        sequence.len -= dead;
        sequence.dropped += dead;
    }
}

/// Checks that the system has the memory of all rows: [`there_is_memory`].
fn check_memory<E, Dev>(
    sequences: usize,
    rows: usize,
    widths: [usize; 2],
) -> Result<(), Error<Dev>> {
    let width = widths[0] + widths[1];
    let row = size_of::<E>().checked_mul(width);
    let each = row
        .and_then(|row| row.checked_mul(rows))
        .and_then(|rows| rows.checked_add(size_of::<Sequence<E>>()));
    let all = each.and_then(|each| each.checked_mul(sequences));
    match there_is_memory(all) {
        true => Ok(()),
        false => Err(Error::TooLarge {
            layer: "a session",
            sizes: vec![("sequences", sequences), ("tokens", rows), ("width", width)],
        }),
    }
}

/// Whether the system has this many bytes; `false` if the number overflowed. They are allocated once, beforehand: a failed
/// allocation of a vector aborts the process.
pub(super) fn there_is_memory(bytes: Option<usize>) -> bool {
    let mut all = Vec::<u8>::new();
    let there_is = bytes.is_some_and(|bytes| all.try_reserve_exact(bytes).is_ok());
    // An unused allocation would be optimised away.
    std::hint::black_box(&all);
    there_is
}

impl<E: Pooled> Sequence<E> {
    fn push(
        &mut self,
        attention: &Attention<'_, E>,
        span: &Span,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
    ) {
        let start = self.len;
        let len = span.rows.len();
        let heads = attention.sizes.kv_heads;
        for (how, x, rows) in [
            (&attention.key, k, &mut self.keys),
            (&attention.value, v, &mut self.values),
        ] {
            let how = how.from(span.first);
            prepare(&how, 1, len, heads, x, rows.some_mut(start, len));
        }
        self.len += len;
    }
}
