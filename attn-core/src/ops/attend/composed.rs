//! The composed form, with dfdx's operations.

use dfdx::{
    shapes::{Axes3, Axis, Const, HasShape},
    tensor::{NoneTape, PutTape, SplitTape, Tape, Tensor},
    tensor_ops::{PermuteTo, SumTo, TryAdd, TryMatMul, TryMul},
};

use super::{AttendNormalizer, Call, Inputs, Results, Wanted};
use crate::{
    Backend, Element,
    composed::{
        self, DependsOn, Scores, depend, index_mask, is_empty, off_tape, reshape, zeros_after,
        zeros_after_both,
    },
    kernel::attention::{Sizes, TileOrigin},
    ops::expand,
};

/// The scores of all heads, one sequence for each of them.
type OfHeads<E, D, T> = Scores<usize, 1, usize, usize, E, D, T>;

/// [`Attend::run`](super::Attend::run)
///
/// # Errors
/// If dfdx fails.
pub(super) fn attend<E, D, T>(
    call: Call<E>,
    wanted: Wanted,
    Inputs { q, k, v, bias }: Inputs<E, D, T>,
) -> Result<Results<E, D, T>, D::Err>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let Sizes {
        batch,
        heads,
        kv_heads,
        query,
        key,
        width,
        value_width,
    } = call.sizes;
    let of_heads = (batch * heads, Const, query, key);
    let shape = (batch, heads, query, value_width);
    if is_empty(&of_heads) {
        let k = depend(k).merge(depend(v));
        let bias = bias.map_or_else(T::default, |(bias, _)| depend(bias));
        let (y, tape) = zeros_after(q, shape)?.split_tape();
        let other = match wanted {
            Wanted::Output => Vec::new(),
            Wanted::Weights => vec![E::zero(); batch * heads * query * key],
            Wanted::Lse => {
                let empty = match call.normalizer {
                    AttendNormalizer::Softmax1 | AttendNormalizer::Identity => E::zero(),
                    _ => E::neg_infinity(),
                };
                vec![empty; batch * heads * query]
            }
        };
        let len = other.len();
        let other = y.device().try_tensor_from_vec(other, (len,))?;
        let tape = tape.merge(k).merge(bias);
        return Ok(Results { y, other, tape });
    }
    // The query heads that read a key head follow each other.
    let groups = batch * kv_heads;
    let rows = heads / kv_heads * query;
    let q = reshape(q, (groups, rows, width))?;
    let k = reshape(k, (groups, key, width))?;
    let v = reshape(v, (groups, key, value_width))?;
    let scores = match width {
        0 => zeros_after_both(q, k, (groups, rows, key))?,
        _ => q
            .try_matmul(k.try_permute::<(usize, usize, usize), Axes3<0, 2, 1>>()?)?
            .try_mul(E::of(call.scale))?,
    };
    let scores: OfHeads<E, D, T> = reshape(scores, of_heads)?;
    let scores = match bias {
        None => call.modified(scores, None)?,
        Some((bias, [b, h, q, k])) => {
            let bias = reshape(bias, (b, h, q, k))?;
            let bias = expand::composed::expand(bias, (batch, heads, query, key))?;
            let bias = reshape(bias, of_heads)?;
            call.modified(scores, Some(bias.as_vec()))?.try_add(bias)?
        }
    };
    // Both results are computed of the scores, whose history is on one of their tapes.
    let weights = call.weights(scores.retaped::<T>())?;
    let (lse, history) = match wanted {
        Wanted::Lse => {
            let lse = call.lse(scores, &weights.retaped::<NoneTape>())?;
            let (lse, history) = reshape(lse, (batch * heads * query,))?.split_tape();
            (Some(lse), history)
        }
        _ => (None, scores.split_tape().1),
    };
    let (weights, tape) = weights.split_tape();
    let weights = weights.put_tape(tape.merge(history));
    let weights = reshape(weights, (batch, heads, query, key))?;
    let weights = match call.dropout {
        Some(dropout) => composed::dropout(weights, dropout.p, dropout.seed)?,
        None => weights,
    };
    let (other, other_tape) = match (wanted, lse) {
        (_, Some(lse)) => (lse, T::default()),
        (Wanted::Weights, _) => {
            let len = batch * heads * query * key;
            reshape(weights.retaped::<T>(), (len,))?.split_tape()
        }
        _ => {
            let none = weights.device().try_tensor_from_vec(Vec::new(), (0,))?;
            (none, T::default())
        }
    };
    let weights = reshape(weights, (groups, rows, key))?;
    let y = match value_width {
        0 => zeros_after_both(weights, v, shape)?,
        _ => reshape(weights.try_matmul(v)?, shape)?,
    };
    let (y, tape) = y.split_tape();
    let tape = tape.merge(other_tape);
    Ok(Results { y, other, tape })
}

