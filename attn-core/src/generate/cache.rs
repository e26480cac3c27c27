//! The KV cache of an attention.

use super::{
    cached_rows::CachedRows,
    key_window::KeyWindow,
    memory::CacheMemory,
    pages::Pages,
    tokens::{Capacity, NewTokens, Span},
};
use crate::{
    Error,
    kernel::{
        Buffer, Kernels, Matrix, MatrixMut,
        attention::{Attention, PAGE_ROWS, PagedRows, Positions, Sizes, decode},
        parallel,
    },
    memory::can_allocate,
};

/// The room for new tokens in a cache that evicts rows.
const MAX_NEW: usize = 128;

/// The cached keys and values of all sequences of a session, for one attention.
///
/// Both are cached after their transforms: keys are rotated by their position. When the cache is full, rows that no later query
/// attends to are evicted. So a window of `W` keys takes the memory of `W` and some more, for any length of the sequence.
///
/// A clone shares the rows, in pages. A cache that evicts rows moves the others, so it is one page.
#[derive(Clone, Debug)]
pub struct Cache<E> {
    keys: CachedRows<E>,
    values: Values<E>,
    sequences: Vec<Sequence>,
    key_window: KeyWindow,
    /// The maximum number of rows of a sequence.
    rows: usize,
    /// Whether there may be more tokens than rows.
    evicts: bool,
}

