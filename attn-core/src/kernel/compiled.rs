//! Functions that are compiled in this crate, once for every kind of number.
//!
//! A generic function is compiled by whoever calls it with a type: by every program, test and bench again, with *its*
//! optimisation level. Kernels are too large for that, and too slow without optimisation. So what [`compiled`] declares is
//! a method of a trait of `f32` and of `f64`, which is compiled here, and a generic function that calls it.

/// Declares functions over numbers `E`.
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
        /// Functions that are compiled for a type of number.
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
