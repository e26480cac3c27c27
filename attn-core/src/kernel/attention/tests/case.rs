//! Test cases of attention: masks, and tensors of numbers.

use std::ops::Range;

use super::scores::{self, Modification, SHIFTS};
use crate::kernel::attention::*;
use crate::kernel::norm::Gain;
use crate::kernel::testing::noise;
use crate::kernel::{Kernels, Matrix, MatrixMut};
use crate::random::Philox4x32;

/// The keys that a query attends to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pattern {
    Everything,
    Nothing,
    /// The last query attends to the last key.
    Causal,
    /// Query `i` attends to keys up to `i`.
    CausalUpperLeft,
    /// The last so many keys, including that of the query's position.
    Window(usize),
    /// The key of the query's position, and every third before it.
    Dilated,
    /// The first keys, fewer in every other sequence.
    Padding,
    /// The first 20 of every 50 keys.
    Islands,
    /// Two of three queries attend to nothing.
    SomeQueries,
    /// A random bit per pair.
    Random(u64),
}

/// The mask of a pattern. Its coverage is exact, or as imprecise as is allowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    pub pattern: Pattern,
    pub exact: bool,
    pub query: usize,
    pub key: usize,
}

impl Mask for Pairs {
    #[inline(always)]
    fn attends(&self, b: usize, h: usize, q: usize, k: usize) -> bool {
        let lower_right = k + self.query <= q + self.key;
        match self.pattern {
            Pattern::Everything => true,
            Pattern::Nothing => false,
            Pattern::Causal => lower_right,
            Pattern::CausalUpperLeft => k <= q,
            Pattern::Window(n) => lower_right && q + self.key < k + self.query + n,
            Pattern::Dilated => k <= q && (q - k).is_multiple_of(3),
            Pattern::Padding => k < self.key / (1 + b % 2),
            Pattern::Islands => k % 50 < 20,
            Pattern::SomeQueries => q % 3 == 1,
            Pattern::Random(seed) => {
                Philox4x32::new(seed).block([b, h, q, k].map(|i| i as u32))[0].is_multiple_of(2)
            }
        }
    }

    fn coverage(&self, b: usize, h: usize, q: Range<usize>, k: Range<usize>) -> Coverage {
        assert!(!q.is_empty() && !k.is_empty());
        if !self.exact {
            return Coverage::Partial;
        }
        let of_query = |q| k.clone().filter(|&k| self.attends(b, h, q, k)).count();
        match q.clone().map(of_query).sum() {
            0 => Coverage::Empty,
            all if all == q.len() * k.len() => Coverage::Full,
            _ => Coverage::Partial,
        }
    }
}

/// A [`Normalizer`] without its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum NormalizerKind {
    Identity,
    Softmax,
    Softmax1,
    Sink,
    Sparsemax,
    Entmax15,
}

impl NormalizerKind {
    pub(super) const ALL: [Self; 6] = [
        Self::Identity,
        Self::Softmax,
        Self::Softmax1,
        Self::Sink,
        Self::Sparsemax,
        Self::Entmax15,
    ];

    fn with<E>(self, sink: &[E]) -> Normalizer<'_, E> {
        match self {
            Self::Identity => Normalizer::Identity,
            Self::Softmax => Normalizer::Softmax,
            Self::Softmax1 => Normalizer::Softmax1,
            Self::Sink => Normalizer::Sink(sink),
            Self::Sparsemax => Normalizer::Sparsemax,
            Self::Entmax15 => Normalizer::Entmax15,
        }
    }

    pub(super) fn is_sparse(self) -> bool {
        matches!(self, Self::Sparsemax | Self::Entmax15)
    }
}

/// The parameters of [`Attention`], without the numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub sizes: Sizes,
    pub mask: Pairs,
    pub score: Option<Modification>,
    pub additive: bool,
    pub bias: bool,
    pub rms: bool,
    pub l2: bool,
    pub rope: bool,
    pub normalizer: NormalizerKind,
    pub dropout: Option<Dropout>,
}

impl Case {
    /// Softmax of scaled products.
    pub(super) fn plain(sizes: Sizes, pattern: Pattern) -> Self {
        Self {
            sizes,
            mask: Pairs {
                pattern,
                exact: true,
                query: sizes.query,
                key: sizes.key,
            },
            score: None,
            additive: false,
            bias: false,
            rms: false,
            l2: false,
            rope: false,
            normalizer: NormalizerKind::Softmax,
            dropout: None,
        }
    }

    pub(super) fn distances(&self) -> usize {
        (self.sizes.query + self.sizes.key).saturating_sub(1)
    }

