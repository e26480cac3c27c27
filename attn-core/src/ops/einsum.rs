//! Products of two tensors over any axes.

use dfdx::{
    shapes::{HasShape, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    fused::{Operation, zeros},
    kernel::contraction::Contraction,
    model::Pass,
    ops::{check_shape, shape::dims},
    unwrap,
};

/// The product of two tensors, summed over the axes that the result lacks.
///
/// `axes` has a number for each axis of `x`, of `y` and of the result. Axes with one number are the same axis, which is in two of the three
/// at least. Both may be the same tensor. Operands are read where they stand, and nothing is repeated in memory.
///
/// PyTorch: `torch.einsum("bsd,de->bse", x, w)`, where the axes are `[&[0, 1, 2], &[2, 3], &[0, 1, 3]]`.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::einsum};
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank3<1, 2, 2>, f32, _> = dev.tensor([[[1.0, 2.0], [3.0, 4.0]]]);
/// let w: Tensor<Rank2<2, 1>, f32, _> = dev.tensor([[10.0], [1.0]]);
/// let y = einsum(x, w, [&[0, 1, 2], &[2, 3], &[0, 1, 3]], (Const::<1>, Const::<2>, Const::<1>));
/// assert_eq!(y.array(), [[[12.0], [34.0]]]);
/// ```
///
/// # Panics
/// If [`try_einsum`] returns an error or panics.
#[doc(alias("matmul", "bmm", "tensordot", "outer", "dot"))]
#[track_caller]
pub fn einsum<S1: Shape, S2: Shape, S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S1, E, D, T>,
    y: Tensor<S2, E, D, T>,
    axes: [&[usize]; 3],
    to: S,
) -> Tensor<S, E, D, T> {
    unwrap(try_einsum(x, y, axes, to))
}

/// The fallible version of [`einsum`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of a tensor or of the result do not fit the memory; [`Error::Device`] if dfdx fails.
///
/// # Panics
/// If `axes` does not have a number for each axis, an axis is in one tensor only or twice in a tensor, or its sizes differ.
#[track_caller]
pub fn try_einsum<S1: Shape, S2: Shape, S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S1, E, D, T>,
    y: Tensor<S2, E, D, T>,
    axes: [&[usize]; 3],
    to: S,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    einsum_with_form(D::FUSED, x, y, axes, to)
}

/// [`try_einsum`] in the fused or the composed form.
#[track_caller]
pub(crate) fn einsum_with_form<S1: Shape, S2: Shape, S: Shape, E, D, T>(
    fused: bool,
    x: Tensor<S1, E, D, T>,
    y: Tensor<S2, E, D, T>,
    axes: [&[usize]; 3],
    to: S,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
where
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    check_shape("einsum", x.shape())?;
    check_shape("einsum", y.shape())?;
    check_shape("einsum", &to)?;
    let sizes = sizes(axes, [&dims(x.shape()), &dims(y.shape()), &dims(&to)]);
    if !fused {
        let axes = Contraction {
            sizes: &sizes,
            axes,
        };
        return Ok(composed::contract(x, y, axes, to)?);
    }
    let device = x.device().clone();
    let axes = axes.map(<[usize]>::to_vec);
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let y = operation.read(y)?;
    let mut z = zeros(to.num_elements());
    slices::einsum(of(&sizes, &axes), x.values(), y.values(), &mut z);
    Ok(operation.finish(&device, z, to, move |d_z, gradients| {
        let axes = of(&sizes, &axes);
        slices::einsum_backward(axes, 0, y.values(), d_z, &mut x.target(), gradients);
        slices::einsum_backward(axes, 1, x.values(), d_z, &mut y.target(), gradients);
    })?)
}

fn of<'a>(sizes: &'a [usize], [x, y, to]: &'a [Vec<usize>; 3]) -> Contraction<'a> {
    Contraction {
        sizes,
        axes: [x, y, to],
    }
}

/// The size of each number of an axis.
#[track_caller]
fn sizes(axes: [&[usize]; 3], of: [&[usize]; 3]) -> Vec<usize> {
    let count = axes.iter().flat_map(|axes| axes.iter()).max();
    let mut sizes = vec![None; count.map_or(0, |last| last + 1)];
    for (axes, of) in axes.into_iter().zip(of) {
        assert_eq!(axes.len(), of.len(), "{axes:?} are the axes of {of:?}");
        for (axis, &size) in axes.iter().zip(of) {
            let known = *sizes[*axis].get_or_insert(size);
            assert_eq!(known, size, "two sizes of axis {axis}");
        }
    }
    sizes.into_iter().map(|size| size.unwrap_or(1)).collect()
}

