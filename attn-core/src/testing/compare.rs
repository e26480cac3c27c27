//! Results and gradients of two modules.

use std::fmt::{Debug, Display};

use dfdx::{
    nn::{Module, TensorCollection},
    tensor_ops::Backward,
};

use super::{
    Inputs, Results,
    comparison::{ComparedTensor, Comparison, Tolerance},
    results::{ALONE, Found},
    tensors::{self, NamedTensor},
};
use crate::{Backend, Element};

/// Compares two modules: their results for the same inputs, and the gradients of the inputs and of all parameters.
///
/// Both compute with the parameters of the first, which the second gets in a copy of its own. Parameters belong together by name if both
/// have the same names, otherwise by their order; [`Compare::renamed`] tells other names. The gradients are those of a sum of all results,
/// each times a fixed random factor.
///
/// ```
/// use attn::{dfdx::{nn::builders, prelude::*}, nn, testing::compare};
///
/// let dev = Cpu::default();
/// let ours = dev.build_module::<(nn::Linear<3, 4>, nn::GeluTanh), f32>();
/// let theirs = dev.build_module::<(builders::Linear<3, 4>, builders::FastGeLU), f32>();
/// let x: Tensor<Rank2<5, 3>, f32, _> = dev.sample_normal();
/// let report = compare(&ours, &theirs, x)?;
/// let names: Vec<_> = report.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
/// assert_eq!(names, ["the result", "the gradient of the input", "the gradient of 0.weight", "the gradient of 0.bias"]);
/// # Ok::<(), attn::testing::CompareError<CpuError>>(())
/// ```
///
/// Numbers are close as [`Tolerance`] says. PyTorch: `torch.testing.assert_close` of all of these.
///
/// # Errors
/// [`CompareError`].
#[doc(alias("allclose", "assert_close"))]
pub fn compare<A, B, I, E, D>(
    declared: &A,
    by_hand: &B,
    inputs: I,
) -> Result<Comparison, CompareError<D::Err>>
where
    A: TensorCollection<E, D> + Module<I::Traced, Output: Results<E, D>>,
    B: TensorCollection<E, D> + Module<I::Traced, Output: Results<E, D>> + Clone,
    I: Inputs<E, D>,
    E: Element,
    D: Backend<E>,
{
    Compare::default().run(declared, by_hand, inputs)
}

/// [`compare`] for tests.
///
/// # Panics
/// If the modules differ, with the report, and for the other errors.
#[track_caller]
pub fn assert_same<A, B, I, E, D>(declared: &A, by_hand: &B, inputs: I)
where
    A: TensorCollection<E, D> + Module<I::Traced, Output: Results<E, D>>,
    B: TensorCollection<E, D> + Module<I::Traced, Output: Results<E, D>> + Clone,
    I: Inputs<E, D>,
    E: Element,
    D: Backend<E>,
    D::Err: Display,
{
    if let Err(error) = compare(declared, by_hand, inputs) {
        panic!("{error}");
    }
}

/// The settings of [`compare`].
///
/// ```
/// use attn::{dfdx::prelude::*, model, nn, testing::{Compare, Tolerance}};
///
/// model! {
///     struct Net<width = 3>;
///
///     fn forward(x: [batch, width]) -> [batch, 2] {
///         linear::<2, name = skip>(x) + linear::<2, name = last>(relu(linear::<8, name = first>(x)))
///     }
/// }
///
/// type ByHand = SplitInto<((nn::Linear<3, 8>, ReLU, nn::Linear<8, 2>), nn::Linear<3, 2>)>;
/// let dev = Cpu::default();
/// let net = dev.build_module::<Net, f64>();
/// let by_hand = dev.build_module::<ByHand, f64>();
/// let sum = |by_hand: &<ByHand as BuildOnDevice<Cpu, f64>>::Built, x: Tensor<(usize, Const<3>), f64, Cpu, OwnedTape<f64, Cpu>>| {
///     let (deep, skipped) = by_hand.forward(x);
///     deep + skipped
/// };
/// let x: Tensor<(usize, Const<3>), f64, _> = dev.sample_normal_like(&(5, Const));
/// Compare::default()
///     .renamed("first", "0.0.0")
///     .renamed("last", "0.0.2")
///     .renamed("skip", "0.1")
///     .tolerance(Tolerance { rtol: 1e-12, atol: 1e-12 })
///     .functions((&net, |net: &Net<f64, Cpu>, x| net.forward(x)), (&by_hand, sum), x)
///     .unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct Compare {
    tolerance: Option<Tolerance>,
    names: Vec<(String, String)>,
}

