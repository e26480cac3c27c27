//! Reductions of one axis: sum, mean, maximum, minimum, variance, and the logarithm of a sum of exponentials.

use dfdx::{
    shapes::{Axis, HasShape, ReduceShape, ReduceStridesTo, Shape},
    tensor::{Tape, Tensor},
};

use crate::{
    Backend, Element, Error,
    data::Selection,
    fused::{Array, Operation, zeros},
    kernel::reduce::Reduction,
    model::Pass,
    ops::{check_shape, shape::axis_of},
    unwrap,
};

/// The shape without axis `I`.
type Reduced<S, const I: isize> = <S as ReduceShape<Axis<I>>>::Reduced;

macro_rules! reductions {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $try_name:ident, $name_where:ident, $try_name_where:ident, $Reduction:ident, $what:literal, $none:literal;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            #[doc = concat!("If [`", stringify!($try_name), "`] returns an error.")]
            #[track_caller]
            pub fn $name<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
                axis: Axis<I>,
            ) -> Tensor<Reduced<S, I>, E, D, T>
            where
                S: Shape + ReduceShape<Axis<I>>,
            {
                unwrap($try_name(x, axis))
            }

            #[doc = concat!("The fallible version of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
            pub fn $try_name<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
                _: Axis<I>,
            ) -> Result<Tensor<Reduced<S, I>, E, D, T>, Error<D::Err>>
            where
                S: Shape + ReduceShape<Axis<I>>,
            {
                reduce_with_form(D::FUSED, Reduction::$Reduction, x, Selection::all())
            }

            #[doc = concat!("[`", stringify!($name), "`] of some numbers along the axis. The others are not read, and their gradient is 0.")]
            ///
            #[doc = concat!("Without any, the result is ", $none, ".")]
            ///
            /// # Panics
            #[doc = concat!("If [`", stringify!($try_name_where), "`] returns an error or panics.")]
            #[track_caller]
            pub fn $name_where<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
                axis: Axis<I>,
                selection: Selection<'_>,
            ) -> Tensor<Reduced<S, I>, E, D, T>
            where
                S: Shape + ReduceShape<Axis<I>>,
            {
                unwrap($try_name_where(x, axis, selection))
            }

            #[doc = concat!("The fallible version of [`", stringify!($name_where), "`].")]
            ///
            /// # Errors
            /// [`Error::LengthBeyondKeys`] if a length is greater than the axis; [`Error::TooLarge`] if the sizes of `x` do not fit the
            /// memory; [`Error::Device`] if dfdx fails.
            ///
            /// # Panics
            /// If the selection is of other sizes.
            #[track_caller]
            pub fn $try_name_where<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
                _: Axis<I>,
                selection: Selection<'_>,
            ) -> Result<Tensor<Reduced<S, I>, E, D, T>, Error<D::Err>>
            where
                S: Shape + ReduceShape<Axis<I>>,
            {
                reduce_with_form(D::FUSED, Reduction::$Reduction, x, selection)
            }
        )*

        impl<T> Pass<'_, T> {
            $(
                #[doc = concat!($what, " along one axis, which the result lacks: [`", stringify!($name), "`].")]
                ///
                /// # Errors
                #[doc = concat!("The errors of [`", stringify!($try_name), "`].")]
                pub fn $name<const I: isize, S, E: Element, D: Backend<E>>(
                    &mut self,
                    x: &Tensor<S, E, D>,
                    _: Axis<I>,
                ) -> Result<Tensor<Reduced<S, I>, E, D>, Error<D::Err>>
                where
                    S: Shape + ReduceShape<Axis<I>>,
                    T: Tape<E, D>,
                {
                    let all = Selection::all();
                    self.run(x, |fused, x| reduce_with_form(fused, Reduction::$Reduction, x, all))
                }

                #[doc = concat!($what, " of some numbers along one axis: [`", stringify!($name_where), "`].")]
                ///
                /// # Errors
                #[doc = concat!("The errors of [`", stringify!($try_name_where), "`].")]
                ///
                /// # Panics
                #[doc = concat!("The panics of [`", stringify!($try_name_where), "`].")]
                #[track_caller]
                pub fn $name_where<const I: isize, S, E: Element, D: Backend<E>>(
                    &mut self,
                    x: &Tensor<S, E, D>,
                    _: Axis<I>,
                    selection: Selection<'_>,
                ) -> Result<Tensor<Reduced<S, I>, E, D>, Error<D::Err>>
                where
                    S: Shape + ReduceShape<Axis<I>>,
                    T: Tape<E, D>,
                {
                    self.run(x, |fused, x| reduce_with_form(fused, Reduction::$Reduction, x, selection))
                }
            )*
        }
    };
}

