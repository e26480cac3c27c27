//! Adafactor: the means of the squares of gradients by rows and columns.

use super::super::compiled::compiled;
use super::super::lanes::for_lanes;
use super::super::parallel::{SMALL, for_each, rows_per_task};
use super::super::{Buffer, Kernels, Real};
use super::squared_norm;
use crate::simd::slice::{load_any, store_any};
use crate::simd::{Kernel, Vector, run};

/// Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (2018), in the form of PyTorch:
/// `torch.optim.Adafactor`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adafactor {
    /// The largest relative length of a step.
    pub lr: f64,
    /// The power of the step count that is the share of a new square in the means.
    pub beta2_decay: f64,
    /// Squares below the square of this number count as that.
    pub epsilon: f64,
    /// Parameters smaller than this take steps as if they had this size.
    pub smallest: f64,
    /// Steps whose root mean square is greater are made so long.
    pub clip: f64,
    /// The weight decay: a step with the learning rate 1 would subtract this fraction of a parameter.
    pub weight_decay: f64,
    /// The number of this step, from 1.
    pub step: u64,
}

impl Adafactor {
    /// The share of a new square in the means.
    fn new_share(&self) -> f64 {
        (self.step as f64).powf(self.beta2_decay)
    }
}

/// The squares of gradients that Adafactor keeps.
#[derive(Debug)]
pub enum Squares<'a, E> {
    /// Their means: of the rows of each matrix, and of the columns.
    Factors {
        /// `[matrices, rows]`
        rows: &'a mut [E],
        /// `[matrices, cols]`
        cols: &'a mut [E],
        /// The width of a matrix.
        width: usize,
    },
    /// All of them.
    All(&'a mut [E]),
}

compiled! {
    AdafactorStep:

    /// One step. For matrices, with the share `n = step^beta2_decay` of a new square:
    ///
    /// ```text
    /// rows = (1 - n) rows + n mean(g², of a row)        cols = (1 - n) cols + n mean(g², of a column)
    /// v = rows cols / mean(rows)
    /// d = g / max(sqrt(v), epsilon)
    /// p = p - lr weight_decay p - min(lr, 1 / sqrt(step)) max(smallest, rms(p)) d / max(1, rms(d) / clip)
    /// ```
    ///
    /// For vectors, `v = (1 - n) v + n g²` is kept as it is.
    ///
    /// # Panics
    /// If the lengths differ, or `step` is 0.
    #[track_caller]
    pub fn adafactor_step<E>(p: &mut [E], g: &[E], squares: Squares<'_, E>, adafactor: &Adafactor) {
        assert_eq!(g.len(), p.len(), "as many gradients as parameters");
        assert!(adafactor.step > 0, "steps count from 1");
        if p.is_empty() {
            return;
        }
        let mut direction = Buffer::uninit(p.len());
        match squares {
            Squares::Factors { rows, cols, width } => {
                assert_eq!(rows.len() * width, p.len(), "as many means as rows");
                let matrices = rows.len() * cols.len() / p.len();
                let rows_of_each = rows.len() / matrices;
                let size = rows_of_each * width;
                let means = rows.chunks_mut(rows_of_each).zip(cols.chunks_mut(width));
                let matrices = g.chunks(size).zip(direction.chunks_mut(size));
                for ((rows, cols), (g, direction)) in means.zip(matrices) {
                    update_factors(rows, cols, g, adafactor);
                    divide_by_factors(rows, cols, g, adafactor, direction);
                }
            }
            Squares::All(v) => {
                assert_eq!(v.len(), p.len(), "as many means as parameters");
                let parts = g.chunks(SMALL).zip(v.chunks_mut(SMALL));
                for_each(parts.zip(direction.chunks_mut(SMALL)), |((g, v), to)| {
                    run(Whole { g, v, to, adafactor });
                });
            }
        }
        let rms = |x: &[E]| (squared_norm(&[x]) / x.len() as f64).sqrt();
        let relative = adafactor.lr.min(1.0 / (adafactor.step as f64).sqrt());
        let rate = relative * rms(p).max(adafactor.smallest);
        let rate = rate / (rms(&direction) / adafactor.clip).max(1.0);
        let kept = 1.0 - adafactor.lr * adafactor.weight_decay;
        let parts = p.chunks_mut(SMALL).zip(direction.chunks(SMALL));
        for_each(parts, |(p, direction)| {
            run(Walk {
                p,
                direction,
                kept: E::of_f64(kept),
                rate: E::of_f64(-rate),
            });
        });
    }
}