impl Compare {
    /// Other tolerances than those of [`Tolerance::of`] the element type.
    pub fn tolerance(mut self, tolerance: Tolerance) -> Self {
        self.tolerance = Some(tolerance);
        self
    }

    /// A parameter of the first module has another name in the second one: a whole name, or a beginning, such as `attention` of
    /// `attention.q_proj.weight`. The longest of several counts. Names without such a rule are the same in both.
    pub fn renamed(mut self, declared: impl Into<String>, by_hand: impl Into<String>) -> Self {
        self.names.push((declared.into(), by_hand.into()));
        self
    }

    /// [`compare`] with these settings.
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn run<A, B, I, E, D>(
        &self,
        declared: &A,
        by_hand: &B,
        inputs: I,
    ) -> Result<Comparison, CompareError<D::Err>>
    where
        A: TensorCollection<E, D> + Module<I::Traced, Output: Results<E, D>>,
        B: TensorCollection<E, D> + Module<I::Traced, Output: Results<E, D>> + Clone,
        I: Inputs<E, D>,
        E: Element,
        D: Backend<E>,
    {
        self.try_functions(
            (declared, |model: &A, inputs| model.try_forward(inputs)),
            (by_hand, |model: &B, inputs| model.try_forward(inputs)),
            inputs,
        )
    }

    /// Compares functions of models, where these are not their `forward`: other functions of a `model!`, the composed form of a layer, or a
    /// formula on the parameters of the very layer that it is compared with. The functions get the inputs with a tape.
    ///
    /// ```
    /// use attn::{dfdx::prelude::*, nn::Linear, testing::Compare};
    ///
    /// type Layer = <Linear<3, 2> as BuildOnDevice<Cpu, f64>>::Built;
    /// let dev = Cpu::default();
    /// let layer: Layer = dev.build_module::<Linear<3, 2>, f64>();
    /// let x: Tensor<Rank2<4, 3>, f64, _> = dev.sample_normal();
    /// let by_hand = |layer: &Layer, x: Tensor<Rank2<4, 3>, f64, Cpu, OwnedTape<f64, Cpu>>| {
    ///     let bias = layer.bias.retaped::<OwnedTape<f64, Cpu>>().broadcast::<Rank2<4, 2>, _>();
    ///     bias + x.matmul(layer.weight.retaped::<OwnedTape<f64, Cpu>>().permute::<Rank2<3, 2>, _>())
    /// };
    /// Compare::default().functions((&layer, |layer: &Layer, x| layer.forward(x)), (&layer, by_hand), x)?;
    /// # Ok::<(), attn::testing::CompareError<CpuError>>(())
    /// ```
    ///
    /// # Errors
    /// [`CompareError`].
    pub fn functions<A, B, I, RA, RB, E, D>(
        &self,
        (declared, f): (&A, impl Fn(&A, I::Traced) -> RA),
        (by_hand, g): (&B, impl Fn(&B, I::Traced) -> RB),
        inputs: I,
    ) -> Result<Comparison, CompareError<D::Err>>
    where
        A: TensorCollection<E, D>,
        B: TensorCollection<E, D> + Clone,
        I: Inputs<E, D>,
        RA: Results<E, D>,
        RB: Results<E, D>,
        E: Element,
        D: Backend<E>,
    {
        type Never = std::convert::Infallible;
        self.try_functions(
            (declared, |model: &A, inputs| {
                Ok::<_, Never>(f(model, inputs))
            }),
            (by_hand, |model: &B, inputs| {
                Ok::<_, Never>(g(model, inputs))
            }),
            inputs,
        )
    }

