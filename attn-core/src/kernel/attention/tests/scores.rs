//! Score modifications.

use super::case::{Case, NormalizerKind, Pattern, Tensors, attend, attend_asking, attention};
use crate::kernel::attention::*;
use crate::kernel::testing::{noise, on_every_isa};
use crate::kernel::{Kernels, Matrix, MatrixMut};
use crate::simd::{Real, Vector, math};

/// The score modification of a case.
#[derive(Clone, Copy, Debug)]
pub(super) enum Modification {
    /// [`SoftCap`], of this size.
    SoftCap(f64),
    /// [`Placed`], of this size.
    Placed(f64),
}

impl Modification {
    pub(super) fn tile_traits<'a, E: Kernels>(
        self,
        case: &Case,
        x: &'a Tensors<E>,
    ) -> Box<dyn TileScore<E> + 'a> {
        match self {
            Self::SoftCap(cap) => Box::new(SoftCap(cap)),
            Self::Placed(cap) => Box::new(Placed {
                cap: SoftCap(cap),
                query: case.sizes.query,
                distances: case.distances(),
                table: &x.table,
                slopes: &x.slopes,
                shifts: &x.shifts,
            }),
        }
    }
}

/// `cap tanh(score / cap)`
struct SoftCap(f64);

impl SoftCap {
    #[inline(always)]
    fn tanh<V: Vector>(&self, score: V) -> V {
        math::tanh(score * V::splat(V::Element::of_f64(1.0 / self.0)))
    }

    #[inline(always)]
    fn slope<V: Vector>(&self, score: V) -> V {
        let tanh = self.tanh(score);
        V::splat(V::Element::ONE) - tanh * tanh
    }
}

impl<E: Real> Score<E> for SoftCap {
    #[inline(always)]
    fn value<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
        assert!(bias_terms.is_empty());
        self.tanh(score) * V::splat(E::of_f64(self.0))
    }

    #[inline(always)]
    fn derivative<V: Vector<Element = E>>(&self, score: V, _: &[V]) -> V {
        self.slope(score)
    }
}

/// The maximum distance with its own shift.
const WIDTH: i64 = 3;

/// The number of shifts, one per distance. All heads share them.
pub(super) const SHIFTS: usize = 2 * WIDTH as usize + 1;

/// `cap tanh((score * table[h, q - k] + slopes[h] (q - k) / 16 * factor(b, h, q, k) + shifts[q - k]) / cap)`
struct Placed<'a, E> {
    cap: SoftCap,
    query: usize,
    distances: usize,
    table: &'a [E],
    slopes: &'a [E],
    shifts: &'a [E],
}

impl<E: Real> Placed<'_, E> {
    #[inline(always)]
    fn sum<V: Vector<Element = E>>(score: V, bias_terms: &[V]) -> V {
        score * bias_terms[0] + bias_terms[1] * bias_terms[3] + bias_terms[2]
    }

    fn distance(at: TileOrigin, i: usize) -> i64 {
        at.q as i64 - (at.k + i) as i64
    }

    fn shift(at: TileOrigin, i: usize) -> usize {
        (Self::distance(at, i).clamp(-WIDTH, WIDTH) + WIDTH) as usize
    }

    fn column(&self, at: TileOrigin) -> usize {
        at.k + (self.query - 1) - at.q
    }
}

impl<E: Real> Score<E> for Placed<'_, E> {
    const BIAS_TERMS: usize = 4;

    #[inline(always)]
    fn stored(&self, bias_term: usize, at: TileOrigin, len: usize) -> Option<&[E]> {
        let of_head = &self.table[at.h * self.distances..][..self.distances];
        (bias_term == 0).then(|| &of_head[self.column(at)..][..len])
    }

    #[inline(always)]
    fn bias_term(&self, bias_term: usize, at: TileOrigin, to: &mut [E]) {
        for (i, to) in to.iter_mut().enumerate() {
            *to = match bias_term {
                1 => self.slopes[at.h] * E::of_f64(Self::distance(at, i) as f64 / 16.0),
                2 => self.shifts[Self::shift(at, i)],
                _ => E::of_f64(((at.b + at.h + 2 * at.q + 3 * (at.k + i)) % 5) as f64 / 4.0),
            }
        }
    }

    #[inline(always)]
    fn value<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
        self.cap.value(Self::sum(score, bias_terms), &[])
    }

    #[inline(always)]
    fn derivative<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
        self.cap.slope(Self::sum(score, bias_terms)) * bias_terms[0]
    }

    #[inline(always)]
    fn is_learned(&self, bias_term: usize) -> bool {
        bias_term != 3
    }

    #[inline(always)]
    fn bias_term_derivative<V: Vector<Element = E>>(
        &self,
        bias_term: usize,
        score: V,
        bias_terms: &[V],
    ) -> V {
        let slope = self.cap.slope(Self::sum(score, bias_terms));
        match bias_term {
            0 => slope * score,
            1 => slope * bias_terms[3],
            2 => slope,
            _ => panic!("nobody learns that"),
        }
    }

    #[inline(always)]
    fn add_gradient(&self, bias_term: usize, at: TileOrigin, d: &[E], sums: ScoreSums<'_, E>) {
        let (table, slope) = sums.per_head.split_at_mut(self.distances);
        for (i, &d) in d.iter().enumerate() {
            match bias_term {
                0 => table[self.column(at) + i] += d,
                1 => slope[0] += d * E::of_f64(Self::distance(at, i) as f64 / 16.0),
                2 => sums.shared[Self::shift(at, i)] += d,
                _ => panic!("nobody learns that"),
            }
        }
    }

    fn sums(&self) -> SumLens {
        SumLens {
            per_head: self.distances + 1,
            shared: SHIFTS,
            ..SumLens::default()
        }
    }
}

