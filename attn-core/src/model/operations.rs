//! What has no parameters, in a pass.

use dfdx::{
    shapes::{Const, Dim, Shape},
    tensor::{Tape, Tensor},
};

use super::Pass;
use crate::{
    Backend, Element, Error,
    data::Padding,
    ops::{self, Activation, Append, LastAxis},
};

impl<T> Pass<'_, T> {
    /// Elements that fall with probability `p`, while training: [`ops::dropout`].
    ///
    /// # Errors
    /// As [`ops::try_dropout`].
    ///
    /// # Panics
    /// If `p` is not between 0 and 1.
    #[track_caller]
    pub fn dropout<S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        p: f64,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        let p = if self.train() { p } else { 0.0 };
        self.run(x, |fused, x| ops::dropout_in(fused, x, p))
    }

    /// A function of the elements: [`ops::activate`].
    ///
    /// # Errors
    /// As [`ops::try_activate`].
    pub fn activate<A: Activation, S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::activate_in::<A, S, E, D, T>(fused, x))
    }

    /// The softmax of the last axis: [`ops::softmax`].
    ///
    /// # Errors
    /// As [`ops::try_softmax`].
    pub fn softmax<S: LastAxis, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::softmax_in(fused, x))
    }

    /// `x` repeated along axes of size 1, to a shape of as many axes: [`ops::expand`].
    ///
    /// # Errors
    /// As [`ops::try_expand`].
    ///
    /// # Panics
    /// As [`ops::try_expand`].
    #[track_caller]
    pub fn expand<S, S2, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        to: S2,
    ) -> Result<Tensor<S2, E, D>, Error<D::Err>>
    where
        S: Shape,
        S2: Shape<Concrete = S::Concrete>,
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::expand_in(fused, x, to))
    }

    /// Vectors side by side, `[.., A]` and `[.., B]` to `[.., C]`: [`ops::concat`].
    ///
    /// # Errors
    /// As [`ops::try_concat`].
    ///
    /// # Panics
    /// As [`ops::try_concat`].
    #[track_caller]
    pub fn concat<S: LastAxis, L: Dim, const C: usize, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
        y: &Tensor<S::With<L>, E, D>,
    ) -> Result<Tensor<S::With<Const<C>>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::concat_in(fused, x, y.retaped()))
    }

    /// The mean of the vectors of a sequence, `[.., seq, M]` to `[.., M]`: [`ops::mean_pool`].
    ///
    /// # Errors
    /// As [`ops::try_mean_pool`].
    pub fn mean_pool<S: LastAxis<Leading: LastAxis>, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<<S::Leading as LastAxis>::With<S::Last>, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::mean_pool_in(fused, x))
    }

    /// The mean of the vectors that are no padding, `[batch, seq, M]` to `[batch, M]`: [`ops::mean_pool_padded`].
    ///
    /// # Errors
    /// As [`ops::try_mean_pool_padded`].
    pub fn mean_pool_padded<B: Dim, S: Dim, L: Dim, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<(B, S, L), E, D>,
        padding: impl Padding<(B, Const<1>, S), D>,
    ) -> Result<Tensor<(B, L), E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| ops::mean_pool_padded_in(fused, x, padding))
    }

    /// The waves of the positions of the axes `[.., seq]`, `[.., seq, W]`: [`ops::sinusoidal_position`].
    ///
    /// # Errors
    /// As [`ops::try_sinusoidal_position`].
    pub fn sinusoidal_position<S, const W: usize, E: Element, D: Backend<E>>(
        &self,
        axes: S,
        device: &D,
    ) -> Result<Tensor<<S as Append>::With<Const<W>>, E, D>, Error<D::Err>>
    where
        S: Append + LastAxis,
    {
        ops::sinusoidal_position_in(self.fused::<E, D>(), axes, device)
    }
}

/// Operations of two tensors of one shape, which may be the same, and of a tensor and a number.
macro_rules! arithmetic {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $try_name:ident, $name_in:ident(x, $y:ident: $Y:ty) as $operand:expr;
    )*) => {
        impl<T> Pass<'_, T> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                #[doc = concat!("As [`ops::", stringify!($try_name), "`].")]
                ///
                /// # Panics
                #[doc = concat!("As [`ops::", stringify!($try_name), "`].")]
                #[track_caller]
                pub fn $name<S: Shape, E: Element, D: Backend<E>>(
                    &mut self,
                    x: &Tensor<S, E, D>,
                    $y: $Y,
                ) -> Result<Tensor<S, E, D>, Error<D::Err>>
                where
                    T: Tape<E, D>,
                {
                    self.run(x, |fused, x| ops::$name_in(fused, x, $operand))
                }
            )*
        }
    };
}

arithmetic! {
    /// `x + y`, for tensors of one shape: [`ops::add`].
    fn add, try_add, add_in(x, y: &Tensor<S, E, D>) as y.retaped();
    /// `x - y`, for tensors of one shape: [`ops::sub`].
    fn sub, try_sub, sub_in(x, y: &Tensor<S, E, D>) as y.retaped();
    /// `x y`, for tensors of one shape: [`ops::mul`].
    fn mul, try_mul, mul_in(x, y: &Tensor<S, E, D>) as y.retaped();
    /// `a x`, for a number: [`ops::scale`].
    fn scale, try_scale, scale_in(x, a: f64) as a;
    /// `x + b`, for a number: [`ops::shift`].
    fn shift, try_shift, shift_in(x, b: f64) as b;
}
