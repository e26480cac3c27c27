//! Functions that are compiled in this crate, once for every element type.
//!
//! A generic function is compiled by the crate that calls it with a type, so by every program, test and bench again, with *its*
//! optimisation level. Kernels are too large for that, and too slow without optimisation. So [`compiled`] declares a function as
//! a method of a trait of `f32` and of `f64`, which is compiled here, and a generic function that calls the method.

/// Declares functions that are generic over the element type `E`.
///
/// ```text
/// compiled! {
///     Trait:
///     /// The documentation of a function.
///     pub fn name<E>(x: &[E]) { body }
/// }
/// ```
///
/// `Trait` becomes a condition of [`Kernels`](super::Kernels).
macro_rules! compiled {
    ($Trait:ident: $($function:tt)*) => {
        compiled!(@functions $Trait: $($function)*);
        compiled!(@numbers f32, $Trait: $($function)*);
        compiled!(@numbers f64, $Trait: $($function)*);
    };
    (@functions $Trait:ident: $(
        $(#[$attribute:meta])*
        $vis:vis fn $name:ident<E>($($argument:ident: $ty:ty),* $(,)?) $(-> $output:ty)? $body:block
    )*) => {
        /// Functions that are compiled for an element type.
        #[doc(hidden)]
        pub trait $Trait<E> {
            $(
                $(#[$attribute])*
                fn $name($($argument: $ty),*) $(-> $output)?;
            )*
        }

        $(
            $(#[$attribute])*
            $vis fn $name<E: $Trait<E>>($($argument: $ty),*) $(-> $output)? {
                <E as $Trait<E>>::$name($($argument),*)
            }
        )*
    };
    (@numbers $number:ty, $Trait:ident: $(
        $(#[$attribute:meta])*
        $vis:vis fn $name:ident<E>($($argument:ident: $ty:ty),* $(,)?) $(-> $output:ty)? $body:block
    )*) => {
        const _: () = {
            #[allow(unused_imports, reason = "not every function reads a constant")]
            use $crate::simd::Real as _;

            type E = $number;

            impl $Trait<E> for E {
                $(
                    $(#[$attribute])*
                    fn $name($($argument: $ty),*) $(-> $output)? $body
                )*
            }
        };
    };
}

pub(crate) use compiled;