    fn try_functions<A, B, I, RA, RB, FA, FB, E, D>(
        &self,
        (declared, f): (&A, impl Fn(&A, I::Traced) -> Result<RA, FA>),
        (by_hand, g): (&B, impl Fn(&B, I::Traced) -> Result<RB, FB>),
        inputs: I,
    ) -> Result<Comparison, CompareError<D::Err>>
    where
        A: TensorCollection<E, D>,
        B: TensorCollection<E, D> + Clone,
        I: Inputs<E, D>,
        RA: Results<E, D>,
        RB: Results<E, D>,
        FA: Debug,
        FB: Debug,
        E: Element,
        D: Backend<E>,
    {
        let pairs = self.pairs(
            tensors::parameters(declared)?,
            tensors::parameters(by_hand)?,
        )?;
        let mut by_hand = by_hand.clone();
        tensors::write_parameters(&mut by_hand, |_, id| {
            let pair = pairs.iter().find(|(_, theirs)| theirs.id == id);
            pair.map(|(ours, _)| ours.values.clone())
        })?;
        let mut found = run(declared, f, inputs.try_copied()?)
            .map_err(|error| error.named("the first module"))?;
        let expected =
            run(&by_hand, g, inputs).map_err(|error| error.named("the second module"))?;
        let order = pairs.iter().map(|(_, theirs)| &theirs.name);
        let expected = expected.in_order_of(order);
        found.rename(
            pairs
                .iter()
                .map(|(ours, theirs)| match ours.name == theirs.name {
                    true => ours.name.clone(),
                    false => format!("{} ({})", ours.name, theirs.name),
                }),
        );
        compared(
            found,
            expected,
            self.tolerance.unwrap_or_else(Tolerance::of::<E>),
        )
    }

    /// The parameters that belong together.
    fn pairs<E: Element, Dev>(
        &self,
        ours: Vec<NamedTensor<E>>,
        mut theirs: Vec<NamedTensor<E>>,
    ) -> Result<Pairs<E>, CompareError<Dev>> {
        let names: Vec<String> = ours
            .iter()
            .map(|tensor| self.name_of(&tensor.name))
            .collect();
        // Two rules may give two parameters one name.
        let is_doubled = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
        let place = |name: &String| theirs.iter().position(|other| other.name == *name);
        let without: Vec<String> = std::iter::zip(&ours, &names)
            .filter(|(_, name)| place(name).is_none() || is_doubled(name))
            .map(|(tensor, _)| tensor.name.clone())
            .collect();
        let others = theirs.iter().map(|tensor| tensor.name.clone());
        let others: Vec<String> = others.filter(|name| !names.contains(name)).collect();
        let by_name = without.is_empty() && others.is_empty();
        if !by_name && (!self.names.is_empty() || ours.len() != theirs.len()) {
            return Err(CompareError::Parameters {
                declared: without,
                by_hand: others,
            });
        }
        if by_name {
            theirs.sort_by_key(|tensor| names.iter().position(|name| *name == tensor.name));
        }
        let pairs: Pairs<E> = std::iter::zip(ours, theirs).collect();
        match pairs.iter().find(|(ours, theirs)| ours.dims != theirs.dims) {
            Some((ours, theirs)) => Err(CompareError::Shapes {
                what: [ours.name.clone(), theirs.name.clone()],
                dims: [ours.dims.clone(), theirs.dims.clone()],
            }),
            None => Ok(pairs),
        }
    }

    /// The name in the second module of a parameter of the first.
    fn name_of(&self, name: &str) -> String {
        let rest = |(from, to): &(String, String)| {
            let rest = name.strip_prefix(from.as_str())?;
            let is_whole = rest.is_empty() || rest.starts_with('.') || from.is_empty();
            is_whole.then(|| (from.len(), format!("{to}{rest}")))
        };
        let renamed = self.names.iter().filter_map(rest);
        renamed
            .max_by_key(|(length, _)| *length)
            .map_or(name.into(), |(_, renamed)| renamed)
    }
}

type Pairs<E> = Vec<(NamedTensor<E>, NamedTensor<E>)>;

/// What a module computed.
struct Ran {
    results: Vec<Found>,
    inputs: Vec<Found>,
    parameters: Vec<Found>,
}

impl Ran {
    /// Sorts the parameters as these names are.
    fn in_order_of<'a>(mut self, names: impl Iterator<Item = &'a String>) -> Self {
        let names: Vec<_> = names.collect();
        let place = |found: &Found| names.iter().position(|name| **name == found.name);
        self.parameters.sort_by_key(place);
        self
    }

    fn rename(&mut self, names: impl Iterator<Item = String>) {
        for (found, name) in self.parameters.iter_mut().zip(names) {
            found.name = name;
        }
    }

    /// All numbers in the order of the report, with the names there.
    fn all(self) -> impl Iterator<Item = Found> {
        let gradients = self.inputs.into_iter().chain(self.parameters);
        let gradients = gradients.map(|found| Found {
            name: format!("the gradient of {}", found.name),
            ..found
        });
        self.results.into_iter().chain(gradients)
    }
}