reductions! {
    /// `Σ x` along one axis, which the result lacks. The sum of an empty axis is 0.
    ///
    /// PyTorch: `x.sum(0)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops};
    ///
    /// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// assert_eq!(ops::sum(x.clone(), Axis::<0>).array(), [5.0, 7.0, 9.0]);
    /// assert_eq!(ops::sum(x, Axis::<1>).array(), [6.0, 15.0]);
    /// ```
    fn sum, try_sum, sum_where, try_sum_where, Sum, "The sum", "0";

    /// `Σ x / n` along one axis of size `n`, which the result lacks. The mean of an empty axis is NaN.
    ///
    /// PyTorch: `x.mean(1)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops};
    ///
    /// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    /// let y = ops::mean(x.leaky_trace(), Axis::<1>);
    /// assert_eq!(y.array(), [2.0, 5.0]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [[1.0 / 3.0; 3]; 2]);
    /// ```
    fn mean, try_mean, mean_where, try_mean_where, Mean, "The mean", "0";

    /// The largest number along one axis, which the result lacks: NaN if a number is NaN, and -∞ for an empty axis.
    ///
    /// The first of several equal numbers gets the gradient. PyTorch: `x.max(1).values`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops};
    ///
    /// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 3.0, 3.0], [6.0, 5.0, 4.0]]);
    /// let y = ops::max(x.leaky_trace(), Axis::<1>);
    /// assert_eq!(y.array(), [3.0, 6.0]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]);
    /// ```
    fn max, try_max, max_where, try_max_where, Max, "The maximum", "0";

    /// The smallest number along one axis, which the result lacks: NaN if a number is NaN, and ∞ for an empty axis.
    ///
    /// The first of several equal numbers gets the gradient. PyTorch: `x.min(1).values`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops};
    ///
    /// let x: Tensor<Rank2<2, 3>, f32, _> = Cpu::default().tensor([[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]]);
    /// assert_eq!(ops::min(x, Axis::<1>).array(), [1.0, 4.0]);
    /// ```
    fn min, try_min, min_where, try_min_where, Min, "The minimum", "0";

    /// `Σ (x - mean)² / n` along one axis of size `n`, which the result lacks: the biased variance, NaN for an empty axis.
    ///
    /// PyTorch: `x.var(1, correction=0)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops};
    ///
    /// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[1.0, 3.0], [5.0, 5.0]]);
    /// let y = ops::variance(x.leaky_trace(), Axis::<1>);
    /// assert_eq!(y.array(), [1.0, 0.0]);
    /// assert_eq!(y.sum().backward().get(&x).array(), [[-1.0, 1.0], [0.0, 0.0]]);
    /// ```
    #[doc(alias = "var")]
    fn variance, try_variance, variance_where, try_variance_where, Variance, "The biased variance", "0";

    /// `ln Σ exp(x)` along one axis, which the result lacks. The maximum is subtracted first, so that no exponential overflows.
    ///
    /// Numbers of only -∞, and an empty axis, have the result -∞, and the gradient 0. PyTorch: `x.logsumexp(1)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops};
    ///
    /// let x: Tensor<Rank2<2, 2>, f32, _> = Cpu::default().tensor([[0.0, f32::NEG_INFINITY], [0.0; 2]]);
    /// assert_eq!(ops::logsumexp(x, Axis::<1>).array(), [0.0, f32::ln(2.0)]);
    /// ```
    fn logsumexp, try_logsumexp, logsumexp_where, try_logsumexp_where, Logsumexp, "The logarithm of the sum of exponentials", "-∞";
}