/// The means of the squares of a matrix, by its rows and its columns.
fn update_factors<E: Kernels>(rows: &mut [E], cols: &mut [E], g: &[E], adafactor: &Adafactor) {
    let width = cols.len();
    let share = adafactor.new_share();
    let mix = |mean: &mut E, new: f64| {
        let old: f64 = (*mean).into();
        *mean = E::of_f64(old + share * (new - old));
    };
    let of_each = rows_per_task(width);
    let tasks = rows.len().div_ceil(of_each);
    // Sums of the columns, of each task.
    let mut sums = Buffer::<E>::uninit(tasks * width);
    let parts = g.chunks(of_each * width).zip(sums.chunks_mut(width));
    for_each(parts.zip(rows.chunks_mut(of_each)), |((g, sums), rows)| {
        sums.fill(E::ZERO);
        for (g, mean) in g.chunks(width).zip(rows) {
            mix(mean, run(AddSquares { g, sums }) / width as f64);
        }
    });
    let height = rows.len() as f64;
    for (col, mean) in cols.iter_mut().enumerate() {
        let sum: f64 = sums
            .iter()
            .skip(col)
            .step_by(width)
            .map(|&x| x.into())
            .sum();
        mix(mean, sum / height);
    }
}

/// Adds the squares of a row to the sums of the columns. The result is their sum.
struct AddSquares<'a, E> {
    g: &'a [E],
    sums: &'a mut [E],
}

impl<E: Real> Kernel for AddSquares<'_, E> {
    type Element = E;
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) -> f64 {
        let Self { g, sums } = self;
        for_lanes!(V, g.len(), [g], [sums], {
            let x = load_any::<V>(g);
            store_any(x.mul_add(x, load_any(sums)), sums);
        });
        super::SumOfSquares(g).run::<V>()
    }
}

/// `g / max(sqrt(rows cols / mean(rows)), epsilon)`
fn divide_by_factors<E: Real>(
    rows: &[E],
    cols: &[E],
    g: &[E],
    adafactor: &Adafactor,
    to: &mut [E],
) {
    let width = cols.len();
    let sum: f64 = rows.iter().map(|&row| row.into()).sum();
    let mean = (sum / rows.len() as f64).max(adafactor.epsilon);
    let of_each = rows_per_task(width);
    let parts = g
        .chunks(of_each * width)
        .zip(to.chunks_mut(of_each * width));
    for_each(parts.zip(rows.chunks(of_each)), |((g, to), rows)| {
        let lines = g.chunks(width).zip(to.chunks_mut(width));
        for ((g, to), &row) in lines.zip(rows) {
            let row: f64 = row.into();
            run(OfRow {
                row: E::of_f64(row / mean),
                cols,
                g,
                to,
                epsilon: adafactor.epsilon,
            });
        }
    });
}

struct OfRow<'a, E> {
    row: E,
    cols: &'a [E],
    g: &'a [E],
    to: &'a mut [E],
    epsilon: f64,
}

impl<E: Real> Kernel for OfRow<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { cols, g, to, .. } = self;
        let row = V::splat(self.row);
        let epsilon = V::splat(E::of_f64(self.epsilon));
        for_lanes!(V, cols.len(), [cols, g], [to], {
            let deviation = (load_any::<V>(cols) * row).sqrt().max(epsilon);
            store_any(load_any::<V>(g) / deviation, to);
        });
    }
}

/// The direction where all squares are kept.
struct Whole<'a, E> {
    g: &'a [E],
    v: &'a mut [E],
    to: &'a mut [E],
    adafactor: &'a Adafactor,
}

impl<E: Real> Kernel for Whole<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self {
            g,
            v,
            to,
            adafactor,
        } = self;
        let share = V::splat(E::of_f64(adafactor.new_share()));
        let epsilon = V::splat(E::of_f64(adafactor.epsilon));
        for_lanes!(V, g.len(), [g], [v, to], {
            let gradient = load_any::<V>(g);
            let old = load_any::<V>(v);
            let square = (gradient * gradient - old).mul_add(share, old);
            store_any(square, v);
            store_any(gradient / square.sqrt().max(epsilon), to);
        });
    }
}

/// `p = kept p + rate direction`
struct Walk<'a, E> {
    p: &'a mut [E],
    direction: &'a [E],
    kept: E,
    rate: E,
}