    /// The scale of products.
    pub(super) fn scale(&self) -> f64 {
        1.0 / (self.sizes.width as f64).sqrt().max(1.0)
    }
}

/// The numbers of a case, or their gradients.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tensors<E> {
    pub q: Vec<E>,
    pub k: Vec<E>,
    pub v: Vec<E>,
    /// `[heads, width]`
    pub query_bias: Vec<E>,
    /// `[kv_heads, width]`
    pub key_bias: Vec<E>,
    /// `[kv_heads, value_width]`
    pub value_bias: Vec<E>,
    /// `[heads, distances]`
    pub table: Vec<E>,
    /// `[heads]`
    pub slopes: Vec<E>,
    /// `[SHIFTS]`
    pub shifts: Vec<E>,
    pub query_gain: Vec<E>,
    pub key_gain: Vec<E>,
    pub w: Vec<E>,
    /// `[heads]`
    pub sink: Vec<E>,
}

impl<E: Kernels> Tensors<E> {
    /// Numbers between -1 and 1, as different seeds give.
    pub(super) fn random(case: &Case, seed: u64) -> Self {
        let mut tensors = Self::zeros(case);
        for (i, tensor) in tensors.each_mut().into_iter().enumerate() {
            *tensor = noise(tensor.len(), 10 * seed + i as u64);
        }
        tensors
    }

    pub(super) fn zeros(case: &Case) -> Self {
        let Sizes {
            batch,
            heads,
            kv_heads,
            query,
            key,
            width,
            value_width,
        } = case.sizes;
        let zeros = |len| vec![E::ZERO; len];
        let placed = matches!(case.score, Some(Modification::Placed(_)));
        let bias = |len| zeros(if case.bias { len } else { 0 });
        Self {
            q: zeros(batch * query * heads * width),
            k: zeros(batch * key * kv_heads * width),
            v: zeros(batch * key * kv_heads * value_width),
            query_bias: bias(heads * width),
            key_bias: bias(kv_heads * width),
            value_bias: bias(kv_heads * value_width),
            table: zeros(if placed { heads * case.distances() } else { 0 }),
            slopes: zeros(if placed { heads } else { 0 }),
            shifts: zeros(if placed { SHIFTS } else { 0 }),
            query_gain: zeros(if case.rms { width } else { 0 }),
            key_gain: zeros(if case.rms { width } else { 0 }),
            w: zeros(if case.additive { heads * width } else { 0 }),
            sink: zeros(if case.normalizer == NormalizerKind::Sink {
                heads
            } else {
                0
            }),
        }
    }

    pub(super) fn each_mut(&mut self) -> [&mut Vec<E>; 13] {
        let Self {
            q,
            k,
            v,
            query_bias,
            key_bias,
            value_bias,
            table,
            slopes,
            shifts,
            query_gain,
            key_gain,
            w,
            sink,
        } = self;
        [
            q, k, v, query_bias, key_bias, value_bias, table, slopes, shifts, query_gain, key_gain,
            w, sink,
        ]
    }