/// The sums of [`Placed`] per head: the gradients of the table and of the slopes.
pub(super) fn split<E: Kernels>(d: Matrix<'_, E>, distances: usize) -> (Vec<E>, Vec<E>) {
    let rows = || (0..d.rows()).map(|h| d.row(h).split_at(distances));
    let table = rows().flat_map(|(table, _)| table.to_vec());
    (table.collect(), rows().map(|(_, slope)| slope[0]).collect())
}

/// `score Σ (i + 1) bias_term i`, with the maximum number of bias terms. Those with odd numbers are learned.
struct Many;

impl Many {
    fn number(bias_term: usize, TileOrigin { b, h, q, k }: TileOrigin) -> f64 {
        ((bias_term * 7 + b * 5 + h * 3 + q * 11 + k * 13) % 17) as f64 - 8.0
    }

    /// Bias terms times keys.
    const SUMS: usize = MAX_BIAS_TERMS * 400;
}

impl<E: Real> Score<E> for Many {
    const BIAS_TERMS: usize = MAX_BIAS_TERMS;

    fn bias_term(&self, bias_term: usize, at: TileOrigin, to: &mut [E]) {
        for (k, to) in (at.k..).zip(to) {
            *to = E::of_f64(Self::number(bias_term, TileOrigin { k, ..at }));
        }
    }

    #[inline(always)]
    fn value<V: Vector<Element = E>>(&self, score: V, bias_terms: &[V]) -> V {
        score * self.derivative(score, bias_terms)
    }

    #[inline(always)]
    fn derivative<V: Vector<Element = E>>(&self, _: V, bias_terms: &[V]) -> V {
        let mut sum = V::zero();
        for (i, &bias_term) in bias_terms.iter().enumerate() {
            sum += V::splat(E::of_f64(i as f64 + 1.0)) * bias_term;
        }
        sum
    }

    fn is_learned(&self, bias_term: usize) -> bool {
        bias_term % 2 == 1
    }

    #[inline(always)]
    fn bias_term_derivative<V: Vector<Element = E>>(
        &self,
        bias_term: usize,
        score: V,
        _: &[V],
    ) -> V {
        score * V::splat(E::of_f64(bias_term as f64 + 1.0))
    }

    fn add_gradient(&self, bias_term: usize, at: TileOrigin, d: &[E], sums: ScoreSums<'_, E>) {
        for (k, &d) in (at.k..).zip(d) {
            sums.shared[k * MAX_BIAS_TERMS + bias_term] += d;
        }
    }

    fn sums(&self) -> SumLens {
        SumLens {
            shared: Self::SUMS,
            ..SumLens::default()
        }
    }
}

/// Rows and columns of tiles, around every block size.
fn tiles() -> impl Iterator<Item = (usize, usize)> {
    let cols = [0, 1, 2, 15, 16, 17, 127, 128, 129, 300];
    cols.into_iter()
        .flat_map(|cols| [0, 1, 3].map(|rows| (rows, cols)))
}

const AT: TileOrigin = TileOrigin {
    b: 2,
    h: 1,
    q: 40,
    k: 50,
};

#[test]
fn bias_terms_are_applied_to_their_pairs() {
    on_every_isa(|isa| {
        for (rows, cols) in tiles() {
            // Sums of these integers are exact.
            let scores: Vec<f64> = (0..rows * cols).map(|i| (i % 7) as f64 - 3.0).collect();
            let mut found = scores.clone();
            TileScore::apply(&Many, AT, &mut MatrixMut::new(&mut found, rows, cols));
            for (i, &score) in scores.iter().enumerate() {
                let q = AT.q + i / cols;
                let k = AT.k + i % cols;
                let number = |bias_term| Many::number(bias_term, TileOrigin { q, k, ..AT });
                let sum: f64 = (0..16).map(|i| (i as f64 + 1.0) * number(i)).sum();
                assert_eq!(found[i], score * sum, "{i} of {rows} x {cols} on {isa}");
            }
        }
    });
}

