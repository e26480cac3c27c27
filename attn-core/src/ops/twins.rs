//! The public functions of operations that keep the shape.

/// Declares an operation and its fallible version, from a function whose first argument is the form:
///
/// ```text
/// twins! {
///     /// The documentation.
///     fn scale, try_scale, scale_with_form<S: Shape>(x, a: f64);
/// }
/// ```
macro_rules! twins {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $try_name:ident, $name_with_form:ident<S: $Shape:ident>($x:ident $(, $y:ident: $Y:ty)*);
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            #[doc = concat!("If [`", stringify!($try_name), "`] returns an error or panics.")]
            #[track_caller]
            pub fn $name<S: $Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
                $x: Tensor<S, E, D, T>,
                $($y: $Y,)*
            ) -> Tensor<S, E, D, T> {
                $crate::unwrap($try_name($x $(, $y)*))
            }

            #[doc = concat!("The fallible version of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
            ///
            /// # Panics
            /// If sizes of two tensors differ at run time.
            #[track_caller]
            pub fn $try_name<S: $Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
                $x: Tensor<S, E, D, T>,
                $($y: $Y,)*
            ) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
                $name_with_form(D::FUSED, $x $(, $y)*)
            }
        )*
    };
}

/// Declares an operation along an axis and its fallible version, as `twins!` does. `panics` says where both panic:
///
/// ```text
/// twins_along! {
///     /// The documentation.
///     fn scale_along, try_scale_along, scale_along_with_form(x, axis, a: f64), panics "If `a` is negative.";
/// }
/// ```
macro_rules! twins_along {
    ($(
        $(#[$doc:meta])*
        fn $name:ident, $try_name:ident, $name_with_form:ident($x:ident, $axis:ident $(, $y:ident: $Y:ty)*)
            $(, panics $panics:literal)?;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            #[doc = concat!("If [`", stringify!($try_name), "`] returns an error.")]
            $(#[doc = $panics])?
            #[track_caller]
            pub fn $name<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                $x: Tensor<S, E, D, T>,
                $axis: Axis<I>,
                $($y: $Y,)*
            ) -> Tensor<S, E, D, T>
            where
                S: Shape + HasAxes<Axis<I>>,
            {
                $crate::unwrap($try_name($x, $axis $(, $y)*))
            }

            #[doc = concat!("The fallible version of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
            $(
                ///
                /// # Panics
                #[doc = $panics]
            )?
            #[track_caller]
            pub fn $try_name<const I: isize, S, E: Element, D: Backend<E>, T: Tape<E, D>>(
                $x: Tensor<S, E, D, T>,
                $axis: Axis<I>,
                $($y: $Y,)*
            ) -> Result<Tensor<S, E, D, T>, Error<D::Err>>
            where
                S: Shape + HasAxes<Axis<I>>,
            {
                $name_with_form(D::FUSED, $x, $axis $(, $y)*)
            }
        )*
    };
}

pub(super) use {twins, twins_along};