/// Why a module did not run.
enum Refused<Dev> {
    Module(String),
    Device(Dev),
}

impl<Dev> From<Dev> for Refused<Dev> {
    fn from(error: Dev) -> Self {
        Self::Device(error)
    }
}

impl<Dev> Refused<Dev> {
    fn named(self, which: &'static str) -> CompareError<Dev> {
        match self {
            Self::Module(error) => CompareError::Refused { which, error },
            Self::Device(error) => CompareError::Device(error),
        }
    }
}

/// Runs a module forwards and backwards.
fn run<M, I, R, F, E, D>(
    model: &M,
    f: impl Fn(&M, I::Traced) -> Result<R, F>,
    mut inputs: I,
) -> Result<Ran, Refused<D::Err>>
where
    M: TensorCollection<E, D>,
    I: Inputs<E, D>,
    R: Results<E, D>,
    F: Debug,
    E: Element,
    D: Backend<E>,
{
    inputs = inputs.try_copied()?;
    let returned = f(model, inputs.clone().into_traced());
    let returned = returned.map_err(|error| Refused::Module(format!("{error:?}")))?;
    let mut results = Vec::new();
    let loss = returned.loss(ALONE, &mut results)?;
    let mut gradients = loss.try_backward()?;
    let mut named = tensors::inputs(&mut inputs)?;
    let count = named.len();
    named.extend(tensors::parameters(model)?);
    let gradients = tensors::gradients(model, &mut inputs, &mut gradients)?;
    let found = std::iter::zip(named, gradients).map(|(tensor, gradient)| Found {
        name: tensor.name,
        dims: tensor.dims,
        values: gradient.into_iter().map(Into::into).collect(),
    });
    let mut inputs: Vec<Found> = found.collect();
    let parameters = inputs.split_off(count);
    Ok(Ran {
        results,
        inputs,
        parameters,
    })
}

/// Compares what two modules computed.
fn compared<Dev>(
    found: Ran,
    expected: Ran,
    tolerance: Tolerance,
) -> Result<Comparison, CompareError<Dev>> {
    let counts = [found.results.len(), expected.results.len()];
    if counts[0] != counts[1] {
        return Err(CompareError::Results { counts });
    }
    let mut tensors = Vec::new();
    for (found, expected) in found.all().zip(expected.all()) {
        if found.dims != expected.dims {
            return Err(CompareError::Shapes {
                what: [found.name, expected.name],
                dims: [found.dims, expected.dims],
            });
        }
        tensors.push(ComparedTensor::of(found, &expected.values, tolerance));
    }
    let comparison = Comparison { tensors };
    match comparison.is_same() {
        true => Ok(comparison),
        false => Err(CompareError::Different(comparison)),
    }
}

/// The errors of [`compare`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError<Dev> {
    /// A result or a gradient differs.
    #[error("{0}")]
    Different(Comparison),

    /// It is not known which parameters belong together: these have no counterpart in the other module.
    #[error(
        "it is not known which parameters belong together: {} of the first module and {} of the second have no counterpart; `Compare::renamed` gives names",
        listed(declared),
        listed(by_hand)
    )]
    Parameters {
        /// Those of the first module.
        declared: Vec<String>,
        /// Those of the second module.
        by_hand: Vec<String>,
    },

    /// Two parameters or results that belong together have different shapes.
    #[error("`{}` has the shape {:?}, but `{}` of the second module {:?}", what[0], dims[0], what[1], dims[1])]
    Shapes {
        /// The names.
        what: [String; 2],
        /// The sizes of their axes.
        dims: [Vec<usize>; 2],
    },

    /// The modules have different numbers of results.
    #[error("the first module has {} results, the second one {}", counts[0], counts[1])]
    Results {
        /// The numbers.
        counts: [usize; 2],
    },

    /// A module returned an error.
    #[error("{which} returned an error: {error}")]
    Refused {
        /// Which of the two.
        which: &'static str,
        /// The error.
        error: String,
    },

    /// dfdx failed, for example for lack of memory.
    #[error("{0}")]
    Device(Dev),
}

impl<Dev> From<Dev> for CompareError<Dev> {
    fn from(error: Dev) -> Self {
        Self::Device(error)
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".into();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}
