//! What a model reads of its layers when it runs as one operation.

use dfdx::{nn::modules::Repeated, tensor::Gradients};

use crate::{
    Backend, Element, Error,
    fused::{
        Operand, Projection, Target,
        layers::{self, Middle, Table},
    },
    kernel::{Matrix, MatrixMut, norm::Kind},
    nn,
    ops::Activation,
};

/// A layer whose parameters a model reads.
pub trait Weighted<E: Element, D: Backend<E>> {
    /// The numbers, and where their gradients go.
    type Weights;

    /// Reads them.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    fn weights(&self) -> Result<Self::Weights, D::Err>;
}

/// A layer of `attention!` inside of a model, with `INPUTS` sequences: `x`, and perhaps the context.
///
/// The axes are batch, query and key.
pub trait InModel<E: Element, D: Backend<E>, const INPUTS: usize>: Weighted<E, D> {
    /// What the masks and the body read at the call.
    type Data;
    /// What the derivative reads again.
    type Saved;

    /// Checks that all of the layer can exist, and that the body reads what there is.
    ///
    /// # Errors
    /// The mistake, typed.
    fn check(axes: (usize, usize, usize), data: &Self::Data) -> Result<(), Error<D::Err>>;

    /// Writes the output. The key says which weights fall, if any do.
    fn forward(
        weights: &Self::Weights,
        axes: (usize, usize, usize),
        data: &Self::Data,
        key: Option<u64>,
        inputs: [Matrix<'_, E>; INPUTS],
        output: MatrixMut<'_, E>,
    ) -> Self::Saved;

    /// The derivative.
    ///
    /// # Errors
    /// If a gradient cannot be allocated.
    fn backward(
        weights: &Self::Weights,
        saved: Self::Saved,
        inputs: [Matrix<'_, E>; INPUTS],
        d_output: Matrix<'_, E>,
        d_inputs: [&mut Target<'_, E, D>; INPUTS],
        gradients: &mut Gradients<E, D>,
    ) -> Result<(), D::Err>;
}

/// The keys of what is random in a training step; none without one.
#[derive(Clone, Copy)]
pub struct Random<'a>(Option<&'a dyn Fn() -> u64>);

impl<'a> Random<'a> {
    /// Keys that `draw` gives, if there are to be any.
    pub fn new(random: bool, draw: &'a dyn Fn() -> u64) -> Self {
        Self(random.then_some(draw))
    }

    /// The next key.
    pub fn key(self) -> Option<u64> {
        self.0.map(|draw| draw())
    }

    /// Dropout with probability `p`, and its key for the derivative.
    pub fn dropout<E: Element>(self, p: f64, x: &[E], y: &mut [E]) -> Option<u64> {
        let key = if p == 0.0 { None } else { self.key() };
        layers::dropout(p, key, x, y);
        key
    }
}

impl<const V: usize, const M: usize, E: Element, D: Backend<E>> Weighted<E, D>
    for nn::Embedding<V, M, E, D>
{
    type Weights = Table<E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Ok(Table(Operand::read(&self.weight)?))
    }
}

impl<const MAX: usize, const M: usize, E: Element, D: Backend<E>> Weighted<E, D>
    for nn::LearnedPosition<MAX, M, E, D>
{
    type Weights = Table<E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Ok(Table(Operand::read(&self.weight)?))
    }
}

impl<const M: usize, E: Element, D: Backend<E>> Weighted<E, D> for nn::LayerNorm<M, E, D> {
    type Weights = layers::Norm<E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Ok(layers::Norm {
            kind: Kind::Layer,
            epsilon: self.epsilon,
            gain: Operand::read(&self.weight)?,
            bias: Some(Operand::read(&self.bias)?),
        })
    }
}

impl<const M: usize, E: Element, D: Backend<E>> Weighted<E, D> for nn::RmsNorm<M, E, D> {
    type Weights = layers::Norm<E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Ok(layers::Norm {
            kind: Kind::Rms,
            epsilon: self.epsilon,
            gain: Operand::read(&self.weight)?,
            bias: None,
        })
    }
}

impl<const I: usize, const O: usize, E: Element, D: Backend<E>> Weighted<E, D>
    for nn::Linear<I, O, E, D>
{
    type Weights = Projection<E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Projection::read(&[self])
    }
}

impl<const I: usize, const O: usize, E: Element, D: Backend<E>> Weighted<E, D>
    for nn::UnbiasedLinear<I, O, E, D>
{
    type Weights = Projection<E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Projection::read(&[self])
    }
}

impl<const M: usize, const H: usize, A: Activation, E: Element, D: Backend<E>> Weighted<E, D>
    for nn::FeedForward<M, H, A, E, D>
{
    type Weights = layers::FeedForward<A::Kernel, E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Ok(layers::FeedForward {
            up: Projection::read(&[&self.up_proj])?,
            middle: Middle {
                activation: A::KERNEL,
                gated: false,
                width: H,
            },
            down: Projection::read(&[&self.down_proj])?,
        })
    }
}

impl<const M: usize, const H: usize, A: Activation, E: Element, D: Backend<E>> Weighted<E, D>
    for nn::GatedFeedForward<M, H, A, E, D>
{
    type Weights = layers::FeedForward<A::Kernel, E, D>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        Ok(layers::FeedForward {
            up: Projection::read(&[&self.gate_proj, &self.up_proj])?,
            middle: Middle {
                activation: A::KERNEL,
                gated: true,
                width: H,
            },
            down: Projection::read(&[&self.down_proj])?,
        })
    }
}

impl<L: Weighted<E, D>, const N: usize, E: Element, D: Backend<E>> Weighted<E, D>
    for Repeated<L, N>
{
    type Weights = Vec<L::Weights>;

    fn weights(&self) -> Result<Self::Weights, D::Err> {
        self.modules.iter().map(L::weights).collect()
    }
}
