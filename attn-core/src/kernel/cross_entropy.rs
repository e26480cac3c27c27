//! Cross entropy of rows of logits and their target classes, and its derivative.
//!
//! Let `p = softmax(z)` of a row `z` of `C` logits. With the target `t` and the smoothing `s`, the loss of the row is
//!
//! ```text
//! - Σ q ln p,  where q[c] = (1 - s) [c = t] + s / C
//! = lse(z) - (1 - s) z[t] - s mean(z),  where lse(z) = ln Σ exp(z)
//! ```
//!
//! and the derivative with respect to `z` is `p - q`. The smoothing is that of Szegedy et al., "Rethinking the inception
//! architecture for computer vision" (2016). PyTorch:
//! `torch.nn.functional.cross_entropy(z, t, ignore_index=.., label_smoothing=..)`.

use std::ops::Range;

use super::compiled::compiled;
use super::index::{OutOfRange, check_but};
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Matrix, MatrixMut, Real};
use crate::simd::slice::{self, load_any, load_filled, store_any};
use crate::simd::{Kernel, Vector, WriteMode, math, run};

/// Options of the loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// Rows with this target have no loss and are not counted. It need not be a class.
    pub ignore_index: Option<usize>,
    /// The fraction of the target that is distributed equally over all classes, from 0 to 1.
    pub label_smoothing: f64,
}

/// The loss of all rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The sum over the counted rows.
    pub sum: f64,
    /// The number of counted rows.
    pub counted: usize,
}

impl Loss {
    /// The mean over the counted rows. It is NaN if there are none, as in PyTorch.
    pub fn mean(&self) -> f64 {
        self.sum / self.counted as f64
    }
}

compiled! {
    CrossEntropy:

    /// The loss of the rows of `logits [n, classes]`. Writes the log-sum-exp of each row, which [`backward`] reads, to `lse [n]`, and the
    /// loss of each row to `losses [n]`, unless that is empty. Those of ignored rows are 0.
    ///
    /// A class with the logit -∞ is never predicted. Its loss is infinite only if it is the target, or with smoothing.
    ///
    /// # Errors
    /// If a target is neither a class nor ignored.
    ///
    /// # Panics
    /// If there is not one target and one element of `lse` per row.
    #[track_caller]
    pub fn forward<E>(
        logits: Matrix<'_, E>,
        targets: &[usize],
        options: Options,
        lse: &mut [E],
        losses: &mut [E],
    ) -> Result<Loss, OutOfRange> {
        assert_rows(logits, targets, lse.len());
        assert!(
            losses.is_empty() || losses.len() == lse.len(),
            "one loss per row of the logits"
        );
        check_but(targets, logits.cols(), options.ignore_index)?;
        let chunk = rows_per_task(logits.cols());
        let mut sums = Buffer::<f64>::uninit(targets.len().div_ceil(chunk));
        let rows = targets.chunks(chunk).zip(lse.chunks_mut(chunk));
        let losses = losses.chunks_mut(chunk).map(Some).chain(std::iter::repeat_with(|| None));
        let parts = rows.zip(losses).zip(sums.iter_mut()).enumerate();
        for_each(parts, |(index, (((targets, lse), losses), sum))| {
            let first = index * chunk;
            *sum = run(Forward {
                logits: logits.some_rows(first..first + targets.len()),
                targets,
                options,
                lse,
                losses: losses.unwrap_or_default(),
            });
        });
        Ok(Loss {
            sum: sums.iter().sum(),
            counted: targets.iter().filter(|&&t| options.counts(t)).count(),
        })
    }

    /// The gradient of the losses, each of them times its scale. Ignored rows get zeros.
    ///
    /// # Errors
    /// If a target is neither a class nor ignored.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn backward<E>(
        logits: Matrix<'_, E>,
        targets: &[usize],
        options: Options,
        lse: &[E],
        scale: Scale<'_, E>,
        into: WriteMode,
        d_logits: MatrixMut<'_, E>,
    ) -> Result<(), OutOfRange> {
        assert_rows(logits, targets, lse.len());
        assert!(
            d_logits.rows() == logits.rows() && d_logits.cols() == logits.cols(),
            "the gradient is of another shape"
        );
        check_but(targets, logits.cols(), options.ignore_index)?;
        let chunk = rows_per_task(logits.cols());
        let parts = d_logits.row_chunks(chunk).enumerate();
        for_each(parts, |(index, d_logits)| {
            let rows = index * chunk..index * chunk + d_logits.rows();
            run(Backward {
                logits: logits.some_rows(rows.clone()),
                targets: &targets[rows.clone()],
                options,
                lse: &lse[rows.clone()],
                scale: scale.of_rows(rows),
                into,
                d_logits,
            });
        });
        Ok(())
    }
}

