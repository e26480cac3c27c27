//! Elementwise functions.

use dfdx::{
    nn::{Module, NonMutableModule, ZeroSizedModule},
    shapes::{HasShape, Shape},
    tensor::{NoneTape, Tape, Tensor, WithEmptyTape},
    tensor_ops::{Device, TryAdd, TryMul, TrySub},
};
use std::fmt::Debug;

use crate::{
    Backend, Element, Error,
    fused::{Operation, zeros},
    kernel::{activation as kernel, loops},
    model::Pass,
    ops::check_shape,
    unwrap,
};

/// A nonlinearity: an elementwise function with its derivative.
///
/// [`Gelu`], [`Relu`] and the others here are types, so layers can have them as type parameters. A custom activation defines its value
/// and its slope on vectors, its name, and the same function with dfdx operations.
///
/// ```
/// use attn::{dfdx::{prelude::*, tensor_ops::Device}, Element, ops::{Activation, ActivationKernel, Vector, activate}};
///
/// #[derive(Clone, Copy, Debug, Default)]
/// struct Cube;
///
/// impl ActivationKernel for Cube {
///     #[inline(always)]
///     fn value_and_slope<V: Vector>(self, x: V) -> (V, V) {
///         let square = x * x;
///         (square * x, square + square + square)
///     }
/// }
///
/// impl Activation for Cube {
///     type Kernel = Self;
///     const KERNEL: Self = Cube;
///     const NAME: &'static str = "cube";
///
///     fn compose<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
///         x: Tensor<S, E, D, T>,
///     ) -> Result<Tensor<S, E, D, T>, D::Err> {
///         x.try_powi(3)
///     }
/// }
///
/// let x: Tensor<Rank1<2>, f32, _> = Cpu::default().tensor([2.0, -1.0]);
/// let y = activate::<Cube, _, _, _, _>(x.leaky_trace());
/// assert_eq!(y.array(), [8.0, -1.0]);
/// assert_eq!(y.sum().backward().get(&x).array(), [12.0, 3.0]);
/// ```
pub trait Activation: Copy + Debug + Default + 'static {
    /// The type of the function on vectors.
    type Kernel: kernel::Activation + 'static;
    /// The function on vectors of numbers.
    const KERNEL: Self::Kernel;
    /// Its name in error messages.
    const NAME: &'static str;

    /// The function with dfdx operations.
    ///
    /// # Errors
    /// If dfdx fails.
    fn compose<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
        x: Tensor<S, E, D, T>,
    ) -> Result<Tensor<S, E, D, T>, D::Err>;
}

/// `y = act(x)` for each element.
///
/// ```
/// use attn::{dfdx::prelude::*, ops::{Relu, activate}};
///
/// let x: Tensor<Rank1<3>, f32, _> = Cpu::default().tensor([-1.0, 0.0, 2.0]);
/// assert_eq!(activate::<Relu, _, _, _, _>(x).array(), [0.0, 0.0, 2.0]);
/// ```
///
/// # Panics
/// If [`try_activate`] returns an error.
#[track_caller]
pub fn activate<A: Activation, S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Tensor<S, E, D, T> {
    unwrap(try_activate::<A, S, E, D, T>(x))
}

/// The fallible version of [`activate`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x` do not fit the memory; [`Error::Device`] if dfdx fails.
pub fn try_activate<A: Activation, S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    activate_with_form::<A, S, E, D, T>(D::FUSED, x)
}

/// [`try_activate`] in the fused or the composed form.
pub(crate) fn activate_with_form<
    A: Activation,
    S: Shape,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
>(
    fused: bool,
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
    check_shape(A::NAME, x.shape())?;
    if !fused {
        return Ok(A::compose(x)?);
    }
    let device = x.device().clone();
    let shape = *x.shape();
    let mut operation = Operation::default();
    let x = operation.read(x)?;
    let mut y = zeros(x.values().len());
    loops::activation::forward(A::KERNEL, x.values(), &mut y);
    Ok(operation.finish(&device, y, shape, move |d_y, gradients| {
        let mut d_x = x.target();
        if let Some((d_x, mode)) = d_x.numbers_mut(gradients) {
            loops::activation::backward(A::KERNEL, x.values(), d_y, d_x, mode);
        }
    })?)
}

