//! The cross entropy of logits that an affine map computes, `z = x Wᵀ + b`, without a matrix of all logits:
//! [`cross_entropy`](super::cross_entropy) has the equations.
//!
//! Logits are computed for blocks of at most [`rows_at_once`] rows and [`COLUMNS`] classes. While a block is in the cache, the maximum and the
//! sum of each of its rows become parts of those of all classes, as in "Online normalizer calculation for softmax" (Milakov and
//! Gimelshein, 2018). The derivative writes `dz = p - q` over a block of logits, and adds to all gradients before it goes on:
//!
//! ```text
//! dx += dz W        dW += dzᵀ x        db += Σ rows of dz
//! ```
//!
//! With `n` rows of width `d` and `C` classes, each product takes `2 n d C` operations. There are three ways to the derivative
//! ([`Plan`]):
//!
//! - Kept logits: three products, and `n C` numbers. This is the least memory of the three with three products, if `n` or `C` is at most `d`.
//! - Gradients in the forward pass, where a mean is the only result: three products, and `(n + C) d` numbers. Its derivative is a
//!   product with one number, so gradients can be computed for the upstream gradient 1, and scaled afterwards. So logits are needed for
//!   one block of rows only, of all classes: that is because `p` needs the sum of all of them. This is the method of Hsu et al., "Liger
//!   kernel: efficient Triton kernels for LLM training" (2024).
//! - Logits that the derivative computes again: four products, and one number for each row. This is for losses of rows, whose upstream
//!   gradients are as many numbers.
//!
//! A fourth product would be a third more work. In a language model with a large vocabulary, most of a step is here.

use std::ops::Range;

use super::compiled::compiled;
use super::cross_entropy::{Folded, Loss, Options, Scale, first, sum_exp};
use super::index::{OutOfRange, check_but};
use super::lanes::for_lanes;
use super::parallel::{for_each, rows_per_task};
use super::{Buffer, Dtype, Kernels, Matrix, MatrixMut, linear};
use crate::simd::slice::{self, load_any, store_any};
use crate::simd::{Kernel, Real, Vector, WriteMode, math, run};

/// The classes of a block. With [`ROWS`] rows of `f32` it is a megabyte.
const COLUMNS: usize = 1024;
/// The least number of rows of a block. All of the weights and of their gradient are read for a block of rows, which is eight numbers for the
/// `6 ROWS` operations with each weight.
const ROWS: usize = 256;
/// The numbers of all logits of a block of rows, if the classes are few.
const FEW: usize = 1 << 20;

/// The most rows of a block.
pub const fn rows_at_once(classes: usize) -> usize {
    match FEW.checked_div(classes) {
        Some(rows) if rows < ROWS => ROWS,
        Some(rows) => rows,
        None => FEW,
    }
}

/// The values that the forward pass keeps for the derivative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The logits.
    Logits,
    /// The gradients of the mean.
    Gradients,
    /// The logarithm of the sum of each row.
    Sums,
}

impl Plan {
    /// The plan for so many rows of this width. `is_mean` says that the mean is the only result.
    pub const fn of(rows: usize, width: usize, classes: usize, is_mean: bool) -> Self {
        // `n C` numbers are at most `(n + C) d`, if one of `n` and `C` is at most `d`.
        if rows <= width || classes <= width || rows <= rows_at_once(classes) {
            Plan::Logits
        } else if is_mean {
            Plan::Gradients
        } else {
            Plan::Sums
        }
    }
}

/// Rows that an affine map classifies, with their targets.
#[derive(Clone, Copy, Debug)]
pub struct Classified<'a, E> {
    /// `[n, in]`
    pub x: Matrix<'a, E>,
    /// `[classes, in]`
    pub weight: Matrix<'a, E>,
    /// `[classes]`
    pub bias: Option<&'a [E]>,
    /// `[n]`
    pub targets: &'a [usize],
    /// Which targets count, and how much is spread over all classes.
    pub options: Options,
    /// The dtype of the operands of the products.
    pub dtype: Dtype,
}

