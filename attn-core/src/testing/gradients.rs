//! Gradients against central differences.

use std::fmt::{self, Display};

use dfdx::{
    nn::TensorCollection,
    tensor::{OwnedTape, Tensor},
    tensor_ops::Backward,
};

use super::{
    Inputs,
    tensors::{self, NamedTensor, element},
};
use crate::{
    Backend,
    random::{Subject as Choice, Words},
    sizes::index_of,
};

/// Compares the gradients of a loss with central differences, in `f64`: those of all parameters, and of all inputs of floats.
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Linear, testing::gradient_check};
///
/// let dev = Cpu::default();
/// let layer = dev.build_module::<Linear<3, 2>, f64>();
/// let x: Tensor<Rank2<4, 3>, f64, _> = dev.sample_normal();
/// let report = gradient_check(&layer, x, |layer, x| layer.forward(x.leaky_traced()).tanh().mean())?;
/// let names: Vec<_> = report.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
/// assert_eq!(names, ["the input", "weight", "bias"]);
/// # Ok::<(), attn::testing::GradientCheckError<CpuError>>(())
/// ```
///
/// It is [`GradientCheck::run`] with the default settings, which says what is compared. PyTorch: `torch.autograd.gradcheck`.
///
/// # Errors
/// [`GradientCheckError`].
#[doc(alias("gradcheck", "grad_check"))]
pub fn gradient_check<M, I, D>(
    model: &M,
    inputs: I,
    loss: impl Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
) -> Result<GradientReport, GradientCheckError<D::Err>>
where
    M: TensorCollection<f64, D> + Clone,
    I: Inputs<f64, D>,
    D: Backend<f64>,
{
    GradientCheck::default().run(model, inputs, loss)
}

/// [`gradient_check`] for tests.
///
/// # Panics
/// If a gradient is wrong, with the report, and for the other errors.
#[track_caller]
pub fn assert_gradients<M, I, D>(
    model: &M,
    inputs: I,
    loss: impl Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
) where
    M: TensorCollection<f64, D> + Clone,
    I: Inputs<f64, D>,
    D: Backend<f64>,
    D::Err: Display,
{
    if let Err(error) = gradient_check(model, inputs, loss) {
        panic!("{error}");
    }
}

/// The settings of [`gradient_check`].
///
/// ```
/// use attn::{dfdx::prelude::*, nn::Embedding, testing::GradientCheck};
///
/// let dev = Cpu::default();
/// let table = dev.build_module::<Embedding<1000, 8>, f64>();
/// let ids: Tensor<Rank1<2>, usize, _> = dev.tensor([0, 999]);
/// let check = GradientCheck { samples: 20, ..Default::default() };
/// let report = check.run(&table, ids, |table, ids| table.forward(ids.leaky_traced()).square().mean()).unwrap();
/// // Twenty elements, and all 8000 along one direction.
/// assert_eq!(report.tensors[0].checked, 21);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GradientCheck {
    /// How far a number is moved, relative to the number or to 1, whichever is larger. At 1e-4 the error of the formula is below rounding
    /// for losses whose fifth derivative is less than 1e5, and a step rarely crosses the kink of a `relu`.
    pub step: f64,
    /// The allowed difference, relative to the gradient and the slope. 1e-6 is a thousand times the error of differences, and a mistake in a
    /// derivative is a factor or a term.
    pub tolerance: f64,
    /// The number of elements that are checked of each tensor. Of a larger tensor they are chosen at random, with the first and the last;
    /// then all elements are moved together along a direction, too.
    pub samples: usize,
    /// The seed of the choice.
    pub seed: u64,
}

impl Default for GradientCheck {
    fn default() -> Self {
        Self {
            step: 1e-4,
            tolerance: 1e-6,
            samples: 100,
            seed: 0,
        }
    }
}

/// The roundings that a loss may have, in epsilons of its scale: the root of the number of its terms for roundings in either direction, here
/// of a quarter of a million.
const ROUNDINGS: f64 = 500.0;