/// A reduction in the fused or the composed form.
fn reduce_with_form<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
    fused: bool,
    reduction: Reduction,
    x: Tensor<S, E, D, T>,
    selection: Selection<'_>,
) -> Result<Tensor<Reduced<S, I>, E, D, T>, Error<D::Err>>
where
    S: Shape + ReduceShape<Axis<I>>,
{
    check_shape("reduction", x.shape())?;
    let axis = axis_of::<I>(x.shape());
    selection.check("reduction", axis)?;
    if !fused {
        return Ok(composed::reduce(reduction, x, &selection)?);
    }
    let device = x.device().clone();
    let shape: Reduced<S, I> = ReduceStridesTo::<_, Axis<I>>::reduced(x.shape());
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut values = zeros(axis.outer * axis.inner);
    slices::reduce(
        reduction,
        x.values(),
        axis,
        selection.counted(),
        &mut values,
    );
    let selection = selection.into_owned();
    let mut d_x = x.target();
    let x = reduction.reads_x().then_some(x);
    let y = reduction
        .reads_y()
        .then(|| Array::of(&values, axis.outer, axis.inner));
    Ok(
        operation.finish(&device, values, shape, move |d_y, gradients| {
            let x = x.as_ref().map_or(&[][..], |x| x.values());
            let y = y.as_ref().map_or(&[][..], |y| y.as_slice());
            let of = (axis, selection.counted());
            slices::reduce_backward(reduction, x, of, y, d_y, &mut d_x, gradients)
        })?,
    )
}

/// The operations on slices, for the fused form of a model.
pub(crate) mod slices {
    use crate::{
        Element,
        fused::{GradTarget, Gradients},
        kernel::{
            axis::{Axis, Counted},
            reduce as kernel,
        },
    };

    pub use crate::kernel::reduce::Reduction;

    /// Reduces the `counted` numbers of `x` along an axis.
    pub fn reduce<E: Element>(
        reduction: Reduction,
        x: &[E],
        axis: Axis,
        counted: Counted<'_>,
        y: &mut [E],
    ) {
        kernel::forward(reduction, x, axis, counted, y);
    }

    /// The derivative of [`reduce`], given `x` and the result `y`, which may be empty if it does not read them: see
    /// [`Reduction::reads_x`] and [`Reduction::reads_y`].
    pub fn reduce_backward<E: Element>(
        reduction: Reduction,
        x: &[E],
        of: (Axis, Counted<'_>),
        y: &[E],
        d_y: &[E],
        d_x: &mut GradTarget<'_, E>,
        gradients: &mut Gradients<E>,
    ) {
        let Some((d_x, into)) = d_x.numbers_mut(gradients) else {
            return;
        };
        kernel::backward(reduction, x, of, y, d_y, d_x, into);
    }
}

/// The composed form, with dfdx's operations.
pub(super) mod composed {
    use dfdx::{
        shapes::{self, HasShape, ReduceShape, ReduceStridesTo, Shape},
        tensor::{
            NoneTape, PutTape, SplitTape, Tape, Tensor, TensorFromVec, WithEmptyTape, ZerosTensor,
        },
        tensor_ops::{
            BroadcastTo, ChooseFrom, Device, MeanTo, SumTo, TryAdd, TryMul, TrySub, VarTo,
        },
    };

    use super::{Reduced, Reduction};
    use crate::{
        Element,
        composed::{conditions, is_empty, reshape, zeros_after},
        data::Selection,
        kernel::axis::{Axis, Counted},
        ops::shape::{Around, around, axis_of, gather},
    };

    macro_rules! reductions {
        ($($name:ident, $Reduction:ident;)*) => {
            $(
                #[doc = concat!("[`", stringify!($name), "`](super::", stringify!($name), ")")]
                ///
                /// # Errors
                /// If dfdx fails.
                pub fn $name<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
                    x: Tensor<S, E, D, T>,
                    _: shapes::Axis<I>,
                ) -> Result<Tensor<Reduced<S, I>, E, D, T>, D::Err>
                where
                    S: Shape + ReduceShape<shapes::Axis<I>>,
                {
                    reduce(Reduction::$Reduction, x, &Selection::all())
                }
            )*
        };
    }

    reductions! {
        sum, Sum;
        mean, Mean;
        max, Max;
        min, Min;
        variance, Variance;
        logsumexp, Logsumexp;
    }