/// The factors of the losses of rows.
#[derive(Clone, Copy, Debug)]
pub enum Scale<'a, E> {
    /// One factor. That of a mean is its gradient divided by [`Loss::counted`].
    All(E),
    /// One for each row.
    Rows(&'a [E]),
}

impl<'a, E: Copy> Scale<'a, E> {
    pub(super) fn of_rows(self, rows: Range<usize>) -> Self {
        match self {
            Scale::All(scale) => Scale::All(scale),
            Scale::Rows(scales) => Scale::Rows(&scales[rows]),
        }
    }

    #[inline(always)]
    pub(super) fn of_row(self, row: usize) -> E {
        match self {
            Scale::All(scale) => scale,
            Scale::Rows(scales) => scales[row],
        }
    }
}

impl Options {
    #[inline(always)]
    pub(super) fn counts(&self, target: usize) -> bool {
        Some(target) != self.ignore_index
    }
}

#[track_caller]
fn assert_rows<E>(logits: Matrix<'_, E>, targets: &[usize], lse: usize) {
    assert!(
        targets.len() == logits.rows() && lse == logits.rows(),
        "one target and one number per row of the logits"
    );
}

struct Forward<'a, E> {
    logits: Matrix<'a, E>,
    targets: &'a [usize],
    options: Options,
    lse: &'a mut [E],
    losses: &'a mut [E],
}

impl<E: Real> Kernel for Forward<'_, E> {
    type Element = E;
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) -> f64 {
        let mut sum = 0.0;
        self.losses.fill(E::ZERO);
        for (i, (&target, lse)) in self.targets.iter().zip(self.lse).enumerate() {
            *lse = E::ZERO;
            if self.options.counts(target) {
                let row = self.logits.row(i);
                let max = slice::max::<V>(row);
                let known = Folded {
                    max,
                    sum: sum_exp::<V>(row, max),
                    total: match self.options.label_smoothing > 0.0 {
                        true => slice::sum::<V>(row),
                        false => E::ZERO,
                    },
                    target: row[target],
                };
                let (of_row, loss) = known.finish::<V>(row.len(), self.options);
                *lse = of_row;
                sum += loss.into();
                if let Some(to) = self.losses.get_mut(i) {
                    *to = loss;
                }
            }
        }
        sum
    }
}

/// The statistics of a row of logits, or of some of its classes.
#[derive(Clone, Copy)]
pub(super) struct Folded<E> {
    pub(super) max: E,
    /// `Σ exp(z - max)`
    pub(super) sum: E,
    /// `Σ z`, if there is smoothing.
    pub(super) total: E,
    /// The logit of the target.
    pub(super) target: E,
}

impl<E: Real> Folded<E> {
    /// The log-sum-exp and the loss of a row of so many classes.
    #[inline(always)]
    pub(super) fn finish<V: Vector<Element = E>>(self, classes: usize, options: Options) -> (E, E) {
        let log_sum = first::<V>(math::ln(V::splat(self.sum)));
        // The largest logit is subtracted from all terms, so that a large one causes no cancellation.
        let mut loss = log_sum + (self.max - self.target);
        if options.label_smoothing > 0.0 {
            let mean = self.total / E::of_f64(classes as f64);
            loss += E::of_f64(options.label_smoothing) * (self.target - mean);
        }
        (self.max + log_sum, loss)
    }
}