impl GradientCheck {
    /// Compares gradients with differences.
    ///
    /// `loss` makes the loss of a copy of the model and of the inputs. It begins the tape: an input that an operation reads before it meets a
    /// traced one needs a tape of its own, `x.leaky_traced()`. A gradient `g` of an element `x` is compared with the slope
    ///
    /// ```text
    /// s = (8 (L(x + h) - L(x - h)) - (L(x + 2h) - L(x - 2h))) / 12h        h = step · max(1, |x|)
    /// ```
    ///
    /// whose error is `h⁴ / 30` times the fifth derivative. It is right if
    ///
    /// ```text
    /// |g - s| <= tolerance · max(|g|, |s|) + 3/2h · 500 ε · max(|L|, largest slope)
    /// ```
    ///
    /// The second term is the rounding of the loss, which the differences divide by `h`. At the default step it is 2e-9 times the scale of the
    /// loss: of `L`, or, for a loss that is small because its terms cancel, of the largest slope of all tensors. So a gradient below that
    /// share of the largest one is not checked.
    ///
    /// At a kink, such as 0 of a `relu`, there is no slope to compare with: choose other inputs.
    ///
    /// # Errors
    /// [`GradientCheckError`].
    pub fn run<M, I, D>(
        &self,
        model: &M,
        inputs: I,
        loss: impl Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
    ) -> Result<GradientReport, GradientCheckError<D::Err>>
    where
        M: TensorCollection<f64, D> + Clone,
        I: Inputs<f64, D>,
        D: Backend<f64>,
    {
        let mut subject = Subject {
            model: model.clone(),
            inputs: inputs.try_copied()?,
            loss,
        };
        let (at, gradients) = subject.gradients()?;
        let again = subject.value();
        if at.to_bits() != again.to_bits() {
            return Err(GradientCheckError::NotDeterministic {
                first: at,
                second: again,
            });
        }
        if !at.is_finite() {
            return Err(GradientCheckError::NotFinite { loss: at });
        }
        let inputs = tensors::inputs(&mut subject.inputs)?;
        let parameters = tensors::parameters(&subject.model)?;
        let count = inputs.len();
        let mut found = Vec::new();
        for (number, tensor) in inputs.into_iter().chain(parameters).enumerate() {
            let kind = if number < count {
                Kind::Input
            } else {
                Kind::Parameter
            };
            let words = Words::new(self.seed, Choice::Elements, number as u64);
            let slopes = self.slopes(&mut subject, &tensor, kind, &gradients[number], words)?;
            found.push((tensor, slopes));
        }
        if found.iter().all(|(_, slopes)| slopes.is_empty()) {
            return Err(GradientCheckError::NothingToCheck);
        }
        let report = self.report(at, found);
        match report.is_right() {
            true => Ok(report),
            false => Err(GradientCheckError::Wrong(report)),
        }
    }

    /// The slopes of the loss along some elements of a tensor, and along all of them together if these are more.
    fn slopes<M, I, D, L>(
        &self,
        subject: &mut Subject<M, I, L>,
        tensor: &NamedTensor<f64>,
        kind: Kind,
        gradient: &[f64],
        mut words: Words,
    ) -> Result<Vec<Measured>, D::Err>
    where
        M: TensorCollection<f64, D>,
        I: Inputs<f64, D>,
        D: Backend<f64>,
        L: Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
    {
        let x = &tensor.values;
        let mut moved = x.clone();
        let mut slopes = Vec::new();
        for place in words.places(x.len(), self.samples) {
            let step = self.step * x[place].abs().max(1.0);
            let slope = slope(step, |by| {
                moved[place] = x[place] + by;
                subject.value_with(kind, tensor, &moved)
            })?;
            moved[place] = x[place];
            slopes.push(Measured {
                index: Some(index_of(place, &tensor.dims)),
                gradient: gradient[place],
                slope,
                step,
            });
        }
        if slopes.len() < x.len() {
            let direction = words.direction(x.len());
            let slope = slope(self.step, |by| {
                for ((moved, x), along) in moved.iter_mut().zip(x).zip(&direction) {
                    *moved = x + by * along;
                }
                subject.value_with(kind, tensor, &moved)
            })?;
            let products = gradient.iter().zip(&direction).map(|(g, along)| g * along);
            slopes.push(Measured {
                index: None,
                gradient: products.sum(),
                slope,
                step: self.step,
            });
        }
        subject.value_with(kind, tensor, x)?;
        Ok(slopes)
    }