    /// A reduction of the selected numbers along an axis.
    pub(in crate::ops) fn reduce<const I: isize, S, E: Element, D: Device<E>, T: Tape<E, D>>(
        reduction: Reduction,
        x: Tensor<S, E, D, T>,
        selection: &Selection<'_>,
    ) -> Result<Tensor<Reduced<S, I>, E, D, T>, D::Err>
    where
        S: Shape + ReduceShape<shapes::Axis<I>>,
    {
        let shape: Reduced<S, I> = ReduceStridesTo::<_, shapes::Axis<I>>::reduced(x.shape());
        let counted = selection.counted();
        let is_whole = matches!(counted, Counted::All);
        if is_empty(x.shape()) {
            let zeros = zeros_after(x, shape)?;
            let of_nothing = match is_whole {
                true => reduction.of_nothing(),
                false => reduction.of_none(),
            };
            return match is_empty(&shape) {
                true => Ok(zeros),
                false => zeros.try_add(E::of(of_nothing)),
            };
        }
        let axis = axis_of::<I>(x.shape());
        let x = around::<I, _, _, _, _>(x)?;
        let y = match (reduction, is_whole) {
            (Reduction::Sum, true) => x.try_sum::<_, shapes::Axis<1>>()?,
            (Reduction::Mean, true) => x.try_mean::<_, shapes::Axis<1>>()?,
            (Reduction::Variance, true) => x.try_var::<_, shapes::Axis<1>>()?,
            (Reduction::Max, true) => gather_largest(x, axis, |a| a)?,
            (Reduction::Min, true) => gather_largest(x, axis, |a| -a)?,
            (Reduction::Logsumexp, true) => logsumexp_of(x, axis)?,
            (_, false) => of_some(reduction, x, axis, counted)?,
        };
        reshape(y, shape)
    }

    /// A reduction of the counted numbers along axis 1. The others are replaced by constants.
    fn of_some<E: Element, D: Device<E>, T: Tape<E, D>>(
        reduction: Reduction,
        x: Around<E, D, T>,
        axis: Axis,
        counted: Counted<'_>,
    ) -> Result<Tensor<(usize, usize), E, D, T>, D::Err> {
        let marks = counted.marks(axis);
        let shares = share_of_counted::<E, D>(x.device(), axis, counted)?;
        let scaled = |sums: Tensor<(usize, usize), E, D, T>| sums.try_mul(shares.clone());
        match reduction {
            Reduction::Sum => only(x, &marks, 0.0)?.try_sum::<_, shapes::Axis<1>>(),
            Reduction::Mean => scaled(only(x, &marks, 0.0)?.try_sum::<_, shapes::Axis<1>>()?),
            Reduction::Variance => {
                let shape = *x.shape();
                let x = only(x, &marks, 0.0)?;
                let sums = x.with_empty_tape().try_sum::<_, shapes::Axis<1>>()?;
                let means = scaled(sums)?.try_broadcast_like::<_, shapes::Axis<1>>(&shape)?;
                let deviations = only(x.try_sub(means)?, &marks, 0.0)?;
                scaled(deviations.try_square()?.try_sum::<_, shapes::Axis<1>>()?)
            }
            Reduction::Max => largest_of_some(x, axis, &marks, |a| a),
            Reduction::Min => largest_of_some(x, axis, &marks, |a| -a),
            Reduction::Logsumexp => logsumexp_of(only(x, &marks, f64::NEG_INFINITY)?, axis),
        }
    }

    /// `1 / count` of each column, or 1 where nothing is counted.
    fn share_of_counted<E: Element, D: Device<E>>(
        device: &D,
        axis: Axis,
        counted: Counted<'_>,
    ) -> Result<Tensor<(usize, usize), E, D>, D::Err> {
        let share = |column: usize| {
            let count = counted.count(axis, column / axis.inner);
            E::of(1.0 / count.max(1) as f64)
        };
        let shares = (0..axis.outer * axis.inner).map(share).collect();
        TensorFromVec::<E>::try_tensor_from_vec(device, shares, (axis.outer, axis.inner))
    }