/// Where the values are.
#[derive(Clone, Debug)]
enum Values<E> {
    Apart(CachedRows<E>),
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
        let mut widths = [sizes.width, sizes.value_width];
        if in_keys.is_some() {
            widths[1] = 0;
        }
        // A lower bound, before the mask is evaluated.
        let numbers = widths.map(|width| sizes.kv_heads * width);
        check_memory::<E, Dev>(sequences, capacity.min(MAX_NEW), numbers)?;
        // The space for new tokens holds the whole sequence, whatever the mask.
        let key_window = match capacity <= MAX_NEW {
            true => KeyWindow::all(capacity),
            false => KeyWindow::of(attention.mask, sizes, different, capacity),
        };
        let rows = capacity.min(key_window.kept + key_window.window + MAX_NEW);
        check_memory::<E, Dev>(sequences, rows, numbers)?;
        let evicts = rows < capacity;
        let rows_of_page = if evicts { rows } else { PAGE_ROWS };
        let [keys, values] = widths.map(|width| {
            let of_row = [sizes.kv_heads, width];
            CachedRows::Model(Pages::new(sequences, rows, rows_of_page, of_row))
        });
        Ok(Self {
            keys,
            values: in_keys.map_or(Values::Apart(values), Values::InKeys),
            sequences: vec![Sequence::default(); sequences],
            key_window,
            rows,
            evicts,
        })
    }

    /// The memory of the rows, in bytes.
    pub fn memory(&self) -> CacheMemory {
        self.pages().map(CachedRows::memory).sum()
    }

    /// The bytes of a sequence that a fork copies.
    pub fn copied(&self, sequence: usize) -> usize {
        // Rows that are evicted move the others.
        let len = match self.evicts {
            true => 0,
            false => self.sequences[sequence].len,
        };
        self.pages().map(|pages| pages.copied(sequence, len)).sum()
    }

    /// Rounds the keys and values to come to bf16. There are none yet.
    pub fn round(&mut self) {
        self.pages_mut().for_each(CachedRows::round);
    }

    fn pages(&self) -> impl Iterator<Item = &CachedRows<E>> {
        let values = match &self.values {
            Values::Apart(values) => Some(values),
            Values::InKeys(_) => None,
        };
        [&self.keys].into_iter().chain(values)
    }

    fn pages_mut(&mut self) -> impl Iterator<Item = &mut CachedRows<E>> {
        let values = match &mut self.values {
            Values::Apart(values) => Some(values),
            Values::InKeys(_) => None,
        };
        [&mut self.keys].into_iter().chain(values)
    }

    /// Clears a sequence.
    pub fn reset(&mut self, sequence: usize) {
        self.sequences[sequence] = Sequence::default();
        self.pages_mut()
            .for_each(|pages| pages.truncate(sequence, 0));
    }

    /// Makes a sequence a fork of another one.
    pub fn copy(&mut self, from: usize, to: usize) {
        self.sequences[to] = self.sequences[from].clone();
        self.pages_mut().for_each(|pages| pages.copy(from, to));
    }

    /// The most new tokens of a sequence that it takes at once, or `usize::MAX` if it evicts no rows.
    pub fn most_new(&self) -> usize {
        match self.evicts {
            true => MAX_NEW,
            false => usize::MAX,
        }
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
        let of = &mut self.sequences[sequence];
        let len = of.len.min(len.saturating_sub(of.dropped));
        of.len = len;
        self.pages_mut()
            .for_each(|pages| pages.truncate(sequence, len));
    }

    /// The attention of new tokens to those before them and to each other. Their keys and values are added to the cache.
    ///
    /// The tensors are those of [`Attention::forward`], of a single sequence: the rows of the new tokens. `lse` gets the logarithms of the
    /// sums, `[heads, tokens]`.
    ///
    /// # Panics
    /// If the shapes do not fit, or if there are more than [`most_new`](Self::most_new) tokens of a sequence.
    pub fn attend(
        &mut self,
        new: &NewTokens,
        attention: &Attention<'_, E>,
        [q, k, v]: [Matrix<'_, E>; 3],
        output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    ) {
        self.attend_spans(new.spans(), attention, [q, k, v], output, lse);
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
        output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    ) {
        let spans = std::slice::from_ref(span);
        self.attend_spans(spans, attention, [q, k, v], output, lse);
    }

    fn attend_spans(
        &mut self,
        spans: &[Span],
        attention: &Attention<'_, E>,
        [q, k, v]: [Matrix<'_, E>; 3],
        output: MatrixMut<'_, E>,
        lse: Option<&mut [E]>,
    ) {
        for span in spans {
            let [k, v] = [k, v].map(|x| x.some_rows(span.rows.clone()));
            self.evict(span);
            self.push(attention, span, k, v);
        }
        decode_spans(spans, attention, q, output, lse, |span| {
            let sequence = &self.sequences[span.sequence];
            let positions = Positions {
                sequence: span.sequence,
                first: span.first,
                kept: self.key_window.kept,
                dropped: sequence.dropped,
            };
            let keys = self.keys.read(span.sequence, sequence.len);
            let values = match &self.values {
                Values::Apart(values) => values.read(span.sequence, sequence.len),
                Values::InKeys(start) => {
                    keys.some_cols(*start..start + attention.sizes.value_width)
                }
            };
            (positions, [keys, values])
        });
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
        let alive = kept + dead..sequence.len;
        sequence.len -= dead;
        sequence.dropped += dead;
        self.pages_mut()
            .for_each(|pages| pages.shift(span.sequence, alive.clone(), kept));
    }

    fn push(
        &mut self,
        attention: &Attention<'_, E>,
        span: &Span,
        k: Matrix<'_, E>,
        v: Matrix<'_, E>,
    ) {
        let sequence = &mut self.sequences[span.sequence];
        let rows = sequence.len..sequence.len + span.rows.len();
        let keys = (&attention.key, k, &mut self.keys);
        let values = match &mut self.values {
            Values::Apart(values) => Some((&attention.value, v, values)),
            Values::InKeys(_) => None,
        };
        for (transform, x, pages) in [keys].into_iter().chain(values) {
            pages.write_vectors(span.sequence, rows.clone(), transform, span.first, x);
        }
        sequence.len = rows.end;
    }
}

/// The attention of the tokens of each span to the keys and values of its sequence, which `past` returns. The threads share the sequences if each has
/// too little work for several threads.
pub(super) fn decode_spans<'a, E: Kernels>(
    spans: &[Span],
    attention: &Attention<'_, E>,
    q: Matrix<'_, E>,
    output: MatrixMut<'_, E>,
    lse: Option<&mut [E]>,
    past: impl Fn(&Span) -> (Positions, [PagedRows<'a, E>; 2]) + Sync,
) {
    let sizes = attention.sizes;
    let tokens: usize = spans.iter().map(|span| span.rows.len()).sum();
    // `[heads, tokens]` of one span after the other.
    let mut sums = Buffer::uninit(sizes.heads * tokens);
    let mut rest = (output, &mut sums[..], 0);
    let tasks = spans.iter().map(|span| {
        let (output, sums, first) = std::mem::replace(&mut rest, (MatrixMut::empty(), &mut [], 0));
        let (output, others) = output.split_rows(span.rows.end - first);
        let of_span = output.split_rows(span.rows.start - first).1;
        let (sums, other_sums) = sums.split_at_mut(sizes.heads * span.rows.len());
        rest = (others, other_sums, span.rows.end);
        (span, of_span, sums)
    });
    let run = |(span, output, sums): (&Span, MatrixMut<'_, E>, &mut [E])| {
        let (positions, [keys, values]) = past(span);
        let q = q.some_rows(span.rows.clone());
        decode(attention, positions, q, keys, values, output, sums);
    };
    let pairs = |span: &Span| sizes.heads * span.rows.len() * past(span).1[0].rows();
    let is_small = |query: usize, pairs: usize| Sizes { query, ..sizes }.is_small(pairs);
    let is_each_small = |span: &Span| is_small(span.rows.len(), pairs(span));
    let is_all_small = is_small(1, spans.iter().map(pairs).sum());
    match spans.iter().all(is_each_small) && !is_all_small {
        true => parallel::for_each(tasks, run),
        false => tasks.for_each(run),
    }
    if let Some(lse) = lse {
        let mut rest = &sums[..];
        for span in spans {
            let (of_span, others) = rest.split_at(sizes.heads * span.rows.len());
            span.write_heads(of_span, lse);
            rest = others;
        }
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

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::kernel::{
        Dtype,
        attention::{Everything, HeadTransform, Normalizer, Similarity, TalkingHeads},
    };

    /// The length of each sequence before the last token: alone, each is too short for two threads, and all together are not.
    const LENS: [usize; 5] = [0, 1, 90, 95, 99];
    const SIZES: Sizes = Sizes {
        batch: LENS.len(),
        heads: 8,
        kv_heads: 4,
        query: 100,
        key: 100,
        width: 64,
        value_width: 60,
    };
    const ROOM: Capacity = Capacity {
        sequences: LENS.len(),
        capacity: 100,
    };

    fn attention() -> Attention<'static, f32> {
        Attention {
            sizes: SIZES,
            query: HeadTransform::default(),
            key: HeadTransform::default(),
            value: HeadTransform::default(),
            similarity: Similarity::Dot { scale: 0.125 },
            score: None,
            mask: &Everything,
            normalizer: Normalizer::Softmax,
            talking: TalkingHeads::default(),
            dropout: None,
            dtype: Dtype::Model,
        }
    }

    /// The output and the `lse` of the tokens at these positions of each of these sequences.
    fn attend(cache: &mut Cache<f32>, new: &[(usize, Range<usize>)]) -> Vec<(Vec<f32>, Vec<f32>)> {
        let Sizes {
            heads, kv_heads, ..
        } = SIZES;
        let widths = [
            heads * SIZES.width,
            kv_heads * SIZES.width,
            kv_heads * SIZES.value_width,
        ];
        let mut tokens = NewTokens::none(ROOM);
        let mut numbers = [(); 3].map(|()| Vec::new());
        for (sequence, positions) in new {
            tokens.push(*sequence, positions.start, &vec![0; positions.len()]);
            for (numbers, width) in numbers.iter_mut().zip(widths) {
                let places = positions.start * width..positions.end * width;
                let number = |i: usize| ((i * 37 + sequence * 101) % 1009) as f32 / 500.0 - 1.0;
                numbers.extend(places.map(number));
            }
        }
        let rows = tokens.len();
        let qkv = [0, 1, 2].map(|index| Matrix::new(&numbers[index], rows, widths[index]));
        let width = heads * SIZES.value_width;
        let mut output = vec![f32::NAN; rows * width];
        let mut lse = vec![f32::NAN; heads * rows];
        let to = MatrixMut::new(&mut output, rows, width);
        cache.attend(&tokens, &attention(), qkv, to, Some(&mut lse));
        let of_span = |span: &Span| {
            let output = &output[span.rows.start * width..span.rows.end * width];
            let of_heads = lse.chunks(rows);
            let lse = of_heads.flat_map(|of_head| &of_head[span.rows.clone()]);
            (output.to_vec(), lse.copied().collect())
        };
        tokens.spans().iter().map(of_span).collect()
    }

    #[test]
    fn tokens_of_several_sequences_are_those_of_each_on_any_number_of_threads() {
        let cache = Cache::new::<()>(ROOM, LENS.len(), &attention());
        let mut cache = cache.expect("there is room");
        let of_step = Sizes { query: 1, ..SIZES };
        let pairs = LENS.map(|len| SIZES.heads * (len + 1));
        assert!(pairs.iter().all(|pairs| of_step.is_small(*pairs)));
        assert!(!of_step.is_small(pairs.iter().sum()));
        let before: Vec<_> = (1..).zip(LENS[1..].iter().map(|len| 0..*len)).collect();
        attend(&mut cache, &before);
        let new: Vec<_> = (0..).zip(LENS.map(|len| len..len + 1)).collect();
        let alone = new
            .chunks(1)
            .flat_map(|new| attend(&mut cache.clone(), new));
        let alone: Vec<_> = alone.collect();
        assert!(alone.iter().all(|(output, lse)| {
            let mut numbers = output.iter().chain(lse);
            numbers.all(|x| x.is_finite())
        }));
        for threads in [1, 2, 3, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let pool = pool.expect("a pool of threads");
            let together = pool.install(|| attend(&mut cache.clone(), &new));
            assert!(together == alone, "{threads} threads");
        }
    }
}