/// Where gradients go.
#[derive(Debug)]
pub struct Gradients<'a, E> {
    /// `[n, in]`
    pub x: MatrixMut<'a, E>,
    /// Whether that of `x` is overwritten.
    pub into: WriteMode,
    /// `[classes, in]`, added to, if it is wanted.
    pub weight: Option<&'a mut [E]>,
    /// `[classes]`, added to, if there is a bias, and if it is wanted.
    pub bias: Option<&'a mut [E]>,
}

compiled! {
    LinearCrossEntropy:

    /// The loss of all rows. Writes the log-sum-exp of each row to `lse [n]`, the loss of each row to `losses [n]`, unless that is empty, and
    /// all logits to `logits`, `n * classes` numbers in blocks, unless that is empty.
    ///
    /// # Errors
    /// If a target is neither a class nor ignored.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward<E>(
        of: Classified<'_, E>,
        logits: &mut [E],
        lse: &mut [E],
        losses: &mut [E],
    ) -> Result<Loss, OutOfRange> {
        of.check(lse.len(), logits.len())?;
        assert!(losses.is_empty() || losses.len() == lse.len(), "one loss per row");
        Ok(of.forward(logits, lse, losses))
    }

    /// Adds the gradient of the losses, each of them times its scale. With `logits`, those of [`forward`], which are overwritten, they are
    /// not computed again. Ignored rows of `x` get zeros.
    ///
    /// # Errors
    /// If a target is neither a class nor ignored.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn backward<E>(
        of: Classified<'_, E>,
        logits: &mut [E],
        lse: &[E],
        scale: Scale<'_, E>,
        to: Gradients<'_, E>,
    ) -> Result<(), OutOfRange> {
        of.check(lse.len(), logits.len())?;
        of.check_gradients(&to);
        of.backward(logits, lse, scale, to);
        Ok(())
    }

    /// The loss of all rows, and the gradient of its mean: that of `x` is overwritten. `scratch` has [`rows_at_once`] times `classes` numbers.
    ///
    /// # Errors
    /// If a target is neither a class nor ignored.
    ///
    /// # Panics
    /// If the shapes do not fit.
    #[track_caller]
    pub fn forward_with_gradients<E>(
        of: Classified<'_, E>,
        scratch: &mut [E],
        to: Gradients<'_, E>,
    ) -> Result<Loss, OutOfRange> {
        of.check(of.targets.len(), 0)?;
        of.check_gradients(&to);
        Ok(of.forward_with_gradients(scratch, to))
    }
}

impl<'a, E: Kernels> Classified<'a, E> {
    fn classes(&self) -> usize {
        self.weight.rows()
    }

    #[track_caller]
    fn check(&self, lse: usize, logits: usize) -> Result<(), OutOfRange> {
        let rows = self.x.rows();
        assert!(
            self.targets.len() == rows && lse == rows,
            "one target and one number per row"
        );
        assert_eq!(
            self.x.cols(),
            self.weight.cols(),
            "the weights are for rows of another width"
        );
        let bias = self.bias.map_or(self.classes(), <[E]>::len);
        assert_eq!(bias, self.classes(), "one bias per class");
        assert!(
            logits == 0 || logits == rows * self.classes(),
            "{logits} logits for {rows} rows of {}",
            self.classes()
        );
        check_but(self.targets, self.classes(), self.options.ignore_index)
    }

    #[track_caller]
    fn check_gradients(&self, to: &Gradients<'_, E>) {
        let bias = to.bias.as_ref().map_or(self.classes(), |bias| bias.len());
        let weights = self.classes() * self.x.cols();
        let weight = to.weight.as_ref().map_or(weights, |weight| weight.len());
        assert!(
            to.x.rows() == self.x.rows()
                && to.x.cols() == self.x.cols()
                && weight == weights
                && bias == self.classes(),
            "a gradient is of another shape"
        );
    }

    /// The blocks of rows.
    fn blocks_of_rows(&self) -> impl Iterator<Item = Range<usize>> + use<E> {
        blocks(self.x.rows(), rows_at_once(self.classes()))
    }