/// `Σ exp(row - origin)`
#[inline(always)]
pub(super) fn sum_exp<V: Vector>(row: &[V::Element], origin: V::Element) -> V::Element {
    // Two alternating sums, so that an addition need not wait for the previous one.
    let mut sums = [V::zero(); 2];
    for_lanes!(V, row.len(), [row], [], {
        let z = load_filled::<V>(row, -V::Element::INFINITY);
        sums = [sums[1], sums[0] + math::exp_of_weight(z - V::splat(origin))];
    });
    (sums[0] + sums[1]).reduce_sum()
}

/// The first number of a vector.
#[inline(always)]
pub(super) fn first<V: Vector>(vector: V) -> V::Element {
    let mut first = [V::Element::ZERO];
    vector.store_partial(&mut first);
    first[0]
}

struct Backward<'a, E> {
    logits: Matrix<'a, E>,
    targets: &'a [usize],
    options: Options,
    lse: &'a [E],
    scale: Scale<'a, E>,
    into: WriteMode,
    d_logits: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Backward<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let smoothing = self.options.label_smoothing;
        let share = V::splat(E::of_f64(smoothing / self.logits.cols() as f64));
        for (i, &target) in self.targets.iter().enumerate() {
            let d_row = self.d_logits.row_mut(i);
            if !self.options.counts(target) {
                if self.into == WriteMode::Overwrite {
                    d_row.fill(E::ZERO);
                }
                continue;
            }
            let row = self.logits.row(i);
            let to = &mut *d_row;
            let lse = V::splat(self.lse[i]);
            let of_row = self.scale.of_row(i);
            let scale = V::splat(of_row);
            match self.into {
                WriteMode::Overwrite => for_lanes!(V, row.len(), [row], [to], {
                    let p = math::exp_of_weight(load_any::<V>(row) - lse);
                    store_any((p - share) * scale, to);
                }),
                WriteMode::Add => for_lanes!(V, row.len(), [row], [to], {
                    let p = math::exp_of_weight(load_any::<V>(row) - lse);
                    store_any((p - share).mul_add(scale, load_any(to)), to);
                }),
            }
            d_row[target] -= E::of_f64(1.0 - smoothing) * of_row;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernels;
    use crate::kernel::testing::*;

    const PLAIN: Options = Options {
        ignore_index: None,
        label_smoothing: 0.0,
    };

    fn naive(logits: &[f64], targets: &[usize], options: Options) -> f64 {
        let classes = logits.len() / targets.len();
        let smoothing = options.label_smoothing;
        let row = |(row, &target): (&[f64], &usize)| -> f64 {
            if Some(target) == options.ignore_index {
                return 0.0;
            }
            let lse = row.iter().map(|z| z.exp()).sum::<f64>().ln();
            let q = |c| smoothing / classes as f64 + f64::from(c == target) * (1.0 - smoothing);
            row.iter().enumerate().map(|(c, z)| q(c) * (lse - z)).sum()
        };
        logits.chunks(classes).zip(targets).map(row).sum()
    }

    fn loss<E: Kernels>(logits: &[E], targets: &[usize], options: Options) -> (Loss, Vec<E>) {
        let mut lse = vec![E::NAN; targets.len()];
        let logits = Matrix::new(logits, targets.len(), logits.len() / targets.len());
        let loss = forward(logits, targets, options, &mut lse, &mut []).unwrap();
        (loss, lse)
    }

    fn gradient<E: Kernels>(logits: &[E], targets: &[usize], options: Options, scale: E) -> Vec<E> {
        let (_, lse) = loss(logits, targets, options);
        let rows = targets.len();
        let classes = logits.len() / targets.len();
        let mut d_logits = vec![E::NAN; logits.len()];
        backward(
            Matrix::new(logits, rows, classes),
            targets,
            options,
            &lse,
            Scale::All(scale),
            WriteMode::Overwrite,
            MatrixMut::new(&mut d_logits, rows, classes),
        )
        .unwrap();
        d_logits
    }

    fn targets(rows: usize, classes: usize) -> Vec<usize> {
        (0..rows).map(|i| i * 7 % classes).collect()
    }

    #[test]
    fn the_loss_is_minus_the_logarithm_of_the_probability() {
        on_every_isa(|isa| {
            for classes in LENGTHS[1..].iter().copied() {
                let logits: Vec<f32> = noise(5 * classes, 1)
                    .iter()
                    .map(|z: &f32| 5.0 * z)
                    .collect();
                let targets = targets(5, classes);
                for (ignore_index, label_smoothing) in
                    [(None, 0.0), (None, 0.1), (Some(targets[1]), 0.0)]
                {
                    let options = Options {
                        ignore_index,
                        label_smoothing,
                    };
                    let (got, _) = loss(&logits, &targets, options);
                    let want = naive(&wide(&logits), &targets, options);
                    let what = format!("{classes} with {options:?} on {isa}");
                    // Five rows of numbers up to 15, each rounded a few times.
                    assert_close(&what, &[got.sum], &[want], Absolute(1e-5));
                    let counted = targets.iter().filter(|&&t| Some(t) != ignore_index).count();
                    assert_eq!(got.counted, counted, "{what}");
                }
            }
        });
    }

    #[test]
    fn gradients_agree_with_central_differences() {
        on_every_isa(|isa| {
            for classes in [1, 2, 7, 9, 33] {
                let logits = noise::<f64>(4 * classes, 1);
                let targets = targets(4, classes);
                for (ignore_index, label_smoothing) in [(None, 0.0), (Some(targets[1]), 0.2)] {
                    let options = Options {
                        ignore_index,
                        label_smoothing,
                    };
                    let got = gradient(&logits, &targets, options, 0.25);
                    let want = slopes(&logits, |z| 0.25 * naive(z, &targets, options));
                    assert_close(format!("{classes} on {isa}"), &got, &want, Absolute(1e-9));
                }
            }
        });
    }

    #[test]
    fn losses_of_rows_and_gradients_with_a_factor_for_each_row() {
        on_every_isa(|isa| {
            for classes in [1, 2, 9, 33] {
                let logits = noise::<f64>(4 * classes, 1);
                let targets = targets(4, classes);
                let options = Options {
                    ignore_index: Some(targets[1]),
                    label_smoothing: 0.2,
                };
                let of_row = |z: &[f64], row: usize| {
                    naive(
                        &z[row * classes..][..classes],
                        &targets[row..][..1],
                        options,
                    )
                };
                let matrix = Matrix::new(&logits, 4, classes);
                let [mut lse, mut losses] = [[f64::NAN; 4]; 2];
                let sum = forward(matrix, &targets, options, &mut lse, &mut losses).unwrap();
                let want: Vec<f64> = (0..4).map(|row| of_row(&logits, row)).collect();
                let what = format!("{classes} on {isa}");
                assert_close(&what, &losses, &want, Absolute(1e-14));
                assert_close(&what, &[sum.sum], &[losses.iter().sum()], Absolute(1e-14));

                let scales = [0.5, 7.0, -1.0, 2.0];
                let mut found = vec![3.0; logits.len()];
                let to = MatrixMut::new(&mut found, 4, classes);
                let scale = Scale::Rows(&scales);
                backward(matrix, &targets, options, &lse, scale, WriteMode::Add, to).unwrap();
                let want = slopes(&logits, |z| {
                    let added = (0..4).map(|row| scales[row] * of_row(z, row));
                    added.sum::<f64>() + 3.0 * z.iter().sum::<f64>()
                });
                assert_close(&what, &found, &want, Absolute(1e-8));
            }
        });
    }

    #[test]
    fn the_loss_of_many_rows_is_the_sum_of_their_losses() {
        let rows = 500;
        let classes = 65;
        let logits = noise::<f64>(rows * classes, 1);
        let targets = targets(rows, classes);
        on_every_isa(|isa| {
            let (all, lse) = loss(&logits, &targets, PLAIN);
            let d = gradient(&logits, &targets, PLAIN, 1.0);
            let mut sum = 0.0;
            for (i, row) in logits.chunks(classes).enumerate() {
                let target = &targets[i..=i];
                let (one, one_lse) = loss(row, target, PLAIN);
                sum += one.sum;
                assert_eq!(lse[i], one_lse[0], "row {i} on {isa}");
                let one = gradient(row, target, PLAIN, 1.0);
                assert_eq!(d[i * classes..][..classes], one, "row {i} on {isa}");
            }
            assert_eq!(all.counted, rows);
            assert!((all.sum / sum - 1.0).abs() < 1e-14, "{isa}");
        });
    }

    #[test]
    fn rows_are_independent_and_ignored_rows_may_have_any_value() {
        let mut logits = vec![0.0_f32; 4 * 9];
        logits[9..18].fill(f32::NAN);
        logits[18] = -f32::INFINITY;
        logits[27..36].fill(f32::NAN);
        let options = Options {
            ignore_index: Some(99),
            ..PLAIN
        };
        let (got, lse) = loss(&logits, &[2, 99, 1, 99], options);
        assert_eq!(got.counted, 2);
        assert!((got.sum - (9f64.ln() + 8f64.ln())).abs() < 1e-6, "{got:?}");
        assert_eq!((lse[1], lse[3]), (0.0, 0.0));
        let d = gradient(&logits, &[2, 99, 1, 99], options, 1.0);
        assert!(d[9..18].iter().chain(&d[27..]).all(|&d| d == 0.0));
        assert_eq!(d[18], 0.0);
        assert!((d[20] - 0.125).abs() < 1e-6);
        // Without the option, NaN stays in its row.
        let d = gradient(&logits, &[2, 0, 1, 0], PLAIN, 1.0);
        let nans: Vec<bool> = d
            .chunks(9)
            .map(|row| row.iter().all(|d| d.is_nan()))
            .collect();
        assert_eq!(nans, [false, true, false, true]);
    }

    #[test]
    fn large_logits_do_not_cancel() {
        let logits: Vec<f32> = [0.0, 1.0, -1.0].iter().map(|z| 1e6 + z).collect();
        let (got, _) = loss(&logits, &[1], PLAIN);
        let want = naive(&[0.0, 1.0, -1.0], &[1], PLAIN);
        assert!((got.sum - want).abs() < 1e-6, "{got:?}");
        let (got, _) = loss(&[3e38_f32, -3e38], &[0], PLAIN);
        assert_eq!(got.sum, 0.0);
        assert_eq!(
            loss(&[0.0_f32, -f32::INFINITY], &[1], PLAIN).0.sum,
            f64::INFINITY
        );
    }

    #[test]
    fn the_mean_over_no_rows_is_nan() {
        let options = Options {
            ignore_index: Some(0),
            ..PLAIN
        };
        let (got, _) = loss(&[1.0_f32; 6], &[0, 0], options);
        assert_eq!(
            got,
            Loss {
                sum: 0.0,
                counted: 0
            }
        );
        assert!(got.mean().is_nan());
        let none = forward::<f32>(Matrix::new(&[], 0, 5), &[], PLAIN, &mut [], &mut []);
        assert_eq!(
            none,
            Ok(Loss {
                sum: 0.0,
                counted: 0
            })
        );
        assert_eq!(
            Loss {
                sum: 3.0,
                counted: 2
            }
            .mean(),
            1.5
        );
    }

    #[test]
    fn an_unknown_class_is_an_error() {
        let logits = [0.0_f32; 6];
        let mut lse = [0.0; 2];
        let mut d = [7.0; 6];
        let logits = Matrix::new(&logits, 2, 3);
        let want = OutOfRange {
            position: 1,
            index: 3,
            count: 3,
        };
        assert_eq!(
            forward(logits, &[2, 3], PLAIN, &mut lse, &mut []),
            Err(want)
        );
        let to = MatrixMut::new(&mut d, 2, 3);
        assert_eq!(
            backward(
                logits,
                &[2, 3],
                PLAIN,
                &lse,
                Scale::All(1.0),
                WriteMode::Add,
                to
            ),
            Err(want)
        );
        assert_eq!(d, [7.0; 6]);
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let rows = 700;
        let classes = 129;
        let logits = noise::<f32>(rows * classes, 1);
        let targets = targets(rows, classes);
        let options = Options {
            ignore_index: Some(3),
            label_smoothing: 0.1,
        };
        same_for_all_threads(|| {
            let (loss, lse) = loss(&logits, &targets, options);
            (loss, lse, gradient(&logits, &targets, options, 0.5))
        });
    }
}