impl<E: Element> Call<E> {
    /// The place of the first pair of a row, of all heads.
    fn place(&self, row: usize) -> TileOrigin {
        let Sizes { heads, query, .. } = self.sizes;
        let head = row / query;
        TileOrigin {
            b: head / heads,
            h: head % heads,
            q: row % query,
            k: 0,
        }
    }

    /// `function(score)`, to which the bias is added behind it. At a hidden pair the function may be no number, and its slope infinite: there
    /// both are 0, as the product of the slope and a gradient of 0 would be NaN.
    fn modified<D: Backend<E>, T: Tape<E, D>>(
        &self,
        scores: OfHeads<E, D, T>,
        bias: Option<Vec<E>>,
    ) -> Result<OfHeads<E, D, T>, D::Err> {
        let Some(function) = &self.function else {
            return Ok(scores);
        };
        let shape = *scores.shape();
        let before = scores.as_vec();
        let mut values = before.clone();
        let mut slopes = vec![E::one(); before.len()];
        let key = self.sizes.key;
        let rows = before.chunks(key).zip(values.chunks_mut(key));
        for (row, ((scores, values), slopes)) in rows.zip(slopes.chunks_mut(key)).enumerate() {
            let mut at = self.place(row);
            function.apply(at, values);
            for (k, (value, slope)) in values.iter_mut().zip(&mut *slopes).enumerate() {
                at.k = k;
                let bias = bias.as_ref().map_or(E::zero(), |bias| bias[row * key + k]);
                if !self.mask.attends(at) {
                    (*value, *slope) = (E::zero(), E::zero());
                } else if *value + bias == E::neg_infinity() {
                    *slope = E::zero();
                }
            }
            // It leaves slopes of 0 as they are.
            function.differentiate(self.place(row), scores, slopes);
        }
        let device = scores.device().clone();
        let slopes: OfHeads<E, D, NoneTape> = device.try_tensor_from_vec(slopes, shape)?;
        let (scores, ()) = off_tape(scores.try_mul(slopes)?, |_| {
            Ok((device.try_tensor_from_vec(values, shape)?, ()))
        })?;
        Ok(scores)
    }

    /// The weights, before dropout.
    fn weights<D: Backend<E>, T: Tape<E, D>>(
        &self,
        scores: OfHeads<E, D, T>,
    ) -> Result<OfHeads<E, D, T>, D::Err> {
        let (of_heads, _, query, key) = *scores.shape();
        let depends_on = DependsOn {
            batch: true,
            head: false,
        };
        let heads = self.sizes.heads;
        let attends = |head: i64, _, q: i64, k: i64| {
            let [head, q, k] = [head, q, k].map(|index| index as usize);
            let [b, h] = [head / heads, head % heads];
            self.mask.attends(TileOrigin { b, h, q, k })
        };
        let sizes = (of_heads, query, key);
        let mask = Some(index_mask(scores.device(), sizes, depends_on, attends)?);
        match self.normalizer {
            AttendNormalizer::Softmax => composed::softmax(scores, mask),
            AttendNormalizer::Softmax1 => composed::softmax1(scores, mask),
            AttendNormalizer::Sparsemax => composed::sparsemax(scores, mask),
            AttendNormalizer::Entmax15 => composed::entmax15(scores, mask),
            AttendNormalizer::Identity => composed::identity(scores, mask),
        }
    }

