//! Test cases of attention: masks, and tensors of numbers.

use std::ops::Range;

use super::scores::{self, Modification, SHIFTS};
use crate::kernel::attention::*;
use crate::kernel::norm::Gain;
use crate::kernel::testing::noise;
use crate::kernel::{Dtype, Kernels, Matrix, MatrixMut};
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
    /// How queries, keys, values and the output stand in memory. The numbers of a case have heads side by side.
    pub layouts: [HeadLayout; 4],
    /// Whether the weights and `lse` are results that are used.
    pub weights: bool,
    /// Whether heads talk to each other, by matrices that change nothing.
    pub talking: bool,
    pub dtype: Dtype,
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
            layouts: [HeadLayout::SideBySide; 4],
            weights: false,
            talking: false,
            dtype: Dtype::Model,
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
    /// The identity, `[heads, heads]`, and no gradient.
    pub identity: Vec<E>,
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
            identity: (0..heads * heads)
                .map(|i| [E::ZERO, E::ONE][usize::from(i % (heads + 1) == 0)])
                .collect(),
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
            identity: _,
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
            identity: _,
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
    /// `[batch, heads, query, key]`, or nothing.
    pub weights: Vec<E>,
    pub d: Tensors<E>,
}

/// The gradients of the results of a case, which has the numbers of the first.
#[derive(Clone, Debug)]
pub(super) struct ResultGradients<E> {
    pub out: Vec<E>,
    /// As [`Results::weights`].
    pub weights: Vec<E>,
    /// Nothing, if the weights are no result.
    pub lse: Vec<E>,
}

impl<E: Kernels> ResultGradients<E> {
    pub(super) fn random(case: &Case, seed: u64) -> Self {
        let Sizes {
            batch,
            heads,
            query,
            key,
            value_width,
            ..
        } = case.sizes;
        let rows = batch * heads * query;
        let of_results = if case.weights { rows } else { 0 };
        Self {
            out: noise(rows * value_width, seed),
            weights: noise(of_results * key, seed + 1),
            lse: noise(of_results, seed + 2),
        }
    }
}

/// The vectors of `heads` heads, side by side, in another layout; or back.
pub(super) fn laid_out<E: Copy>(
    layout: HeadLayout,
    [batch, heads, rows, width]: [usize; 4],
    x: &[E],
    back: bool,
) -> Vec<E> {
    let mut to = x.to_vec();
    let places = (0..batch * rows * heads).map(|i| [i / heads / rows, i / heads % rows, i % heads]);
    for (here, [b, row, h]) in places.enumerate() {
        let there = match layout {
            HeadLayout::SideBySide => here,
            HeadLayout::HeadMajor => (b * heads + h) * rows + row,
            HeadLayout::SequenceFirst => (row * batch + b) * heads + h,
        };
        let [from, at] = if back { [there, here] } else { [here, there] };
        to[at * width..][..width].copy_from_slice(&x[from * width..][..width]);
    }
    to
}

/// Runs the kernels, of a case whose weights are no result.
pub(super) fn attend<E: Kernels>(case: &Case, x: &Tensors<E>, d_out: &[E]) -> Results<E> {
    attend_asking(case, x, d_out, true)
}

/// Runs the kernels, and asks for the gradients of parameters or does not.
pub(super) fn attend_asking<E: Kernels>(
    case: &Case,
    x: &Tensors<E>,
    d_out: &[E],
    with_parameters: bool,
) -> Results<E> {
    assert!(!case.weights);
    let d = ResultGradients {
        out: d_out.to_vec(),
        weights: Vec::new(),
        lse: Vec::new(),
    };
    attend_with(case, x, &d, with_parameters)
}