    fn report(&self, loss: f64, found: Vec<(NamedTensor<f64>, Vec<Measured>)>) -> GradientReport {
        let slopes = found.iter().flat_map(|(_, slopes)| slopes);
        let scale = slopes.fold(loss.abs(), |scale, at| scale.max(at.slope.abs()));
        let report = |(tensor, slopes): (NamedTensor<f64>, Vec<Measured>)| {
            let checked = slopes.len();
            let differences = slopes.into_iter().map(|at| {
                let relative = self.tolerance * at.gradient.abs().max(at.slope.abs());
                let rounding = 1.5 / at.step * ROUNDINGS * f64::EPSILON * scale;
                GradientDifference {
                    index: at.index,
                    gradient: at.gradient,
                    slope: at.slope,
                    allowed: relative + rounding,
                }
            });
            TensorGradient {
                name: tensor.name,
                dims: tensor.dims,
                checked,
                largest: differences.max_by(|a, b| a.share().total_cmp(&b.share())),
            }
        };
        GradientReport {
            loss,
            tensors: found.into_iter().map(report).collect(),
        }
    }
}

/// A gradient and the slope beside it.
struct Measured {
    index: Option<Vec<usize>>,
    gradient: f64,
    slope: f64,
    step: f64,
}

/// The derivative at 0 of a function of one number, from its values at two distances on both sides.
fn slope<Error>(step: f64, mut f: impl FnMut(f64) -> Result<f64, Error>) -> Result<f64, Error> {
    let near = f(step)? - f(-step)?;
    let far = f(2.0 * step)? - f(-2.0 * step)?;
    Ok((8.0 * near - far) / (12.0 * step))
}

#[derive(Clone, Copy)]
enum Kind {
    Input,
    Parameter,
}

/// A loss with copies of what it is a function of.
struct Subject<M, I, L> {
    model: M,
    inputs: I,
    loss: L,
}

impl<M, I, L> Subject<M, I, L> {
    fn value<D: Backend<f64>>(&self) -> f64
    where
        I: Clone,
        L: Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
    {
        (self.loss)(&self.model, self.inputs.clone()).as_vec()[0]
    }

    /// The loss with other numbers in one tensor.
    fn value_with<D: Backend<f64>>(
        &mut self,
        kind: Kind,
        tensor: &NamedTensor<f64>,
        values: &[f64],
    ) -> Result<f64, D::Err>
    where
        M: TensorCollection<f64, D>,
        I: Inputs<f64, D>,
        L: Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
    {
        match kind {
            Kind::Input => tensors::write_input(&mut self.inputs, tensor.id, values)?,
            Kind::Parameter => tensors::write_parameters(&mut self.model, |_, id| {
                (id == tensor.id).then(|| values.to_vec())
            })?,
        }
        Ok(self.value())
    }

    /// The loss and all gradients.
    fn gradients<D: Backend<f64>>(&mut self) -> Result<(f64, Vec<Vec<f64>>), D::Err>
    where
        M: TensorCollection<f64, D>,
        I: Inputs<f64, D>,
        L: Fn(&M, I) -> Tensor<(), f64, D, OwnedTape<f64, D>>,
    {
        let loss = (self.loss)(&self.model, self.inputs.clone());
        let value = loss.as_vec()[0];
        let mut gradients = loss.try_backward()?;
        let gradients = tensors::gradients(&self.model, &mut self.inputs, &mut gradients)?;
        Ok((value, gradients))
    }
}

/// The result of [`gradient_check`].
#[derive(Clone, Debug, PartialEq)]
pub struct GradientReport {
    /// The loss.
    pub loss: f64,
    /// The inputs, then the parameters in the order of the model.
    pub tensors: Vec<TensorGradient>,
}

/// The gradient of a parameter or an input.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorGradient {
    /// The name under which dfdx saves the parameter, or the [name of the input](Inputs).
    pub name: String,
    /// The sizes of its axes.
    pub dims: Vec<usize>,
    /// The number of comparisons.
    pub checked: usize,
    /// The largest difference, relative to the allowed one. `None` for an empty tensor.
    pub largest: Option<GradientDifference>,
}