impl<E: Real> Kernel for Walk<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) {
        let Self { p, direction, .. } = self;
        let (kept, rate) = (V::splat(self.kept), V::splat(self.rate));
        for_lanes!(V, direction.len(), [direction], [p], {
            let old = load_any::<V>(p) * kept;
            store_any(load_any::<V>(direction).mul_add(rate, old), p);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::*;

    const ADAFACTOR: Adafactor = Adafactor {
        lr: 0.05,
        beta2_decay: -0.8,
        epsilon: 1e-3,
        smallest: 1e-3,
        clip: 0.75,
        weight_decay: 0.1,
        step: 1,
    };

    /// Parameters after three steps.
    fn trained<E: Kernels>([matrices, rows, width]: [usize; 3]) -> Vec<E> {
        let len = matrices * rows * width;
        let mut p = noise::<E>(len, 0);
        let mut of_rows = vec![E::ZERO; matrices * rows];
        let mut of_cols = vec![E::ZERO; matrices * width];
        let mut all = vec![E::ZERO; len];
        for step in 1..=3 {
            let squares = match rows {
                0 => Squares::All(&mut all),
                1.. if rows == 1 && matrices == 1 => Squares::All(&mut all),
                _ => Squares::Factors {
                    rows: &mut of_rows,
                    cols: &mut of_cols,
                    width,
                },
            };
            let adafactor = Adafactor { step, ..ADAFACTOR };
            adafactor_step(&mut p, &noise::<E>(len, step), squares, &adafactor);
        }
        p
    }

    /// The formulas, number by number.
    fn naive([matrices, rows, width]: [usize; 3]) -> Vec<f64> {
        let len = matrices * rows * width;
        let is_vector = rows == 1 && matrices == 1;
        let mut p = noise::<f64>(len, 0);
        let [mut of_rows, mut of_cols] = [vec![0.0; matrices * rows], vec![0.0; matrices * width]];
        let mut all = vec![0.0; len];
        let rms = |x: &[f64]| (x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64).sqrt();
        for step in 1..=3_u64 {
            let g = noise::<f64>(len, step);
            let share = (step as f64).powf(ADAFACTOR.beta2_decay);
            let square = |matrix: usize, row: usize, col: usize| {
                g[(matrix * rows + row) * width + col].powi(2)
            };
            let mut direction = vec![0.0; len];
            for matrix in 0..matrices {
                for row in 0..rows {
                    let mean =
                        (0..width).map(|col| square(matrix, row, col)).sum::<f64>() / width as f64;
                    let old = &mut of_rows[matrix * rows + row];
                    *old = (1.0 - share) * *old + share * mean;
                }
                for col in 0..width {
                    let mean =
                        (0..rows).map(|row| square(matrix, row, col)).sum::<f64>() / rows as f64;
                    let old = &mut of_cols[matrix * width + col];
                    *old = (1.0 - share) * *old + share * mean;
                }
                let mean = of_rows[matrix * rows..][..rows].iter().sum::<f64>() / rows as f64;
                for row in 0..rows {
                    for col in 0..width {
                        let at = (matrix * rows + row) * width + col;
                        all[at] = (1.0 - share) * all[at] + share * g[at].powi(2);
                        let v = match is_vector {
                            true => all[at],
                            false => {
                                of_rows[matrix * rows + row] * of_cols[matrix * width + col]
                                    / mean.max(ADAFACTOR.epsilon)
                            }
                        };
                        direction[at] = g[at] / v.sqrt().max(ADAFACTOR.epsilon);
                    }
                }
            }
            let relative = ADAFACTOR.lr.min(1.0 / (step as f64).sqrt());
            let rate = relative * rms(&p).max(ADAFACTOR.smallest);
            let rate = rate / (rms(&direction) / ADAFACTOR.clip).max(1.0);
            for (p, d) in p.iter_mut().zip(direction) {
                *p -= ADAFACTOR.lr * ADAFACTOR.weight_decay * *p + rate * d;
            }
        }
        p
    }

    #[test]
    fn a_step_agrees_with_the_formulas() {
        let shapes = [
            [1, 1, 1],
            [1, 1, 33],
            [1, 2, 3],
            [1, 65, 7],
            [3, 5, 17],
            [2, 1, 4],
            [1, 300, 129],
            [1, 1, 2 * SMALL + 5],
        ];
        on_every_isa(|isa| {
            for shape in shapes {
                let want = naive(shape);
                let what = format!("{shape:?} on {isa}");
                assert_close(&what, &trained::<f64>(shape), &want, Absolute(1e-14));
                // Sums of some hundred squares, and steps that divide by their roots.
                assert_close(&what, &trained::<f32>(shape), &want, Absolute(4e-6));
            }
        });
    }

    #[test]
    fn an_empty_parameter_stays_empty() {
        assert!(trained::<f32>([1, 0, 3]).is_empty());
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        same_for_all_threads(|| trained::<f32>([1, 700, 65]));
        same_for_all_threads(|| trained::<f32>([1, 1, 5 * SMALL + 3]));
    }
}