    fn some_rows(&self, rows: Range<usize>) -> Self {
        Self {
            x: self.x.some_rows(rows.clone()),
            targets: &self.targets[rows],
            ..*self
        }
    }

    /// How many targets are not ignored.
    pub fn counted(&self) -> usize {
        let counts = |target: &&usize| self.options.counts(**target);
        self.targets.iter().filter(counts).count()
    }

    fn forward(self, logits: &mut [E], lse: &mut [E], losses: &mut [E]) -> Loss {
        let mut logits = Pieces::of(logits);
        let [mut lse, mut losses] = [lse, losses].map(Pieces::of);
        let mut sum = 0.0;
        for rows in self.blocks_of_rows() {
            let of = self.some_rows(rows.clone());
            let logits = logits.next(rows.len() * self.classes());
            let [lse, losses] = [&mut lse, &mut losses].map(|all| all.next(rows.len()));
            sum += of.forward_rows(logits, lse, losses);
        }
        Loss {
            sum,
            counted: self.counted(),
        }
    }

    /// The sum of the losses of a block of rows.
    fn forward_rows(&self, logits: &mut [E], lse: &mut [E], losses: &mut [E]) -> f64 {
        let rows = self.x.rows();
        let mut scratch = Scratch::new(logits, rows, self.classes());
        let mut folded = Buffer::uninit(rows * Folded::<E>::LEN);
        let mut folded = MatrixMut::new(&mut folded, rows, Folded::<E>::LEN);
        (0..rows).for_each(|i| Folded::start().store(folded.row_mut(i)));
        for classes in blocks(self.classes(), COLUMNS) {
            let block = scratch.block(classes.clone());
            let mut block = MatrixMut::new(block, rows, classes.len());
            self.logits(classes.clone(), block.reborrow());
            let some = rows_per_task(classes.len());
            let parts = folded.reborrow().row_chunks(some).enumerate();
            for_each(parts, |(index, folded)| {
                let rows = index * some..index * some + folded.rows();
                run(Fold {
                    logits: block.as_ref().some_rows(rows.clone()),
                    first: classes.start,
                    targets: &self.targets[rows],
                    options: self.options,
                    folded,
                });
            });
        }
        run(Finish {
            folded: folded.as_ref(),
            classes: self.classes(),
            targets: self.targets,
            options: self.options,
            lse,
            losses,
        })
    }

    /// The logits of some classes.
    fn logits(&self, classes: Range<usize>, to: MatrixMut<'_, E>) {
        let bias = self.bias.map(|bias| &bias[classes.clone()]);
        linear::forward(self.x, self.weight.some_rows(classes), bias, to, self.dtype);
    }

    fn backward(self, logits: &mut [E], lse: &[E], scale: Scale<'_, E>, mut to: Gradients<'_, E>) {
        let mut logits = Pieces::of(logits);
        for rows in self.blocks_of_rows() {
            let of = self.some_rows(rows.clone());
            let logits = logits.next(rows.len() * self.classes());
            let scale = scale.of_rows(rows.clone());
            of.backward_rows(logits, &lse[rows.clone()], scale, to.some_rows(rows));
        }
    }

    /// The derivative of a block of rows.
    fn backward_rows(
        &self,
        logits: &mut [E],
        lse: &[E],
        scale: Scale<'_, E>,
        mut to: Gradients<'_, E>,
    ) {
        let [rows, width] = [self.x.rows(), self.x.cols()];
        if self.classes() == 0 && to.into == WriteMode::Overwrite {
            return to.x.as_mut_slice().fill(E::ZERO);
        }
        let are_known = !logits.is_empty();
        let mut scratch = Scratch::new(logits, rows, self.classes());
        for classes in blocks(self.classes(), COLUMNS) {
            let block = scratch.block(classes.clone());
            let mut block = MatrixMut::new(block, rows, classes.len());
            if !are_known {
                self.logits(classes.clone(), block.reborrow());
            }
            let some = rows_per_task(classes.len());
            let parts = block.reborrow().row_chunks(some).enumerate();
            for_each(parts, |(index, logits)| {
                let rows = index * some..index * some + logits.rows();
                run(Slopes {
                    logits,
                    first: classes.start,
                    classes: self.classes(),
                    targets: &self.targets[rows.clone()],
                    options: self.options,
                    lse: &lse[rows.clone()],
                    scale: scale.of_rows(rows),
                });
            });
            let weight = self.weight.some_rows(classes.clone());
            let d_x = to.x.reborrow();
            linear::input_gradient(block.as_ref(), weight, to.into, d_x, self.dtype);
            to.into = WriteMode::Add;
            let d_weight = to.weight.as_deref_mut().map(|weight| {
                let some = &mut weight[classes.start * width..classes.end * width];
                MatrixMut::new(some, classes.len(), width)
            });
            let d_bias = to.bias.as_deref_mut().map(|bias| &mut bias[classes]);
            linear::parameter_gradients(
                block.as_ref(),
                self.x,
                WriteMode::Add,
                d_weight,
                d_bias,
                self.dtype,
            );
        }
    }