/// [`Gelu`] with dfdx operations.
///
/// The derivative of dfdx's `accurate_gelu` is `Φ(x) + √2 x φ(x)`, with a wrong factor `√2`. The derivative of `(√2 - 1) φ(x)` cancels
/// the error, and its value is subtracted again.
fn compose_gelu<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
    x: Tensor<S, E, D, T>,
) -> Result<Tensor<S, E, D, T>, D::Err> {
    use std::f64::consts::{PI, SQRT_2};

    let density = x.with_empty_tape().try_square()?.try_mul(E::of(-0.5))?;
    let excess = density
        .try_exp()?
        .try_mul(E::of((SQRT_2 - 1.0) / (2.0 * PI).sqrt()))?;
    // A tensor with the same id would get the same gradient.
    let value = excess.retaped::<NoneTape>().try_add(-E::zero())?;
    x.try_accurate_gelu()?.try_add(excess)?.try_sub(value)
}

macro_rules! activations {
    ($($(#[$doc:meta])* $Name:ident, $name:ident, $try_name:ident, |$x:ident| $composed:expr;)*) => {
        $(
            #[doc = concat!(
                "The function [`", stringify!($name), "`](fn@", stringify!($name),
                ") as a type: a layer, and a parameter of layers."
            )]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $Name;

            impl Activation for $Name {
                type Kernel = kernel::$Name;
                const KERNEL: kernel::$Name = kernel::$Name;
                const NAME: &'static str = stringify!($name);

                fn compose<S: Shape, E: Element, D: Device<E>, T: Tape<E, D>>(
                    $x: Tensor<S, E, D, T>,
                ) -> Result<Tensor<S, E, D, T>, D::Err> {
                    $composed
                }
            }

            $(#[$doc])*
            ///
            /// `x` is a tensor of any shape.
            ///
            /// # Panics
            #[doc = concat!("If [`", stringify!($try_name), "`] returns an error.")]
            #[track_caller]
            pub fn $name<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
            ) -> Tensor<S, E, D, T> {
                activate::<$Name, S, E, D, T>(x)
            }

            #[doc = concat!("The fallible version of [`", stringify!($name), "`].")]
            ///
            /// # Errors
            /// The errors of [`try_activate`].
            pub fn $try_name<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>>(
                x: Tensor<S, E, D, T>,
            ) -> Result<Tensor<S, E, D, T>, Error<D::Err>> {
                try_activate::<$Name, S, E, D, T>(x)
            }
        )*
    };
}