/// A gradient and the slope of the loss.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientDifference {
    /// The index of the element. `None` is the direction along which all elements are moved.
    pub index: Option<Vec<usize>>,
    /// The gradient of the backward pass.
    pub gradient: f64,
    /// The slope from differences.
    pub slope: f64,
    /// The allowed difference of the two.
    pub allowed: f64,
}

impl GradientDifference {
    /// Whether the gradient is that of the loss. NaN is not.
    pub fn is_right(&self) -> bool {
        (self.gradient - self.slope).abs() <= self.allowed
    }

    /// The difference, relative to the allowed one.
    fn share(&self) -> f64 {
        // A positive NaN is larger than every number in `total_cmp`.
        ((self.gradient - self.slope) / self.allowed).abs()
    }
}

impl GradientReport {
    /// Whether all gradients are those of the loss.
    pub fn is_right(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// The tensors with a wrong gradient.
    pub fn wrong(&self) -> impl Iterator<Item = (&TensorGradient, &GradientDifference)> {
        self.largest().filter(|(_, at)| !at.is_right())
    }

    /// The tensor with the largest difference of all, relative to the allowed one.
    pub fn worst(&self) -> Option<(&TensorGradient, &GradientDifference)> {
        self.largest()
            .max_by(|(_, a), (_, b)| a.share().total_cmp(&b.share()))
    }

    fn largest(&self) -> impl Iterator<Item = (&TensorGradient, &GradientDifference)> {
        let tensors = self.tensors.iter();
        tensors.filter_map(|tensor| Some((tensor, tensor.largest.as_ref()?)))
    }
}

/// A line for each wrong gradient, or for each tensor if all are right.
impl Display for GradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_right = self.is_right();
        for (tensor, at) in self.largest() {
            if is_right {
                let TensorGradient { name, checked, .. } = tensor;
                let difference = (at.gradient - at.slope).abs();
                writeln!(
                    f,
                    "{name}: {checked} compared, {difference:.1e} at most, {:.1e} allowed",
                    at.allowed
                )?;
            } else if !at.is_right() {
                let place = match &at.index {
                    Some(index) => element(&tensor.name, index),
                    None => format!("all elements of `{}` along a direction", tensor.name),
                };
                let GradientDifference {
                    gradient,
                    slope,
                    allowed,
                    ..
                } = at;
                writeln!(
                    f,
                    "the gradient of {place} is {gradient}, but the loss has the slope {slope} ± {allowed:.1e}{}",
                    hint(*gradient, *slope)
                )?;
            }
        }
        Ok(())
    }
}

/// What is probably the mistake.
fn hint(gradient: f64, slope: f64) -> String {
    if gradient == 0.0 {
        return ": nothing on the tape reads it, or a derivative is missing".into();
    }
    let ratio = gradient / slope;
    let near = |of: f64| (ratio / of - 1.0).abs() < 1e-4;
    match [2.0, 0.5, -1.0, 3.0, 4.0, 0.25]
        .into_iter()
        .find(|of| near(*of))
    {
        Some(of) => format!(": {of} times as much"),
        None => String::new(),
    }
}

/// The errors of [`gradient_check`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GradientCheckError<Dev> {
    /// Some gradients are not the slopes of the loss.
    #[error("{0}")]
    Wrong(GradientReport),

    /// The loss is infinite or NaN.
    #[error("the loss is {loss}, which has no slope")]
    NotFinite {
        /// The loss.
        loss: f64,
    },

    /// The loss is random, for example because of dropout.
    #[error(
        "the loss is {first}, and then {second} for the same inputs: it must not be random, as with dropout in `forward_mut`"
    )]
    NotDeterministic {
        /// The loss.
        first: f64,
        /// The same a second time.
        second: f64,
    },

    /// There is no parameter, and no input of floats.
    #[error("there is no parameter, and no input of floats, whose gradient could be checked")]
    NothingToCheck,

    /// dfdx failed, for example for lack of memory.
    #[error("{0}")]
    Device(Dev),
}

impl<Dev> From<Dev> for GradientCheckError<Dev> {
    fn from(error: Dev) -> Self {
        Self::Device(error)
    }
}