    pub(super) fn each(&self) -> [(&'static str, &Vec<E>); 13] {
        let Self {
            q,
            k,
            v,
            query_bias,
            key_bias,
            value_bias,
            table,
            slopes,
            shifts,
            query_gain,
            key_gain,
            w,
            sink,
        } = self;
        [
            ("q", q),
            ("k", k),
            ("v", v),
            ("query_bias", query_bias),
            ("key_bias", key_bias),
            ("value_bias", value_bias),
            ("table", table),
            ("slopes", slopes),
            ("shifts", shifts),
            ("query_gain", query_gain),
            ("key_gain", key_gain),
            ("w", w),
            ("sink", sink),
        ]
    }
}

/// The angles per position, `[positions, width / 2]`.
pub(super) fn angles(case: &Case) -> (usize, usize, Vec<f64>) {
    let positions = case.sizes.query.max(case.sizes.key);
    let pairs = case.sizes.width / 2;
    (positions, pairs, noise(positions * pairs, 99))
}

/// The results of [`Attention::forward`] and [`Attention::backward`].
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Results<E> {
    pub out: Vec<E>,
    pub lse: Vec<E>,
    pub d: Tensors<E>,
}

/// Runs the kernels.
pub(super) fn attend<E: Kernels>(case: &Case, x: &Tensors<E>, d_out: &[E]) -> Results<E> {
    attend_asking(case, x, d_out, true)
}

/// Runs the kernels, and asks for the gradients of the score or does not.
pub(super) fn attend_asking<E: Kernels>(
    case: &Case,
    x: &Tensors<E>,
    d_out: &[E],
    with_score: bool,
) -> Results<E> {
    let sizes = case.sizes;
    let Sizes {
        batch,
        heads,
        kv_heads,
        query,
        key,
        width,
        value_width,
    } = sizes;
    let rows = |x, rows, cols| Matrix::new(x, rows, cols);
    let q = rows(&x.q, batch * query, heads * width);
    let k = rows(&x.k, batch * key, kv_heads * width);
    let v = rows(&x.v, batch * key, kv_heads * value_width);
    let (positions, pairs, angles) = angles(case);
    let cos: Vec<E> = angles.iter().map(|a| E::of_f64(a.cos())).collect();
    let sin: Vec<E> = angles.iter().map(|a| E::of_f64(a.sin())).collect();
    let score = case.score.map(|score| score.tile_traits(case, x));
    let score = score.as_deref();
    let lens = score.map_or(SumLens::default(), |score| score.sums());
    let attention = attention(
        case,
        x,
        score,
        [&cos, &sin].map(|table| rows(table, positions, pairs)),
    );

    // The buffers contain NaN, so the result must not depend on their old contents.
    let mut out = vec![E::NAN; d_out.len()];
    let mut lse = vec![E::NAN; batch * heads * query];
    attention.forward(
        q,
        k,
        v,
        MatrixMut::new(&mut out, batch * query, heads * value_width),
        &mut lse,
    );
    let mut d = Tensors::zeros(case);
    d.each_mut()
        .into_iter()
        .for_each(|tensor| tensor.fill(E::NAN));
    let mut d_score = vec![E::NAN; heads * lens.per_head];
    attention.backward(
        q,
        k,
        v,
        rows(&out, batch * query, heads * value_width),
        &lse,
        rows(d_out, batch * query, heads * value_width),
        Gradients {
            q: MatrixMut::new(&mut d.q, batch * query, heads * width),
            k: MatrixMut::new(&mut d.k, batch * key, kv_heads * width),
            v: MatrixMut::new(&mut d.v, batch * key, kv_heads * value_width),
            score: with_score.then(|| ScoreGradients {
                per_head: MatrixMut::new(&mut d_score, heads, lens.per_head),
                shared: &mut d.shifts,
            }),
            query_gain: case.rms.then_some(&mut d.query_gain[..]),
            key_gain: case.rms.then_some(&mut d.key_gain[..]),
            w: case
                .additive
                .then(|| MatrixMut::new(&mut d.w, heads, width)),
            sink: (!d.sink.is_empty()).then_some(&mut d.sink[..]),
        },
    );
    if !d.slopes.is_empty() {
        let d_score = Matrix::new(&d_score, heads, lens.per_head);
        (d.table, d.slopes) = scores::split(d_score, case.distances());
    }
    // A bias is added to every row, so its gradient is a sum over rows.
    for (d, rows) in [
        (&mut d.query_bias, &d.q),
        (&mut d.key_bias, &d.k),
        (&mut d.value_bias, &d.v),
    ] {
        d.fill(E::ZERO);
        for row in rows.chunks(d.len().max(1)) {
            d.iter_mut().zip(row).for_each(|(d, row)| *d += *row);
        }
    }
    Results { out, lse, d }
}

/// The description of a case, with its parameters.
pub(super) fn attention<'a, E: Kernels>(
    case: &'a Case,
    x: &'a Tensors<E>,
    score: Option<&'a dyn TileScore<E>>,
    [cos, sin]: [Matrix<'a, E>; 2],
) -> Attention<'a, E> {
    let Sizes { heads, width, .. } = case.sizes;
    let rope = case.rope.then_some(Rope {
        cos,
        sin,
        interleaved: false,
        rows: None,
    });
    let norm = |gain| match (case.rms, case.l2) {
        (true, _) => Some(Norm::Rms(Gain::Factor(gain))),
        (false, true) => Some(Norm::L2),
        _ => None,
    };
    let bias = |bias| case.bias.then_some(bias);
    Attention {
        sizes: case.sizes,
        query: HeadTransform {
            bias: bias(&x.query_bias[..]),
            norm: norm(&x.query_gain),
            rope,
        },
        key: HeadTransform {
            bias: bias(&x.key_bias[..]),
            norm: norm(&x.key_gain),
            rope,
        },
        value: HeadTransform {
            bias: bias(&x.value_bias[..]),
            ..HeadTransform::default()
        },
        similarity: match case.additive {
            true => Similarity::Additive {
                w: Matrix::new(&x.w, heads, width),
            },
            false => Similarity::Dot {
                scale: E::of_f64(case.scale()),
            },
        },
        score,
        mask: &case.mask,
        normalizer: case.normalizer.with(&x.sink),
        dropout: case.dropout,
    }
}