    /// The numbers at marked places of axis 1, and `other` in the place of the others.
    pub(in crate::ops) fn only<E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Around<E, D, T>,
        marks: &[bool],
        other: f64,
    ) -> Result<Around<E, D, T>, D::Err> {
        let shape = *x.shape();
        let inner = shape.2;
        let marked = (0..shape.num_elements()).map(|place| marks[place / inner]);
        let marked = conditions::<_, E, D>(x.device(), marked, shape)?;
        let others = vec![E::of(other); shape.num_elements()];
        let others: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(x.device(), others, shape)?;
        marked.try_choose(x, others)
    }

    /// The numbers at marked places of axis 1 whose `key` is the largest, and 0 where no place is marked.
    fn largest_of_some<E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Around<E, D, T>,
        axis: Axis,
        marks: &[bool],
        key: impl Fn(E) -> E,
    ) -> Result<Tensor<(usize, usize), E, D, T>, D::Err> {
        let device = x.device().clone();
        let shape = (axis.outer, axis.inner);
        let keys: Vec<E> = x.as_vec().into_iter().map(key).collect();
        let places = places_of_largest(&keys, axis, |o, l| marks[o * axis.len + l]);
        let any = places.iter().map(Option::is_some);
        let any = conditions::<_, E, D>(&device, any, shape)?;
        // For an empty column, gather the first element of the tensor, and then replace it by 0.
        let y = gather(x, |column| places[column].unwrap_or_default(), shape)?;
        let zeros: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &shape)?;
        any.try_choose(y, zeros)
    }

    /// The numbers along axis 1 whose `key` is the largest.
    fn gather_largest<E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Around<E, D, T>,
        axis: Axis,
        key: impl Fn(E) -> E,
    ) -> Result<Tensor<(usize, usize), E, D, T>, D::Err> {
        let keys: Vec<E> = x.as_vec().into_iter().map(key).collect();
        let places = places_of_largest(&keys, axis, |_, _| true);
        let source = |column: usize| places[column].unwrap_or_default();
        gather(x, source, (axis.outer, axis.inner))
    }

    /// The place of the largest counted number `[o, .., i]`, for each `o` and `i`: the first of equal ones. NaN is larger than any number.
    pub(in crate::ops) fn places_of_largest<E: Element>(
        numbers: &[E],
        axis: Axis,
        is_counted: impl Fn(usize, usize) -> bool,
    ) -> Vec<Option<usize>> {
        let is_larger = |a: E, b: E| a > b || (a.is_nan() && !b.is_nan());
        let largest = |column: usize| {
            let o = column / axis.inner;
            let places = (0..axis.len).filter(|&l| is_counted(o, l));
            let places = places.map(|l| (o * axis.len + l) * axis.inner + column % axis.inner);
            places.reduce(|a, b| {
                if is_larger(numbers[b], numbers[a]) {
                    b
                } else {
                    a
                }
            })
        };
        (0..axis.outer * axis.inner).map(largest).collect()
    }

    /// `ln Σ exp(x - max) + max` along axis 1. Where all numbers are -∞, the derivative of the logarithm is infinite. There, the numbers are
    /// replaced by constants.
    fn logsumexp_of<E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Around<E, D, T>,
        axis: Axis,
    ) -> Result<Tensor<(usize, usize), E, D, T>, D::Err> {
        let device = x.device().clone();
        let shape = *x.shape();
        let rows = (axis.outer, axis.inner);
        let largest = gather_largest(x.retaped::<NoneTape>(), axis, |x| x)?.as_vec();
        let is_nothing = || largest.iter().map(|largest| *largest == E::neg_infinity());
        let origins = largest.iter().map(|largest| match largest.is_infinite() {
            true => E::zero(),
            false => *largest,
        });
        let origins: Tensor<_, E, D> =
            TensorFromVec::<E>::try_tensor_from_vec(&device, origins.collect(), rows)?;
        let all = (0..axis.elements()).map(|place| {
            let column = place / (axis.len * axis.inner) * axis.inner + place % axis.inner;
            largest[column] == E::neg_infinity()
        });
        let nothing = conditions::<_, E, D>(&device, all, shape)?;
        let zeros: Tensor<_, E, D> = ZerosTensor::<E>::try_zeros_like(&device, &shape)?;
        let (x, tape) = x.split_tape();
        let x = nothing.try_choose(zeros.put_tape(tape), x.retaped::<T>())?;
        let shift: Around<E, D, T> = origins
            .retaped::<T>()
            .try_broadcast_like::<_, shapes::Axis<1>>(&shape)?;
        let powers = x.try_sub(shift)?.try_exp()?;
        let y = powers.try_sum::<_, shapes::Axis<1>>()?.try_ln()?;
        let y = y.try_add(origins)?;
        let least = vec![E::neg_infinity(); axis.outer * axis.inner];
        let least: Tensor<_, E, D> = TensorFromVec::<E>::try_tensor_from_vec(&device, least, rows)?;
        let nothing = conditions::<_, E, D>(&device, is_nothing(), rows)?;
        nothing.try_choose(least.retaped::<T>(), y)
    }
}