impl<T> Pass<'_, T> {
    /// The product of two tensors, summed over the axes that the result lacks: [`einsum`].
    ///
    /// # Errors
    /// The errors of [`try_einsum`].
    ///
    /// # Panics
    /// The panics of [`try_einsum`].
    #[track_caller]
    pub fn einsum<S1: Shape, S2: Shape, S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S1, E, D>,
        y: &Tensor<S2, E, D>,
        axes: [&[usize]; 3],
        to: S,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| {
            einsum_with_form(fused, x, y.retaped(), axes, to)
        })
    }
}

/// The operation on slices, for the fused form of a model.
pub(crate) mod slices {
    pub use crate::kernel::contraction::Contraction;

    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::contraction::contract,
        simd::WriteMode,
    };

    /// The product of `x` and `y`.
    pub fn einsum<E: Element>(axes: Contraction<'_>, x: &[E], y: &[E], to: &mut [E]) {
        contract(axes, x, y, to, WriteMode::Overwrite);
    }

    /// The gradient of an operand of [`einsum`], 0 or 1, given the `other` one.
    pub fn einsum_backward<E: Element>(
        axes: Contraction<'_>,
        operand: usize,
        other: &[E],
        d_y: &[E],
        to: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let Some((to, into)) = to.numbers_mut(gradients) else {
            return;
        };
        let axes = axes.gradient(operand);
        match operand {
            0 => contract(axes, d_y, other, to, into),
            _ => contract(axes, other, d_y, to, into),
        }
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{HasShape, Shape},
        tensor::{Tape, Tensor},
        tensor_ops::{Device, TryMatMul},
    };

    use super::{Contraction, sizes};
    use crate::{
        Element,
        composed::{is_empty, zeros_after_both},
        ops::shape::{dims, gather},
        sizes::place_in,
    };

    /// [`einsum`](super::einsum)
    ///
    /// # Errors
    /// If dfdx fails.
    ///
    /// # Panics
    /// As [`try_einsum`](super::try_einsum).
    #[track_caller]
    pub fn einsum<S1: Shape, S2: Shape, S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S1, E, D, T>,
        y: Tensor<S2, E, D, T>,
        axes: [&[usize]; 3],
        to: S,
    ) -> Result<Tensor<S, E, D, T>, D::Err> {
        let sizes = sizes(axes, [&dims(x.shape()), &dims(y.shape()), &dims(&to)]);
        let sizes = &sizes;
        contract(x, y, Contraction { sizes, axes }, to)
    }

    /// Products of matrices, of copies of both tensors in the order of their axes.
    pub(super) fn contract<S1: Shape, S2: Shape, S: Shape, E: Element, D, T: Tape<E, D>>(
        x: Tensor<S1, E, D, T>,
        y: Tensor<S2, E, D, T>,
        Contraction { sizes, axes }: Contraction<'_>,
        to: S,
    ) -> Result<Tensor<S, E, D, T>, D::Err>
    where
        D: Device<E>,
    {
        if is_empty(x.shape()) || is_empty(y.shape()) || is_empty(&to) {
            return zeros_after_both(x, y, to);
        }
        let all = 0..sizes.len();
        let kind = |of: [bool; 3]| -> Vec<usize> {
            let axes = all
                .clone()
                .filter(|axis| axes.map(|axes| axes.contains(axis)) == of);
            axes.collect()
        };
        let batch = kind([true, true, true]);
        let rows = kind([true, false, true]);
        let cols = kind([false, true, true]);
        let depth = kind([true, true, false]);
        let count = |axes: &[usize]| axes.iter().map(|axis| sizes[*axis]).product::<usize>();
        let [b, m, n, k] = [&batch, &rows, &cols, &depth].map(|axes| count(axes));
        let left = [&batch[..], &rows, &depth].concat();
        let right = [&batch[..], &depth, &cols].concat();
        let product = [&batch[..], &rows, &cols].concat();
        let left = gather(x, place_in(axes[0], &left, sizes), (b, m, k))?;
        let right = gather(y, place_in(axes[1], &right, sizes), (b, k, n))?;
        let product_of_both = left.try_matmul(right)?;
        gather(product_of_both, place_in(&product, axes[2], sizes), to)
    }
}
