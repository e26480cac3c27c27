//! Products of two tensors over any axes.
//!
//! PyTorch: `torch.einsum` of two operands.
//!
//! ```text
//! to[batch.., rows.., cols..] = Σ_depth a[batch.., rows.., depth..] b[batch.., depth.., cols..]
//! ```
//!
//! where the axes of each tensor stand in any order. An axis of both operands and of the result is one of the batch, an axis of one operand
//! and of the result is one of the rows or of the columns, and an axis of both operands alone is one of the depth. So the gradient of an
//! operand is such a product, too: of the gradient of the result and the other operand.
//!
//! The operands are read where they stand, as matrices with strides, if the axes of the rows, of the columns and of the depth are each one
//! axis in memory. Otherwise an operand is copied with its axes in another order: its size is that of one of three sides of the
//! product. Nothing is repeated in memory. [`plan`] finds the matrices, [`matrices`] multiplies them, and [`pointwise`] is for results that have no
//! matrices.

mod matrices;
mod plan;
mod pointwise;

use smallvec::SmallVec;

use super::compiled::compiled;
use super::permute::{Permute, permute};
use super::{Buffer, Pooled};
use crate::simd::WriteMode;
use plan::Layout;

/// The axes of a product of two tensors.
#[derive(Clone, Copy, Debug)]
pub struct Contraction<'a> {
    /// The size of each axis.
    pub sizes: &'a [usize],
    /// The axes of both operands and of the result, the last one contiguous, by their indices in `sizes`. Each is in two of the three lists
    /// at least.
    pub axes: [&'a [usize]; 3],
}

impl<'a> Contraction<'a> {
    /// The product that is the gradient of an operand, 0 or 1: the operands of this product, where the gradient of the result takes the
    /// place of that one.
    #[must_use]
    pub fn gradient(self, operand: usize) -> Self {
        let mut axes = self.axes;
        axes.swap(operand, 2);
        Self { axes, ..self }
    }

    /// The number of elements of an operand, 0 or 1, or of the result, 2.
    #[must_use]
    pub fn len_of(&self, tensor: usize) -> usize {
        self.axes[tensor]
            .iter()
            .map(|&axis| self.sizes[axis])
            .product()
    }

    fn assert_fits(&self, lens: [usize; 3]) {
        for (tensor, len) in lens.into_iter().enumerate() {
            let axes = self.axes[tensor];
            let is_again = |(index, axis): (usize, &usize)| axes[..index].contains(axis);
            assert!(
                !axes.iter().enumerate().any(is_again),
                "{axes:?} have an axis twice"
            );
            assert_eq!(
                len,
                self.len_of(tensor),
                "the numbers of the axes {axes:?} of {:?}",
                self.sizes
            );
        }
        for axis in self.axes.into_iter().flatten() {
            let of = self.axes.iter().filter(|axes| axes.contains(axis));
            assert!(of.count() > 1, "axis {axis} is in one of {:?}", self.axes);
        }
    }
}

/// Axes of a tensor. Few of them need no heap memory.
type Axes = SmallVec<[usize; 8]>;

/// A [`Contraction`] without axes of size 1.
#[derive(Clone, Debug)]
struct Product<'a> {
    sizes: &'a [usize],
    axes: [Axes; 3],
}

impl Product<'_> {
    fn has(&self, tensor: usize, axis: usize) -> bool {
        self.axes[tensor].contains(&axis)
    }

    fn count(&self, axes: &[usize]) -> usize {
        axes.iter().map(|&axis| self.sizes[axis]).product()
    }

    fn len_of(&self, tensor: usize) -> usize {
        self.count(&self.axes[tensor])
    }

    /// The axes of a tensor that another one has, or lacks.
    fn shared(&self, tensor: usize, other: usize, is_shared: bool) -> Axes {
        let axes = self.axes[tensor].iter().copied();
        axes.filter(|&axis| self.has(other, axis) == is_shared)
            .collect()
    }

    /// The same product of an operand whose axes stand in this order.
    fn with(&self, tensor: usize, axes: Axes) -> Self {
        let mut product = self.clone();
        product.axes[tensor] = axes;
        product
    }

    /// Copies a tensor, to axes in another order.
    fn copy<E: Pooled + Permute<E>>(
        &self,
        tensor: usize,
        x: &[E],
        axes: &[usize],
        to: &mut [E],
        into: WriteMode,
    ) {
        let from = &self.axes[tensor];
        let sizes: Axes = from.iter().map(|&axis| self.sizes[axis]).collect();
        let place = |axis: &usize| from.iter().position(|other| other == axis);
        let order: Axes = axes.iter().filter_map(place).collect();
        permute(x, &sizes, &order, to, into);
    }
}

