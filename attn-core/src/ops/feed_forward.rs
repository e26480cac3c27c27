//! Two affine maps and a nonlinearity between them.

use dfdx::{
    shapes::{Const, HasShape, Rank1, Rank2, Shape},
    tensor::{Gradients, Tape, Tensor},
};

use super::{Activation, EndsIn, check_shape, composed};
use crate::{
    Backend, Element, Error,
    fused::{Operand, Operation, Projection, Stack, zeros},
    kernel::{Buffer, Matrix, MatrixMut, activation as kernel},
    simd::Into,
    unwrap,
};

/// The parameters of an affine map from `I` to `O` numbers.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a, const I: usize, const O: usize, E: Element, D: Backend<E>> {
    /// `[O, I]`
    pub weight: &'a Tensor<Rank2<O, I>, E, D>,
    /// `[O]`
    pub bias: Option<&'a Tensor<Rank1<O>, E, D>>,
}

/// `y = act(x W₁ᵀ + b₁) W₂ᵀ + b₂`, for `x [.., I]`, `up` to `H` and `down` to `O` numbers, and `y [.., O]`.
///
/// The feed-forward layer of Vaswani et al., "Attention is all you need" (2017), section 3.3. PyTorch:
/// `linear(act(linear(x, w1, b1)), w2, b2)`. The derivative computes the activations again instead of keeping them.
///
/// ```
/// use attn_core::ops::{Affine, Relu, feed_forward};
/// use dfdx::prelude::*;
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank2<1, 2>, f32, _> = dev.tensor([[3.0, 1.0]]);
/// let (up, down) = (dev.tensor([[1.0, -1.0], [-1.0, 1.0]]), dev.tensor([[2.0, 5.0]]));
/// let bias = dev.tensor([1.0]);
/// let up = Affine { weight: &up, bias: None };
/// let down = Affine { weight: &down, bias: Some(&bias) };
/// let y = feed_forward::<Relu, _, 2, 2, 1, _, _, _>(x, up, down);
/// assert_eq!(y.array(), [[5.0]]);
/// ```
///
/// # Panics
/// Where [`try_feed_forward`] has an error.
#[track_caller]
pub fn feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Tensor<S::With<Const<O>>, E, D, T>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_feed_forward::<A, S, I, H, O, E, D, T>(x, up, down))
}

/// The fallible twin of [`feed_forward`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x`, of the activations or of the result do not fit the memory;
/// [`Error::Device`] if dfdx fails.
pub fn try_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    feed_forward_in::<A, S, I, H, O, E, D, T>(D::FUSED, x, up, down)
}

/// [`try_feed_forward`] in its fused or its composed form.
pub(crate) fn feed_forward_in<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    check::<S, I, H, O, _>("feed_forward", x.shape())?;
    if !fused {
        return Ok(composed::feed_forward::<A, S, I, H, O, E, D, T>(
            x, up, down,
        )?);
    }
    let mut operation = Operation::default();
    let up = Stack::new(I).push(&mut operation, up.weight, up.bias)?;
    let middle = Middle {
        activation: A::KERNEL,
        gated: false,
        width: H,
    };
    Ok(run(operation, x, up, middle, down)?)
}

/// `y = (act(x W₁ᵀ) * (x W₂ᵀ)) W₃ᵀ`, each map with its bias if it has one: for `x [.., I]`, `gate` and `up` to `H` and
/// `down` to `O` numbers, and `y [.., O]`.
///
/// Shazeer, "GLU variants improve transformer" (2020); with [`Silu`](super::Silu) and without biases the feed-forward
/// layer of LLaMA. PyTorch: `down(act(gate(x)) * up(x))`, of three `torch.nn.Linear`.
///
/// ```
/// use attn_core::ops::{Affine, Relu, gated_feed_forward};
/// use dfdx::prelude::*;
///
/// let dev = Cpu::default();
/// let x: Tensor<Rank1<1>, f32, _> = dev.tensor([3.0]);
/// let (gate, up, down) = (dev.tensor([[2.0], [-1.0]]), dev.tensor([[5.0], [7.0]]), dev.tensor([[1.0, 1.0]]));
/// let gate = Affine { weight: &gate, bias: None };
/// let up = Affine { weight: &up, bias: None };
/// let down = Affine { weight: &down, bias: None };
/// let y = gated_feed_forward::<Relu, _, 1, 2, 1, _, _, _>(x, gate, up, down);
/// assert_eq!(y.array(), [90.0]);
/// ```
///
/// # Panics
/// Where [`try_gated_feed_forward`] has an error.
#[track_caller]
pub fn gated_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Tensor<S::With<Const<O>>, E, D, T>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    unwrap(try_gated_feed_forward::<A, S, I, H, O, E, D, T>(
        x, gate, up, down,
    ))
}

/// The fallible twin of [`gated_feed_forward`].
///
/// # Errors
/// [`Error::TooLarge`] if the sizes of `x`, of the activations or of the result do not fit the memory;
/// [`Error::Device`] if dfdx fails.
pub fn try_gated_feed_forward<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    gated_feed_forward_in::<A, S, I, H, O, E, D, T>(D::FUSED, x, gate, up, down)
}

/// [`try_gated_feed_forward`] in its fused or its composed form.
pub(crate) fn gated_feed_forward_in<A, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    fused: bool,
    x: Tensor<S, E, D, T>,
    gate: Affine<'_, I, H, E, D>,
    up: Affine<'_, I, H, E, D>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, Error<D::Err>>
