//! The parameters of a model that runs as one operation.

use dfdx::{nn::modules::Repeated, tensor::Tape};

use crate::{
    Backend, Element, Error,
    fused::{
        Beside, BesideGradients, GradTarget, Gradients, Operation, ProjectionLayer, VisitWeights,
        WantsGradient,
    },
    kernel::{Matrix, MatrixMut, dropout::Dropout},
    random::{DrawSeeds, Part, Seed},
};

/// A layer on slices.
pub trait FusedLayer<E: Element> {
    /// The values of its parameters, and the slots of their gradients.
    type Weights: WantsGradient + VisitWeights<E>;
}

/// A layer whose parameters a model reads.
pub trait Weighted<E: Element, D: Backend<E>>: FusedLayer<E> {
    /// Reads its parameters.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    fn weights<T: Tape<E, D>>(
        &self,
        operation: &mut Operation<E, D, T>,
    ) -> Result<Self::Weights, D::Err>;
}

/// Reads the parameters of a model, by one copy of all of them.
///
/// # Errors
/// If a copy of a view cannot be allocated.
pub fn read_weights<L: Weighted<E, D>, E: Element, D: Backend<E>, T: Tape<E, D>>(
    model: &L,
    operation: &mut Operation<E, D, T>,
) -> Result<L::Weights, D::Err> {
    operation.begin_parameters();
    let weights = model.weights(operation)?;
    operation.read_parameters();
    Ok(weights)
}

/// A layer that computes projections of the model around it.
pub trait WithProjections<E: Element, D: Backend<E>>: FusedLayer<E> {
    /// Reads its parameters, and those of the projections.
    ///
    /// # Errors
    /// If a copy of a view cannot be allocated.
    fn weights<T: Tape<E, D>>(
        &self,
        projections: &[&dyn ProjectionLayer<E, D, T>],
        operation: &mut Operation<E, D, T>,
    ) -> Result<Self::Weights, D::Err>;
}

/// A layer of `attention!` in a model, with `INPUTS` sequences: `x`, and the context of a cross-attention.
///
/// The axes are batch, query and key.
pub trait FusedBlock<E: Element, const INPUTS: usize, const READ: usize>: FusedLayer<E> {
    /// The data of the call that the masks and the body read.
    type Data;
    /// Values that the derivative reads.
    type Saved;

    /// Checks that the sizes are not too large, and that indices of the body are in bounds.
    ///
    /// # Errors
    /// The typed error.
    fn check<Dev>(axes: (usize, usize, usize), data: &Self::Data) -> Result<(), Error<Dev>>;

    /// Computes the output, and what is wanted beside it. With a `seed`, dropout sets the weights to 0 that the seed selects.
    fn forward(
        weights: &Self::Weights,
        axes: (usize, usize, usize),
        data: &Self::Data,
        seed: Option<Seed>,
        inputs: [Matrix<'_, E>; INPUTS],
        output: MatrixMut<'_, E>,
        beside: Beside<'_, E>,
    ) -> Self::Saved;

    /// Computes the gradients. It reads the inputs, and behind them the output, if the derivative needs that.
    fn backward(
        weights: &Self::Weights,
        saved: Self::Saved,
        read: [Matrix<'_, E>; READ],
        d_output: Matrix<'_, E>,
        d_beside: BesideGradients<'_, E>,
        d_inputs: [&mut GradTarget<'_, E>; INPUTS],
        gradients: &mut Gradients<E>,
    );
}

/// The random seeds of a training step; none outside of training.
#[derive(Clone, Copy)]
pub struct Random<'a> {
    draw: Option<&'a dyn DrawSeeds>,
    part: Part,
}

impl<'a> Random<'a> {
    /// Seeds from `draw`, if `random`.
    pub fn new(random: bool, draw: &'a dyn DrawSeeds) -> Self {
        Self::of_part(random, draw, draw.part())
    }

    /// [`new`](Self::new) for this part of a batch.
    pub(super) fn of_part(random: bool, draw: &'a dyn DrawSeeds, part: Part) -> Self {
        let draw = random.then_some(draw);
        Self { draw, part }
    }

    /// The part of the batch.
    pub(super) fn part(self) -> Part {
        self.part
    }

    /// The same, or none, with another source of seeds.
    pub fn with<'b>(self, draw: &'b dyn DrawSeeds) -> Random<'b> {
        Random {
            draw: self.draw.map(|_| draw),
            part: self.part,
        }
    }

    /// The next seed.
    pub fn seed(self) -> Option<u64> {
        self.draw.map(DrawSeeds::draw)
    }

    /// The next seed, for what has an axis of the batch in front.
    pub fn seed_of_batch(self) -> Option<Seed> {
        let part = self.part;
        self.seed().map(|key| Seed { key, part })
    }

    /// Dropout with probability `p` and the next seed.
    pub fn dropout(self, p: f64) -> Dropout {
        let seed = if p == 0.0 { None } else { self.seed() };
        Dropout::new(p, seed)
    }

    /// [`dropout`](Self::dropout) of so many numbers, which have an axis of the batch in front.
    pub fn dropout_of_batch(self, p: f64, len: usize) -> Dropout {
        self.dropout(p).from(self.part.before(len))
    }
}

/// Implements [`FusedLayer`] and [`Weighted`] for a module: `[generics] Module: weights, |layer, operation| read;`
macro_rules! weighted {
    ($(
        [$($generics:tt)*] $Layer:ty: $Weights:ty, |$layer:ident, $operation:ident| $read:expr;
    )*) => {$(
        impl<$($generics)*, E: Element, D: Storage<E>> $crate::model::FusedLayer<E> for $Layer {
            type Weights = $Weights;
        }

        impl<$($generics)*, E: Element, D: Backend<E>> $crate::model::Weighted<E, D> for $Layer {
            fn weights<T: Tape<E, D>>(
                &self,
                $operation: &mut Operation<E, D, T>,
            ) -> Result<Self::Weights, D::Err> {
                let $layer = self;
                Ok($read)
            }
        }
    )*};
}

pub(crate) use weighted;

impl<L: FusedLayer<E>, const N: usize, E: Element> FusedLayer<E> for Repeated<L, N> {
    type Weights = Vec<L::Weights>;
}

impl<L: Weighted<E, D>, const N: usize, E: Element, D: Backend<E>> Weighted<E, D>
    for Repeated<L, N>
{
    fn weights<T: Tape<E, D>>(
        &self,
        operation: &mut Operation<E, D, T>,
    ) -> Result<Self::Weights, D::Err> {
        let layers = self.modules.iter();
        layers.map(|layer| layer.weights(operation)).collect()
    }
}