compiled! {
    Contractions:

    /// `to = a b` or `to += a b`, a sum over the axes that the result lacks.
    ///
    /// The order in which an element is summed depends on the shapes only.
    ///
    /// # Panics
    /// If the lengths are not those of the axes, an axis is in one tensor only, or a tensor has it twice.
    #[track_caller]
    pub fn contract<E>(axes: Contraction<'_>, a: &[E], b: &[E], to: &mut [E], into: WriteMode) {
        axes.assert_fits([a.len(), b.len(), to.len()]);
        if to.is_empty() {
            return;
        }
        if a.is_empty() || b.is_empty() {
            if into == WriteMode::Overwrite {
                to.fill(E::ZERO);
            }
            return;
        }
        let without_ones = |of: &[usize]| -> Axes {
            let of = of.iter().copied();
            of.filter(|&axis| axes.sizes[axis] != 1).collect()
        };
        let product = Product { sizes: axes.sizes, axes: axes.axes.map(without_ones) };
        multiply(&product, a, b, to, into);
    }
}

/// The product of tensors with elements, where copies are made until both are readable.
fn multiply<E: Pooled + Permute<E>>(
    product: &Product<'_>,
    a: &[E],
    b: &[E],
    to: &mut [E],
    into: WriteMode,
) {
    match Layout::of(product) {
        Layout::Swapped => {
            let [of_a, of_b, of_to] = product.axes.clone();
            let axes = [of_b, of_a, of_to];
            multiply(&Product { axes, ..*product }, b, a, to, into);
        }
        Layout::Copied(2, axes) => {
            let mut result = Buffer::uninit(to.len());
            let ordered = product.with(2, axes);
            multiply(&ordered, a, b, &mut result, WriteMode::Overwrite);
            ordered.copy(2, &result, &product.axes[2], to, into);
        }
        Layout::Copied(tensor, axes) => {
            let x = [a, b][tensor];
            let mut copy = Buffer::uninit(x.len());
            product.copy(tensor, x, &axes, &mut copy, WriteMode::Overwrite);
            let product = product.with(tensor, axes);
            match tensor {
                0 => multiply(&product, &copy, b, to, into),
                _ => multiply(&product, a, &copy, to, into),
            }
        }
        Layout::Matrices(plan) => matrices::multiply(&plan, a, b, to, into),
        Layout::Pointwise(plan) => pointwise::multiply(&plan, a, b, to, into),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::testing::{Absolute, assert_close, noise, same_for_all_threads, wide};

    /// The axes of both operands and of the result, a letter each.
    const PRODUCTS: [&str; 40] = [
        // Matrices, with every side in every order.
        "ik,kj,ij",
        "ki,kj,ij",
        "ik,jk,ij",
        "ki,jk,ij",
        "ik,kj,ji",
        "ki,kj,ji",
        "ik,jk,ji",
        "ki,jk,ji",
        // Rows, columns and depth of several axes.
        "bsd,de,bse",
        "bsd,ed,bse",
        "bse,de,bsd",
        "bsd,bse,de",
        "bse,bsd,ed",
        "bsd,dhe,bhse",
        "bshd,hde,bse",
        "bshd,hed,ebs",
        // Batches: outside, between, and inside.
        "bqd,bkd,bqk",
        "bqhd,bkhd,bhqk",
        "bhqk,bkhd,bqhd",
        "bqhd,bkhd,qkbh",
        "bqhd,bkhd,bqkh",
        "qdb,kdb,qkb",
        "qdb,kbd,bkq",
        // Vectors, and numbers.
        "bsd,d,bs",
        "d,bsd,sb",
        "bd,bsd,bs",
        "bsd,bs,bd",
        "bsd,sb,db",
        "i,j,ij",
        "i,j,ji",
        "bi,bj,bji",
        "d,d,",
        "bd,bd,",
        "bd,db,",
        // No matrices.
        "bsd,bsd,bs",
        "bsd,bds,bs",
        "bsd,bsd,sd",
        "bsd,dsb,ds",
        "bs,bs,bs",
        "bs,sb,sb",
    ];

    /// The axes of the letters, and the sizes, by the place of a letter in the alphabet.
    fn axes_of(product: &str) -> Vec<Vec<usize>> {
        let tensors = product.split(',');
        let axes = tensors.map(|of| {
            of.bytes()
                .map(|letter| usize::from(letter - b'a'))
                .collect()
        });
        axes.collect()
    }

    fn naive(sizes: &[usize], axes: &[Vec<usize>], a: &[f64], b: &[f64], to: &mut [f64]) {
        let all: Vec<usize> = (0..sizes.len())
            .filter(|axis| axes.iter().any(|of| of.contains(axis)))
            .collect();
        let count: usize = all.iter().map(|axis| sizes[*axis]).product();
        for number in 0..count {
            let mut index = vec![0; sizes.len()];
            let mut rest = number;
            for axis in all.iter().rev() {
                index[*axis] = rest % sizes[*axis];
                rest /= sizes[*axis];
            }
            let place = |of: &[usize]| {
                of.iter()
                    .fold(0, |place, axis| place * sizes[*axis] + index[*axis])
            };
            to[place(&axes[2])] += a[place(&axes[0])] * b[place(&axes[1])];
        }
    }

    /// Checks every product at these sizes of `letters`; all others are 3.
    fn check<E: super::super::Kernels + Into<f64>>(letters: &str, of: &[usize], tolerance: f64) {
        let mut sizes = vec![3; 26];
        for (letter, size) in letters.bytes().zip(of) {
            sizes[usize::from(letter - b'a')] = *size;
        }
        for product in PRODUCTS {
            let axes = axes_of(product);
            let contraction = Contraction {
                sizes: &sizes,
                axes: [&axes[0], &axes[1], &axes[2]],
            };
            let [a, b, to] =
                [0, 1, 2].map(|tensor| noise::<E>(contraction.len_of(tensor), tensor as u64));
            for into in [WriteMode::Overwrite, WriteMode::Add] {
                let (mut got, mut want) = match into {
                    WriteMode::Overwrite => (vec![E::NAN; to.len()], vec![0.0; to.len()]),
                    WriteMode::Add => (to.clone(), wide(&to)),
                };
                contract(contraction, &a, &b, &mut got, into);
                naive(&sizes, &axes, &wide(&a), &wide(&b), &mut want);
                assert_close(
                    format!("{product} {letters} {of:?} {into:?}"),
                    &got,
                    &want,
                    Absolute(tolerance),
                );
            }
        }
    }

    #[test]
    fn products_are_sums_over_the_axes_that_the_result_lacks() {
        // Sums of up to 25 products of at most 1.
        check::<f64>("", &[], 1e-13);
        check::<f32>("", &[], 1e-5);
        let sizes = [1, 2, 5, 17];
        for (i, b) in sizes.into_iter().enumerate() {
            for (j, s) in sizes.into_iter().enumerate() {
                let [d, e] = [sizes[(i + j) % 4], sizes[(i + 2 * j + 1) % 4]];
                check::<f64>("bsdeijkhq", &[b, s, d, e, b, s, d, e, s], 1e-12);
            }
        }
    }

    /// Products that several threads share, and some with as many as threads.
    #[test]
    fn large_products_are_those_of_small_ones() {
        // Sums of up to 200 × 17 products of at most 1, each rounded to 6e-8 of at most 100.
        check::<f32>("bsdeijkhq", &[9, 33, 40, 130, 150, 170, 200, 2, 17], 1e-3);
        check::<f64>("bsdeijk", &[2, 150, 170, 19, 1, 1040, 260], 1e-10);
    }

    #[test]
    fn empty_axes_have_empty_results_or_sums_of_0() {
        for letter in ["b", "s", "d", "i", "k"] {
            check::<f32>(letter, &[0], 1e-5);
        }
    }

    #[test]
    fn results_have_the_same_bits_for_any_number_of_threads() {
        let mut sizes = vec![70; 26];
        for (letter, size) in b"bhd".iter().zip([5, 3, 67]) {
            sizes[usize::from(letter - b'a')] = size;
        }
        for product in PRODUCTS {
            let axes = axes_of(product);
            let contraction = Contraction {
                sizes: &sizes,
                axes: [&axes[0], &axes[1], &axes[2]],
            };
            let [a, b, to] =
                [0, 1, 2].map(|tensor| noise::<f32>(contraction.len_of(tensor), tensor as u64));
            same_for_all_threads(|| {
                let mut to = to.clone();
                contract(contraction, &a, &b, &mut to, WriteMode::Add);
                to
            });
        }
    }

    #[test]
    fn a_gradient_is_a_product_with_the_gradient_of_the_result() {
        let sizes = [2, 3, 4, 5];
        let product = Contraction {
            sizes: &sizes,
            axes: [&[0, 1, 2], &[2, 3], &[0, 1, 3]],
        };
        assert_eq!(
            product.gradient(0).axes,
            [&[0, 1, 3][..], &[2, 3], &[0, 1, 2]]
        );
        assert_eq!(
            product.gradient(1).axes,
            [&[0, 1, 2][..], &[0, 1, 3], &[2, 3]]
        );
    }

    #[test]
    #[should_panic(expected = "axis 1 is in one of")]
    fn an_axis_of_one_tensor_is_refused() {
        let axes = Contraction {
            sizes: &[2, 3],
            axes: [&[0, 1], &[0], &[0]],
        };
        contract(axes, &[0.0; 6], &[0.0; 2], &mut [0.0; 2], WriteMode::Add);
    }
}