    fn forward_with_gradients(self, scratch: &mut [E], mut to: Gradients<'_, E>) -> Loss {
        let counted = self.counted();
        // If no row is counted, there is no row to scale.
        let scale = Scale::All(E::of_f64(1.0 / counted as f64));
        let mut sum = 0.0;
        let mut lse = Buffer::uninit(rows_at_once(self.classes()).min(self.x.rows()));
        for rows in self.blocks_of_rows() {
            let of = self.some_rows(rows.clone());
            let logits = &mut scratch[..rows.len() * self.classes()];
            let lse = &mut lse[..rows.len()];
            sum += of.forward_rows(logits, lse, &mut []);
            let to = to.some_rows(rows);
            of.backward_rows(logits, lse, scale, to);
        }
        Loss { sum, counted }
    }
}

impl<E> Gradients<'_, E> {
    /// The gradients of some rows.
    fn some_rows(&mut self, rows: Range<usize>) -> Gradients<'_, E> {
        let (_, x) = self.x.reborrow().split_rows(rows.start);
        Gradients {
            x: x.split_rows(rows.len()).0,
            into: self.into,
            weight: self.weight.as_deref_mut(),
            bias: self.bias.as_deref_mut(),
        }
    }
}

/// `0..count` in ranges of `most`, and a shorter one.
fn blocks(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let starts = (0..count).step_by(most);
    starts.map(move |start| start..count.min(start + most))
}

/// Numbers that are taken some at a time. If there are none, all pieces are empty.
struct Pieces<'a, E>(&'a mut [E]);

impl<'a, E> Pieces<'a, E> {
    fn of(numbers: &'a mut [E]) -> Self {
        Self(numbers)
    }

    fn next(&mut self, len: usize) -> &'a mut [E] {
        let numbers = std::mem::take(&mut self.0);
        let (piece, rest) = numbers.split_at_mut(len.min(numbers.len()));
        self.0 = rest;
        piece
    }
}

/// Where the logits of a block of rows stand: in the memory of all of them, a block of classes after the other, or in that of one block.
enum Scratch<'a, E: Kernels> {
    Kept { logits: &'a mut [E], rows: usize },
    Block { logits: Buffer<E>, rows: usize },
}

impl<'a, E: Kernels> Scratch<'a, E> {
    fn new(logits: &'a mut [E], rows: usize, classes: usize) -> Self {
        match logits.is_empty() {
            false => Self::Kept { logits, rows },
            true => Self::Block {
                logits: Buffer::uninit(rows * classes.min(COLUMNS)),
                rows,
            },
        }
    }

    fn block(&mut self, classes: Range<usize>) -> &mut [E] {
        match self {
            Self::Kept { logits, rows } => &mut logits[*rows * classes.start..*rows * classes.end],
            Self::Block { logits, rows } => &mut logits[..*rows * classes.len()],
        }
    }
}

/// How what is known of a row stands in memory while its classes are read.
impl<E: Real> Folded<E> {
    const LEN: usize = 4;

    /// Before the first class.
    fn start() -> Self {
        Self {
            max: -E::INFINITY,
            sum: E::ZERO,
            total: E::ZERO,
            target: E::ZERO,
        }
    }