/// Runs the kernels.
pub(super) fn attend_with<E: Kernels>(
    case: &Case,
    x: &Tensors<E>,
    d: &ResultGradients<E>,
    with_parameters: bool,
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
    let [of_q, of_k, of_v, of_out] = case.layouts;
    let q_axes = [batch, heads, query, width];
    let k_axes = [batch, kv_heads, key, width];
    let v_axes = [batch, kv_heads, key, value_width];
    let out_axes = [batch, heads, query, value_width];
    let given = [
        laid_out(of_q, q_axes, &x.q, false),
        laid_out(of_k, k_axes, &x.k, false),
        laid_out(of_v, v_axes, &x.v, false),
        laid_out(of_out, out_axes, &d.out, false),
    ];
    let [q, k, v, d_out] = given.each_ref();
    let q = heads_of(of_q, q_axes, q);
    let k = heads_of(of_k, k_axes, k);
    let v = heads_of(of_v, v_axes, v);
    let d_out = heads_of(of_out, out_axes, d_out);
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
    let mut out = vec![E::NAN; d.out.len()];
    let mut lse = vec![E::NAN; batch * heads * query];
    let mut weights = vec![E::NAN; d.weights.len()];
    let to = Outputs {
        out: heads_mut(of_out, out_axes, &mut out),
        weights: case.weights.then_some(&mut weights[..]),
    };
    attention.forward(q, k, v, to, &mut lse);
    let d_results = OutputGradients {
        out: d_out,
        lse: case.weights.then_some(&d.lse[..]),
        weights: case.weights.then_some(WeightGradients {
            weights: &weights,
            d: &d.weights,
        }),
    };
    let mut d = Tensors::zeros(case);
    d.each_mut()
        .into_iter()
        .for_each(|tensor| tensor.fill(E::NAN));
    let mut d_score = vec![E::NAN; heads * lens.per_head];
    attention.backward(
        q,
        k,
        v,
        heads_of(of_out, out_axes, &out),
        &lse,
        d_results,
        Gradients {
            q: heads_mut(of_q, q_axes, &mut d.q).matrix,
            k: heads_mut(of_k, k_axes, &mut d.k).matrix,
            v: heads_mut(of_v, v_axes, &mut d.v).matrix,
            score: with_parameters.then(|| ScoreGradients {
                per_head: MatrixMut::new(&mut d_score, heads, lens.per_head),
                shared: &mut d.shifts,
                per_sequence: MatrixMut::empty(),
                pairs: &mut [],
            }),
            query_gain: (case.rms && with_parameters).then_some(&mut d.query_gain[..]),
            key_gain: (case.rms && with_parameters).then_some(&mut d.key_gain[..]),
            w: case
                .additive
                .then(|| MatrixMut::new(&mut d.w, heads, width)),
            sink: (!d.sink.is_empty() && with_parameters).then_some(&mut d.sink[..]),
            mix_scores: None,
            mix_weights: None,
        },
    );
    let out = laid_out(of_out, out_axes, &out, true);
    d.q = laid_out(of_q, q_axes, &d.q, true);
    d.k = laid_out(of_k, k_axes, &d.k, true);
    d.v = laid_out(of_v, v_axes, &d.v, true);
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
    Results {
        out,
        lse,
        weights,
        d,
    }
}

/// The rows and columns of a matrix with the vectors of heads.
fn shape(layout: HeadLayout, [batch, heads, rows, width]: [usize; 4]) -> (usize, usize) {
    match layout {
        HeadLayout::SideBySide => (batch * rows, heads * width),
        HeadLayout::HeadMajor => (batch * heads * rows, width),
        HeadLayout::SequenceFirst => (rows, batch * heads * width),
    }
}

fn heads_of<E>(layout: HeadLayout, axes: [usize; 4], x: &[E]) -> Heads<Matrix<'_, E>> {
    let (rows, cols) = shape(layout, axes);
    let matrix = Matrix::new(x, rows, cols);
    Heads { matrix, layout }
}

fn heads_mut<E>(layout: HeadLayout, axes: [usize; 4], x: &mut [E]) -> Heads<MatrixMut<'_, E>> {
    let (rows, cols) = shape(layout, axes);
    let matrix = MatrixMut::new(x, rows, cols);
    Heads { matrix, layout }
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
        (true, _) => Some(Norm::Rms {
            gain: Gain::Factor(gain),
            epsilon: 1e-6,
        }),
        (false, true) => Some(Norm::L2 { epsilon: 1e-6 }),
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
        talking: match case.talking {
            false => TalkingHeads::default(),
            true => {
                let identity = Some(Matrix::new(&x.identity, heads, heads));
                TalkingHeads {
                    scores: identity,
                    weigh: None,
                    weights: identity,
                }
            }
        },
        dropout: case.dropout,
        dtype: case.dtype,
    }
}