    /// The logarithms of sums, or thresholds, `[heads of all sequences, 1, query]`. They are computed without a tape. Their derivative by the
    /// scores is that of a sum of the scores with constant factors.
    fn lse<D: Backend<E>, T: Tape<E, D>>(
        &self,
        scores: OfHeads<E, D, T>,
        weights: &OfHeads<E, D, NoneTape>,
    ) -> Result<Tensor<(usize, Const<1>, usize), E, D, T>, D::Err> {
        let shape = *scores.shape();
        let key = self.sizes.key;
        let numbers = [scores.as_vec(), weights.as_vec()];
        let [of_scores, of_weights] = numbers.each_ref().map(|numbers| numbers.chunks(key));
        let rows = of_scores.zip(of_weights).enumerate();
        let rows = rows.map(|(row, (scores, weights))| {
            let mut at = self.place(row);
            let attends = (0..key).map(|k| {
                at.k = k;
                self.mask.attends(at)
            });
            let pairs = scores.iter().zip(weights).zip(attends);
            let pairs = pairs.filter(|(_, attends)| *attends);
            let pairs: Vec<[f64; 2]> = pairs
                .map(|((&score, &weight), _)| [score.into(), weight.into()])
                .collect();
            E::of(self.normalizer.lse(&pairs))
        });
        let lse: Vec<E> = rows.collect();
        let factors = numbers[1].chunks(key).flat_map(|weights| {
            let slopes: Vec<f64> = weights
                .iter()
                .map(|&weight| self.normalizer.lse_slope(weight.into()))
                .collect();
            let sum: f64 = match self.normalizer {
                AttendNormalizer::Sparsemax | AttendNormalizer::Entmax15 => slopes.iter().sum(),
                _ => 1.0,
            };
            let scale = self.normalizer.score_scale();
            slopes
                .into_iter()
                .map(move |slope| E::of(if sum == 0.0 { 0.0 } else { scale * slope / sum }))
        });
        let device = scores.device().clone();
        let factors: OfHeads<E, D, NoneTape> =
            device.try_tensor_from_vec(factors.collect(), shape)?;
        let sums = scores.try_mul(factors)?.try_sum::<_, Axis<3>>()?;
        let of_rows = *sums.shape();
        let (lse, ()) = off_tape(sums, |_| {
            Ok((device.try_tensor_from_vec(lse, of_rows)?, ()))
        })?;
        Ok(lse)
    }
}

impl AttendNormalizer {
    /// `lse` of a query, from the scores and weights of the keys that it attends to.
    fn lse(self, pairs: &[[f64; 2]]) -> f64 {
        let scores = || pairs.iter().map(|[score, _]| *score);
        let one_more = match self {
            Self::Softmax1 => 0.0,
            _ => f64::NEG_INFINITY,
        };
        let max = scores().fold(one_more, f64::max);
        let largest = pairs.iter().find(|[score, _]| *score == max);
        match (self, largest) {
            (Self::Identity, _) => 0.0,
            _ if max == f64::NEG_INFINITY => max,
            // The largest score has a weight above 0.
            (Self::Sparsemax, Some([score, weight])) => score - weight,
            (Self::Entmax15, Some([score, weight])) => score / 2.0 - weight.sqrt(),
            _ => {
                let sum: f64 = scores().map(|score| (score - max).exp()).sum();
                max + (sum + (one_more - max).exp()).ln()
            }
        }
    }

    /// The derivative of `lse` by the score of a key with this weight; of a sparse normalizer before it is divided by its sum.
    fn lse_slope(self, weight: f64) -> f64 {
        match self {
            Self::Softmax | Self::Softmax1 => weight,
            Self::Sparsemax => f64::from(u8::from(weight > 0.0)),
            Self::Entmax15 => weight.sqrt(),
            Self::Identity => 0.0,
        }
    }

    /// The factor of scores in the definition of a normalizer.
    fn score_scale(self) -> f64 {
        match self {
            Self::Entmax15 => 0.5,
            _ => 1.0,
        }
    }
}