    #[inline(always)]
    fn load(from: &[E]) -> Self {
        Self {
            max: from[0],
            sum: from[1],
            total: from[2],
            target: from[3],
        }
    }

    #[inline(always)]
    fn store(self, to: &mut [E]) {
        to.copy_from_slice(&[self.max, self.sum, self.total, self.target]);
    }
}

/// Adds a block of classes to what is known of rows.
struct Fold<'a, E> {
    logits: Matrix<'a, E>,
    /// The first class of the block.
    first: usize,
    targets: &'a [usize],
    options: Options,
    /// `[rows, Folded::LEN]`
    folded: MatrixMut<'a, E>,
}

impl<E: Real> Kernel for Fold<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        for (i, &target) in self.targets.iter().enumerate() {
            if !self.options.counts(target) {
                continue;
            }
            let row = self.logits.row(i);
            let mut folded = Folded::load(self.folded.row(i));
            let max = slice::max::<V>(row);
            if max > folded.max {
                let smaller = first::<V>(math::exp_of_weight(V::splat(folded.max - max)));
                folded.sum *= smaller;
                folded.max = max;
            }
            // If all logits so far are -∞, each of them is a probability of 0.
            let origin = match folded.max == -E::INFINITY {
                true => E::ZERO,
                false => folded.max,
            };
            folded.sum += sum_exp::<V>(row, origin);
            if self.options.label_smoothing > 0.0 {
                folded.total += slice::sum::<V>(row);
            }
            if let Some(logit) = target.checked_sub(self.first).and_then(|at| row.get(at)) {
                folded.target = *logit;
            }
            folded.store(self.folded.row_mut(i));
        }
    }
}

/// The losses of rows whose classes are all known, and their sum.
struct Finish<'a, E> {
    folded: Matrix<'a, E>,
    classes: usize,
    targets: &'a [usize],
    options: Options,
    lse: &'a mut [E],
    losses: &'a mut [E],
}

impl<E: Real> Kernel for Finish<'_, E> {
    type Element = E;
    type Output = f64;

    #[inline(always)]
    fn run<V: Vector<Element = E>>(self) -> f64 {
        let mut all = 0.0;
        for (i, (&target, lse)) in self.targets.iter().zip(self.lse).enumerate() {
            let mut loss = E::ZERO;
            *lse = E::ZERO;
            if self.options.counts(target) {
                let known = Folded::load(self.folded.row(i));
                (*lse, loss) = known.finish::<V>(self.classes, self.options);
                all += loss.into();
            }
            if let Some(to) = self.losses.get_mut(i) {
                *to = loss;
            }
        }
        all
    }
}

/// Writes the derivative by the logits of a block of classes over them.
struct Slopes<'a, E> {
    logits: MatrixMut<'a, E>,
    /// The first class of the block.
    first: usize,
    /// The number of all classes.
    classes: usize,
    targets: &'a [usize],
    options: Options,
    lse: &'a [E],
    scale: Scale<'a, E>,
}

impl<E: Real> Kernel for Slopes<'_, E> {
    type Element = E;
    type Output = ();

    #[inline(always)]
    fn run<V: Vector<Element = E>>(mut self) {
        let smoothing = self.options.label_smoothing;
        let share = V::splat(E::of_f64(smoothing / self.classes as f64));
        for (i, &target) in self.targets.iter().enumerate() {
            let row = self.logits.row_mut(i);
            if !self.options.counts(target) {
                row.fill(E::ZERO);
                continue;
            }
            let of_row = self.scale.of_row(i);
            let [lse, scale] = [self.lse[i], of_row].map(V::splat);
            let to = &mut *row;
            for_lanes!(V, to.len(), [], [to], {
                let p = math::exp_of_weight(load_any::<V>(to) - lse);
                store_any((p - share) * scale, to);
            });
            if let Some(slope) = target
                .checked_sub(self.first)
                .and_then(|at| row.get_mut(at))
            {
                *slope -= E::of_f64(1.0 - smoothing) * of_row;
            }
        }
    }
}

#[cfg(test)]
mod tests;