activations! {
    /// `x Φ(x)`, where `Φ` is the distribution function of the standard normal distribution, with the error function, as in BERT.
    ///
    /// Hendrycks and Gimpel, "Gaussian error linear units" (2016). PyTorch: `torch.nn.functional.gelu(x)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::gelu};
    ///
    /// let x: Tensor<Rank1<3>, f64, _> = Cpu::default().tensor([-1.0, 0.0, 1.0]);
    /// let y = gelu(x).array();
    /// assert!((y[0] + 0.158_655_254).abs() < 1e-9 && y[1] == 0.0 && (y[2] - 0.841_344_746).abs() < 1e-9);
    /// ```
    #[doc(alias("AccurateGeLU", "accurate_gelu"))]
    Gelu, gelu, try_gelu, |x| compose_gelu(x);

    /// `0.5 x (1 + tanh(sqrt(2 / π) (x + 0.044715 x³)))`, the approximation of [`gelu`] in GPT-2.
    ///
    /// Hendrycks and Gimpel, "Gaussian error linear units" (2016). PyTorch:
    /// `torch.nn.functional.gelu(x, approximate="tanh")`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::gelu_tanh};
    ///
    /// let x: Tensor<Rank1<2>, f64, _> = Cpu::default().tensor([-1.0, 1.0]);
    /// let y = gelu_tanh(x).array();
    /// assert!((y[0] + 0.158_808_009).abs() < 1e-9 && (y[1] - 0.841_191_991).abs() < 1e-9);
    /// ```
    #[doc(alias("FastGeLU", "fast_gelu", "NewGELU", "gelu_new"))]
    GeluTanh, gelu_tanh, try_gelu_tanh, |x| x.try_fast_gelu();

    /// `max(x, 0)`. The derivative at 0 is 0.
    ///
    /// PyTorch: `torch.nn.functional.relu(x)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::relu};
    ///
    /// let x: Tensor<Rank1<3>, f32, _> = Cpu::default().tensor([-1.0, 0.0, 2.0]);
    /// assert_eq!(relu(x).array(), [0.0, 0.0, 2.0]);
    /// ```
    Relu, relu, try_relu, |x| x.try_relu();

    /// `max(x, 0)²`
    ///
    /// So et al., "Primer" (2021). PyTorch: `torch.nn.functional.relu(x).square()`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::relu_squared};
    ///
    /// let x: Tensor<Rank1<3>, f32, _> = Cpu::default().tensor([-1.0, 0.5, 2.0]);
    /// assert_eq!(relu_squared(x).array(), [0.0, 0.25, 4.0]);
    /// ```
    #[doc(alias = "squared_relu")]
    ReluSquared, relu_squared, try_relu_squared, |x| x.try_relu()?.try_square();

    /// `x σ(x)`, where `σ` is the logistic function. Also known as swish.
    ///
    /// Hendrycks and Gimpel, "Gaussian error linear units" (2016); Ramachandran et al., "Searching for activation
    /// functions" (2017). PyTorch: `torch.nn.functional.silu(x)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::silu};
    ///
    /// let x: Tensor<Rank1<2>, f64, _> = Cpu::default().tensor([0.0, 1.0]);
    /// let y = silu(x).array();
    /// assert!(y[0] == 0.0 && (y[1] - 0.731_058_579).abs() < 1e-9);
    /// ```
    #[doc(alias = "swish")]
    Silu, silu, try_silu, |x| x.with_empty_tape().try_sigmoid()?.try_mul(x);

    /// `σ(x) = 1 / (1 + exp(-x))`, the logistic function.
    ///
    /// PyTorch: `torch.sigmoid(x)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::sigmoid};
    ///
    /// let x: Tensor<Rank1<3>, f32, _> = Cpu::default().tensor([-200.0, 0.0, 200.0]);
    /// assert_eq!(sigmoid(x).array(), [0.0, 0.5, 1.0]);
    /// ```
    Sigmoid, sigmoid, try_sigmoid, |x| x.try_sigmoid();

    /// The hyperbolic tangent.
    ///
    /// PyTorch: `torch.tanh(x)`.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, ops::tanh};
    ///
    /// let x: Tensor<Rank1<3>, f32, _> = Cpu::default().tensor([-200.0, 0.0, 200.0]);
    /// assert_eq!(tanh(x).array(), [-1.0, 0.0, 1.0]);
    /// ```
    Tanh, tanh, try_tanh, |x| x.try_tanh();
}

macro_rules! activation_layers {
    ($($Name:ident)*) => {
        $(
            impl ZeroSizedModule for $Name {}
            impl NonMutableModule for $Name {}

            impl<S: Shape, E: Element, D: Backend<E>, T: Tape<E, D>> Module<Tensor<S, E, D, T>>
                for $Name
            {
                type Output = Tensor<S, E, D, T>;
                type Error = D::Err;

                fn try_forward(&self, x: Tensor<S, E, D, T>) -> Result<Self::Output, D::Err> {
                    try_activate::<Self, S, E, D, T>(x).map_err(Error::into_device)
                }
            }
        )*
    };
}

activation_layers!(Gelu GeluTanh Relu ReluSquared Sigmoid Silu Tanh);

impl<T> Pass<'_, T> {
    /// Applies an elementwise function: [`activate`].
    ///
    /// # Errors
    /// The errors of [`try_activate`].
    pub fn activate<A: Activation, S: Shape, E: Element, D: Backend<E>>(
        &mut self,
        x: &Tensor<S, E, D>,
    ) -> Result<Tensor<S, E, D>, Error<D::Err>>
    where
        T: Tape<E, D>,
    {
        self.run(x, |fused, x| activate_with_form::<A, S, E, D, T>(fused, x))
    }
}