where
    A: Activation,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    check::<S, I, H, O, _>("gated_feed_forward", x.shape())?;
    if !fused {
        return Ok(composed::gated_feed_forward::<A, S, I, H, O, E, D, T>(
            x, gate, up, down,
        )?);
    }
    let mut operation = Operation::default();
    let both = Stack::new(I)
        .push(&mut operation, gate.weight, gate.bias)?
        .push(&mut operation, up.weight, up.bias)?;
    let middle = Middle {
        activation: A::KERNEL,
        gated: true,
        width: H,
    };
    Ok(run(operation, x, both, middle, down)?)
}

/// Checks that the widest of the tensors can exist: in between are at most `2 H` numbers per vector.
fn check<S: EndsIn<I>, const I: usize, const H: usize, const O: usize, Dev>(
    operation: &'static str,
    shape: &S,
) -> Result<(), Error<Dev>> {
    check_shape(operation, shape)?;
    check_shape(operation, &shape.with_last(2 * H))?;
    check_shape(operation, &shape.with_last(O))
}

/// What is between the two maps.
#[derive(Clone, Copy)]
struct Middle<A> {
    activation: A,
    /// Whether the first half of what comes in gates the other.
    gated: bool,
    /// How many numbers come out.
    width: usize,
}

impl<A: kernel::Activation> Middle<A> {
    /// How many numbers come in.
    fn input(&self) -> usize {
        if self.gated {
            2 * self.width
        } else {
            self.width
        }
    }

    fn forward<E: Element>(&self, rows: usize, x: &[E], y: &mut [E]) {
        if self.gated {
            let x = Matrix::new(x, rows, self.input());
            kernel::gated_forward(self.activation, x, MatrixMut::new(y, rows, self.width));
        } else {
            kernel::forward(self.activation, x, y);
        }
    }

    fn backward<E: Element>(&self, rows: usize, x: &[E], d_y: &[E], d_x: &mut [E]) {
        if self.gated {
            kernel::gated_backward(
                self.activation,
                Matrix::new(x, rows, self.input()),
                Matrix::new(d_y, rows, self.width),
                MatrixMut::new(d_x, rows, self.input()),
            );
        } else {
            kernel::backward(self.activation, x, d_y, d_x);
        }
    }
}

fn run<K, S, const I: usize, const H: usize, const O: usize, E, D, T>(
    mut operation: Operation<T>,
    x: Tensor<S, E, D, T>,
    up: Stack<E, D>,
    middle: Middle<K>,
    down: Affine<'_, H, O, E, D>,
) -> Result<Tensor<S::With<Const<O>>, E, D, T>, D::Err>
where
    K: kernel::Activation + 'static,
    S: EndsIn<I>,
    E: Element,
    D: Backend<E>,
    T: Tape<E, D>,
{
    let (device, shape) = (x.device().clone(), x.shape().with_last(Const::<O>));
    let down = Stack::new(H).push(&mut operation, down.weight, down.bias)?;
    let layer = Layer {
        rows: x.shape().leading().num_elements(),
        widths: [I, O],
        middle,
        x: operation.read(x)?,
        up: up.read(),
        down: down.read(),
    };
    let (hidden, y) = layer.forward();
    operation.finish(&device, y, shape, move |d_y, gradients| {
        layer.backward(&hidden, d_y, gradients)
    })
}

/// What a feed-forward layer reads.
struct Layer<K, E: Element, D: Backend<E>> {
    rows: usize,
    /// Of the input and of the output.
    widths: [usize; 2],
    middle: Middle<K>,
    x: Operand<E, D>,
    up: Projection<E, D>,
    down: Projection<E, D>,
}

impl<K: kernel::Activation, E: Element, D: Backend<E>> Layer<K, E, D> {
    /// What comes into the nonlinearity, and the result.
    fn forward(&self) -> (Buffer<E>, Vec<E>) {
        let (rows, wide) = (self.rows, self.middle.input());
        let mut hidden = Buffer::stale(rows * wide);
        let x = Matrix::new(self.x.values(), rows, self.widths[0]);
        self.up.forward(x, MatrixMut::new(&mut hidden, rows, wide));
        let active = self.active(&hidden);
        let mut y = zeros(rows * self.widths[1]);
        let active = Matrix::new(&active, rows, self.middle.width);
        self.down
            .forward(active, MatrixMut::new(&mut y, rows, self.widths[1]));
        (hidden, y)
    }

    /// What comes out of the nonlinearity.
    fn active(&self, hidden: &[E]) -> Buffer<E> {
        let mut active = Buffer::stale(self.rows * self.middle.width);
        self.middle.forward(self.rows, hidden, &mut active);
        active
    }

    fn backward(
        &self,
        hidden: &[E],
        d_y: &[E],
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), D::Err> {
        let (rows, wide, width) = (self.rows, self.middle.input(), self.middle.width);
        let d_y = Matrix::new(d_y, rows, self.widths[1]);
        let active = self.active(hidden);
        self.down
            .add_gradients(Matrix::new(&active, rows, width), d_y, gradients)?;
        // Where the activations were, their gradient.
        let mut d_active = active;
        let to = MatrixMut::new(&mut d_active, rows, width);
        self.down.input_gradient(d_y, Into::Overwrite, to);
        let mut d_hidden = Buffer::stale(rows * wide);
        self.middle.backward(rows, hidden, &d_active, &mut d_hidden);
        let d_hidden = Matrix::new(&d_hidden, rows, wide);
        let x = Matrix::new(self.x.values(), rows, self.widths[0]);
        self.up.add_gradients(x, d_hidden, gradients)?;
        let d_x = MatrixMut::new(self.x.gradient(gradients)?, rows, self.widths[0]);
        self.up.input_gradient(d_hidden, Into::Add, d_x);
        Ok(())
    }
}