#[test]
fn gradients_of_bias_terms_exclude_masked_pairs() {
    on_every_isa(|isa| {
        for (rows, cols) in tiles() {
            let what = format!("{rows} x {cols} on {isa}");
            let mut scores: Vec<f64> = (0..rows * cols).map(|i| (i % 7) as f64 - 3.0).collect();
            let d_values: Vec<f64> = (0..rows * cols).map(|i| (i % 5) as f64).collect();
            let masked = |i| i % 5 == 0;
            (0..rows * cols)
                .filter(|&i| masked(i))
                .for_each(|i| scores[i] = f64::NAN);
            let mut d = d_values.clone();
            let mut sums = vec![0.0; Many::SUMS];
            TileScore::backward(
                &Many,
                AT,
                Matrix::new(&scores, rows, cols),
                &mut MatrixMut::new(&mut d, rows, cols),
                Some(ScoreSums {
                    per_head: &mut [],
                    shared: &mut sums,
                    per_sequence: &mut [],
                    pairs: None,
                }),
            );
            let mut expected = vec![0.0; Many::SUMS];
            for (i, &d_value) in d_values.iter().enumerate() {
                let q = AT.q + i / cols;
                let k = AT.k + i % cols;
                let number = |bias_term| Many::number(bias_term, TileOrigin { q, k, ..AT });
                let sum: f64 = (0..16).map(|i| (i as f64 + 1.0) * number(i)).sum();
                assert_eq!(d[i], d_value * sum, "{i} of {what}");
                for bias_term in (1..16).step_by(2).filter(|_| !masked(i)) {
                    expected[k * 16 + bias_term] += d_value * scores[i] * (bias_term as f64 + 1.0);
                }
            }
            assert!(sums == expected, "{what}");
        }
    });
}

fn case() -> Case {
    let sizes = Sizes {
        batch: 2,
        heads: 4,
        kv_heads: 2,
        query: 60,
        key: 70,
        width: 4,
        value_width: 3,
    };
    Case {
        score: Some(Modification::Placed(2.0)),
        ..Case::plain(sizes, Pattern::Causal)
    }
}

#[test]
fn omitted_gradients_do_not_change_others() {
    let case = Case {
        rms: true,
        normalizer: NormalizerKind::Sink,
        ..case()
    };
    let x = Tensors::<f64>::random(&case, 1);
    let d_out = noise(2 * 60 * 4 * 3, 2);
    on_every_isa(|isa| {
        let asked = attend(&case, &x, &d_out);
        let found = attend_asking(&case, &x, &d_out, false);
        for ((name, found), (_, asked)) in found.d.each().into_iter().zip(asked.d.each()).take(3) {
            assert!(found == asked, "{name} on {isa}");
        }
        let Tensors {
            shifts,
            sink,
            query_gain,
            key_gain,
            ..
        } = &found.d;
        for omitted in [shifts, sink, query_gain, key_gain] {
            assert!(!omitted.is_empty());
            assert!(omitted.iter().all(|d| d.is_nan()), "{isa}");
        }
    });
}

#[test]
#[should_panic(expected = "gradients of all heads")]
fn gradients_of_another_shape_are_refused() {
    let mut case = case();
    case.sizes.batch = 0;
    let x = Tensors::<f64>::random(&case, 1);
    let score = case.score.map(|score| score.tile_traits(&case, &x));
    let none = Matrix::new(&[], 0, 0);
    let attention = attention(&case, &x, score.as_deref(), [none, none]);
    let rows = |cols| Matrix::new(&[], 0, cols);
    let mut of_heads = [0.0; 4 * 130];
    let d = Gradients {
        q: MatrixMut::new(&mut [], 0, 16),
        k: MatrixMut::new(&mut [], 0, 8),
        v: MatrixMut::new(&mut [], 0, 6),
        score: Some(ScoreGradients {
            per_head: MatrixMut::new(&mut of_heads, 4, 130),
            shared: &mut [0.0; SHIFTS - 1],
            per_sequence: MatrixMut::empty(),
            pairs: &mut [],
        }),
        query_gain: None,
        key_gain: None,
        w: None,
        sink: None,
        mix_scores: None,
        mix_weights: None,
    };
    attention.backward(rows(16), rows(8), rows(6), rows(12), &[], rows(12), d);
}
